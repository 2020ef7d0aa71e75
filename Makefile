# Builds, tests and installs mgpulua. `make help` lists the targets, `V=1` shows the commands.
#
# Objects go to build/<hash of the compiler and its flags>/, products to build/ (those of the
# sanitizer builds stay beside their objects), so that changing a flag never mixes two builds. The rules for tests, and
# for checking the sources, are in tests/rules.mk.

# ---- settings ------------------------------------------------------------------------------------

PREFIX  ?= /usr/local
DESTDIR ?=
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
CFLAGS   = -O3 -g
WERROR  ?=
MODE     = release
CUDA    ?= /usr/local/cuda
# The packages that `make deps` installs; `make lint` and `make fuzz` need LINT_PACKAGES besides.
PACKAGES = gcc libc6-dev libluajit-5.1-dev luajit libjansson-dev zlib1g-dev libxxhash-dev libdnnl-dev \
           libcurl4-openssl-dev libssl-dev libhdf5-dev libpng-dev libjpeg-dev libgif-dev \
           libwebp-dev libmicrohttpd-dev libucx-dev libcmocka-dev \
           dataset-fashion-mnist lua-argparse
# Some tests are skipped without these.
TEST_PACKAGES = zsh groff openmpi-bin libopenmpi-dev mpich libmpich-dev iproute2 slurm-wlm munge chromium
LINT_PACKAGES = clang clang-format cppcheck lua-check

MODE_release = -DNDEBUG
MODE_debug   = -O1
MODE_asan    = -O1 -fsanitize=address,undefined -fno-omit-frame-pointer -DMG_ASAN
MODE_ubsan   = -O1 -fsanitize=undefined -fno-sanitize-recover=undefined
MODE_tsan    = -O1 -fsanitize=thread
MODE_cover   = -O0 --coverage
MODE_fuzz    = -O1 -fsanitize=address,undefined,fuzzer-no-link
MODE_count   = -DNDEBUG

# Protections against the exploitation of memory errors; tests/hardening.lua checks that the built files have them.
# Sanitizer builds have checks of their own.
HARDEN = $(if $(filter release debug,$(MODE)),-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
LOCK   = -Wl,-z,relro,-z,now,-z,noexecstack

WARN  = -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes $(WERROR)
# No contraction to fused multiply-adds, so that the same expression gives the same bits wherever it stands, with every
# compiler. The loops of the cpu device ask for fused multiply-adds by name: runtime/device/cpu/simd/fma.h.
FLAGS = -std=gnu11 $(CFLAGS) $(MODE_$(MODE)) $(HARDEN) -fPIC -fno-math-errno -ffp-contract=off $(WARN) \
        -Iruntime
OPENMP = -fopenmp -fno-trapping-math $(OPENMP_$(MODE))
OPENMP_count = -fsanitize-coverage=trace-pc# calls that tests/bench/team_simulator.c counts
LUA   = $(firstword $(wildcard /usr/include/luajit-2.1 /usr/local/include/luajit-2.1))
LUA_A = $(firstword $(wildcard /usr/lib/*/libluajit-5.1.a /usr/local/lib/libluajit-5.1.a))
# Debian keeps several builds of HDF5 side by side.
HDF5_H = $(firstword $(wildcard /usr/include/hdf5/serial /usr/local/include /usr/include))
HDF5   = $(if $(filter %/serial,$(HDF5_H)),-lhdf5_serial_hl -lhdf5_serial,-lhdf5_hl -lhdf5)
JOBS := $(shell nproc 2>/dev/null || echo 2)

# ---- sources and products ------------------------------------------------------------------------

LIB_C   := $(filter-out %_plugin.c,$(wildcard \
           $(addprefix runtime/,core/*.c ops/*.c graph/*.c io/*.c comm/*.c world/*.c data/*.c data/sources/*.c data/transforms/*.c server/*.c device/*.c device/program/*.c)))
BIND_C  := $(wildcard runtime/bind/*.c)
# The kinds of devices that are plug-ins: a folder runtime/device/<kind>/ with a plugin.c each. Its rules.mk, if it has
# one, may add <kind> to SKIP_KINDS where it cannot be built, and set FLAGS_runtime/device/<kind> (compiler flags),
# LIBS_mgpu-<kind>.so (libraries), OBJECTS_<kind> (objects besides those of its *.c and */*.c) and BY_RULE_<kind>
# (sources among these that its own rules compile, or that are left out), and add to LINT_DEFS and LINT_SKIP what
# `make lint` defines and leaves out.
ALL_KINDS := $(patsubst runtime/device/%/plugin.c,%,$(wildcard runtime/device/*/plugin.c))
CUDA_CU := $(wildcard runtime/device/cuda/kernels/*.cu)
FETCH_C := runtime/data/fetch_plugin.c $(wildcard runtime/data/http/*.c)
HTTPD_C := $(wildcard runtime/server/httpd/*.c)
H5_C    := $(wildcard runtime/io/h5_helper/*.c)
GIF_C   := runtime/data/image_codec/gif.c
WEBP_C  := runtime/data/image_codec/webp.c
IMAGE_C := $(filter-out $(GIF_C) $(WEBP_C),$(wildcard runtime/data/image_codec/*.c))
NCCL_C  := $(wildcard runtime/comm/nccl/*.c)
MAIN_C  := runtime/main.c $(wildcard runtime/program/*.c runtime/program/attach/*.c runtime/program/launcher/*.c \
           runtime/prompt/*.c)

HASH := $(shell echo '$(CC) $(FLAGS) $(OPENMP)' $$($(CC) -dumpfullversion 2>/dev/null) | md5sum | cut -c1-8)
B    := build/$(HASH)
RESULTS := $(or $(OUT),build)# the folder for logs of gpu-check and gpu-bench; $$OUT may name another
OUT  := $(if $(filter release,$(MODE)),build,$B)
obj   = $(patsubst %.c,$B/%.o,$1)
PROGRAM  = $(OUT)/mgpulua

# ---- what this machine has: each line is a probe, compiled and linked ----------------------------

ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(JOBS)
endif
ifneq ($(filter-out deps mnist fresh clean help uninstall format size error-sites gpu-first gpu-again gpu-preflight gpu-check gpu-sanitize gpu-bench,$(or $(MAKECMDGOALS),all)),)
$(if $(MAKE_RESTARTS),,$(shell grep -qs MISSING build/found.mk && rm -f build/found.mk)) # probe again if a library was missing
-include build/found.mk
ifneq ($(filter luajit jansson zlib xxhash,$(MISSING)),)
$(error a required library is missing (see above): run `make deps`)
endif
endif
HAVE_cuda := $(and $(wildcard $(CUDA)/bin/nvcc),$(wildcard $(CUDA)/include/cudnn.h /usr/include/cudnn.h),\
  $(wildcard $(CUDA)/include/nccl.h /usr/include/nccl.h))

HAVE_image := $(and $(HAVE_png),$(HAVE_jpeg))

# $(call probe,NAME,header,function,link flags,package,what it is for)
define probe
@printf '%s\n' '#include <stdarg.h>' '#include <stddef.h>' '#include <setjmp.h>' \
  '#include <stdint.h>' '#include <stdio.h>' '#include <$2>' 'int main(void) { return $3 == 0; }' >build/probe.c; \
if $(CC) $(if $(LUA),-I$(LUA)) -w build/probe.c -o build/probe $4 2>build/probe.log; \
then printf '  ✓ %-8s %s\n' $1 '$6'; echo 'HAVE_$1 = yes' >>$@.new; \
else printf '  ✗ %-8s %s: apt-get install %s\n' $1 '$6' '$5'; echo 'MISSING += $1' >>$@.new; fi
endef

build/found.mk: Makefile
	@mkdir -p build; rm -f $@.new
	$(call probe,luajit,lauxlib.h,luaL_newstate,-pie -fPIE $(LUA_A) -lm -ldl,libluajit-5.1-dev,the Lua inside (required))
	$(call probe,jansson,jansson.h,json_loads,-ljansson,libjansson-dev,JSON in model files (required))
	$(call probe,zlib,zlib.h,inflate,-lz,zlib1g-dev,gzip data files (required))
	$(call probe,xxhash,xxhash.h,XXH3_64bits,-lxxhash,libxxhash-dev,checksums of files (required))
	$(call probe,static,jansson.h,json_loads,-l:libjansson.a -l:libz.a -l:libgomp.a,libjansson-dev zlib1g-dev,programs of one file: mgpulua --pack)
	$(call probe,dnnl,oneapi/dnnl/dnnl.h,dnnl_convolution_forward_desc_init,-ldnnl,libdnnl-dev,kernels of oneDNN 2 (not 3) for the cpu device)
	$(call probe,curl,curl/curl.h,curl_easy_init,-lcurl,libcurl4-openssl-dev,downloads)
	$(call probe,crypto,openssl/evp.h,EVP_sha256,-lcrypto,libssl-dev,checksums of downloads)
	$(call probe,hdf5,hdf5_hl.h,H5LTopen_file_image,-I$(HDF5_H) $(HDF5),libhdf5-dev,the .h5 and .keras files of Keras)
	$(call probe,png,png.h,png_create_read_struct,-lpng,libpng-dev,PNG images)
	$(call probe,jpeg,jpeglib.h,jpeg_crop_scanline,-ljpeg,libjpeg-dev,JPEG images)
	$(call probe,gif,gif_lib.h,DGifOpen,-lgif,libgif-dev,GIF images)
	$(call probe,webp,webp/decode.h,WebPDecode,-lwebp,libwebp-dev,WebP images)
	$(call probe,httpd,microhttpd.h,MHD_start_daemon,-lmicrohttpd,libmicrohttpd-dev,the HTTP server)
	$(call probe,openmpi,mpi.h,MPI_Isend,-I$(OPENMPI_H) $(LIB_openmpi),libopenmpi-dev,many processes by Open MPI)
	$(call probe,mpich,mpi.h,MPI_Isend,-I$(MPICH_H) $(LIB_mpich),libmpich-dev,many processes by MPICH)
	$(call probe,ucx,ucp/api/ucp.h,ucp_init_version,-lucp -lucs,libucx-dev,many processes by UCX)
	$(call probe,cmocka,cmocka.h,_cmocka_run_group_tests,-lcmocka,libcmocka-dev,the tests in C)
	@rm -f build/probe build/probe.c build/probe.log; mv $@.new $@

# ---- building ------------------------------------------------------------------------------------

Q    = $(if $(V),,@)
say  = @printf '  %-5s %s\n' $1 $(or $2,$@)
DEFS = $(if $(filter release debug cover,$(MODE)),-Xlinker -z -Xlinker defs)

KINDS    = $(filter-out $(SKIP_KINDS),$(ALL_KINDS))
PRODUCTS = $(OUT)/libmgpu.so $(OUT)/mgpu/core.so $(OUT)/libmgpu-lua.so $(PROGRAM) \
  $(patsubst %,$(OUT)/mgpu-%.so,$(KINDS)) $(if $(HAVE_cuda),$(OUT)/mgpu-nccl.so) \
  $(if $(and $(HAVE_curl),$(HAVE_crypto)),$(OUT)/mgpu-fetch.so) $(if $(HAVE_hdf5),$(OUT)/mgpu-h5) $(if $(HAVE_httpd),$(OUT)/mgpu-httpd.so) \
  $(if $(HAVE_image),$(OUT)/mgpu-image.so) $(if $(HAVE_gif),$(OUT)/mgpu-gif.so) $(if $(HAVE_webp),$(OUT)/mgpu-webp.so) \
  $(patsubst %,$(OUT)/mgpu-%.so,$(MPI_KINDS)) $(UCX) $(PACK)

.DEFAULT_GOAL = all
.PHONY: all deps mnist doc docs install uninstall clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:

include $(wildcard runtime/device/*/rules.mk runtime/world/*/rules.mk runtime/pack/rules.mk)

all: $(PRODUCTS) ## build everything (the default)
	@$(if $(HAVE_cuda),,echo "CUDA skipped: it wants $(CUDA) with nvcc, cudnn.h and nccl.h")

# Products are linked again when the flags have changed.
$(OUT)/flags: FORCE
	@mkdir -p $(@D); echo $(HASH) | cmp -s - $@ || echo $(HASH) >$@

$B/%.o: %.c | build/found.mk
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$Q$(CC) $(FLAGS) $(FLAGS_$(<D)) $(FLAGS_$<) -MMD -MP -c -o $@ $<
FLAGS_runtime/program      = -I$(LUA)
FLAGS_runtime/program/launcher = -I$(LUA)
FLAGS_runtime/program/attach = -I$(LUA)
FLAGS_runtime/prompt       = -I$(LUA)
FLAGS_runtime/main.c       = -I$(LUA)
FLAGS_runtime/bind         = -I$(LUA)
FLAGS_runtime/device/kinds.c = -DMG_DEVICE_FOLDERS='"$(ALL_KINDS)"'
FLAGS_runtime/data/transforms = -fno-trapping-math # otherwise clamps become branches, not vector code
$B/runtime/device/kinds.o: $B/kinds
$B/kinds: FORCE
	@mkdir -p $(@D); echo '$(ALL_KINDS)' | cmp -s - $@ || echo '$(ALL_KINDS)' >$@
FLAGS_runtime/io/h5_helper = -isystem $(HDF5_H)
FLAGS_runtime/comm/nccl    = -isystem $(CUDA)/include

$(OUT)/libmgpu.so: $(call obj,$(LIB_C)) $(OUT)/flags runtime/mgpu.map
$(OUT)/mgpu/core.so $(OUT)/libmgpu-lua.so: $(call obj,$(BIND_C)) $(OUT)/libmgpu.so runtime/mgpu-lua.map
define kind_rule
$(OUT)/mgpu-$1.so: $(call obj,$(filter-out $(BY_RULE_$1),$(wildcard runtime/device/$1/*.c runtime/device/$1/*/*.c))) \
  $(OBJECTS_$1) $(OUT)/libmgpu.so
endef
$(foreach kind,$(KINDS),$(eval $(call kind_rule,$(kind))))
$(OUT)/mgpu-nccl.so: $(call obj,$(NCCL_C)) $(OUT)/libmgpu.so
$(OUT)/mgpu-fetch.so: $(call obj,$(FETCH_C)) $(OUT)/libmgpu.so
$(OUT)/mgpu-httpd.so: $(call obj,$(HTTPD_C)) $(OUT)/libmgpu.so
$(OUT)/mgpu-image.so: $(call obj,$(IMAGE_C)) $(OUT)/libmgpu.so
$(OUT)/mgpu-gif.so: $(call obj,$(GIF_C)) $(OUT)/libmgpu.so
$(OUT)/mgpu-webp.so: $(call obj,$(WEBP_C)) $(OUT)/libmgpu.so
MAP = -Wl,--no-undefined-version,--version-script
LIBS_libmgpu.so     = $(DEFS) $(MAP)=runtime/mgpu.map -ljansson -lz -lm -ldl -lpthread
LIBS_core.so        = $(MAP)=runtime/mgpu-lua.map -lmgpu -ljansson -lm -Wl,-rpath,'$$ORIGIN/..'
LIBS_libmgpu-lua.so = $(DEFS) $(MAP)=runtime/mgpu-lua.map -lmgpu -ljansson -lm -l:libluajit-5.1.so.2 \
  -Wl,-rpath,'$$ORIGIN'
LIBS_mgpu-nccl.so   = -lpthread
LIBS_mgpu-fetch.so  = -lcurl -lcrypto
LIBS_mgpu-httpd.so  = -lmicrohttpd -lpthread
LIBS_mgpu-image.so  = -lpng -ljpeg
LIBS_mgpu-gif.so    = -lgif
LIBS_mgpu-webp.so   = -lwebp
# The libraries for host programs are files libNAME.so.0, found by the linker through the link libNAME.so. The number
# changes when a program that was built with an older one would no longer run.
ABI_libmgpu.so := .0
ABI_libmgpu-lua.so := .0
comma := ,
PLUGIN_LIBS = $(DEFS) -lmgpu -lm -Wl,-rpath,'$$ORIGIN' # of every mgpu-<name>.so
$(filter %.so,$(PRODUCTS)):
	@mkdir -p $(@D)
	$(call say,link)
	$Q$(CC) $(FLAGS) -shared $(LOCK) -o $@$(ABI_$(@F)) $(filter %.o,$^) -L$(OUT) \
	  $(if $(ABI_$(@F)),-Wl$(comma)-soname$(comma)$(@F)$(ABI_$(@F))) $(if $(filter mgpu-%,$(@F)),$(PLUGIN_LIBS)) $(LIBS_$(@F))
	$(if $(ABI_$(@F)),$Qln -sf $(@F)$(ABI_$(@F)) $@)
# In a coverage build the helper must write its counts at exit, which its sandbox would forbid.
COUNTED_EXIT = $(if $(filter cover,$(MODE)),$B/tests/coverage/counted_exit.o)
$(OUT)/mgpu-h5: $(call obj,$(H5_C)) $(COUNTED_EXIT) $(OUT)/flags
	$(call say,link)
	$Q$(CC) $(FLAGS) -pie $(LOCK) -o $@ $(filter %.o,$^) $(HDF5) $(if $(COUNTED_EXIT),$(COUNT))
COUNT = $(patsubst %,-Wl$(comma)--wrap=%,_exit setrlimit prctl)
# All of LuaJIT, exported, for C modules that the script may load.
$(PROGRAM): $(call obj,$(MAIN_C) $(BIND_C)) $(OUT)/libmgpu.so
	$(call say,link)
	$Q$(CC) $(FLAGS) -pie $(LOCK) -o $@ $(filter %.o,$^) -Wl,--whole-archive $(LUA_A) \
	  -Wl,--no-whole-archive -Wl,-E -L$(OUT) -lmgpu -ljansson -lm -ldl -lpthread \
	  -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib/mgpulua'

-include $(shell find $B -name '*.d' 2>/dev/null)

# ---- set-up --------------------------------------------------------------------------------------

SUDO = $(if $(filter 0,$(shell id -u)),,sudo)

deps: ## install the Debian packages needed to build and test (in CI also those that few tests need)
	@missing=$$(for p in $(PACKAGES) $(if $(CI),$(TEST_PACKAGES)); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null \
	  | grep -q 'ok installed' || echo $$p; done); rm -f build/found.mk; \
	if [ -z "$$missing" ]; then echo 'deps: everything is there'; exit; fi; \
	$(SUDO) apt-get update -q && wanted=$$(for p in $$missing; do case ' $(TEST_PACKAGES) ' in \
	  *" $$p "*) apt-cache show $$p >/dev/null 2>&1 || { echo "deps: no package $$p here: its tests skip" >&2; \
	  continue; };; esac; echo $$p; done) && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$wanted

mnist: ## install what is needed, build, and train on MNIST
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory all
	build/mgpulua examples/train_mnist.lua --model lenet5 --epochs 3
	@echo "The larger network of the notebook: build/mgpulua examples/train_mnist.lua --model mnist_cnn --epochs 12" \
	  "(an epoch takes about $$(build/mgpulua tests/bench/ours.lua --estimate 469) here)"

include tests/rules.mk

# ---- documents, and installing them with the products --------------------------------------------

doc: all ## write the table of all ops, from their rows: build/ops.md
	@$(PROGRAM) tests/manual.lua >build/ops.md && echo build/ops.md
docs: all ## write the reference as HTML, from the docstrings and mgpu.h: build/docs
	@which doxygen >/dev/null || { echo 'docs: needs doxygen (apt-get install doxygen)'; exit 1; }
	@rm -rf build/docs; mkdir -p build/docs/c
	@$(PROGRAM) tests/reference.lua build/docs && doxygen runtime/docs/Doxyfile && echo build/docs/index.html

INSTALL_TO = $(DESTDIR)$(PREFIX)
VERSION = $(shell sed -n 's/^.define MG_VERSION "\(.*\)"/\1/p' runtime/core/version.h)
# The links that a linker finds, and what pkg-config reads: lib/libNAME.so.0 -> mgpulua/libNAME.so.0.
HOST_LIBS = libmgpu.so libmgpu-lua.so
HOST_LINKS = $(foreach l,$(HOST_LIBS),$l $l$(ABI_$l))
install: all ## install to PREFIX (/usr/local), below DESTDIR
	@install -d $(INSTALL_TO)/bin $(INSTALL_TO)/include $(INSTALL_TO)/lib/mgpulua/mgpu $(INSTALL_TO)/lib/pkgconfig \
	  $(INSTALL_TO)/share/mgpulua
	@install -m 755 build/mgpulua $(INSTALL_TO)/bin
	@$(if $(HAVE_hdf5),install -m 755 build/mgpu-h5 $(INSTALL_TO)/lib/mgpulua)
	@install -m 644 runtime/mgpu.h $(INSTALL_TO)/include
	@install -m 644 $(foreach p,$(filter build/%.so,$(filter-out build/mgpu/%,$(PRODUCTS))),$p$(ABI_$(notdir $p))) \
	  $(INSTALL_TO)/lib/mgpulua
	@$(if $(PACK),install -m 755 build/mgpu-pack $(INSTALL_TO)/lib/mgpulua)
	@$(if $(PACK),install -m 644 build/mgpu-pack.o $(INSTALL_TO)/lib/mgpulua)
	@$(foreach p,$(filter build/pack/%,$(PACK_PARTS)),install -D -m 644 $p $(INSTALL_TO)/lib/mgpulua/pack/$(notdir $p);)
	@install -m 644 build/mgpu/core.so $(INSTALL_TO)/lib/mgpulua/mgpu
	@$(foreach l,$(HOST_LIBS),ln -sf mgpulua/$l$(ABI_$l) $(INSTALL_TO)/lib/$l$(ABI_$l); \
	  ln -sf $l$(ABI_$l) $(INSTALL_TO)/lib/$l; \
	  sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' -e 's|@VERSION@|$(VERSION)|' runtime/$(l:lib%.so=%).pc \
	  >$(INSTALL_TO)/lib/pkgconfig/$(l:lib%.so=%).pc;)
	@cp -R lua models examples $(INSTALL_TO)/share/mgpulua
	@install -D -m 644 runtime/program/share/mgpulua.1 $(INSTALL_TO)/share/man/man1/mgpulua.1
	@install -D -m 644 runtime/program/share/mgpulua.bash $(INSTALL_TO)/share/bash-completion/completions/mgpulua
	@install -D -m 644 runtime/program/share/_mgpulua $(INSTALL_TO)/share/zsh/site-functions/_mgpulua
	@install -m 644 README.md LICENSE $(INSTALL_TO)/share/mgpulua
	@$(if $(DESTDIR)$(filter-out /usr /usr/local,$(PREFIX)),,[ $$(id -u) != 0 ] || ldconfig)
	@echo 'installed to $(INSTALL_TO)'
uninstall: ## remove what install put there
	rm -rf $(INSTALL_TO)/lib/mgpulua $(INSTALL_TO)/share/mgpulua
	rm -f $(addprefix $(INSTALL_TO)/,bin/mgpulua include/mgpu.h $(HOST_LINKS:%=lib/%) \
	  $(HOST_LIBS:lib%.so=lib/pkgconfig/%.pc) share/man/man1/mgpulua.1 \
	  share/bash-completion/completions/mgpulua share/zsh/site-functions/_mgpulua)
clean: ## remove everything built
	rm -rf build
help: ## print this list
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

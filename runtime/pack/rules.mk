# What `mgpulua --pack` puts in front of a script: a program that needs no library but glibc's. It is made of the objects
# of libmgpu, of the Lua binding and of the cpu device without oneDNN, and of static libraries. A script is copied with
# it, so it is linked without symbols, and loops that take much code for little speed are compiled again with -O2.

PACK_C     := $(wildcard runtime/pack/*.c)
PACK_MAIN_C = $(filter-out %/embed.c %/openmp_settings.c,$(PACK_C)) $(wildcard \
  runtime/program/*.c runtime/program/attach/*.c runtime/program/launcher/*.c)
# $(call pack_small,SET): those loops. Few processors have nothing wider than the baseline.
pack_small = $(patsubst %,runtime/device/cpu/simd/%,integers.c reals.c $(if $(filter baseline,$1),winograd.c))
PACK_CPU    = $(call obj,$(filter-out $(ONEDNN_C) $(SIMD_C) %/cpu/plugin.c,\
  $(wildcard runtime/device/cpu/*.c runtime/device/cpu/*/*.c))) $B/runtime/device/cpu/plugin.pack.o \
  $(foreach isa,$(ISAS),$(patsubst %.c,$B/%.$(isa).o,$(filter-out $(call pack_small,$(isa)),$(SIMD_C))) \
  $(patsubst %.c,$B/%.$(isa).pack.o,$(call pack_small,$(isa))))
PACK_STATIC = -l:libjansson.a -l:libz.a -l:libgomp.a
PACK        = $(if $(and $(HAVE_static),$(LUA_A),$(filter release debug,$(MODE))),$(OUT)/mgpu-pack)
FLAGS_runtime/pack = -I$(LUA)
LINT_SKIP += examples/embed_static/main.c# includes a header that --pack --c writes

$B/runtime/device/cpu/plugin.pack.o: runtime/device/cpu/plugin.c | build/found.mk
	@mkdir -p $(@D)
	$(call say,cc,'$< (pack)')
	$Q$(CC) $(FLAGS) $(FLAGS_runtime/device/cpu) -UMG_ONEDNN -MMD -MP -c -o $@ $<
# $(call pack_simd_rule,SET)
define pack_simd_rule
$B/runtime/device/cpu/simd/%.$1.pack.o: runtime/device/cpu/simd/%.c | build/found.mk
	@mkdir -p $$(@D)
	$$(call say,cc,'$$< ($1, pack)')
	$$Q$$(CC) $$(FLAGS) $$(FLAGS_runtime/device/cpu) -O2 -ftree-vectorize $$(ISA_$1) -DMG_ISA=$1 -MMD -MP -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call pack_simd_rule,$(isa))))

# Plug-ins that are inside of a packed program find there what libmgpu exports, with its versions, and C modules of Lua
# find LuaJIT.
$B/pack.map: runtime/mgpu.map
	@mkdir -p $(@D); sed 's/^\( *\)mg_\*;/\1mg_*;\n\1lua*;/' $< >$@
$(OUT)/mgpu-pack: $(call obj,$(PACK_MAIN_C) $(LIB_C) $(BIND_C)) $(PACK_CPU) $B/runtime/pack/openmp_settings.o \
  $B/pack.map $(OUT)/flags
	$(call say,link)
	$Q$(CC) $(FLAGS) -s -pie -static-libgcc $(LOCK) -Wl,--gc-sections,--build-id=none,-O1 -o $@ \
	  $(filter-out %/openmp_settings.o,$(filter %.o,$^)) -Wl,--whole-archive $(LUA_A) -Wl,--no-whole-archive \
	  $(PACK_STATIC) $B/runtime/pack/openmp_settings.o -Wl,-E,-soname,libmgpu.so.0,--version-script,$B/pack.map -lm

# The same as one object for C libraries of models: only the names of pack/embed.h can be seen from outside.
$(OUT)/mgpu-pack.o: $(call obj,$(LIB_C) $(BIND_C) $(filter-out %/main.c %/openmp_settings.c,$(PACK_C))) $(PACK_CPU) \
  $B/runtime/pack/openmp_settings.o $(OUT)/flags
	$(call say,link)
	$Q$(CC) -r -nostdlib -o $@.new $(filter-out %/openmp_settings.o,$(filter %.o,$^)) -Wl,--whole-archive $(LUA_A) \
	  -Wl,--no-whole-archive $(PACK_STATIC) $B/runtime/pack/openmp_settings.o
	$Qobjcopy --strip-debug --wildcard --keep-global-symbol='mgpu_model_*' $@.new $@ && rm $@.new

# Plug-ins for images that need no library of the system, where the static libraries are there.
has_static = $(if $(filter-out $(words $1),$(words $(foreach l,$1,$(firstword $(wildcard $(addsuffix /$l,$(STATIC_FOLDERS))))))),,yes)
STATIC_FOLDERS := $(wildcard /usr/lib/*-linux-gnu /usr/local/lib)
A_image = libpng.a libjpeg.a libz.a
A_gif   = libgif.a
A_webp  = libwebp.a
PACK_IMAGES = $(if $(PACK),$(foreach k,image gif webp,$(if $(and $(HAVE_$k),$(call has_static,$(A_$k))),$k)))
$(OUT)/pack/mgpu-image.so: $(call obj,$(IMAGE_C))
$(OUT)/pack/mgpu-gif.so: $(call obj,$(GIF_C))
$(OUT)/pack/mgpu-webp.so: $(call obj,$(WEBP_C))
$(patsubst %,$(OUT)/pack/mgpu-%.so,image gif webp): $B/runtime/pack/plugins/stderr.o $(OUT)/libmgpu.so $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,link)
	$Q$(CC) -r -nostdlib -o $@.o $(filter-out %/stderr.o,$(filter %.o,$^)) $(patsubst %,-l:%,$(A_$(patsubst mgpu-%.so,%,$(@F))))
	$Qobjcopy --redefine-sym stderr=mg_pack_stderr --wildcard --keep-global-symbol='mg_*' $@.o
	$Q$(CC) $(FLAGS) -s -shared $(LOCK) -o $@ $@.o $B/runtime/pack/plugins/stderr.o -L$(OUT) $(DEFS) -lmgpu -lm && rm $@.o
PACK_PARTS = $(if $(PACK),$(OUT)/mgpu-pack.o) $(PACK_IMAGES:%=$(OUT)/pack/mgpu-%.so)# besides PRODUCTS
all: $(PACK_PARTS)

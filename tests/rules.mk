# The tests (programs in C, specs in Lua, fuzz targets), the targets that run them, and those that check the sources.

.PHONY: test test-all test-fast test-joff error-sites fresh fault asan ubsan tsan memcheck cover cover-run fuzz \
        fuzz-run reliability bench lint format size

TEST_C  := $(wildcard tests/c/test_*.c)
JPEG_TESTS := $(shell grep -l '"jpeg_files.h"' $(TEST_C))# they make files with libjpeg
H5_TESTS := $(shell grep -l 'hdf5.h>\|h5_helper' $(TEST_C))# with libhdf5
FUZZ_C   = $(filter-out $(foreach f,image gif webp,$(if $(HAVE_$f),,%/fuzz_$f.c)),$(wildcard tests/fuzz/fuzz_*.c))
SPECS   := $(wildcard tests/lua/*_spec.lua tests/lua/*/*_spec.lua tests/ops/*_spec.lua tests/cuda/*_spec.lua)
C_TESTS  = $(if $(HAVE_cmocka),$(patsubst %.c,$B/%,\
  $(filter-out $(if $(HAVE_cuda),,tests/c/test_cuda_%) $(if $(HAVE_image),,$(JPEG_TESTS)) \
  $(if $(HAVE_hdf5),,$(H5_TESTS)),$(TEST_C))))

# ---- building ------------------------------------------------------------------------------------

# Some tests look into a plug-in.
cuda = $(patsubst %,$B/runtime/device/cuda/%.o,$1)
$B/tests/c/test_cpu_loops $B/tests/c/test_cpu_tiles: $(OBJECTS_cpu) $B/runtime/device/cpu/isa.o
$B/tests/c/test_cuda_cache: $(call cuda,codegen/cache)
$B/tests/c/test_cuda_source: $(call cuda,$(addprefix codegen/,source nvrtc cache))
$B/tests/c/test_cuda_compile_ahead: $(call cuda,$(addprefix codegen/,compile_ahead nvrtc cache))
$B/tests/c/test_cuda_dnn_plans: $(call cuda,$(addprefix cudnn/,cudnn conv_graph conv_plan))
FLAGS_tests/c/test_cuda_dnn_plans.c = -isystem $(CUDA)/include -DSTUBS='"$(CUDA)/lib64/stubs"'
$(JPEG_TESTS:%.c=$B/%): TEST_LIBS = -ljpeg
$(H5_TESTS:%.c=$B/%): TEST_LIBS = $(HDF5)
$B/tests/c/test_h5_files: $B/runtime/io/h5_helper/sandbox.o
$B/tests/c/test_attach_record: $B/runtime/program/attach/record.o
$B/tests/c/test_attach_visitors: $(patsubst %,$B/runtime/program/attach/%.o,record visitors)
FLAGS_tests/c/test_attach_visitors.c = -I$(LUA)
$(foreach t,$(H5_TESTS),$(eval FLAGS_$t = -isystem $$(HDF5_H)))
$B/tests/c/%: $B/tests/c/%.o $(OUT)/libmgpu.so
	$(call say,link)
	$Q$(CC) $(FLAGS) -o $@ $(filter %.o,$^) -L$(OUT) -lmgpu -lcmocka -ljansson -lz -lm $(TEST_LIBS) \
	  -Wl,-rpath,$(abspath $(OUT))
$B/tests/fuzz/fuzz_image: $(call obj,$(IMAGE_C))
LIBS_fuzz_image = $(LIBS_mgpu-image.so)
$B/tests/fuzz/fuzz_gif: $(call obj,$(GIF_C))
LIBS_fuzz_gif = $(LIBS_mgpu-gif.so)
$B/tests/fuzz/fuzz_webp: $(call obj,$(WEBP_C))
LIBS_fuzz_webp = $(LIBS_mgpu-webp.so)
$B/tests/fuzz/fuzz_attach: $B/runtime/program/attach/record.o
# The targets whose reader is Lua.
$B/tests/fuzz/fuzz_model_json $B/tests/fuzz/fuzz_serve: $(call obj,$(BIND_C))
LIBS_fuzz_model_json = $(LUA_A)
LIBS_fuzz_serve = $(LUA_A)
FLAGS_tests/fuzz/fuzz_model_json.c = -I$(LUA)
FLAGS_tests/fuzz/fuzz_serve.c = -I$(LUA)
$B/tests/fuzz/%: $B/tests/fuzz/%.o $(call obj,$(LIB_C))
	$(call say,link)
	$Q$(CC) $(FLAGS) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(LIBS_$(@F)) -ljansson -lz -lm -ldl -lpthread

include tests/cuda/fake_cuda/rules.mk tests/cuda/rules.mk

# ---- running -------------------------------------------------------------------------------------

# ThreadSanitizer does not see libgomp's barriers, since libgomp is not instrumented. LLVM's libomp has the same entry
# points, so it can take libgomp's place, and its tool Archer reports them to the sanitizer.
ARCHER  = $(or $(lastword $(wildcard /usr/lib/llvm-*/lib/libarcher.so)),\
  $(error MODE=tsan needs libarcher.so: apt-get install libomp-dev))
OMP_ENV = $(if $(filter tsan,$(MODE)),LD_PRELOAD=$(dir $(ARCHER))libomp.so.5 OMP_TOOL_LIBRARIES=$(ARCHER))
RUN = $(OMP_ENV) $(PROGRAM) tests/run.lua --jobs $(JOBS)
# backwards_spec repeats the specs in FORWARDS with threads and blocks in descending order, which shows races. It is the
# longest, so it runs as eight processes: 112 s of processor time in all, and 328 s in a single one (on a busy machine).
FORWARDS  = $(patsubst %,tests/cuda/%_spec.lua,ops generated conv matmul sums)
BACKWARDS = tests/cuda/backwards_spec.lua
ALL_TESTS = $(C_TESTS) $(foreach k,1 2 3 4 5 6 7 8,$(BACKWARDS):$k/8) $(filter-out $(BACKWARDS),$(SPECS))
TESTS     = $(filter-out $(FORWARDS),$(ALL_TESTS))
test: all $(C_TESTS) ## build and run the tests, without the ops in ascending order on the fake GPU (test-all)
	@$(RUN) $(TESTS)
test-all: all $(C_TESTS) ## build and run all tests, as CI does
	@$(RUN) $(ALL_TESTS)
test-fast: all $(C_TESTS) ## build and run the tests without the slow ones
	@MGPU_TEST_FAST=1 $(RUN) $(ALL_TESTS)
test-joff: all ## run the Lua tests with LuaJIT's compiler off
	@$(RUN) --lua "$(PROGRAM) -joff" $(SPECS)
# The fast tests, without specs that repeat what others compute: on another device, with another instruction set, or
# with an installed copy, which they build first.
REPEATING = $(patsubst %,tests/lua/%_spec.lua,isa install packaging train_mnist jit/fused_threaded) $(patsubst \
  %,tests/cuda/%_spec.lua,backwards flow fold_norm layers mixed moments multi_tensor ops optimizers sums training zoo)
error-sites: ## prove that tests trigger every error text; TESTS="FILE..." adds what these reach
	@RESET=$(if $(filter file,$(origin TESTS)),1) luajit tests/error_sites/run.lua copy
	@MGPU_TEST_FAST=1 $(MAKE) --no-print-directory -C build/error_sites/tree test $(if $(filter file,$(origin TESTS)),\
	  TESTS='$$(C_TESTS) $(filter-out $(REPEATING),$(SPECS))'); luajit tests/error_sites/run.lua report $$?
SUITE = bookworm
fresh: ## run make mnist and make test on a fresh system of SUITE (trixie ...), as root, with mmdebstrap
	@tests/fresh_machine.sh $(SUITE) $(if $(filter command line,$(origin CC)),$(CC))
fault: all $(C_TESTS) ## run the C tests, among them those in which memory, files or devices fail
	@$(RUN) $(C_TESTS)

# Lua's own memory comes from malloc in these builds (MG_ASAN, MGPU_MALLOC), so it is checked too.
SANITIZED = MGPU_MALLOC=1 MGPU_TEST_FAST=1 UBSAN_OPTIONS=print_stacktrace=1 \
  ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:allocator_may_return_null=1 \
  LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0:use_tls=0 \
  TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp:ignore_noninstrumented_modules=1
asan ubsan tsan: ## run the fast tests, built with that sanitizer (asan: address, undefined, leaks)
	@$(SANITIZED) $(MAKE) --no-print-directory MODE=$@ test-all
# The baseline, because valgrind does not know AVX-512; without LuaJIT's compiler, whose code it does not understand.
MEMCHECK = MGPU_ISA=baseline MGPU_THREADS=1 $(RUN) --timeout 7200 --lua \
  "valgrind -q --error-exitcode=9 --suppressions=$(CURDIR)/tests/memcheck.supp $(PROGRAM) -joff"
memcheck: all ## run the op rows, or TESTS="FILE...", under valgrind for reads of unset memory: 9 minutes of a core
	@which valgrind >/dev/null || { echo 'memcheck: needs valgrind (apt-get install valgrind)'; exit 1; }
	@$(MEMCHECK) $(if $(filter file,$(origin TESTS)),$(foreach k,1 2 3 4 5 6 7 8,tests/ops/ops_spec.lua:$k/8),$(TESTS))
# The tests of code that reads files, archives and answers of other processes, without slow tests and those for a GPU.
READING = $(filter-out $B/tests/c/test_cuda_% $B/tests/cuda/%,$(C_TESTS)) $(wildcard $(patsubst \
  %,tests/lua/%_spec.lua,files/* data/* errors/* nn/save_load nn/keras_files nn/keras_config train/resume \
  train/model_checkpoint program))
cover: ## check that the tests run enough lines and branches of the parsers
	@MGPU_TEST_FAST=1 $(MAKE) --no-print-directory MODE=cover SKIP_KINDS=cuda cover-run
FUZZ_SECONDS = 20
fuzz: all ## run wrong calls, cpu against ref on random cases, then each fuzz target, for FUZZ_SECONDS each
	@$(PROGRAM) tests/fuzz/wrong_calls.lua $(FUZZ_SECONDS)
	@$(PROGRAM) tests/fuzz/devices.lua $(FUZZ_SECONDS)
	@$(MAKE) --no-print-directory MODE=fuzz CC=clang fuzz-run
fuzz-run: $(patsubst %.c,$B/%,$(FUZZ_C))
	@export ASAN_OPTIONS=quarantine_size_mb=16:detect_leaks=1; for f in $^; do echo "  fuzz $$f"; n=$${f##*/fuzz_}; \
	  mkdir -p build/corpus/$$n; $$f build/corpus/$$n $$(ls -d tests/fuzz/corpus/$$n 2>/dev/null) -verbosity=0 \
	  -max_total_time=$(FUZZ_SECONDS) -timeout=1 -rss_limit_mb=256 -artifact_prefix=build/ -print_final_stats=1 \
	  || exit 1; done
cover-run: COVERED = $(if $(filter file,$(origin TESTS)),$(READING),$(TESTS))
cover-run: all $(filter $B/tests/c/%,$(READING))
	$(if $(filter file,$(origin TESTS)),@find $B -name '*.gcda' -delete)
	-@$(RUN) $(COVERED)
	@luajit tests/coverage/report.lua $B
reliability: all ## run long checks of what must never happen: build/reliability.md
	@$(PROGRAM) tests/reliability/run.lua $(and $(SCALE),--scale $(SCALE))
bench: all ## measure speed in comparison with other frameworks
	@$(PROGRAM) tests/bench/run.lua
	@$(PROGRAM) tests/bench/layers.lua
	@$(PROGRAM) tests/bench/convs.lua
	@$(PROGRAM) tests/bench/fit_loop.lua
	@$(PROGRAM) tests/bench/small_calls.lua
	@$(PROGRAM) tests/bench/checkpoint.lua
	@$(PROGRAM) tests/bench/data.lua
	@$(PROGRAM) tests/bench/transports.lua
	@$(PROGRAM) tests/bench/world.lua

# ---- the sources ---------------------------------------------------------------------------------

C_FILES  = $(shell find runtime examples tests/c tests/coverage tests/fuzz tests/cuda tests/toy_device tests/world -name "*.[ch]")
LUA_FILES = $(shell find lua models examples tests -name '*.lua' -not -path 'tests/golden/*')# those there are data
LINT_C   = $(filter-out $(foreach kind,$(SKIP_KINDS),runtime/device/$(kind)/%) $(LINT_SKIP) \
           $(if $(HAVE_cuda),%/cuda_as_c.h,$(NCCL_C) tests/cuda/%) $(if $(HAVE_hdf5),,$(H5_C) $(H5_TESTS)) \
           $(if $(HAVE_image),,$(IMAGE_C) $(JPEG_TESTS)) $(if $(HAVE_gif),,$(GIF_C)) $(if $(HAVE_webp),,$(WEBP_C)) \
           $(if $(HAVE_httpd),,$(HTTPD_C)),\
           $(filter %.c,$(C_FILES)))
SYNTAX   = -std=gnu11 -O1 -fsyntax-only $(WARN) -Werror -Iruntime -I$(LUA) -fopenmp $(LINT_DEFS) -isystem $(HDF5_H) \
  -isystem $(CUDA)/include -Itests/cuda/fake_cuda -DFAKE_CUDA_INCLUDE='""'
lint: build/found.mk ## check the code: clang-format, gcc and clang warnings, cppcheck, luacheck, docstrings, layering, lengths
	@which clang clang-format cppcheck luacheck >/dev/null || \
	  { echo 'lint: needs $(LINT_PACKAGES) (apt-get install)'; exit 1; }
	@echo '  clang-format'; clang-format --dry-run -Werror $(C_FILES)
	@echo '  gcc'; echo $(LINT_C) | xargs -n 8 -P $(JOBS) gcc $(SYNTAX)
	@echo '  clang'; mkdir -p build/lint; sed 's/__malloc__ (omp_free)/__malloc__/' \
	  $$(gcc -print-file-name=include/omp.h) >build/lint/omp.h; \
	  echo $(filter-out tests/cuda/fake_cuda/%,$(LINT_C)) | xargs -n 8 -P $(JOBS) clang $(SYNTAX) -idirafter build/lint
	@echo '  cppcheck'; cppcheck -q -j $(JOBS) --enable=warning --inline-suppr \
	  --suppress=missingInclude --suppress=nullPointerArithmetic --error-exitcode=1 -Iruntime \
	  --std=c11 -D__GNUC__ $(LINT_DEFS) $(filter runtime/%,$(LINT_C))
	@echo '  luacheck'; luacheck -q lua models examples tests
	@echo '  docstrings'; [ -x $(PROGRAM) ] || { echo '     skipped: build first'; exit; }; $(PROGRAM) tests/docstrings.lua
	@echo '  layers'; luajit tests/include_rules.lua $(C_FILES) $(LUA_FILES)
	@echo '  hardening'; luajit tests/hardening.lua $(wildcard $(PRODUCTS))
format: ## clang-format all C files in place
	clang-format -i $(C_FILES)
size: ## print a table of the sources by folder: lines, comments, passages that stand twice
	@luajit tests/sizes.lua $(C_FILES) $(LUA_FILES)

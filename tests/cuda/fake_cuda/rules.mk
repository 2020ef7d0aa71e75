# The stand-ins for CUDA's libraries, and the kernels as C, in build/standin: see standin.h.

STANDIN      := build/standin
STANDIN_DIR  := tests/cuda/standin
STANDIN_H    := $(wildcard $(STANDIN_DIR)/*.h)
STANDIN_O     = $(patsubst %.c,$(STANDIN)/%.o,$(wildcard $(addprefix $(STANDIN_DIR)/,$1)))
STANDIN_CC    = gcc -std=gnu11 -O2 -g -fPIC -isystem $(CUDA)/include
KERNEL_CC     = gcc -x c -std=gnu11 -O2 -g -fPIC -Wno-unknown-pragmas -include \
  $(STANDIN_DIR)/cuda_as_c.h -Iruntime -Werror=implicit-function-declaration -Werror=int-conversion

STANDIN_DRIVER = calls.c device.c memory.c copy.c stream.c queue.c graph.c module.c block.c fiber.c
STANDINS := libcuda.so.1 libnvrtc.so.13 \
  $(if $(wildcard $(STANDIN_DIR)/cudnn*.c),libcudnn.so.9) \
  $(if $(wildcard $(STANDIN_DIR)/cublaslt*.c),libcublasLt.so.13) \
  $(if $(wildcard $(STANDIN_DIR)/nccl*.c),libnccl.so.2) libnvrtc-builtins.so.13.0 kernels.so

.PHONY: standin
ifeq ($(wildcard $(CUDA)/include/cuda.h),)
standin:
	@echo 'standin: skipped: there is no $(CUDA)/include/cuda.h'
else
standin: $(addprefix $(STANDIN)/,$(STANDINS)) ## stand-ins for CUDA's libraries, for tests
CUDA_TEST_C := $(wildcard tests/cuda/test_*.c)
test test-fast fault cover-run: standin
C_TESTS     += $(if $(HAVE_cmocka),$(patsubst %.c,$B/%,$(CUDA_TEST_C)))
endif

$(STANDIN)/%.o: %.c $(STANDIN_H) $(STANDIN_DIR)/rules.mk
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$Q$(STANDIN_CC) $(WARN) $(STANDIN_FLAGS_$(*F)) -c -o $@ $<
STANDIN_FLAGS_nvrtc = -DSTANDIN_INCLUDE='"$(abspath $(STANDIN_DIR))"'
$(STANDIN)/%.o: %.cu $(STANDIN_H) $(wildcard runtime/device/cuda/kernels/*.h runtime/ops/elementwise_*.h)
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$Q$(KERNEL_CC) -c -o $@ $<

$(STANDIN)/libcuda.so.1: $(call STANDIN_O,$(STANDIN_DRIVER))
$(STANDIN)/libnvrtc.so.13: $(call STANDIN_O,nvrtc.c)
$(STANDIN)/libcudnn.so.9: $(call STANDIN_O,cudnn*.c)
$(STANDIN)/libcublasLt.so.13: $(call STANDIN_O,cublaslt*.c)
$(STANDIN)/libnccl.so.2: $(call STANDIN_O,nccl*.c)
$(STANDIN)/libnvrtc-builtins.so.13.0: # there is nothing in it
$(STANDIN)/kernels.so: $(patsubst %.cu,$(STANDIN)/%.o,$(CUDA_CU))
$(filter-out %/libcuda.so.1,$(addprefix $(STANDIN)/,$(STANDINS))): $(STANDIN)/libcuda.so.1
$(addprefix $(STANDIN)/,$(STANDINS)):
	$(call say,link)
	$Qgcc -shared -Wl,-soname,$(@F) -Wl,-z,defs -o $@ $(filter %.o,$^) $(filter %.so.1,$^) \
	  -Wl,-rpath,'$$ORIGIN' -lm -ldl -lpthread
	$Q$(if $(filter libnvrtc%,$(@F)),rm -rf $(STANDIN)/cache) # made with other headers

# Tests that call the stand-ins themselves.
$B/tests/cuda/%: tests/cuda/%.c $(OUT)/libmgpu.so $(addprefix $(STANDIN)/,$(STANDINS))
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$Q$(CC) $(FLAGS) -isystem $(CUDA)/include -Itests/cuda/standin -o $@ $< -L$(OUT) -lmgpu -lcmocka \
	  $(STANDIN)/libcuda.so.1 $(STANDIN)/libnvrtc.so.13 $(TEST_LIBS_$(*F)) -lm -ldl -lpthread \
	  -Wl,-rpath,$(abspath $(OUT)):$(abspath $(STANDIN))
TEST_LIBS_test_cudnn = $(STANDIN)/libcudnn.so.9
TEST_LIBS_test_standin = -Wl,--no-as-needed $(STANDIN)/libnvrtc-builtins.so.13.0 # as who opens NVRTC does

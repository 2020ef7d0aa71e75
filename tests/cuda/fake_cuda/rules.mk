# Builds the fake CUDA libraries, and the kernels compiled as C, into build/fake_cuda: see fake_cuda.h.

FAKE_CUDA      := build/fake_cuda
FAKE_CUDA_DIR  := tests/cuda/fake_cuda
FAKE_CUDA_H    := $(wildcard $(FAKE_CUDA_DIR)/*.h)
FAKE_CUDA_O     = $(patsubst %.c,$(FAKE_CUDA)/%.o,$(wildcard $(addprefix $(FAKE_CUDA_DIR)/,$1)))
FAKE_CUDA_CC    = gcc -std=gnu11 -O2 -g -fPIC -isystem $(CUDA)/include
KERNEL_CC     = gcc -x c -std=gnu11 -O2 -g -fPIC -Wno-unknown-pragmas -Wno-psabi -include \
  $(FAKE_CUDA_DIR)/cuda_as_c.h -Iruntime -Werror=implicit-function-declaration -Werror=int-conversion

FAKE_CUDA_DRIVER = calls.c device.c memory.c copy.c stream.c queue.c graph.c module.c block.c fiber.c
FAKE_CUDAS := libcuda.so.1 libnvrtc.so.13 \
  $(if $(wildcard $(FAKE_CUDA_DIR)/cudnn*.c),libcudnn.so.9) \
  $(if $(wildcard $(FAKE_CUDA_DIR)/cublaslt*.c),libcublasLt.so.13) \
  $(if $(wildcard $(FAKE_CUDA_DIR)/nccl*.c),libnccl.so.2) libnvrtc-builtins.so.13.0 kernels.so

.PHONY: fake_cuda
ifeq ($(wildcard $(CUDA)/include/cuda.h),)
fake_cuda:
	@echo 'fake_cuda: skipped: there is no $(CUDA)/include/cuda.h'
else
fake_cuda: $(addprefix $(FAKE_CUDA)/,$(FAKE_CUDAS)) ## the fake CUDA libraries, for tests without a GPU
CUDA_TEST_C := $(wildcard tests/cuda/test_*.c)
test test-all test-fast fault: fake_cuda
C_TESTS     += $(if $(HAVE_cmocka),$(patsubst %.c,$B/%,$(CUDA_TEST_C)))
endif

$(FAKE_CUDA)/%.o: %.c $(FAKE_CUDA_H) $(FAKE_CUDA_DIR)/rules.mk
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$Q$(FAKE_CUDA_CC) $(WARN) $(FAKE_CUDA_FLAGS_$(*F)) -c -o $@ $<
FAKE_CUDA_FLAGS_nvrtc = -DFAKE_CUDA_INCLUDE='"$(abspath $(FAKE_CUDA_DIR))"'
$(FAKE_CUDA)/%.o: %.cu $(FAKE_CUDA_H) $(wildcard runtime/device/cuda/kernels/*.h runtime/*/*formulas.h runtime/ops/elementwise_*.h)
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$Q$(KERNEL_CC) -c -o $@ $<

$(FAKE_CUDA)/libcuda.so.1: $(call FAKE_CUDA_O,$(FAKE_CUDA_DRIVER))
$(FAKE_CUDA)/libnvrtc.so.13: $(call FAKE_CUDA_O,nvrtc.c)
$(FAKE_CUDA)/libcudnn.so.9: $(call FAKE_CUDA_O,cudnn*.c)
$(FAKE_CUDA)/libcublasLt.so.13: $(call FAKE_CUDA_O,cublaslt*.c)
$(FAKE_CUDA)/libnccl.so.2: $(call FAKE_CUDA_O,nccl*.c)
$(FAKE_CUDA)/libnvrtc-builtins.so.13.0: # empty; NVRTC needs it to be loaded, and the fake checks that
$(FAKE_CUDA)/kernels.so: $(patsubst %.cu,$(FAKE_CUDA)/%.o,$(CUDA_CU))
$(filter-out %/libcuda.so.1,$(addprefix $(FAKE_CUDA)/,$(FAKE_CUDAS))): $(FAKE_CUDA)/libcuda.so.1
$(addprefix $(FAKE_CUDA)/,$(FAKE_CUDAS)):
	$(call say,link)
	$Qgcc -shared -Wl,-soname,$(@F) -Wl,-z,defs -o $@ $(filter %.o,$^) $(filter %.so.1,$^) \
	  -Wl,-rpath,'$$ORIGIN' -lm -ldl -lpthread
	$Q$(if $(filter libnvrtc%,$(@F)),rm -rf $(FAKE_CUDA)/cache) # its objects were compiled with older headers

# The cmocka programs of tests/cuda call the fake libraries directly, so they are linked with them.
$B/tests/cuda/%: tests/cuda/%.c $(OUT)/libmgpu.so $(addprefix $(FAKE_CUDA)/,$(FAKE_CUDAS))
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$Q$(CC) $(FLAGS) -isystem $(CUDA)/include -Itests/cuda/fake_cuda -o $@ $< -L$(OUT) -lmgpu -lcmocka \
	  $(FAKE_CUDA)/libcuda.so.1 $(FAKE_CUDA)/libnvrtc.so.13 $(TEST_LIBS_$(*F)) -lm -ldl -lpthread \
	  -Wl,-rpath,$(abspath $(OUT)):$(abspath $(FAKE_CUDA))
TEST_LIBS_test_fake_cuda = -Wl,--no-as-needed $(FAKE_CUDA)/libnvrtc-builtins.so.13.0 # loaded first, as our code does

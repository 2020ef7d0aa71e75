# The cuda device: flags of its C files, its kernels, and the targets for a machine with a GPU.

SKIP_KINDS += $(if $(HAVE_cuda),,cuda)
LIBS_mgpu-cuda.so = -ldl -lpthread
OBJECTS_cuda = $B/kernels.o
# CUDA's headers, for the C files of every folder of the device.
$(foreach d,$(sort $(dir $(wildcard $(addprefix runtime/device/cuda/,*.c */*.c)))),\
  $(eval FLAGS_$(d:/=) = -isystem $$(CUDA)/include))

# nvrtc.c carries the headers that generated kernels include, as text.
$B/runtime/device/cuda/codegen/nvrtc.o: $(wildcard runtime/device/cuda/kernels/*.h runtime/ops/elementwise_*.h)

# Kernels are compiled for two architectures and for later ones; the plug-in carries the images.
GPUS = -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
NVCC_random.cu = -fmad=false # the reference's bits
NVCC_images.cu = -fmad=false # the coordinates of the reference
$B/%.fatbin: %.cu $(wildcard runtime/device/cuda/kernels/*.h runtime/*/*formulas.h runtime/ops/elementwise_*.h)
	@mkdir -p $(@D)
	$(call say,nvcc,$<)
	$Q$(CUDA)/bin/nvcc -O3 -std=c++17 -Iruntime $(GPUS) $(NVCC_$(<F)) -Werror all-warnings -fatbin -o $@ $<
IMAGES = $(patsubst %.cu,$B/%.fatbin,$(CUDA_CU))
$B/kernels.o: $(IMAGES)
	@{ echo '.section .data.rel.ro, "aw"; .globl mg_cuda_images; mg_cuda_images:'; \
	  i=0; for f in $^; do echo ".quad image$$i"; i=$$((i + 1)); done; echo '.quad 0; .section .note.GNU-stack,""; .section .rodata'; \
	  i=0; for f in $^; do echo ".balign 64; image$$i: .incbin \"$$f\""; i=$$((i + 1)); done; } >$(@:.o=.s)
	$Q$(CC) -c -o $@ $(@:.o=.s)

# A machine with a GPU may have no libraries to build with: the bundle brings what is needed, but neither libraries that
# any Linux has nor what no test of the device uses. Also the losses that the GPU's are compared with.
BUNDLED = mgpulua libmgpu.so.0 mgpu-cuda.so mgpu-nccl.so $(notdir $(UCX))
BUNDLED_LIBS = ldd build/libmgpu.so.0 $(if $(UCX),$$($(CC) -print-file-name=libucp.so.0)) | \
  awk '/jansson|libz|libuc|libnuma/ { print $$3 }' | sort -u; $(if $(UCX),$(CC) -print-file-name=libucp.so.0)
gpu-bundle: all ## collect what a machine with a GPU needs besides the tree: build/gpu
	@rm -rf build/gpu; mkdir -p build/gpu/mgpu; cp $(addprefix build/,$(BUNDLED)) $$($(BUNDLED_LIBS)) build/gpu; \
	  cp $$(build/mgpulua -e 'print(package.searchpath("argparse", package.path))') build/gpu; \
	  cp build/mgpu/core.so build/gpu/mgpu; sh tests/cuda/on_gpu.sh sources >build/gpu/sources; \
	  build/mgpulua tests/cuda/preflight.lua cpu:0 >build/gpu/losses && du -sh build/gpu
gpu-first: ## the first eight minutes with a GPU, with the bundle: a bit of everything, the most important first
	@RESULTS=$(RESULTS) sh tests/cuda/gpu_first.sh first
gpu-again: ## what did not pass of gpu-first, then the benchmark
	@RESULTS=$(RESULTS) sh tests/cuda/gpu_first.sh again
ON_GPU = @RESULTS=$(RESULTS) sh tests/cuda/on_gpu.sh
gpu-preflight: ## try the libraries and CUDA graphs of a GPU machine in two minutes, with the bundle
	$(ON_GPU) preflight
gpu-check: ## run the tests of the cuda device on a GPU, with the bundle; builds nothing
	$(ON_GPU) check
gpu-sanitize: ## run our own CUDA kernels under compute-sanitizer, with the bundle
	$(ON_GPU) sanitize
gpu-bench: ## compare speed on a GPU with PyTorch, with the bundle (ARGS=...: see tests/bench/gpu.lua)
	$(ON_GPU) bench $(ARGS)

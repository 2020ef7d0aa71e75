# The targets for a machine with a GPU: see on_gpu.sh and gpu_first.sh.

.PHONY: gpu-bundle gpu-first gpu-again gpu-preflight gpu-check gpu-sanitize gpu-bench

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

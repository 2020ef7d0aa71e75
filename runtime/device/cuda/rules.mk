# The cuda device: flags of its C files, and its kernels.

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

# The cpu device needs oneDNN and OpenMP.

SKIP_KINDS += $(if $(HAVE_dnnl),,cpu)
# Contraction to fused multiply-adds is allowed everywhere but in the random numbers, which must equal the reference's.
FLAGS_runtime/device/cpu = $(OPENMP) -ffp-contract=fast
FLAGS_runtime/device/cpu/random.c = -ffp-contract=off
LIBS_mgpu-cpu.so = -ldnnl $(OPENMP)

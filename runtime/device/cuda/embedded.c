/* The headers that the plug-in carries as text. The compiled kernels are put in by the Makefile. */
#include "device/cuda/embedded.h"

#define EMBED(name, file)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".globl " #name "\n"                                                                   \
            ".balign 16\n" #name ":\n"                                                             \
            ".incbin \"" file "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".previous\n")

EMBED(mg_cuda_kernel_h, "runtime/device/cuda/kernels/kernel.h");
EMBED(mg_cuda_params_h, "runtime/device/cuda/kernels/params.h");
EMBED(mg_cuda_elements_h, "runtime/device/cuda/kernels/elements.h");
EMBED(mg_cuda_fused_h, "runtime/device/cuda/kernels/fused.h");
EMBED(mg_cuda_fused_sums_h, "runtime/device/cuda/kernels/fused_sums.h");
EMBED(mg_cuda_reduce_h, "runtime/device/cuda/kernels/reduce.h");
EMBED(mg_cuda_scan_h, "runtime/device/cuda/kernels/scan.h");
EMBED(mg_cuda_finite_h, "runtime/device/cuda/kernels/finite.h");
EMBED(mg_cuda_elementwise_double_h, "runtime/ops/elementwise_double.h");
EMBED(mg_cuda_elementwise_float_h, "runtime/ops/elementwise_float.h");

/* What the plug-in carries: the kernels of kernels/<file>.cu, compiled, and the headers that
 * generated kernels include. */
#ifndef MG_DEVICE_CUDA_EMBEDDED_H
#define MG_DEVICE_CUDA_EMBEDDED_H

extern const void *const mg_cuda_images[]; /* one per file, then NULL */
/* Texts, each ended by NUL. */
extern const char mg_cuda_kernel_h[], mg_cuda_params_h[], mg_cuda_elements_h[], mg_cuda_fused_h[],
    mg_cuda_fused_sums_h[], mg_cuda_reduce_h[], mg_cuda_scan_h[], mg_cuda_finite_h[],
    mg_cuda_elementwise_double_h[], mg_cuda_elementwise_float_h[];

#endif

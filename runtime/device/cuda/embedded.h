/* What the plug-in carries: the kernels of kernels/<file>.cu, compiled, and the two headers that
 * generated kernels include. */
#ifndef MG_DEVICE_CUDA_EMBEDDED_H
#define MG_DEVICE_CUDA_EMBEDDED_H

extern const void *const mg_cuda_images[];                /* one per file, then NULL */
extern const char mg_cuda_kernel_h[], mg_cuda_params_h[]; /* text, ends with NUL */

#endif

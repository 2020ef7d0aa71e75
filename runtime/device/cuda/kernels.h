/* The kernels of the cuda device. */
#ifndef MG_DEVICE_CUDA_KERNELS_H
#define MG_DEVICE_CUDA_KERNELS_H

#include "device/cuda/state.h"

extern const mg_kernel mg_cuda_last_resort; /* on the host */
extern const mg_kernel mg_cuda_fused;       /* generated */
extern const mg_kernel mg_cuda_sum, mg_cuda_prod, mg_cuda_max, mg_cuda_min, mg_cuda_all,
    mg_cuda_any, mg_cuda_argmax, mg_cuda_argmin, mg_cuda_cumsum, mg_cuda_prod_grad,
    mg_cuda_all_finite;

#endif

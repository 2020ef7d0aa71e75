/* The kernels of the cuda device. */
#ifndef MG_DEVICE_CUDA_KERNELS_H
#define MG_DEVICE_CUDA_KERNELS_H

#include "device/cuda/state.h"

extern const mg_kernel mg_cuda_last_resort; /* on the host */

#endif

/* The modules of generated kernels that a device keeps; mg_cuda_compile (state.h) adds to them. */
#ifndef MG_DEVICE_CUDA_MODULE_H
#define MG_DEVICE_CUDA_MODULE_H

#include "device/cuda/state.h"

/* Unloads them all; the device's context is the current one. */
void mg_cuda_modules_drop(mg_cuda *s);

#endif

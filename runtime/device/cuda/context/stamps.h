/* Times of launches on the GPU's own clock, for profiles: an event before and after each launch. */
#ifndef MG_DEVICE_CUDA_CONTEXT_STAMPS_H
#define MG_DEVICE_CUDA_CONTEXT_STAMPS_H

#include "device/cuda/context/context.h"

/* mg_kernel_set.stamp. The caller holds the turn. */
bool mg_cuda_stamp(mg_device *d, const mg_span *s);
/* Destroys the events. */
void mg_cuda_stamps_close(mg_cuda *s);

#endif

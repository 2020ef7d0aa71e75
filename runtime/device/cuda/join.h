/* Steps that one kernel of this device does at once. */
#ifndef MG_DEVICE_CUDA_JOIN_H
#define MG_DEVICE_CUDA_JOIN_H

#include "device/work.h"

struct mg_device;

/* The steps of `work`, as many, joined where that is possible. A block from mg_alloc, to be kept as
 * long as a program made of them. */
mg_status mg_cuda_join(struct mg_device *d, const mg_work *work, mg_step **steps);

#endif

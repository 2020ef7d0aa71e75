/* Staging: copies to a cuda device ahead of need, on a separate stream. */
#ifndef MG_DEVICE_CUDA_CONTEXT_STAGE_H
#define MG_DEVICE_CUDA_CONTEXT_STAGE_H

#include "device/device.h"

struct mg_cuda;

/* The entries stage_in and stage_join of mg_device_api. */
mg_status mg_cuda_stage_in(mg_device *d, const mg_staging *what, void **data);
mg_status mg_cuda_stage_join(mg_device *d, void *data);

/* For memory.c, with the turn held: called when memory is freed. True if the memory belongs to the
 * stage, which keeps it for the next copy. Otherwise memory that was staged is forgotten, after the
 * device's stream was made to wait for its copy. */
bool mg_cuda_stage_free(struct mg_cuda *s, void *data);
/* Removes and returns a kept block, to be given back to the pool; NULL: there is none. */
void *mg_cuda_stage_drop(struct mg_cuda *s);
/* When the device closes and is idle. */
void mg_cuda_stage_close(struct mg_cuda *s);

#endif

/* Memory of a cuda device and copies to and from it: see the entries of mg_device_api. */
#ifndef MG_DEVICE_CUDA_CONTEXT_MEMORY_H
#define MG_DEVICE_CUDA_CONTEXT_MEMORY_H

#include "device/device.h"

mg_status mg_cuda_alloc(mg_device *d, size_t bytes, void **data);
void mg_cuda_free(mg_device *d, void *data, size_t bytes);
/* Back to the driver with what was freed and kept. */
void mg_cuda_free_kept(mg_device *d);
/* All bytes become that one, in the order of the stream. */
mg_status mg_cuda_fill(mg_device *d, void *dst, uint8_t byte, size_t bytes);
mg_status mg_cuda_copy_in(mg_device *d, void *dst, const void *src, size_t bytes);
mg_status mg_cuda_copy_out(mg_device *d, void *dst, const void *src, size_t bytes);
/* Enqueued, between addresses of the device. */
mg_status mg_cuda_copy(mg_device *d, void *dst, const void *src, size_t bytes);
mg_status mg_cuda_sync(mg_device *d);
mg_status mg_cuda_readback_begin(mg_device *d, const void *byte);
mg_status mg_cuda_readback_wait(mg_device *d, uint8_t *answer);

#endif

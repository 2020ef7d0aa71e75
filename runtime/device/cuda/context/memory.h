/* Memory of a cuda device and copies to and from it: see the entries of mg_device_api. All
 * functions but mg_cuda_copy lock the device's turn. */
#ifndef MG_DEVICE_CUDA_CONTEXT_MEMORY_H
#define MG_DEVICE_CUDA_CONTEXT_MEMORY_H

#include "device/device.h"

mg_status mg_cuda_alloc(mg_device *d, size_t bytes, void **data);
void mg_cuda_free(mg_device *d, void *data, size_t bytes);
/* Gives freed memory that is cached for reuse back to the pool. */
void mg_cuda_free_kept(mg_device *d);
/* Enqueues: sets all bytes to `byte`. */
mg_status mg_cuda_fill(mg_device *d, void *dst, uint8_t byte, size_t bytes);
mg_status mg_cuda_copy_in(mg_device *d, void *dst, const void *src, size_t bytes);
mg_status mg_cuda_copy_out(mg_device *d, void *dst, const void *src, size_t bytes);
/* Enqueues a copy between addresses of the device. The caller holds the turn. */
mg_status mg_cuda_copy(mg_device *d, void *dst, const void *src, size_t bytes);
/* Waits until the stream has done all its work. */
mg_status mg_cuda_sync(mg_device *d);
/* Enqueues the copy of one byte to the host; the second function waits for it. One readback of a
 * device is under way at a time. */
mg_status mg_cuda_readback_begin(mg_device *d, const void *byte);
mg_status mg_cuda_readback_wait(mg_device *d, uint8_t *answer);

#endif

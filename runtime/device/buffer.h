/* Buffers in device memory, and tensors made from host memory. */
#ifndef MG_DEVICE_BUFFER_H
#define MG_DEVICE_BUFFER_H

#include "core/tensor.h"

/* A buffer of uninitialised device memory, counted against the device's limit. Owned; NULL after
 * MG_OOM, whose message says how much was asked for, who uses how much, and the limit. */
mg_buffer *mg_buffer_new(mg_device *device, size_t bytes);

/* A value tensor whose elements are copied from row-major host memory to `device` (NULL: the
 * default device). Owned; NULL on failure. */
mg_tensor *mg_tensor_from_host(const void *src, mg_dtype dtype, const mg_shape *shape,
                               mg_device *device);

#endif

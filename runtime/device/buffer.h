/* Buffers in device memory, and tensors made from host memory. */
#ifndef MG_DEVICE_BUFFER_H
#define MG_DEVICE_BUFFER_H

#include "core/placement.h"
#include "core/tensor.h"

struct mg_staging;

/* A buffer of uninitialised device memory, counted against the device's limit. Owned; NULL after
 * MG_OOM, whose message says how much was asked for, who uses how much, and the limit. */
mg_buffer *mg_buffer_new(mg_device *device, size_t bytes);

/* ---- copies ahead of need ---- */

/* A buffer whose bytes are copied from host memory beside the device's work: before its first use,
 * call mg_buffer_join. Owned; NULL: MG_OOM, MG_DEVICE, MG_INTERRUPTED. */
mg_buffer *mg_buffer_stage(mg_device *device, const struct mg_staging *what);
/* Orders all later work of the device after the copy. Does nothing for buffers that are not
 * staged. */
mg_status mg_buffer_join(const mg_buffer *b);
/* Stages the rows of a buffer in host memory, `bytes` bytes each, on the devices over which they
 * are sharded. `what` describes the copies. */
mg_status mg_buffer_stage_rows(mg_buffer *b, const mg_shards *shards, mg_device *const *devices,
                               size_t row_bytes, const struct mg_staging *what);
/* The copy of these bytes on the device, joined and retained, in *found; NULL: there is none. */
mg_status mg_buffer_find_rows(const mg_buffer *b, const mg_device *device, size_t offset,
                              size_t bytes, mg_buffer **found);

/* A value tensor whose elements are copied from row-major host memory to `device` (NULL: the
 * default device). Owned; NULL on failure. */
mg_tensor *mg_tensor_from_host(const void *src, mg_dtype dtype, const mg_shape *shape,
                               mg_device *device);

#endif

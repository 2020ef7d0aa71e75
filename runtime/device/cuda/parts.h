/* Sums that blocks made in parts: see kernels/parts.cu. */
#ifndef MG_DEVICE_CUDA_PARTS_H
#define MG_DEVICE_CUDA_PARTS_H

#include "device/cuda/state.h"

/* The bytes of n parts of `count` numbers whose sums become a `dtype`. */
size_t mg_cuda_parts_bytes(mg_dtype dtype, int64_t n, int64_t count);

/* The kernel that adds them up. */
mg_status mg_cuda_find_parts(mg_device *d, mg_dtype dtype, CUfunction *add);

/* Enqueues it: parts {n, count} become out {count}. */
mg_status mg_cuda_add_parts(const mg_device *d, CUfunction add, const void *parts, int64_t n,
                            void *out, int64_t count);

#endif

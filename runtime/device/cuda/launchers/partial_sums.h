/* Sums that blocks made in parts: see kernels/parts.cu. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_PARTIAL_SUMS_H
#define MG_DEVICE_CUDA_LAUNCHERS_PARTIAL_SUMS_H

#include "device/cuda/context/context.h"

/* The bytes of n parts of `count` numbers whose sums become a `dtype`. */
size_t mg_cuda_partial_sums_bytes(mg_dtype dtype, int64_t n, int64_t count);

/* The kernel that adds them up. */
mg_status mg_cuda_find_partial_sums(mg_device *d, mg_dtype dtype, CUfunction *add);

/* Enqueues it: parts {n, count} become out {count}. */
mg_status mg_cuda_add_partial_sums(const mg_device *d, CUfunction add, const void *parts, int64_t n,
                                   void *out, int64_t count);

#endif

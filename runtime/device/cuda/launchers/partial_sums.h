/* Adding up partial sums: a kernel whose blocks each sum a part writes {n, count} partial results
 * to scratch, and a second kernel (kernels/parts.cu) adds them up in a fixed order. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_PARTIAL_SUMS_H
#define MG_DEVICE_CUDA_LAUNCHERS_PARTIAL_SUMS_H

#include "device/cuda/context/context.h"

/* Bytes of scratch for n partial sums of `count` numbers each, whose total becomes a `dtype`: they
 * are doubles for f64 and floats otherwise. */
size_t mg_cuda_partial_sums_bytes(mg_dtype dtype, int64_t n, int64_t count);

/* Looks up the kernel that adds them up. */
mg_status mg_cuda_find_partial_sums(mg_device *d, mg_dtype dtype, CUfunction *add);

/* Enqueues it: parts {n, count} become out {count} of its dtype. */
mg_status mg_cuda_add_partial_sums(const mg_device *d, CUfunction add, const void *parts, int64_t n,
                                   void *out, int64_t count);

#endif

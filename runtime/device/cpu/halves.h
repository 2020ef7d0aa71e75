/* Operands of float16 and bfloat16 for loops that take floats: a thread converts what it works on
 * to a copy in its scratch, which stays in the caches, and rounds results once. Operands of other
 * dtypes stay where they are. Kernels that do not use this are upcast as a whole (upcast.h). */
#ifndef MG_DEVICE_CPU_HALVES_H
#define MG_DEVICE_CPU_HALVES_H

#include "device/cpu/cpu.h"
#include <omp.h>

/* n elements of x from element `from` on: in place, or halves converted to `copy`. */
static inline const void *mg_read_elements(const void *x, mg_dtype t, int64_t from, int64_t n,
                                           float *copy) {
    const void *at = (const char *)x + from * (int64_t)mg_dtype_size(t);
    if (!mg_dtype_is_half(t)) return at;
    mg_simd_used->conversions->load_rows(copy, at, n, 1, n, t);
    return copy;
}

/* Where loops write results from element `from` of y on: in place, or to `copy`, */
static inline void *mg_target_elements(void *y, mg_dtype t, int64_t from, float *copy) {
    return mg_dtype_is_half(t) ? (void *)copy : (char *)y + from * (int64_t)mg_dtype_size(t);
}

/* from which n results are rounded. */
static inline void mg_round_elements(void *y, mg_dtype t, int64_t from, int64_t n,
                                     const float *copy) {
    if (mg_dtype_is_half(t))
        mg_simd_used->conversions->store_rows((uint16_t *)y + from, n, copy, 1, n, t);
}

/* The `floats` floats of this thread in copies for all threads; NULL unless t is a half. */
static inline float *mg_own_copy(void *copies, mg_dtype t, int64_t floats) {
    return mg_dtype_is_half(t) ? (float *)copies + omp_get_thread_num() * floats : NULL;
}

/* Bytes of such copies for a team of threads. */
static inline size_t mg_copies_bytes(mg_dtype t, int64_t floats, int team) {
    return mg_dtype_is_half(t) ? (size_t)(team * floats) * sizeof(float) : 0;
}

#endif

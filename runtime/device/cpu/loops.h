/* The tile loops: every element-wise op over n elements, in float and in double, and the
 * conversions at a tile's edges. Compiled once for each instruction set. */
#ifndef MG_DEVICE_CPU_LOOPS_H
#define MG_DEVICE_CPU_LOOPS_H

#include "core/dtype.h"
#include "ops/elementwise.h"
#include <stddef.h>
#include <stdint.h>

typedef void mg_loop_f32(float *out, const float *a, const float *b, const float *c, int n);
typedef void mg_loop_f64(double *out, const double *a, const double *b, const double *c, int n);

enum { MG_SQUARE = 8 };

typedef struct mg_loops {
    mg_loop_f32 *f32[MG_N_ELEMENTWISE];
    mg_loop_f64 *f64[MG_N_ELEMENTWISE];
    /* typed elements to and from registers */
    void (*load_f32)(float *out, const void *src, mg_dtype t, int n);
    void (*store_f32)(void *dst, const float *v, mg_dtype t, int n);
    /* a copy that leaves the caches alone, where the processor can; end_stream before other
     * threads are told */
    void (*stream_f32)(float *dst, const float *src, int n);
    void (*end_stream)(void);
    /* a square of MG_SQUARE x MG_SQUARE words with rows and columns exchanged */
    void (*turn)(const uint32_t *src, ptrdiff_t src_row, uint32_t *dst, ptrdiff_t dst_row);
    void (*load_f64)(double *out, const void *src, mg_dtype t, int n);
    void (*store_f64)(void *dst, const double *v, mg_dtype t, int n);
    /* 64 Philox words a call: 16 blocks from `index` on, block-major */
    void (*philox16)(uint32_t *words, uint64_t index, uint64_t ordinal, uint32_t seed,
                     uint32_t stream);
    /* 64 normal numbers from 64 words */
    void (*normal64)(const uint32_t *words, float *out, double mean, double deviation);
} mg_loops;

extern const mg_loops mg_loops_base, mg_loops_avx2, mg_loops_avx512;
/* The best that this processor runs. */
const mg_loops *mg_loops_best(void);

#endif

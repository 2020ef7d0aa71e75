/* Images as lanes: a vector holds the same element of MG_WIDTH images, so that every lane works
 * however few channels the images have, and no load crosses a cache line. The images lie `step`
 * floats apart in memory. */
#ifndef MG_DEVICE_CPU_SIMD_LANES_H
#define MG_DEVICE_CPU_SIMD_LANES_H

#include "device/cpu/simd/fma.h"
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/square.h"
#include <string.h>

typedef float vec __attribute__((vector_size(MG_VECTOR), aligned(4), may_alias));
typedef int32_t vec_mask __attribute__((vector_size(MG_VECTOR), aligned(4), may_alias));

#define UNROLL _Pragma("GCC unroll 16")

MG_INLINE vec load(const float *p) {
    return *(const vec *)p;
}

MG_INLINE void store(float *p, vec v) {
    *(vec *)p = v;
}

/* sum + a * b: see fma.h. */
MG_INLINE vec add_product(vec sum, vec a, vec b) {
    return mg_fma_vec_f32(a, b, sum);
}

MG_INLINE vec add_scaled(vec sum, float scale, vec v) {
    return mg_fma_vec_f32(mg_splat_f32(scale), v, sum);
}

/* LANES: floats of a vector. SIDE: side of the squares that are transposed in registers. */
enum { LANES = MG_WIDTH, SIDE = MG_VECTOR < 32 ? 4 : MG_SQUARE };

/* Transposes a square: to[j] = the elements j of SIDE rows. Rows lie from_row and to_row floats
 * apart. */
MG_INLINE void exchange_square(const float *from, int64_t from_row, float *to, int64_t to_row) {
#if MG_VECTOR < 32
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    const four a = *(const four *)from, b = *(const four *)(from + from_row);
    const four c = *(const four *)(from + 2 * from_row), d = *(const four *)(from + 3 * from_row);
    const four ac = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    const four bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    const four ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    const four bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    *(four *)to = __builtin_shufflevector(ac, bd, 0, 4, 1, 5);
    *(four *)(to + to_row) = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
    *(four *)(to + 2 * to_row) = __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5);
    *(four *)(to + 3 * to_row) = __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7);
#else
    mg_transpose_square((const uint32_t *)from, from_row, (uint32_t *)to, to_row);
#endif
}

/* Gathers n elements of each of `count` images as n vectors; lanes from `count` on are 0. */
static inline void gather_lanes(const float *x, int64_t n, int64_t count, int64_t step, float *to) {
    if (count < LANES) memset(to, 0, (size_t)(n * LANES) * sizeof *to);
    const int64_t whole = n / SIDE * SIDE;
    for (int64_t i = 0; i < count; i += SIDE) {
        const int64_t images = count - i < SIDE ? count - i : SIDE;
        int64_t done = 0;
        if (images == SIDE)
            for (; done < whole; done += SIDE)
                exchange_square(x + i * step + done, step, to + done * LANES + i, LANES);
        for (int64_t k = i; k < i + images; k++)
            for (int64_t j = done; j < n; j++) to[j * LANES + k] = x[k * step + j];
    }
}

/* The reverse: n vectors to n elements of each of `count` images. */
static inline void scatter_lanes(const float *from, int64_t n, int64_t count, int64_t step,
                                 float *y) {
    const int64_t whole = n / SIDE * SIDE;
    for (int64_t i = 0; i < count; i += SIDE) {
        const int64_t images = count - i < SIDE ? count - i : SIDE;
        int64_t done = 0;
        if (images == SIDE)
            for (; done < whole; done += SIDE)
                exchange_square(from + done * LANES + i, LANES, y + i * step + done, step);
        for (int64_t k = i; k < i + images; k++)
            for (int64_t j = done; j < n; j++) y[k * step + j] = from[j * LANES + k];
    }
}

/* relu. NaN stays NaN. */
MG_INLINE vec clamp(vec v) {
    return (vec)((vec_mask)v & ~(vec_mask)(v < (vec){0}));
}

#endif

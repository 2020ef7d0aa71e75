/* The product at the heart of every convolution here: rows of an image times a strip of filters.
 *
 * A tile of results, MG_TILE_ROWS rows by one strip of two vectors, stays in registers for the
 * whole sum. Factors of the first operand are broadcast from where they lie in the image, so images
 * are never rearranged; the second operand is packed in strips. Included by the files that need it
 * inline. */
#ifndef MG_DEVICE_CPU_SIMD_CONV_TILE_H
#define MG_DEVICE_CPU_SIMD_CONV_TILE_H

#include "device/cpu/simd/conv.h"
#include "device/cpu/simd/isa.h"
#include <string.h>

typedef float vec __attribute__((vector_size(MG_VECTOR), aligned(4), may_alias));
typedef int32_t vec_mask __attribute__((vector_size(MG_VECTOR), aligned(4), may_alias));

/* A tile's sums, a row of the second operand and one broadcast factor fill the registers: 6 x 2
 * sums of 16 registers, 14 x 2 of 32. Where a strip has only one vector of columns, twice the rows
 * fit into 16 registers; of 32 registers 14 rows are enough to hide the latency of a multiply-add.
 */
enum {
    LANES = MG_VECTOR / 4,
    STRIP = 2 * LANES,
    TILE_ROWS = MG_REGISTERS >= 32 ? 14 : 6,
    NARROW_ROWS = MG_REGISTERS >= 32 ? 14 : 12
};

#define UNROLL _Pragma("GCC unroll 16")

MG_INLINE vec load(const float *p) {
    return *(const vec *)p;
}

MG_INLINE void store(float *p, vec v) {
    *(vec *)p = v;
}

/* The first n lanes, zeros in the others; n may be 0 or more than there are lanes. */
MG_INLINE vec load_lanes(const float *p, int64_t n) {
    vec v = {0};
    if (n >= LANES) return load(p);
    if (n > 0) memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

MG_INLINE void store_lanes(float *p, vec v, int64_t n) {
    if (n >= LANES)
        store(p, v);
    else if (n > 0)
        memcpy(p, &v, (size_t)n * sizeof *p);
}

/* relu. NaN stays NaN. */
MG_INLINE vec clamp(vec v) {
    return (vec)((vec_mask)v & ~(vec_mask)(v < (vec){0}));
}

/* One tile: `rows` rows from `row` on, of one or two vectors. ra and da are passed apart from p so
 * that the one which is 1 is a constant for the compiler. */
MG_INLINE void multiply_tile(const mg_conv_product *p, int64_t row, int64_t ra, int64_t da,
                             const int rows, const int vectors) {
    vec sum[14][2];
    float *c = p->c + row * p->ldc;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) sum[r][v] =
        (vec){0};
    const float *b = p->b;
    for (int64_t s = 0; s < p->n_segments; s++) {
        const float *a = p->a + p->segment[s] + row * ra;
        for (int64_t d = 0; d < p->depth; d++, b += STRIP) {
            vec factor[2];
            UNROLL for (int v = 0; v < vectors; v++) factor[v] = load(b + v * LANES);
            UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
                sum[r][v] += a[r * ra + d * da] * factor[v];
        }
    }
    UNROLL for (int v = 0; v < vectors; v++) {
        vec bias = {0};
        if (p->bias) bias = load(p->bias + v * LANES);
        UNROLL for (int r = 0; r < rows; r++) {
            float *to = c + r * p->ldc + v * LANES;
            const int64_t lanes = p->columns - v * LANES;
            vec y = sum[r][v];
            if (p->bias) y += bias;
            if (p->add) y += load_lanes(to, lanes);
            if (p->relu) y = clamp(y);
            store_lanes(to, y, lanes);
        }
    }
}

#define CASE(n, vectors)                                                                           \
    case n:                                                                                        \
        if (p->da == 1)                                                                            \
            multiply_tile(p, row, p->ra, 1, n, vectors);                                           \
        else                                                                                       \
            multiply_tile(p, row, 1, p->da, n, vectors);                                           \
        break;
#define CASES_TO_6(v) CASE(1, v) CASE(2, v) CASE(3, v) CASE(4, v) CASE(5, v) CASE(6, v)
#define CASES_TO_12(v)                                                                             \
    CASES_TO_6(v) CASE(7, v) CASE(8, v) CASE(9, v) CASE(10, v) CASE(11, v) CASE(12, v)
#define CASES_TO_14(v) CASES_TO_12(v) CASE(13, v) CASE(14, v)

/* Cuts the rows into tiles as even in height as can be: 8 rows are 4 + 4, not 6 + 2. */
static inline void multiply_rows(const mg_conv_product *p, int64_t rows) {
    const bool narrow = p->columns <= LANES;
    const int64_t most = narrow ? NARROW_ROWS : TILE_ROWS, tiles = (rows + most - 1) / most;
    for (int64_t i = 0, row = 0, n; i < tiles; i++, row += n) {
        n = (rows - row + tiles - i - 1) / (tiles - i);
        if (narrow) {
            switch (n) {
#if MG_REGISTERS >= 32
                CASES_TO_14(1)
#else
                CASES_TO_12(1)
#endif
            }
        } else {
            switch (n) {
#if MG_REGISTERS >= 32
                CASES_TO_14(2)
#else
                CASES_TO_6(2)
#endif
            }
        }
    }
}

#undef CASE
#undef CASES_TO_6
#undef CASES_TO_12
#undef CASES_TO_14

#endif

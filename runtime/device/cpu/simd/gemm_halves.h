/* Packs lanes of float16 or bfloat16 for matrix products: see pack_lanes in gemm.h. Two neighbours
 * of a lane are transposed as one word and separated when they are converted, which takes half the
 * shuffles that converting first would take. */
#ifndef MG_DEVICE_CPU_SIMD_GEMM_HALVES_H
#define MG_DEVICE_CPU_SIMD_GEMM_HALVES_H

#include "device/cpu/simd/elements.h"
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/square.h"
#include <string.h>

enum {
    HALVES_STRIP = 2 * MG_WIDTH,
    PAIRS = 16 /* of a lane that are transposed at a time: a cache line */
};

/* Every second element of two vectors, from the first or from the second on. */
#if MG_VECTOR == 64
#define EVEN(a, b)                                                                                 \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b)                                                                                  \
    __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif MG_VECTOR == 32
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

/* Transposes up to PAIRS pairs of each lane; `depth` is the number of elements. */
MG_INLINE void transpose_pairs(const uint16_t *x, int64_t row, int64_t lanes, int64_t depth,
                               uint32_t (*words)[HALVES_STRIP]) {
    const int64_t whole = lanes - lanes % MG_SQUARE;
    const int64_t deep = depth / 2 - depth / 2 % MG_SQUARE;
    for (int64_t i = 0; i < whole; i += MG_SQUARE)
        for (int64_t j = 0; j < deep; j += MG_SQUARE)
            mg_transpose_square((const void *)(x + i * row + 2 * j), row / 2, words[j] + i,
                                HALVES_STRIP);
    for (int64_t i = 0; i < lanes; i++)
        for (int64_t j = i < whole ? deep : 0; 2 * j < depth; j++)
            memcpy(&words[j][i], x + i * row + 2 * j, 2 * j + 1 < depth ? 4 : 2);
}

/* Converts row j of the pairs to rows 2 j and 2 j + 1 of the strip, or to the first alone. */
MG_INLINE void separate_pairs(const uint32_t *words, float *to, bool both, const mg_dtype t) {
    const uint16_t *halves = (const void *)words;
    for (int i = 0; i < 2; i++, halves += 2 * MG_WIDTH, to += MG_WIDTH) {
        const mg_loose_floats a = mg_get_half(halves, t), b = mg_get_half(halves + MG_WIDTH, t);
        mg_put_f32(to, EVEN(a, b));
        if (both) mg_put_f32(to + HALVES_STRIP, ODD(a, b));
    }
}

MG_INLINE void pack_halves(const uint16_t *x, int64_t row, int64_t lanes, int64_t depth, float *to,
                           const mg_dtype t) {
    uint32_t words[PAIRS][HALVES_STRIP];
    if (lanes < HALVES_STRIP) memset(words, 0, sizeof words);
    for (int64_t d = 0; d < depth; d += 2 * PAIRS) {
        const int64_t n = depth - d < 2 * PAIRS ? depth - d : 2 * PAIRS;
        transpose_pairs(x + d, row, lanes, n, words);
        for (int64_t i = 0; i < n; i += 2)
            separate_pairs(words[i / 2], to + (d + i) * HALVES_STRIP, i + 1 < n, t);
    }
}

static void mg_pack_halves(const uint16_t *x, mg_dtype t, int64_t row, int64_t lanes, int64_t depth,
                           float *to) {
    MG_WITH_HALF(t, pack_halves, x, row, lanes, depth, to);
}

#undef EVEN
#undef ODD

#endif

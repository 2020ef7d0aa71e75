/* Transposing squares of 4-byte words in registers. */
#ifndef MG_DEVICE_CPU_SIMD_SQUARE_H
#define MG_DEVICE_CPU_SIMD_SQUARE_H

#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/simd.h"

typedef uint32_t mg_eight __attribute__((vector_size(4 * MG_SQUARE)));
/* at any address that is aligned for a half, because a word may be a pair of halves */
typedef mg_eight mg_loose_eight __attribute__((aligned(2), may_alias));
/* Halves of two interleaved vectors: single words, pairs of words, four words at a time. */
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW_PAIR(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_PAIR(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW_HALF(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH_HALF(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)

/* Three rounds interleave the words of two rows, then of four, then of eight. The vectors are eight
 * words long on every instruction set; a set with shorter registers splits the shuffles. */
static inline void mg_transpose_square(const uint32_t *src, ptrdiff_t src_row, uint32_t *dst,
                                       ptrdiff_t dst_row) {
    mg_eight two[MG_SQUARE], four[MG_SQUARE];
    for (int i = 0; i < MG_SQUARE; i += 2) {
        const mg_eight a = *(const mg_loose_eight *)(src + i * src_row);
        const mg_eight b = *(const mg_loose_eight *)(src + (i + 1) * src_row);
        two[i] = LOW(a, b), two[i + 1] = HIGH(a, b);
    }
    for (int i = 0; i < MG_SQUARE; i += 4) {
        four[i] = LOW_PAIR(two[i], two[i + 2]), four[i + 1] = HIGH_PAIR(two[i], two[i + 2]);
        four[i + 2] = LOW_PAIR(two[i + 1], two[i + 3]);
        four[i + 3] = HIGH_PAIR(two[i + 1], two[i + 3]);
    }
    for (int i = 0; i < MG_SQUARE / 2; i++) {
        *(mg_loose_eight *)(dst + i * dst_row) = LOW_HALF(four[i], four[i + 4]);
        *(mg_loose_eight *)(dst + (i + 4) * dst_row) = HIGH_HALF(four[i], four[i + 4]);
    }
}

#undef LOW
#undef HIGH
#undef LOW_PAIR
#undef HIGH_PAIR
#undef LOW_HALF
#undef HIGH_HALF

#endif

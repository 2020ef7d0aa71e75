/* Inner loops of convolutions with 8-bit integers: see device/cpu/int8/. */
#ifndef MG_DEVICE_CPU_SIMD_INT8_H
#define MG_DEVICE_CPU_SIMD_INT8_H

#include <stdbool.h>
#include <stdint.h>

enum { MG_INT8_PIXELS = 6, MG_INT8_CHANNELS = 64 }; /* results of a tile, at most */

/* A tile: the sums of `pixels` windows and `channels` filters. Each window has `runs` runs of
 * `quads` times 4 bytes. */
typedef struct mg_int8_tile {
    const uint8_t *x[MG_INT8_PIXELS]; /* where each window begins */
    int pixels, channels;
    const int64_t *run; /* where each run begins, from the window's beginning on */
    int64_t runs, quads;
    const int8_t *w; /* {runs, quads, row, 4}, from the tile's first filter on */
    int64_t row;     /* all filters */
    int32_t *sums;   /* {pixels, MG_INT8_CHANNELS} */
} mg_int8_tile;

/* How sums become results. */
typedef struct mg_int8_scaling {
    const int32_t *weights; /* sums of the weights of each filter */
    const float *factor;    /* 1 / scale */
    const float *bias;
    int64_t activation;
} mg_int8_scaling;

typedef struct mg_simd_int8 {
    const char *name; /* of the instructions that multiply */
    /* Whether this processor has them; NULL: it does if it has the set. */
    bool (*available)(void);
    int pixels, channels; /* of a tile, at most */
    /* Sums of products code * weight, with codes as they are: their zero point is left to scale. */
    void (*multiply)(const mg_int8_tile *t);
} mg_simd_int8;

/* What all kinds of multiplication share. */
typedef struct mg_simd_int8_rows {
    /* Codes of n numbers; false: one of them is not finite. */
    bool (*quantize)(const float *x, int64_t n, float steps, float zero, uint8_t *codes);
    /* The largest magnitude; not finite if one of the numbers is not. */
    float (*largest)(const float *x, int64_t n);
    /* n results of a window: (sums - zero * weights) * (factor * unit) + bias. */
    void (*scale)(const int32_t *sums, const mg_int8_scaling *s, int64_t first, int64_t n,
                  int32_t zero, float unit, float *y);
    const mg_simd_int8 *kinds[3]; /* fastest first, the last one always available */
} mg_simd_int8_rows;

#endif

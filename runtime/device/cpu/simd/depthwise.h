/* The inner loops of depthwise convolutions of images in float32, float16 or bfloat16; see
 * conv/depthwise.c one folder up. Lengths and steps are in elements. */
#ifndef MG_DEVICE_CPU_SIMD_DEPTHWISE_H
#define MG_DEVICE_CPU_SIMD_DEPTHWISE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MG_DEPTHWISE_TAPS = 128, /* taps of a filter, at most */
    MG_DEPTHWISE_WIDTH = 3   /* taps of a group, at most */
};

/* Taps that read neighbouring pixels of a line: for result i, tap t reads the c channels at x + (i
 * + t) * step, and its weights begin at weight + t * apart. */
typedef struct mg_depthwise_group {
    const void *x;
    int64_t weight, apart;
} mg_depthwise_group;

/* Neighbouring results for which the same taps lie inside the image. groups: first those of
 * MG_DEPTHWISE_WIDTH taps, then smaller ones; count[w] of them have w taps. */
typedef struct mg_depthwise_run {
    mg_depthwise_group groups[MG_DEPTHWISE_TAPS];
    int count[MG_DEPTHWISE_WIDTH + 1];
    int64_t results, step, c;
    int64_t result_step; /* from one result to the next */
} mg_depthwise_run;

typedef struct mg_simd_depthwise {
    /* Computes the results: the sums of the pixels times their weights, plus the bias (NULL: none),
     * with relu if wanted. NaN stays NaN. */
    void (*sum_taps)(const mg_depthwise_run *r, const float *w, const float *bias, bool relu,
                     void *y);
    /* Adds the products of pixels and dy to the sums of all weights. */
    void (*add_gradient)(const mg_depthwise_run *r, const void *dy, float *sums);
} mg_simd_depthwise;

#endif

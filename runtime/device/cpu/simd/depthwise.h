/* The inner loop of the filters' gradient of a depthwise convolution in float32; see
 * conv_depthwise.c one folder up. */
#ifndef MG_DEVICE_CPU_SIMD_DEPTHWISE_H
#define MG_DEVICE_CPU_SIMD_DEPTHWISE_H

#include <stdint.h>

enum { MG_DEPTHWISE_TAPS = 128 }; /* the most of a filter */

/* Neighbouring results that meet the same taps: tap t of result i meets the c channels at at[t] + i
 * * step. The sums of its weights begin at weight[t]. */
typedef struct mg_depthwise_run {
    int taps;
    const float *at[MG_DEPTHWISE_TAPS];
    int64_t weight[MG_DEPTHWISE_TAPS];
    int64_t results, step, c;
} mg_depthwise_run;

typedef struct mg_simd_depthwise {
    /* Adds the products with dy, whose results lie side by side, to the sums. */
    void (*add_gradient)(const mg_depthwise_run *r, const float *dy, float *sums);
} mg_simd_depthwise;

#endif

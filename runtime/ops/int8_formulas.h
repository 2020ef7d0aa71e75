/* The numbers of conv2d_int8 (ops/int8.c), shared by the reference kernel and the cpu device: one
 * formula for each, in float and in one order of operations, so that all kernels give equal bits.
 *
 *     code = round(x * steps) + zero, cut to 0 .. 255        round: to the nearest, ties to even
 *     y = (sum of (code - zero) * weight) * (1 / scale * 1 / steps) + bias
 *
 * `steps` and `scale` are codes per unit, as in Keras: 127 / the largest magnitude. */
#ifndef MG_OPS_INT8_FORMULAS_H
#define MG_OPS_INT8_FORMULAS_H

#include "ops/attrs.h"
#include <math.h>

/* The products that can be added up in int32: 255 * 127 each. */
enum { MG_INT8_DEPTH = INT32_MAX / (255 * 127) };

/* How a filter lies in the kernel tensor {runs, quads, filters, 4}: a run is the part of a window
 * that lies in one piece in the image. Its bytes, padded with 0 to a multiple of 4, are taken four
 * at a time. */
typedef struct mg_int8_layout {
    int64_t runs, run, quads; /* run: bytes of a run without its padding */
} mg_int8_layout;

static inline mg_int8_layout mg_int8_layout_of(const mg_int8_attrs *a, int64_t channels) {
    const int64_t rows = a->size.v[0], columns = a->size.v[1];
    const bool whole = a->dilations.v[1] == 1 || columns == 1; /* a run holds all columns */
    mg_int8_layout layout = {.runs = whole ? rows : rows * columns,
                             .run = whole ? columns * channels : channels};
    layout.quads = (layout.run + 3) / 4;
    return layout;
}

/* A zero point from a tensor, which may hold anything. */
static inline int32_t mg_int8_zero(float zero) {
    return zero >= 0 && zero <= 255 ? (int32_t)zero : 0;
}

/* The code of x. The limits are whole numbers, so that cutting may come before rounding; adding
 * 1.5 * 2^23 rounds. NaN gives 0. */
static inline uint8_t mg_int8_code(float x, float steps, float zero) {
    const float magic = 12582912.0f, low = -zero, high = 255.0f - zero;
    float t = x * steps;
    t = t > low ? t : low;
    t = t < high ? t : high;
    return (uint8_t)(int32_t)((t + magic) - magic + zero);
}

/* Codes per unit where each row has its own: Keras's AbsMaxQuantizer. The zero point is 128. */
static inline float mg_int8_row_steps(float largest) {
    return 127.0f / (largest + 1e-7f);
}

static inline float mg_int8_activate(float y, int64_t activation) {
    if (activation != MG_INT8_LINEAR) y = y > 0 ? y : 0;
    if (activation == MG_INT8_RELU6) y = y < 6 ? y : 6;
    return y;
}

/* factor: 1 / scale * 1 / steps. */
static inline float mg_int8_result(int32_t sum, float factor, float bias, int64_t activation) {
    return mg_int8_activate((float)sum * factor + bias, activation);
}

#endif

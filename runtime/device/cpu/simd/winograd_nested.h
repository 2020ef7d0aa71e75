/* Transforms of one line of a Winograd tile, F(results, taps): filters of two to five taps make n -
 * taps + 1 results of n = eight, six or four pixels. A line of n pixels has n elements: values of
 * polynomials at the first n of the points 0, infinity, +-17/32, +-15/8 and +-1.
 *
 * Since the points of short lines are among those of long lines, filters are transformed once for
 * tiles of all sizes: the factors 1 / M'(p), which depend on the size, are those of the longest
 * line, and the transforms of the pixels make up for it. The powers of these points differ less
 * than those of the usual 1, 2 and 1/2: the error of F(6, 3) is about that of F(4, 3) with 1 and 2,
 * and with two, four and five taps it is no larger. */
#ifndef MG_DEVICE_CPU_SIMD_WINOGRAD_NESTED_H
#define MG_DEVICE_CPU_SIMD_WINOGRAD_NESTED_H

#include "device/cpu/simd/lanes.h"

/* The points, their powers, and 1 / M'(p) of M(x) = x (x^2 - A^2) (x^2 - B^2) (x^2 - C^2). */
#define A 0.53125f
#define B 1.875f
#define C 1.0f
#define A2 (A * A)
#define B2 (B * B)
#define C2 (C * C)
#define OVER_0 (-1 / (A2 * B2 * C2))
#define OVER_A (1 / (2 * A2 * (A2 - B2) * (A2 - C2)))
#define OVER_B (1 / (2 * B2 * (B2 - A2) * (B2 - C2)))
#define OVER_C (1 / (2 * C2 * (C2 - A2) * (C2 - B2)))

/* The elements of points p and -p from the even and the odd part of the polynomial; `step` vectors
 * apart. */
MG_INLINE void both_signs(float p, vec even, vec odd, vec *v, int step) {
    v[0] = add_scaled(even, p, odd);
    v[step] = add_scaled(even, -p, odd);
}

/* ---- B': n pixels to n elements; elements lie `step` vectors apart ---- */

/* The elements of p and -p in a line of eight; s and q: sum and product of the other points'
 * squares. */
MG_INLINE void image_pair_8(float p, float s, float q, const vec x[8], vec *v, int step) {
    const vec even = add_scaled(add_scaled(x[6], -s, x[4]), q, x[2]);
    const vec odd = add_scaled(add_scaled(x[5], -s, x[3]), q, x[1]);
    both_signs(p, even, odd, v, step);
}

MG_INLINE void image_line_8(const vec x[8], vec *v, int step) {
    const float s = A2 + B2 + C2, q = A2 * B2 + A2 * C2 + B2 * C2, product = A2 * B2 * C2;
    const vec even = add_scaled(add_scaled(x[6], -s, x[4]), q, x[2]);
    const vec odd = add_scaled(add_scaled(x[7], -s, x[5]), q, x[3]);
    v[0] = add_scaled(even, -product, x[0]);
    v[1 * step] = add_scaled(odd, -product, x[1]);
    image_pair_8(A, B2 + C2, B2 * C2, x, v + 2 * step, step);
    image_pair_8(B, A2 + C2, A2 * C2, x, v + 4 * step, step);
    image_pair_8(C, A2 + B2, A2 * B2, x, v + 6 * step, step);
}

/* The elements of p and -p in a line of six, times `scale`; q: the other point's square. */
MG_INLINE void image_pair_6(float p, float q, float scale, const vec x[6], vec *v, int step) {
    const vec even = add_scaled(scale * x[4], -scale * q, x[2]);
    const vec odd = add_scaled(scale * x[3], -scale * q, x[1]);
    both_signs(p, even, odd, v, step);
}

MG_INLINE void image_line_6(const vec x[6], vec *v, int step) {
    v[0] = add_scaled(add_scaled(C2 * (A2 + B2) * x[2], -C2, x[4]), -A2 * B2 * C2, x[0]);
    v[1 * step] = add_scaled(add_scaled(x[5], -(A2 + B2), x[3]), A2 * B2, x[1]);
    image_pair_6(A, B2, A2 - C2, x, v + 2 * step, step);
    image_pair_6(B, A2, B2 - C2, x, v + 4 * step, step);
}

MG_INLINE void image_line_4(const vec x[4], vec *v, int step) {
    const float scale = (A2 - B2) * (A2 - C2);
    v[0] = add_scaled(B2 * C2 * x[2], -A2 * B2 * C2, x[0]);
    v[1 * step] = add_scaled(x[3], -A2, x[1]);
    both_signs(A, scale * x[2], scale * x[1], v + 2 * step, step);
}

MG_INLINE void image_line(int n, const vec x[8], vec *v, int step) {
    if (n == 8)
        image_line_8(x, v, step);
    else if (n == 6)
        image_line_6(x, v, step);
    else
        image_line_4(x, v, step);
}

/* ---- A': n elements to n - taps + 1 results ---- */

/* Adds the elements of p and -p, times the powers of the point. */
MG_INLINE void add_result_pair(float p, const vec m[2], int results, vec y[8]) {
    const vec even = m[0] + m[1], odd = p * (m[0] - m[1]);
    float power = 1;
    UNROLL for (int i = 0; i < 7; i += 2, power *= p * p) {
        if (i < results) y[i] = add_scaled(y[i], power, even);
        if (i + 1 < results) y[i + 1] = add_scaled(y[i + 1], power, odd);
    }
}

MG_INLINE void result_line(int taps, int n, const vec m[8], vec *y, int step) {
    const int results = n - taps + 1;
    vec sum[8] = {m[0]};
    add_result_pair(A, m + 2, results, sum);
    if (n > 4) add_result_pair(B, m + 4, results, sum);
    if (n > 6) add_result_pair(C, m + 6, results, sum);
    UNROLL for (int i = 0; i < 7; i++) {
        if (i == results - 1) sum[i] += m[1];
        if (i < results) y[i * step] = sum[i];
    }
}

/* ---- A: gradients of n - taps + 1 results to n elements ---- */

MG_INLINE void gradient_pair(int results, float p, const vec y[8], vec *d, int step) {
    vec even = y[0], odd = results > 1 ? y[1] : (vec){0};
    float power = p * p;
    UNROLL for (int i = 2; i < 7; i += 2, power *= p * p) {
        if (i < results) even = add_scaled(even, power, y[i]);
        if (i + 1 < results) odd = add_scaled(odd, power, y[i + 1]);
    }
    both_signs(p, even, odd, d, step);
}

MG_INLINE void gradient_line(int taps, int n, const vec y[8], vec *d, int step) {
    const int results = n - taps + 1;
    d[0] = y[0];
    d[1 * step] = y[results - 1];
    gradient_pair(results, A, y, d + 2 * step, step);
    if (n > 4) gradient_pair(results, B, y, d + 4 * step, step);
    if (n > 6) gradient_pair(results, C, y, d + 6 * step, step);
}

/* ---- G: `taps` weights to n elements; G': n elements to the gradients of the weights ---- */

/* The elements of p and -p; over: 1 / M'(p). */
MG_INLINE void filter_pair(int taps, float p, float over, const vec w[6], vec *u, int step) {
    vec even = over * w[0], odd = over * w[1];
    float power = over * (p * p);
    UNROLL for (int i = 2; i < 5; i += 2, power *= p * p) {
        if (i < taps) even = add_scaled(even, power, w[i]);
        if (i + 1 < taps) odd = add_scaled(odd, power, w[i + 1]);
    }
    both_signs(p, even, odd, u, step);
}

MG_INLINE void filter_line(int taps, int n, const vec w[6], vec *u, int step) {
    u[0] = OVER_0 * w[0];
    u[1 * step] = w[taps - 1];
    filter_pair(taps, A, OVER_A, w, u + 2 * step, step);
    if (n > 4) filter_pair(taps, B, OVER_B, w, u + 4 * step, step);
    if (n > 6) filter_pair(taps, C, OVER_C, w, u + 6 * step, step);
}

/* Adds the part of p and -p; over: 1 / M'(p). */
MG_INLINE void add_filter_pair(int taps, float p, float over, const vec u[2], vec w[6]) {
    const vec even = u[0] + u[1], odd = p * (u[0] - u[1]);
    float power = over;
    UNROLL for (int i = 0; i < 5; i += 2, power *= p * p) {
        if (i < taps) w[i] = add_scaled(w[i], power, even);
        if (i + 1 < taps) w[i + 1] = add_scaled(w[i + 1], power, odd);
    }
}

MG_INLINE void filter_gradient_line(int taps, int n, const vec u[8], vec *w, int step) {
    vec sum[6] = {OVER_0 * u[0]};
    add_filter_pair(taps, A, OVER_A, u + 2, sum);
    if (n > 4) add_filter_pair(taps, B, OVER_B, u + 4, sum);
    if (n > 6) add_filter_pair(taps, C, OVER_C, u + 6, sum);
    UNROLL for (int i = 0; i < 5; i++) {
        if (i == taps - 1) sum[i] += u[1];
        if (i < taps) w[i * step] = sum[i];
    }
}

#undef A
#undef B
#undef C
#undef A2
#undef B2
#undef C2
#undef OVER_0
#undef OVER_A
#undef OVER_B
#undef OVER_C

#endif

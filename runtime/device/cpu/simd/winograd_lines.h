/* Transforms of one line of a Winograd tile, F(4, 3) and F(2, 5): filters of three or five weights
 * make four or two results of six pixels. The points of the polynomials are 0, +-5/8, +-3/2 and
 * infinity: their powers differ less than those of the usual 1 and 2, which halves the error. */
#ifndef MG_DEVICE_CPU_SIMD_WINOGRAD_LINES_H
#define MG_DEVICE_CPU_SIMD_WINOGRAD_LINES_H

#include "device/cpu/simd/lanes.h"

/* ---- one line of a tile; results lie `step` vectors apart ---- */

/* The two points, their powers, and 1 / M'(p) of the polynomial M(x) = x (x^2 - A^2) (x^2 - B^2).
 */
#define A 0.625f
#define B 1.5f
#define A2 (A * A)
#define B2 (B * B)
#define OVER_0 (1 / (A2 * B2))
#define OVER_A (1 / (2 * A2 * (A2 - B2)))
#define OVER_B (1 / (2 * B2 * (B2 - A2)))

/* B': six pixels to six elements. */
MG_INLINE void image_line(const vec x[6], vec *v, int step) {
    const vec a = add_scaled(x[4], -B2, x[2]), b = add_scaled(A * x[3], -A * B2, x[1]);
    const vec c = add_scaled(x[4], -A2, x[2]), d = add_scaled(B * x[3], -B * A2, x[1]);
    v[0] = add_scaled((A2 * B2) * x[0], -(A2 + B2), x[2]) + x[4];
    v[1 * step] = a + b;
    v[2 * step] = a - b;
    v[3 * step] = c + d;
    v[4 * step] = c - d;
    v[5 * step] = add_scaled((A2 * B2) * x[1], -(A2 + B2), x[3]) + x[5];
}

/* A': six elements to four results, or to two. */
MG_INLINE void result_line_4(const vec m[6], vec *y, int step) {
    const vec a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], d = m[3] - m[4];
    y[0] = m[0] + a + c;
    y[1 * step] = add_scaled(A * b, B, d);
    y[2 * step] = add_scaled(A2 * a, B2, c);
    y[3 * step] = add_scaled((A * A2) * b, B * B2, d) + m[5];
}

MG_INLINE void result_line_2(const vec m[6], vec *y, int step) {
    y[0] = m[0] + (m[1] + m[2]) + (m[3] + m[4]);
    y[1 * step] = add_scaled(A * (m[1] - m[2]), B, m[3] - m[4]) + m[5];
}

/* A: gradients of four results, or of two, to six elements. */
MG_INLINE void gradient_line_4(const vec y[4], vec *d, int step) {
    const vec a = add_scaled(y[0], A2, y[2]), b = add_scaled(A * y[1], A * A2, y[3]);
    const vec c = add_scaled(y[0], B2, y[2]), e = add_scaled(B * y[1], B * B2, y[3]);
    d[0] = y[0];
    d[1 * step] = a + b;
    d[2 * step] = a - b;
    d[3 * step] = c + e;
    d[4 * step] = c - e;
    d[5 * step] = y[3];
}

MG_INLINE void gradient_line_2(const vec y[2], vec *d, int step) {
    d[0] = y[0];
    d[1 * step] = add_scaled(y[0], A, y[1]);
    d[2 * step] = add_scaled(y[0], -A, y[1]);
    d[3 * step] = add_scaled(y[0], B, y[1]);
    d[4 * step] = add_scaled(y[0], -B, y[1]);
    d[5 * step] = y[1];
}

/* B: six elements to the gradients of six pixels. */
MG_INLINE void image_gradient_line(const vec v[6], vec *x, int step) {
    const vec a = v[1] + v[2], b = v[1] - v[2], c = v[3] + v[4], d = v[3] - v[4];
    x[0] = (A2 * B2) * v[0];
    x[1 * step] = add_scaled(add_scaled((A2 * B2) * v[5], -A * B2, b), -B * A2, d);
    x[2 * step] = add_scaled(add_scaled(-(A2 + B2) * v[0], -B2, a), -A2, c);
    x[3 * step] = add_scaled(add_scaled(A * b, B, d), -(A2 + B2), v[5]);
    x[4 * step] = v[0] + a + c;
    x[5 * step] = v[5];
}

#endif

/* Transforms of one line of a Winograd tile, F(6, 3), F(4, 3) and F(2, 3): filters of three weights
 * make six, four or two results of eight, six or four pixels. A line of n pixels has n elements,
 * which belong to the first n of the points 0, infinity, +-17/32, +-15/8 and +-1. Since short lines
 * have elements of long ones, filters are transformed once for tiles of all sizes: the factors
 * 1 / M'(p), in which the sizes differ, are those of the longest line, and the pixels' transforms
 * are scaled for it. The powers of these points differ less than those of the usual 1, 2 and 1/2:
 * the error of F(6, 3) is about that of F(4, 3) with 1 and 2. */
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

/* The elements of p and -p from the even and the odd part of the polynomial; `step` vectors apart.
 */
MG_INLINE void both_signs(float p, vec even, vec odd, vec *v, int step) {
    v[0] = even + p * odd;
    v[step] = even - p * odd;
}

/* ---- B': n pixels to n elements; elements lie `step` vectors apart ---- */

/* The elements of p and -p of eight; s and q: sum and product of the other points' squares. */
MG_INLINE void image_pair_8(float p, float s, float q, const vec x[8], vec *v, int step) {
    both_signs(p, x[6] - s * x[4] + q * x[2], x[5] - s * x[3] + q * x[1], v, step);
}

MG_INLINE void image_line_8(const vec x[8], vec *v, int step) {
    const float s = A2 + B2 + C2, q = A2 * B2 + A2 * C2 + B2 * C2, product = A2 * B2 * C2;
    v[0] = x[6] - s * x[4] + q * x[2] - product * x[0];
    v[1 * step] = x[7] - s * x[5] + q * x[3] - product * x[1];
    image_pair_8(A, B2 + C2, B2 * C2, x, v + 2 * step, step);
    image_pair_8(B, A2 + C2, A2 * C2, x, v + 4 * step, step);
    image_pair_8(C, A2 + B2, A2 * B2, x, v + 6 * step, step);
}

/* The elements of p and -p of six, `scale` times; q: the other point's square. */
MG_INLINE void image_pair_6(float p, float q, float scale, const vec x[6], vec *v, int step) {
    both_signs(p, scale * x[4] - scale * q * x[2], scale * x[3] - scale * q * x[1], v, step);
}

MG_INLINE void image_line_6(const vec x[6], vec *v, int step) {
    v[0] = C2 * (A2 + B2) * x[2] - C2 * x[4] - A2 * B2 * C2 * x[0];
    v[1 * step] = x[5] - (A2 + B2) * x[3] + A2 * B2 * x[1];
    image_pair_6(A, B2, A2 - C2, x, v + 2 * step, step);
    image_pair_6(B, A2, B2 - C2, x, v + 4 * step, step);
}

MG_INLINE void image_line_4(const vec x[4], vec *v, int step) {
    const float scale = (A2 - B2) * (A2 - C2);
    v[0] = B2 * C2 * x[2] - A2 * B2 * C2 * x[0];
    v[1 * step] = x[3] - A2 * x[1];
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

/* ---- A': n elements to n - 2 results ---- */

MG_INLINE void result_line(int n, const vec m[8], vec *y, int step) {
    vec even[3] = {m[2] + m[3]}, odd[3] = {m[2] - m[3]};
    vec sum = m[0] + even[0], slope = A * odd[0];
    if (n > 4) {
        even[1] = m[4] + m[5], odd[1] = m[4] - m[5];
        sum += even[1], slope += B * odd[1];
    }
    if (n > 6) {
        even[2] = m[6] + m[7], odd[2] = m[6] - m[7];
        sum += even[2], slope += C * odd[2];
    }
    if (n == 4) slope += m[1];
    y[0] = sum;
    y[1 * step] = slope;
    if (n == 6) {
        y[2 * step] = A2 * even[0] + B2 * even[1];
        y[3 * step] = A * A2 * odd[0] + B * B2 * odd[1] + m[1];
    } else if (n == 8) {
        y[2 * step] = A2 * even[0] + B2 * even[1] + C2 * even[2];
        y[3 * step] = A * A2 * odd[0] + B * B2 * odd[1] + C * C2 * odd[2];
        y[4 * step] = A2 * A2 * even[0] + B2 * B2 * even[1] + C2 * C2 * even[2];
        y[5 * step] = A * A2 * A2 * odd[0] + B * B2 * B2 * odd[1] + C * C2 * C2 * odd[2] + m[1];
    }
}

/* ---- A: gradients of n - 2 results to n elements ---- */

MG_INLINE void gradient_pair(int n, float p, const vec y[6], vec *d, int step) {
    const float p2 = p * p;
    vec even = y[0], odd = y[1];
    if (n > 4) even += p2 * y[2], odd += p2 * y[3];
    if (n > 6) even += p2 * p2 * y[4], odd += p2 * p2 * y[5];
    both_signs(p, even, odd, d, step);
}

MG_INLINE void gradient_line(int n, const vec y[6], vec *d, int step) {
    d[0] = y[0];
    d[1 * step] = y[n - 3];
    gradient_pair(n, A, y, d + 2 * step, step);
    if (n > 4) gradient_pair(n, B, y, d + 4 * step, step);
    if (n > 6) gradient_pair(n, C, y, d + 6 * step, step);
}

/* ---- G: three weights to n elements; G': n elements to the gradients of three weights ---- */

MG_INLINE void filter_line(int n, const vec w[3], vec *u, int step) {
    u[0] = OVER_0 * w[0];
    u[1 * step] = w[2];
    both_signs(OVER_A * A, OVER_A * w[0] + OVER_A * A2 * w[2], w[1], u + 2 * step, step);
    if (n > 4) both_signs(OVER_B * B, OVER_B * w[0] + OVER_B * B2 * w[2], w[1], u + 4 * step, step);
    if (n > 6) both_signs(OVER_C * C, OVER_C * w[0] + OVER_C * C2 * w[2], w[1], u + 6 * step, step);
}

/* Adds the part of p and -p; over: 1 / M'(p). */
MG_INLINE void add_filter_pair(float p, float over, const vec u[2], vec w[3]) {
    const vec even = u[0] + u[1], odd = u[0] - u[1];
    w[0] += over * even;
    w[1] += over * p * odd;
    w[2] += over * p * p * even;
}

MG_INLINE void filter_gradient_line(int n, const vec u[8], vec *w, int step) {
    vec sum[3] = {OVER_0 * u[0], {0}, u[1]};
    add_filter_pair(A, OVER_A, u + 2, sum);
    if (n > 4) add_filter_pair(B, OVER_B, u + 4, sum);
    if (n > 6) add_filter_pair(C, OVER_C, u + 6, sum);
    for (int i = 0; i < 3; i++) w[i * step] = sum[i];
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

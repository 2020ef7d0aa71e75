/* Where a projective transform reads an image, and which pixels around that point it takes: the
 * formulas of affine_transform on every device.
 *
 * They are those of TensorFlow's ImageProjectiveTransformV3, in double. Compile without contraction
 * to fused multiply-add: a point halfway between two pixels would fall to either of them. */
#ifndef MG_OPS_TRANSFORM_FORMULAS_H
#define MG_OPS_TRANSFORM_FORMULAS_H

#include <math.h>
#include <stdint.h>

#ifndef MG_FORMULA
#define MG_FORMULA static inline
#endif

enum mg_transform_fill {
    MG_OUTSIDE_CONSTANT, /* what lies outside is the fill value */
    MG_OUTSIDE_NEAREST,  /* the edge repeats: a a | a b c d | d d */
    MG_OUTSIDE_REFLECT,  /* the image is mirrored at the edge: b a | a b c d | d c */
    MG_OUTSIDE_WRAP      /* the image repeats: c d | a b c d | a b */
};

/* Points further away than this many cells count as outside. */
#define MG_TRANSFORM_FAR 1073741824.0

/* Pixels along one axis: `count` (0, 1 or 2) of them from `first` on. */
typedef struct mg_transform_axis {
    int first, count;
    double weight[2];
    double inside; /* the sum of the weights: the rest, 1 - inside, is outside the image */
} mg_transform_axis;

/* Sets x and y, the point of the source at which pixel (column, row) of the result is read:
 *
 *     x = (t0 column + t1 row + t2) / k,  y = (t3 column + t4 row + t5) / k,
 *     k = t6 column + t7 row + 1
 *
 * Returns 0 for a point that is not a number or too far away. */
MG_FORMULA int mg_transform_point(const double t[8], int64_t column, int64_t row, double *x,
                                  double *y) {
    const double u = (double)column, v = (double)row, k = t[6] * u + t[7] * v + 1;
    *x = t[0] * u + t[1] * v + t[2];
    *y = t[3] * u + t[4] * v + t[5];
    if (k != 1) *x /= k, *y /= k; /* a division takes longer than all the rest */
    return fabs(*x) < MG_TRANSFORM_FAR && fabs(*y) < MG_TRANSFORM_FAR;
}

/* v rounded towards 0; |v| is smaller than 2^32. */
MG_FORMULA double mg_transform_whole(double v) {
    return (double)(int64_t)v;
}

/* Maps `at` to a position 0 .. n - 1 on an axis of n pixels; MG_OUTSIDE_CONSTANT leaves it as it
 * is. With MG_OUTSIDE_WRAP the image repeats after n pixels, but the number of periods is computed
 * by dividing by n - 1, as in TensorFlow and SciPy. */
MG_FORMULA double mg_transform_fold(double at, int64_t n, int fill) {
    const double size = (double)n, edge = size - 1, both = 2 * size;
    if (fill == MG_OUTSIDE_CONSTANT) return at;
    if (n <= 1) return 0;
    if (fill == MG_OUTSIDE_REFLECT && at < 0) {
        at += both * mg_transform_whole(-at / both);
        at = at < -size ? at + both : -at - 1;
    } else if (fill == MG_OUTSIDE_REFLECT && at > edge) {
        at -= both * mg_transform_whole(at / both);
        if (at >= size) at = both - at - 1;
    } else if (fill == MG_OUTSIDE_WRAP && at < 0) {
        at += size * (mg_transform_whole(-at / edge) + 1);
    } else if (fill == MG_OUTSIDE_WRAP && at > edge) {
        at -= size * mg_transform_whole(at / edge);
    }
    return at < 0 ? 0 : at > edge ? edge : at;
}

/* The pixels that make the value at a folded position: the nearest one (the one further from 0 if
 * two are equally near), or the two around it. A pixel of weight 0 is not counted, so that it may
 * be infinite. */
MG_FORMULA mg_transform_axis mg_transform_pixels(double at, int64_t n, int bilinear) {
    mg_transform_axis a = {0, 0, {0, 0}, 0};
    int64_t low = (int64_t)at;
    double rest;
    low -= (double)low > at; /* the floor */
    rest = at - (double)low;
    if (!bilinear) {
        low += at < 0 ? rest > 0.5 : rest >= 0.5;
        rest = 0;
    }
    a.first = (int)(low < 0 ? low + 1 : low);
    if (low >= 0 && low < n) a.weight[a.count++] = 1 - rest;
    if (rest > 0 && low + 1 >= 0 && low + 1 < n) a.weight[a.count++] = rest;
    a.inside = a.count == 0 ? 0 : a.count == 2 || rest == 0 ? 1 : a.weight[0];
    return a;
}

#endif

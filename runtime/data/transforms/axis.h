/* One axis of a separable image transform: the input positions that are mixed into each output
 * position.
 *
 * Resizing, cropping, flipping, shifting and zooming treat rows and columns independently, so each
 * is a table for the rows and one for the columns. Tables compose: a crop selects entries, a flip
 * reverses them. */
#ifndef MG_DATA_TRANSFORMS_AXIS_H
#define MG_DATA_TRANSFORMS_AXIS_H

#include "core/status.h"
#include "ops/resize_formulas.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum mg_interpolation { MG_BILINEAR, MG_NEAREST } mg_interpolation; /* of affine maps */

/* The values outside of an image abcd, as in scipy.ndimage. */
typedef enum mg_fill {
    MG_FILL_NEAREST, /* aaaa|abcd|dddd */
    MG_FILL_REFLECT, /* dcba|abcd|dcba */
    MG_FILL_WRAP,    /* abcd repeated so that d lies on the next a: the period is n - 1 */
    MG_FILL_CONSTANT /* one value */
} mg_fill;

typedef struct mg_axis {
    int64_t n;
    int taps;       /* input positions of each output position; 1: it is copied */
    int32_t *index; /* {n, taps}, owned; -1 as first index: outside, to be filled with a constant */
    float *weight;  /* {n, taps}, owned; NULL if taps is 1 */
} mg_axis;

/* All of these make a new table in *a, which the caller frees; MG_OOM leaves it empty. Sizes are
 * from 1 to INT32_MAX. */

/* The identity on n positions. */
mg_status mg_axis_identity(mg_axis *a, int64_t n);
/* Resizes the positions first .. first + in - 1 to n, as tf.image.resize; kind: enum
 * mg_resize_kind. Antialiasing widens the kernel when shrinking. */
mg_status mg_axis_resize(mg_axis *a, int64_t first, int64_t in, int64_t n, int kind,
                         bool antialias);
/* Output position i of n is the input at scale * i + offset, of `in`. */
mg_status mg_axis_affine(mg_axis *a, int64_t in, int64_t n, double scale, double offset,
                         mg_interpolation method, mg_fill fill);

/* Replaces the table by its entries first .. first + n - 1; `first` may be negative, and entries
 * outside are filled by `fill`. */
mg_status mg_axis_crop(mg_axis *a, int64_t first, int64_t n, mg_fill fill);
void mg_axis_flip(mg_axis *a);
/* The input positions that are used, *first .. *first + *n - 1; one if none is. */
void mg_axis_span(const mg_axis *a, int64_t *first, int64_t *n);
/* Accepts an empty table. */
void mg_axis_free(mg_axis *a);

/* Moves the coordinate *x into the image of n positions, [0, n - 1], where reflection may leave it
 * up to half a pixel outside. False: it is outside, to be filled with the constant. */
static inline bool mg_fill_coordinate(double *x, int64_t n, mg_fill fill) {
    const double last = (double)(n - 1), v = *x;
    switch (fill) {
    case MG_FILL_NEAREST: *x = v < 0 ? 0 : v > last ? last : v; return true;
    case MG_FILL_REFLECT: {
        const double period = 2 * (double)n;
        double r = v - period * floor((v + 0.5) / period);
        if (r > last + 0.5) r = period - 1 - r;
        *x = r;
        return true;
    }
    case MG_FILL_WRAP:
        if (v >= 0 && v <= last) return true;
        if (last == 0)
            *x = 0;
        else
            *x = v < 0 ? v + last * (trunc(-v / last) + 1) : v - last * trunc(v / last);
        return true;
    case MG_FILL_CONSTANT: break;
    }
    /* An integer coordinate that is computed with sines and cosines has an error of about 1e-15
     * times the size. */
    const double slack = 1e-9;
    if (v < -slack || v > last + slack) return false;
    *x = v < 0 ? 0 : v > last ? last : v;
    return true;
}

#endif

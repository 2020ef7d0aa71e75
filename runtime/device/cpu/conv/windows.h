/* The windows of a convolution: which pixels each result depends on, tap by tap.
 *
 * Forward, and for the filters' gradient, a window belongs to a result and lies in the image ("look
 * forward"). For the gradient of the input, a window belongs to a pixel of dx and lies in dy ("look
 * back"). There, pixels a stride apart depend on the same taps of the filter. So the pixels of each
 * place (the position modulo the stride, in both directions; elsewhere called a phase) have a set
 * of windows. */
#ifndef MG_DEVICE_CPU_CONV_WINDOWS_H
#define MG_DEVICE_CPU_CONV_WINDOWS_H

#include "ops/attrs.h"

typedef struct mg_tap { /* a tap of a filter */
    int64_t y, x;       /* the pixel that it reads, relative to the window */
    int64_t number;     /* its number among the filter's taps */
    int64_t run;        /* taps from this one on whose pixels are contiguous in memory */
} mg_tap;

/* Window (i, j) lies at pixel (i * stride_y, j * stride_x) of an image. */
typedef struct mg_windows {
    int64_t lines, columns; /* windows of an image */
    int64_t stride_y, stride_x;
    int64_t image[4]; /* shape {N, H, W, C} of the images that the windows lie in */
    /* where the results lie in an image of results: offset of the first one, distance of lines,
     * distance of neighbouring pixels, in elements */
    int64_t first, line, pixel;
    int64_t depth;    /* channels that a tap reads: those of one group */
    int64_t channels; /* of a filter */
    int64_t taps;     /* may be 0 for windows that look back */
    mg_tap *tap;      /* the caller's: room for all taps of a filter */
} mg_windows;

/* The windows of results of shape `grid` {N, H, W, C} in images of shape `image`; `filters`: {rows,
 * columns, channels of a group, filters}. */
void mg_look_forward(mg_windows *w, const mg_conv_attrs *a, const int64_t *image,
                     const int64_t *grid, const int64_t *filters);
/* The number of places: stride x stride, or fewer in an image of shape `grid` that is smaller than
 * a stride. */
int64_t mg_look_back_places(const mg_conv_attrs *a, const int64_t *grid);
/* The windows in dy of those pixels of `grid` that have this place. */
void mg_look_back(mg_windows *w, const mg_conv_attrs *a, const int64_t *dy, const int64_t *grid,
                  const int64_t *filters, int64_t place);

#endif

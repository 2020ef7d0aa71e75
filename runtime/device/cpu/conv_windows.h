/* The windows through which a convolution looks at images: which pixels each of its results meets.
 * Forward, and for the filters' gradient, results look at the image. For the gradient of the input,
 * the image's pixels look at dy; pixels a stride apart meet the same taps, so there are windows of
 * their own for each place within a stride. */
#ifndef MG_DEVICE_CPU_CONV_WINDOWS_H
#define MG_DEVICE_CPU_CONV_WINDOWS_H

#include "ops/attrs.h"

typedef struct mg_tap { /* of a filter, as the windows see it */
    int64_t y, x;       /* of the pixel it meets, from the window's place on */
    int64_t number;     /* among the filter's taps */
    int64_t run;        /* taps from this one on whose channels are neighbours in memory */
} mg_tap;

/* Window (i, j) of an image stands at its pixel (i * stride_y, j * stride_x). */
typedef struct mg_windows {
    int64_t lines, columns; /* windows of an image */
    int64_t stride_y, stride_x;
    int64_t image[4]; /* shape of the images that they look at: {N, H, W, C} */
    /* where their results lie in an image of them, in elements: the first one, and how far apart
     * lines and neighbours are */
    int64_t first, line, pixel;
    int64_t depth;    /* channels of a tap, in one group */
    int64_t channels; /* of a filter */
    int64_t taps;     /* may be 0 for windows that look back */
    mg_tap *tap;      /* the caller's: room for all taps of a filter */
} mg_windows;

/* The windows of results of `grid` {N, H, W, C} that look at images of shape `image`; `filters`:
 * {rows, columns, channels of a group, filters}. */
void mg_look_forward(mg_windows *w, const mg_conv_attrs *a, const int64_t *image,
                     const int64_t *grid, const int64_t *filters);
/* The places within a stride, fewer in an image of shape `grid` that is smaller than a stride. */
int64_t mg_look_back_places(const mg_conv_attrs *a, const int64_t *grid);
/* The windows of the pixels of `grid` that lie at one of those places, which look at dy. */
void mg_look_back(mg_windows *w, const mg_conv_attrs *a, const int64_t *dy, const int64_t *grid,
                  const int64_t *filters, int64_t place);

#endif

/* Resampling: computing the pixels of an image from those of another one. */
#ifndef MG_DATA_TRANSFORMS_RESAMPLE_H
#define MG_DATA_TRANSFORMS_RESAMPLE_H

#include "core/dtype.h"
#include "data/transforms/axis.h"

/* Pixels in memory: {height, width, channels}, row-major. Sizes are from 1 to INT32_MAX. */
typedef struct mg_pixels {
    int64_t height, width, channels;
    mg_dtype dtype;
    void *data;
} mg_pixels;

static inline int64_t mg_pixels_count(const mg_pixels *p) {
    return p->height * p->width * p->channels;
}

/* Both functions write dst->data, which the caller has allocated. The dtypes of src and dst are
 * uint8 or float32, or any one dtype if pixels are only copied (one tap, or MG_NEAREST). Pixels
 * outside of src become `constant`. Computed in float32; results in uint8 are rounded. MG_OOM. */

/* Rows and columns independently: dst is {rows->n, columns->n}. */
mg_status mg_resample(const mg_pixels *src, const mg_axis *rows, const mg_axis *columns,
                      double constant, mg_pixels *dst);
/* The same with the baseline instruction set; the bits are the same. */
mg_status mg_resample_baseline(const mg_pixels *src, const mg_axis *rows, const mg_axis *columns,
                               double constant, mg_pixels *dst);

/* Pixel (r, c) of dst is src at (map[0] r + map[1] c + map[2], map[3] r + map[4] c + map[5]). */
typedef struct mg_affine {
    double map[6];
    mg_interpolation method; /* MG_BILINEAR or MG_NEAREST */
    mg_fill fill;
    double constant;
} mg_affine;
mg_status mg_resample_affine(const mg_pixels *src, const mg_affine *a, mg_pixels *dst);

/* Converts n numbers between uint8 and any other dtype, or any dtype and float32. uint8 results are
 * rounded and saturate. The same dtype: copied. */
void mg_pixels_convert(void *dst, mg_dtype to, const void *src, mg_dtype from, int64_t n);
/* {channels, height, width} to {height, width, channels} for elements of `size` bytes, and back. */
void mg_pixels_channels_last(void *dst, const void *src, int64_t channels, int64_t pixels,
                             size_t size);
void mg_pixels_channels_first(void *dst, const void *src, int64_t channels, int64_t pixels,
                              size_t size);
/* One pixel of the constant in this dtype, as bytes at `pixel` (room for channels elements). */
void mg_pixels_constant(void *pixel, mg_dtype dtype, int64_t channels, double constant);

#endif

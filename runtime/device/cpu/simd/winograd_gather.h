/* Pixels as floats in a small buffer, for tiles that the transforms of winograd.c cannot read or
 * write in place: those of float16 and bfloat16 images, and of images with step 2 and few
 * channels. The buffer stays in the L1 cache. */
#ifndef MG_DEVICE_CPU_SIMD_WINOGRAD_GATHER_H
#define MG_DEVICE_CPU_SIMD_WINOGRAD_GATHER_H

#include "device/cpu/simd/conversion_loops.h"
#include "device/cpu/simd/winograd.h"
#include <string.h>

enum {
    MOST_WIDE = 8,     /* grid points of a side of a tile, at most */
    MOST_GATHERED = 64 /* channels of a point in the buffer, at most */
};

typedef float mg_gathered[MOST_WIDE * MOST_WIDE * MOST_GATHERED]
    __attribute__((aligned(MG_VECTOR)));

/* Bytes before element `at` of an image. */
static inline int64_t bytes_to(const mg_winograd_image *g, int64_t at) {
    return at * (int64_t)(g->dtype == MG_F32 ? sizeof(float) : sizeof(uint16_t));
}

/* Reads n channels from element `at` on. */
static inline void read_channels(const mg_winograd_image *g, const void *image, int64_t at,
                                 int64_t n, float *to) {
    mg_load_f32(to, (const char *)image + bytes_to(g, at), g->dtype, (int)n);
}

/* Gathers n channels, from channel `first` on, of high x wide pixels, g->step apart, of which the
 * first is (y, x): to points of `apart` channels. Pixels outside the image and channels past n are
 * 0. */
static void gather_pixels(const mg_winograd_image *g, const void *image, int64_t y, int64_t x,
                          int high, int wide, int64_t first, int64_t n, int64_t apart, float *to) {
    for (int r = 0; r < high; r++, y += g->step)
        for (int q = 0; q < wide; q++, to += apart) {
            const int64_t column = x + q * g->step;
            const bool inside = y >= 0 && y < g->h && column >= 0 && column < g->w;
            const int64_t count = inside ? n : 0;
            if (count) read_channels(g, image, (y * g->w + column) * g->c + first, count, to);
            if (count < apart) memset(to + count, 0, (size_t)(apart - count) * sizeof *to);
        }
}

/* The reverse, for high x wide pixels inside the image, whose rows lie `row` pixels apart in the
 * buffer. */
static void scatter_pixels(const mg_winograd_image *g, const float *from, int64_t row,
                           int64_t apart, int64_t high, int64_t wide, int64_t y, int64_t x,
                           int64_t first, int64_t n, void *image) {
    for (int64_t r = 0; r < high; r++)
        for (int64_t q = 0; q < wide; q++) {
            const int64_t pixel = (y + r * g->step) * g->w + x + q * g->step;
            mg_store_f32((char *)image + bytes_to(g, pixel * g->c + first),
                         from + (r * row + q) * apart, g->dtype, (int)n);
        }
}

/* ---- step 2, few channels ---- */

/* n pixels of a row of the image, from (y, x) on: where they lie, or a copy of those inside the
 * image, if they are halves. */
static inline const float *row_of(const mg_winograd_image *g, const void *image, int64_t y,
                                  int64_t x, int64_t n, float *copy) {
    const int64_t at = (y * g->w + x) * g->c, first = x < 0 ? -x : 0;
    const int64_t end = x + n > g->w ? g->w - x : n;
    if (g->dtype == MG_F32) return (const float *)image + at;
    if (end > first)
        read_channels(g, image, at + first * g->c, (end - first) * g->c, copy + first * g->c);
    return copy;
}

/* Copies n channels. The compiler knows the size of two RGB pixels, which takes a few moves. */
MG_INLINE void copy_channels(float *to, const float *from, int64_t n) {
    if (n == 6)
        memcpy(to, from, 6 * sizeof *to);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* Gathers a row of `wide` grid points, `apart` floats from each other, whose first pixel is (y, x).
 * The channels of their four pixels lie side by side. Pixels outside the image are 0. */
static void gather_points(const mg_winograd_image *g, const void *image, int64_t y, int64_t x,
                          int wide, int64_t apart, float *to) {
    float copy[2 * MOST_WIDE * MOST_GATHERED / 4];
    for (int64_t row = y; row < y + 2; row++, to += 2 * g->c) {
        const bool inside = row >= 0 && row < g->h;
        const float *from = inside ? row_of(g, image, row, x, 2 * wide, copy) : NULL;
        if (inside && x >= 0 && x + 2 * wide <= g->w) {
            for (int q = 0; q < wide; q++)
                copy_channels(to + q * apart, from + q * 2 * g->c, 2 * g->c);
            continue;
        }
        for (int q = 0; q < 2 * wide; q++) {
            float *pixel = to + q / 2 * apart + q % 2 * g->c;
            if (inside && x + q >= 0 && x + q < g->w)
                copy_channels(pixel, from + q * g->c, g->c);
            else
                memset(pixel, 0, (size_t)g->c * sizeof *pixel);
        }
    }
}

#endif

/* A Winograd convolution on the cpu device: its sizes (conv_winograd_sizes.c), with which it runs
 * (conv_winograd.c). */
#ifndef MG_DEVICE_CPU_CONV_WINOGRAD_H
#define MG_DEVICE_CPU_CONV_WINOGRAD_H

#include "device/cpu/cpu.h"

/* One axis of a convolution as one with stride 1: see mg_winograd_image. */
typedef struct mg_winograd_axis {
    int64_t step, points; /* pixels of a grid point; points of the result's grid */
    int taps;
    bool rotated;           /* it computes the image's gradient, from dy: */
    int64_t padding, first; /* of the image; dy's point that the first tap of point 0 meets */
} mg_winograd_axis;

/* The tap that weight t of a filter's side becomes, and the pixel of a grid point that it meets. */
typedef struct mg_tap_place {
    int64_t tap, phase;
} mg_tap_place;

mg_tap_place mg_winograd_place(const mg_winograd_axis *a, int64_t t);

enum { MG_WINOGRAD_REGIONS = 4 };

/* The state of the kernels. */
typedef struct mg_winograd_conv {
    mg_winograd_image image, result;
    mg_winograd_axis y, x;
    mg_winograd_region regions[MG_WINOGRAD_REGIONS]; /* that with the largest tiles first */
    int64_t blocks[MG_WINOGRAD_REGIONS];             /* of each region, with so many tiles: */
    int64_t block[MG_WINOGRAD_REGIONS], largest_block;
    int n_regions, elements; /* elements: of the largest tiles */
    int64_t images;
    int64_t c, k, strips; /* channels summed over and made; strips of the latter */
    int64_t filter_plane, image_plane, result_plane, ld; /* floats; of a row of V */
    size_t filters_at, threads_at, thread_floats;        /* places in scratch, in floats */
    int team, taps, side;                                /* taps, and weights, of a filter's side */
    bool bias, relu;
    bool by_strips;   /* threads share strips of results, not blocks of tiles */
    bool past_caches; /* image and result are too large to stay in the caches */
} mg_winograd_conv;

/* Whether the filters, {taps, taps, c, k}, are in scratch memory, in another order than w. */
bool mg_winograd_is_arranged(const mg_winograd_conv *s);
/* Tiles of all images in a region. */
int64_t mg_winograd_tiles(const mg_winograd_conv *s, int region);
/* Tiles of a block, at most `most`, such that n threads get equally many blocks. */
int64_t mg_winograd_block(int64_t tiles, int64_t n, int64_t most);

/* Of the kernels for the three forms. */
const char *mg_winograd_accepts_forward(const mg_kernel_plan *plan);
const char *mg_winograd_accepts_grad_input(const mg_kernel_plan *plan);
const char *mg_winograd_accepts_grad_weight(const mg_kernel_plan *plan);
mg_status mg_winograd_prepare_forward(mg_kernel_plan *plan);
mg_status mg_winograd_prepare_grad_input(mg_kernel_plan *plan);
mg_status mg_winograd_prepare_grad_weight(mg_kernel_plan *plan);

#endif

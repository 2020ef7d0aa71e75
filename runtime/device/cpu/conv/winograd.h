/* The sizes of a Winograd convolution: conv/winograd_sizes.c computes them, conv/winograd.c runs
 * with them. */
#ifndef MG_DEVICE_CPU_CONV_WINOGRAD_H
#define MG_DEVICE_CPU_CONV_WINOGRAD_H

#include "device/cpu/cpu.h"

/* One axis of a convolution that is computed as one with stride 1: see mg_winograd_image. */
typedef struct mg_winograd_axis {
    int64_t step, points; /* pixels of a grid point; grid points of the result */
    int taps;
    /* the filters are rotated: the result is the image's gradient, from dy */
    bool rotated;
    /* rotated only: padding of the image; the point of dy that tap 0 reads for point 0 */
    int64_t padding, first;
} mg_winograd_axis;

/* Along one axis, where weight t of a filter goes: to which tap of the stride-1 filter, and to
 * which phase (pixel of a grid point). */
typedef struct mg_tap_place {
    int64_t tap, phase;
} mg_tap_place;

mg_tap_place mg_winograd_place(const mg_winograd_axis *a, int64_t t);

enum {
    MG_WINOGRAD_REGIONS = 4,
    /* tiles, or channels of filters, that a thread transforms at a time for all threads, at most */
    MG_WINOGRAD_SHARE = 8,
    /* floats between planes: apart by a power of two, they would share cache sets */
    MG_WINOGRAD_PADDING = 16
};

/* The state of the kernels. */
typedef struct mg_winograd_conv {
    mg_winograd_image image, result;
    mg_winograd_axis y, x;
    mg_winograd_region regions[MG_WINOGRAD_REGIONS]; /* the one with the largest tiles first */
    /* blocks of tiles in each region; tiles of a block; the largest of these numbers */
    int64_t blocks[MG_WINOGRAD_REGIONS];
    int64_t block[MG_WINOGRAD_REGIONS], largest_block;
    int n_regions, elements; /* elements: elements of the largest tiles */
    int64_t images;
    int64_t c, k, strips; /* channels summed over, and produced; strips of the latter */
    /* floats of a plane of each operand (mg_winograd_planes); of a row of V */
    int64_t filter_plane, image_plane, result_plane, ld;
    /* The filters' gradient is the sum of this many partial sums, each over its own blocks, however
     * many threads there are. Results: 1. */
    int64_t partials;
    int64_t part; /* channels of a part of the filters' gradient; 0: it is computed as a whole */
    /* offsets in scratch, and size of a thread's scratch, in floats; copies: if images are halves,
     * w or its gradient, and the bias, as floats */
    size_t filters_at, threads_at, partials_at, copies_at, thread_floats;
    size_t results_at;    /* by strips: in a thread's scratch, of M */
    int team, taps, side; /* taps: of a side of the stride-1 filter; side: weights of a side of w */
    bool bias, relu;
    bool by_strips;   /* threads share strips of results, not blocks of tiles */
    bool packed;      /* the transformed filters are given: they stay the same from run to run */
    int tile;         /* packed: elements of a side of all tiles, 8 or 6; 0: as cut_side says */
    bool alone;       /* a thread computes a partial sum alone, with its own V, D and dU */
    bool past_caches; /* image and result are too large to stay in the caches */
} mg_winograd_conv;

/* Whether the filters must be rearranged as {taps, taps, c, k} in scratch memory first, because
 * they are rotated or the stride is not 1. */
bool mg_winograd_is_arranged(const mg_winograd_conv *s);
/* Floats of the transformed filters, or of a thread's part of their gradient. */
size_t mg_winograd_filters_floats(const mg_winograd_conv *s);
/* packed: where a strip of the given filters begins, and the floats of all of them. */
size_t mg_winograd_strip_at(const mg_winograd_conv *s, int64_t strip);
size_t mg_winograd_packed_floats(const mg_winograd_conv *s);
/* Transforms the filters of a call in advance: mg_kernel_plan.packer. */
extern const mg_kernel mg_winograd_packer;
/* Tiles of all images in a region. */
int64_t mg_winograd_tiles(const mg_winograd_conv *s, int region);
/* Tiles of a block, at most `most`, such that n threads get equally many blocks. */
int64_t mg_winograd_block(int64_t tiles, int64_t n, int64_t most);

/* The kernels' functions for the three forms: forward, gradient of the input, gradient of the
 * weights. */
const char *mg_winograd_accepts_forward(const mg_kernel_plan *plan);
const char *mg_winograd_accepts_grad_input(const mg_kernel_plan *plan);
const char *mg_winograd_accepts_grad_weight(const mg_kernel_plan *plan);
mg_status mg_winograd_prepare_forward(mg_kernel_plan *plan);
mg_status mg_winograd_prepare_grad_input(mg_kernel_plan *plan);
mg_status mg_winograd_prepare_grad_weight(mg_kernel_plan *plan);

#endif

/* The inner loops of the cpu device's kernels as tables of functions, one set of tables per
 * instruction set.
 *
 * Each .c file of this folder is compiled once per instruction set (see isa.h) and defines tables
 * of the types that are declared here and in the headers below. mg_simd_choose picks a set when the
 * plug-in is opened; kernels reach it through mg_simd_used. So each loop has one source text, and
 * one decision says which compilation of it runs, with every compiler and in the sanitizer builds
 * too. */
#ifndef MG_DEVICE_CPU_SIMD_SIMD_H
#define MG_DEVICE_CPU_SIMD_SIMD_H

#include "core/dtype.h"
#include "core/status.h"
#include "device/cpu/simd/winograd.h"
#include "device/cpu/simd/winograd_images.h"
#include "device/cpu/simd/conversions.h"
#include "device/cpu/simd/depthwise.h"
#include "device/cpu/simd/fused_threaded.h"
#include "device/cpu/simd/gemm.h"
#include "device/cpu/simd/int8.h"
#include <stdbool.h>

enum {
    MG_LINE = 64,  /* bytes of a cache line */
    MG_LANES = 16, /* floats that some loops take at a time, whatever the width of a vector */
    MG_TILE = 64,  /* columns or lanes that the loops below take at a time, at most */
    MG_SQUARE = 8, /* side of the squares that transpose_square transposes */
    /* rows whose sums are made in the dtype of the elements; these sums are added up in double */
    MG_FOLD_ROWS = 32
};

/* ---- moving elements ---- */

/* The part of a matrix that one call computes: rows row .. end_row - 1 of columns column ..
 * end_column - 1. */
typedef struct mg_matrix_part {
    int64_t row, end_row, column, end_column;
} mg_matrix_part;

/* scatter_add: slices of dy {n, inner} are added to the rows of the result {size, inner} that the
 * ids name; ids outside the result are skipped. */
typedef struct mg_scatter {
    int64_t outer; /* pairs of such matrices, one after another */
    int64_t n, size, inner;
    const int32_t *ids; /* exactly one of the two is given */
    const int64_t *long_ids;
} mg_scatter;

typedef struct mg_simd_movement {
    /* A copy with non-temporal stores, which go past the caches, where the processor has them.
     * end_stream must come before another thread may read what was written. */
    void (*stream)(float *dst, const float *src, int64_t n);
    void (*end_stream)(void);
    /* Transposes MG_SQUARE x MG_SQUARE words; rows lie src_row and dst_row words apart. */
    void (*transpose_square)(const uint32_t *src, ptrdiff_t src_row, uint32_t *dst,
                             ptrdiff_t dst_row);
    /* y {n, m} = transposed x {m, n}, for a block of x. */
    void (*transpose_block)(const float *x, float *y, int64_t m, int64_t n, mg_matrix_part b);
    void (*scatter_f32)(const mg_scatter *s, const mg_matrix_part *p, const float *dy, float *dx);
    void (*scatter_f64)(const mg_scatter *s, const mg_matrix_part *p, const double *dy, double *dx);
} mg_simd_movement;

/* ---- random numbers ---- */

typedef struct mg_simd_random {
    /* 64 Philox words: 16 blocks from block `index` on, the words of a block side by side. */
    void (*philox16)(uint32_t *words, uint64_t index, uint64_t ordinal, uint32_t seed,
                     uint32_t stream);
    /* 64 normally distributed numbers from 64 words. */
    void (*normal64)(const uint32_t *words, float *out, double mean, double deviation);
} mg_simd_random;

/* ---- convolutions with few channels: see conv/small.c one folder up ---- */

typedef struct mg_conv_small {
    int64_t n, h, w, c;   /* images */
    int64_t oh, ow, k;    /* results: rows, columns, filters */
    int64_t kh, kw;       /* taps of a filter */
    int64_t top, left;    /* padding */
    int64_t down, across; /* the strides: 1, except for the gradient of the input */
    int64_t row;  /* gradient of the input: floats that one pixel of dy adds to, rounded up to
                     MG_LANES */
    int64_t wide; /* a row of the padded image: in pixels, or in floats for the input's gradient */
    int64_t rows; /* rows of the padded image; of a unit, for the gradient of the input */
    size_t table; /* floats of scratch for a table of weights, or of sums */
    size_t thread_floats; /* floats of scratch per thread */
    int team;             /* threads */
} mg_conv_small;

/* Some rows of the results of a group of images. */
typedef struct mg_conv_rows {
    int64_t n, count;    /* the first image, and how many there are */
    int64_t first, last; /* the rows [first, last) of each */
} mg_conv_rows;

typedef struct mg_simd_conv_small {
    int images; /* a group is this many images: one per lane of a vector */
    /* Gathers the rows of images that the rows of results need, from x on, with their padding, as
     * pixels of `images` lanes each; lanes without an image are 0. */
    void (*gather_images)(const mg_conv_small *s, const float *x, const mg_conv_rows *rows,
                          float *out);
    /* Gathers n elements of each of `count` images, `step` floats apart, as lanes. */
    void (*gather_row)(float *row, int64_t n, int64_t count, const float *y, int64_t step);
    /* Computes the convolution of a group of images with one channel, from the gathered images to
     * y; `row` is scratch. */
    void (*forward_rows)(const mg_conv_small *s, const float *images, const float *w,
                         const float *bias, bool relu, const mg_conv_rows *rows, float *row,
                         float *y);
    /* Adds the products of one row of dy (as lanes) and the image rows below it to the sums. */
    void (*weight_row)(const mg_conv_small *s, const float *images, const float *row, float *sums);
    /* Computes rows [first, end) of the gradient of one image with few channels; w is [ky][k][kx *
     * C + c], in rows of s->row floats; `padded` is scratch for as many rows of s->wide floats. */
    void (*input_rows)(const mg_conv_small *s, const float *dy, const float *w, int64_t first,
                       int64_t end, float *padded, float *dx);
} mg_simd_conv_small;

/* ---- sums over rows of lanes: see reduce/channel_view.h ---- */

/* A partial result of a reduction: real for floats, integer for integers and bool. */
typedef union mg_partial {
    double real;
    int64_t integer;
} mg_partial;

/* Reduces `rows` rows of `width` lanes, `step` elements apart, into result[0 .. width). */
typedef void mg_fold(const void *x, int64_t rows, int64_t step, int width, mg_partial *result);

typedef struct mg_folding {
    const char *op;
    mg_partial start; /* the reduction of no elements */
    mg_partial (*join)(mg_partial a, mg_partial b);
    mg_fold *fold;
    mg_partial (*run)(const void *x, int64_t n); /* n contiguous elements */
} mg_folding;

enum { MG_REDUCTIONS = 6 };

typedef struct mg_simd_folds {
    mg_folding reductions[MG_REDUCTIONS];
    /* running sums of n rows of `width` columns, `step` elements apart; those of integers and bool
     * are int64 */
    void (*cumsum)(const void *x, void *y, int64_t n, int64_t step, int64_t width);
    /* the index of the largest, or the smallest, of n elements `step` apart; the first one if
     * several are equal */
    int64_t (*extreme)(const void *x, int64_t n, int64_t step, bool largest);
    int64_t size; /* bytes of an element */
    /* What follows is for floats only.
     *
     * The mean of each lane of rows > 0, and the sum of squared distances from it */
    void (*moments)(const void *x, int64_t rows, int64_t step, int width, double *mean,
                    double *square);
    /* adds dy to sum and dy * (x - mean) to product */
    void (*products)(const void *x, const void *dy, int64_t rows, int64_t step, int width,
                     const double *mean, double *sum, double *product);
    /* y = (x - mean) * scale + beta; past_caches: end_stream must follow */
    void (*normalise)(const void *x, void *y, int64_t rows, int64_t step, int width,
                      const double *mean, const double *scale, const double *beta,
                      bool past_caches);
    /* y[j] = the sum of x[offset[k] + j] over k < n, summed in the elements' dtype */
    void (*sum_runs)(const void *x, const int64_t *offset, int n, int64_t run, void *y);
    bool (*finite)(const void *x, int64_t n);
} mg_simd_folds;

/* ---- pools ---- */

/* `count` images of h x w pixels, `width` neighbouring channels each, pooled to oh x ow pixels. In
 * size, stride and before, index 0 is the vertical axis and 1 the horizontal one. */
typedef struct mg_pool_plane {
    int64_t count, h, w, oh, ow, width;
    int64_t size[2], stride[2], before[2]; /* window, its stride, padding before the image */
    bool pairs;                            /* 2 x 2 windows with stride 2, without padding */
} mg_pool_plane;

/* x and dx are one plane. In max_row and avg_row, y is row oy of the pooled plane; elsewhere y and
 * dy are the whole pooled plane. max_grad_row computes the rows of dx under row oy of windows;
 * max_grad_rows and avg_grad_rows compute the rows [first, end) of dx. */
typedef struct mg_simd_pool {
    void (*max_row)(const mg_pool_plane *p, const void *x, void *y, int64_t oy);
    void (*avg_row)(const mg_pool_plane *p, const void *x, void *y, int64_t oy);
    void (*max_grad_row)(const mg_pool_plane *p, const void *x, const void *y, const void *dy,
                         void *dx, int64_t oy); /* pairs only */
    void (*max_grad_rows)(const mg_pool_plane *p, const void *x, const void *y, const void *dy,
                          void *dx, int64_t first, int64_t end);
    void (*avg_grad_rows)(const mg_pool_plane *p, const void *dy, void *dx, int64_t first,
                          int64_t end);
    int64_t size; /* bytes of an element */
} mg_simd_pool;

/* ---- resized and transformed images ---- */

/* How the pixels along an axis are computed from those along another: pixel p is the sum over k <
 * count[p] of weight[p * most + k] * pixel first[p] + k of the other. */
typedef struct mg_taps {
    int64_t n, most;
    int32_t *first, *count;
    void *weight;
} mg_taps;

/* A point of an image: `rows` x `columns` pixels (0 to 2 each) from pixel `first` on, with the
 * product of a row's and a column's weight. */
typedef struct mg_sample {
    int64_t first;
    int32_t rows, columns;
    double row[2], column[2];
    double outside; /* the weight of the fill value */
} mg_sample;

/* Images have rows of `width` pixels with c channels. */
typedef struct mg_simd_resize {
    void (*blend_rows)(const void *x, int64_t row, const void *weight, int64_t n, int64_t width,
                       void *y);
    void (*blend_columns)(const mg_taps *taps, const void *x, int64_t c, void *y);
    void (*sample_row)(const mg_sample *s, int64_t n, const void *image, int64_t width, int64_t c,
                       double fill, void *y);
    void (*spread_row)(const mg_sample *s, int64_t n, const void *dy, int64_t width, int64_t c,
                       void *dx);
} mg_simd_resize;

/* ---- rows: normalised, softmax, cross-entropy ---- */

enum { MG_NORM_ROWS = 32 }; /* rows that a layer norm takes at a time, at most */

/* The operands of the gradients of a layer norm, for n rows. */
typedef struct mg_layer_norm_rows {
    const void *x, *gamma, *dy;
    void *dx;      /* NULL: is not computed, and gamma is not read */
    double *sums;  /* {2, length}: sums of dy and dy * xhat are added; NULL: are not computed */
    void *partial; /* for sums: room for 2 * length numbers */
    int64_t n, length;
    int64_t few; /* rows to take at a time, at most MG_NORM_ROWS */
    double epsilon;
} mg_layer_norm_rows;

typedef struct mg_simd_layer_norm {
    /* n <= MG_NORM_ROWS rows of c numbers */
    void (*normalise_rows)(const void *x, const void *gamma, const void *beta, void *y, int64_t n,
                           int64_t c, double epsilon);
    void (*gradients)(const mg_layer_norm_rows *r);
} mg_simd_layer_norm;

typedef struct mg_simd_softmax {
    /* one row of n elements */
    void (*row)(const void *x, void *y, int64_t n, bool logarithm);
    void (*grad_row)(const void *y, const void *dy, void *dx, int64_t n);
    /* `width` <= MG_TILE columns of n elements, which lie `step` apart */
    void (*columns)(const void *x, void *y, int64_t n, int64_t step, int width, bool logarithm);
    void (*grad_columns)(const void *y, const void *dy, void *dx, int64_t n, int64_t step,
                         int width);
} mg_simd_softmax;

/* A row x of n elements; its targets are a row t, or a label. A label outside the row has loss 0
 * and gradient 0. */
typedef struct mg_simd_cross_entropy {
    void (*loss)(const void *x, const void *t, int64_t n, void *loss);
    void (*grad)(const void *x, const void *t, const void *dy, int64_t n, void *dx);
    void (*label_loss)(const void *x, int64_t label, int64_t n, void *loss);
    void (*label_grad)(const void *x, int64_t label, const void *dy, int64_t n, void *dx);
} mg_simd_cross_entropy;

/* ---- a set of tables ---- */

typedef struct mg_simd {
    const char *name;  /* its name in MGPU_ISA: "avx2" */
    const char *title; /* its name in messages: "AVX2" */
    const mg_simd_conversions *conversions;
    const mg_simd_movement *movement;
    const mg_simd_random *random;
    const mg_simd_winograd *winograd;
    const mg_simd_winograd_images *winograd_images;
    const mg_simd_conv_small *conv_small;
    const mg_simd_int8_rows *int8;
    /* for float32, float16 (NULL: no instructions to convert it) and bfloat16 */
    const mg_simd_depthwise *depthwise[3];
    const mg_simd_folds *folds[MG_N_DTYPES]; /* NULL for halves: their loops are those of floats */
    /* for float32 and for float64: see mg_simd_index */
    const mg_simd_threaded *threaded[2];
    const mg_simd_gemm *gemm[2];
    const mg_simd_pool *pool[2];
    const mg_simd_resize *resize[2];
    const mg_simd_layer_norm *layer_norm[2];
    const mg_simd_softmax *softmax[2];
    const mg_simd_cross_entropy *cross_entropy[2];
} mg_simd;

/* The index in a pair of tables for a dtype, which must be float32 or float64. */
static inline int mg_simd_index(mg_dtype t) {
    return t == MG_F64;
}

/* The sets that are compiled: those of cpu/rules.mk for this architecture. */
#if defined(__x86_64__)
extern const mg_simd mg_simd_baseline, mg_simd_avx2, mg_simd_avx512;
#elif defined(__aarch64__)
extern const mg_simd mg_simd_neon;
#else
extern const mg_simd mg_simd_baseline;
#endif

/* The set in use: the narrowest until mg_simd_choose has chosen. */
extern const mg_simd *mg_simd_used;

/* Columns of a strip of floats: see gemm.h. */
static inline int mg_float_strip(void) {
    return mg_simd_used->gemm[0]->strip;
}

/* Chooses the widest set that this processor runs, or the one that the environment variable
 * MGPU_ISA names. MG_USAGE if the name is unknown, or this processor lacks the set. May be called
 * again. */
mg_status mg_simd_choose(void);

/* The sets that this processor runs, widest first; returns how many (at most 3). */
int mg_simd_available(const mg_simd *sets[3]);

#endif

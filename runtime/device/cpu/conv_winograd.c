/* conv2d and its gradients with 3x3 filters and stride 1 by Winograd's algorithm: float32,
 * row-major.
 *
 * Results are computed in blocks of tiles, each by one thread with its own scratch. The filters'
 * gradient sums over all tiles: blocks are transformed by all threads together, then each thread
 * adds the block's products to its own elements of dU, so that the order of sums does not depend on
 * the number of threads. A product takes a quarter of the multiplications of a direct sum; the
 * error is about 3e-6 of the largest result, so precision "highest" does not come here. Few
 * channels are taken by conv_winograd_images.c, if there are enough images. */
#include "core/alloc.h"
#include "core/precision.h"
#include "device/cpu/cpu.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"
#include <omp.h>
#include <string.h>

enum {
    ELEMENTS = 36,      /* of a transformed tile */
    BLOCK = 56,         /* tiles of a thread's block: four times the 14 rows of AVX-512's product */
    SHARED_BLOCK = 128, /* of a block that all threads transform together */
    DEPTH = 256, /* channels that a product sums at a time: its filters stay in the first cache */
    FEWEST = 16, /* channels on either side: with fewer, transforms cost more than they save */
    FEWEST_TILES = 32,
    PADDING = 16 /* floats between planes: apart by a power of two, they would share cache sets */
};

typedef struct winograd_conv {
    mg_winograd_tiles image,
        result;           /* the image that is read in 6x6 tiles, and what has 4x4 tiles */
    int64_t tiles, block; /* in all images; of a block */
    int64_t c, k, strips; /* channels summed over and made; strips of the latter */
    int64_t filter_plane, image_plane, result_plane, ld; /* floats; of a row of V */
    size_t filters_at, threads_at, thread_floats;        /* places in scratch, in floats */
    int team;
    bool bias, relu, rotated; /* rotated: the image's gradient */
    bool past_caches;         /* image and result are too large to stay in the caches */
} winograd_conv;

/* ---- which convolutions ---- */

static const char *winograd_refusal(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    if (!mg_all_f32(plan)) return "not float32";
    if (!mg_precision_fast()) return "precision is \"highest\"";
    if (a->strides.v[0] != 1 || a->strides.v[1] != 1 || a->dilations.v[0] != 1 ||
        a->dilations.v[1] != 1 || a->groups != 1)
        return "strides, dilations or groups";
    return NULL;
}

static const char *winograd_accepts(const mg_kernel_plan *plan, const mg_value *x,
                                    const mg_value *w, const mg_value *y) {
    const mg_conv_attrs *a = plan->step->attrs;
    const char *refusal = winograd_refusal(plan);
    if (refusal) return refusal;
    if (w->shape.dim[0] != 3 || w->shape.dim[1] != 3) return "filters are not 3x3";
    if (x->shape.dim[3] < FEWEST || y->shape.dim[3] < FEWEST) return "few channels";
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i] > 2) return "padded by more than the filter";
    const int64_t *d = y->shape.dim;
    if (d[0] * ((d[1] + 3) / 4) * ((d[2] + 3) / 4) < FEWEST_TILES) return "few tiles";
    return mg_shape_count(&x->shape) == 0 ? "empty" : NULL;
}

static const char *winograd_accepts_forward(const mg_kernel_plan *plan) {
    return winograd_accepts(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
}

static const char *winograd_accepts_grad_input(const mg_kernel_plan *plan) {
    return winograd_accepts(plan, plan->out[0].value, plan->in[1].value, plan->in[0].value);
}

static const char *winograd_accepts_grad_weight(const mg_kernel_plan *plan) {
    return winograd_accepts(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value);
}

/* ---- sizes ---- */

static int64_t round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* Tiles, planes and blocks of a convolution that reads `image` and has results like `result`. */
static winograd_conv winograd_sizes(const mg_value *image, const mg_value *result, int64_t top,
                                    int64_t left) {
    const int64_t *x = image->shape.dim, *y = result->shape.dim;
    const int64_t rows = (y[1] + 3) / 4, columns = (y[2] + 3) / 4;
    winograd_conv s = {.image = {x[1], x[2], x[3], top, left, rows, columns},
                       .result = {y[1], y[2], y[3], 0, 0, rows, columns},
                       .tiles = y[0] * rows * columns,
                       .c = x[3],
                       .k = y[3],
                       .team = mg_cpu_threads()};
    const int strip = mg_simd_used->winograd->strip;
    s.strips = (s.k + strip - 1) / strip;
    s.filter_plane = s.strips * s.c * strip + PADDING;
    s.ld = round_up(s.c, 16) + PADDING;
    s.past_caches = mg_value_bytes(image) + mg_value_bytes(result) > MG_LAST_CACHE;
    return s;
}

static int64_t divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

/* Tiles of a block, at most `most`, such that n threads get equally many blocks. */
static int64_t even_block(int64_t tiles, int64_t n, int64_t most) {
    const int64_t share = divide_up(tiles, n);
    return divide_up(share, divide_up(share, most));
}

/* Keeps the sizes as the kernel's state, with scratch for the filters and `blocks` blocks at a
 * time. */
static mg_status winograd_prepare(winograd_conv s, int64_t blocks, mg_kernel_plan *plan) {
    s.block =
        blocks == 1 ? even_block(s.tiles, 1, SHARED_BLOCK) : even_block(s.tiles, blocks, BLOCK);
    s.image_plane = s.block * s.ld + PADDING;
    s.result_plane = s.strips * s.block * mg_simd_used->winograd->strip + PADDING;
    s.thread_floats = (size_t)round_up(ELEMENTS * (s.image_plane + s.result_plane), 16);
    s.threads_at = s.filters_at + (size_t)round_up(ELEMENTS * s.filter_plane, 16);
    plan->scratch = (s.threads_at + (size_t)blocks * s.thread_floats) * sizeof(float);
    winograd_conv *kept = plan->state = mg_alloc(sizeof *kept);
    if (!kept) return MG_OOM;
    *kept = s;
    return MG_OK;
}

static mg_status winograd_prepare_forward(mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    winograd_conv s =
        winograd_sizes(plan->in[0].value, plan->out[0].value, a->pads.v[0], a->pads.v[2]);
    s.bias = plan->step->n_in == 3;
    s.relu = a->relu;
    return winograd_prepare(s, s.team, plan);
}

static mg_status winograd_prepare_grad_input(mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    winograd_conv s =
        winograd_sizes(plan->in[0].value, plan->out[0].value, 2 - a->pads.v[0], 2 - a->pads.v[2]);
    s.rotated = true;
    s.filters_at = (size_t)round_up(9 * s.c * s.k, 16); /* behind the rotated ones */
    return winograd_prepare(s, s.team, plan);
}

/* All threads share one block. */
static mg_status winograd_prepare_grad_weight(mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    return winograd_prepare(
        winograd_sizes(plan->in[0].value, plan->in[1].value, a->pads.v[0], a->pads.v[2]), 1, plan);
}

/* ---- results, and the image's gradient ---- */

/* {3, 3, k, c} of w {3, 3, c, k}, turned by half a turn; in squares that stay in the first cache.
 */
static void rotate_filters(const winograd_conv *s, const float *w, float *rotated) {
    enum { SIDE = 16 };
    const int64_t rows = s->k, columns = s->c; /* of each of the nine matrices in w */
#pragma omp for collapse(2) schedule(static)
    for (int64_t tap = 0; tap < 9; tap++)
        for (int64_t first = 0; first < rows; first += SIDE) {
            const int64_t end = first + SIDE < rows ? first + SIDE : rows;
            const float *from = w + tap * rows * columns;
            float *to = rotated + (8 - tap) * rows * columns;
            for (int64_t column = 0; column < columns; column++)
                for (int64_t row = first; row < end; row++)
                    to[column * rows + row] = from[row * columns + column];
        }
}

/* M of a block of n tiles from V and U. */
static void multiply_results(const winograd_conv *s, const float *v, const float *u, int64_t n,
                             float *m) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    for (int64_t e = 0; e < ELEMENTS; e++)
        for (int64_t strip = 0; strip < s->strips; strip++)
            for (int64_t c = 0; c < s->c; c += DEPTH) {
                const mg_winograd_product p = {
                    .a = v + e * s->image_plane + c,
                    .ra = s->ld,
                    .da = 1,
                    .depth = s->c - c < DEPTH ? s->c - c : DEPTH,
                    .b = u + e * s->filter_plane + (strip * s->c + c) * simd->strip,
                    .c = m + e * s->result_plane + strip * s->block * simd->strip,
                    .add = c > 0};
                simd->multiply(&p, n);
            }
}

static void make_results(const winograd_conv *s, const float *x, const float *u, const float *bias,
                         float *scratch, float *y) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    float *v = scratch + s->threads_at + (size_t)omp_get_thread_num() * s->thread_floats;
    float *m = v + ELEMENTS * s->image_plane;
#pragma omp for schedule(dynamic)
    for (int64_t first = 0; first < s->tiles; first += s->block) {
        const int64_t n = s->tiles - first < s->block ? s->tiles - first : s->block;
        simd->images(&s->image, x, first, n, v, s->image_plane, s->ld);
        multiply_results(s, v, u, n, m);
        simd->results(&s->result, m, s->result_plane, s->block, y, first, n, bias, s->relu,
                      s->past_caches);
        if (s->past_caches) mg_simd_used->movement->end_stream();
    }
}

static mg_status winograd_run_results(const mg_call *call) {
    const winograd_conv *s = call->plan->state;
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const float *x = call->in[0], *w = call->in[1], *bias = s->bias ? call->in[2] : NULL;
    float *scratch = call->scratch, *u = scratch + s->filters_at;
#pragma omp parallel num_threads(s->team)
    {
        if (s->rotated) rotate_filters(s, w, scratch);
#pragma omp for schedule(static)
        for (int64_t strip = 0; strip < s->strips; strip++)
            simd->filters(s->rotated ? scratch : w, s->c, s->k, u, s->filter_plane, strip,
                          strip + 1);
        make_results(s, x, u, bias, scratch, call->out[0]);
    }
    return MG_OK;
}

/* ---- the filters' gradient ---- */

/* dU of one element and strip, with the block's n tiles. */
static void add_block(const winograd_conv *s, int64_t e, int64_t strip, const float *v,
                      const float *d, int64_t n, bool add, float *du) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const mg_winograd_product p = {.a = v + e * s->image_plane,
                                   .ra = 1,
                                   .da = s->ld,
                                   .depth = n,
                                   .b = d + e * s->result_plane + strip * s->block * simd->strip,
                                   .c = du + e * s->filter_plane + strip * s->c * simd->strip,
                                   .add = add};
    simd->multiply(&p, s->c);
}

/* V and D of a block of n tiles, by all threads. */
static void transform_block(const winograd_conv *s, const float *x, const float *dy, int64_t first,
                            int64_t n, float *v, float *d) {
    enum { MOST = 8 }; /* tiles of a thread at a time */
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const int64_t share = even_block(n, s->team, MOST);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < n; i += share) {
        const int64_t count = n - i < share ? n - i : share;
        simd->images(&s->image, x, first + i, count, v + i * s->ld, s->image_plane, s->ld);
        simd->gradients(&s->result, dy, first + i, count, d + i * simd->strip, s->result_plane,
                        s->block);
    }
}

static mg_status winograd_run_grad_weight(const mg_call *call) {
    const winograd_conv *s = call->plan->state;
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const float *x = call->in[0], *dy = call->in[1];
    float *dw = call->out[0], *scratch = call->scratch;
    float *du = scratch + s->filters_at, *v = scratch + s->threads_at;
    float *d = v + ELEMENTS * s->image_plane;
#pragma omp parallel num_threads(s->team)
    {
        for (int64_t first = 0; first < s->tiles; first += s->block) {
            const int64_t n = s->tiles - first < s->block ? s->tiles - first : s->block;
            transform_block(s, x, dy, first, n, v, d);
#pragma omp for collapse(2) schedule(static)
            for (int64_t e = 0; e < ELEMENTS; e++)
                for (int64_t strip = 0; strip < s->strips; strip++)
                    add_block(s, e, strip, v, d, n, first > 0, du);
        }
#pragma omp for schedule(static)
        for (int64_t strip = 0; strip < s->strips; strip++)
            simd->filter_gradients(du, s->filter_plane, s->c, s->k, dw, strip, strip + 1);
    }
    return MG_OK;
}

#define WINOGRAD(id, what, runs)                                                                   \
    const mg_kernel mg_cpu_winograd_##id = {.op = #id,                                             \
                                            .name = "Winograd",                                    \
                                            .accepts = winograd_accepts_##what,                    \
                                            .prepare = winograd_prepare_##what,                    \
                                            .run = winograd_run_##runs,                            \
                                            .release = mg_free}
WINOGRAD(conv2d, forward, results);
WINOGRAD(conv2d_grad_input, grad_input, results);
WINOGRAD(conv2d_grad_weight, grad_weight, grad_weight);
#undef WINOGRAD

/* conv2d and its gradients with 3x3 filters and stride 1 by Winograd's algorithm: float32,
 * row-major.
 *
 * Each side of a result is cut into tiles of six or of four, whichever takes fewer multiplications,
 * and a smaller one for what is left: 22 are 6 + 6 + 6 + 4. The choice does not depend on the
 * batch, so that an image has the same result in any. A large tile takes 64 multiplications for 36
 * results of nine weights each, a fifth of a direct sum's; the error is about 1e-5 of the largest
 * result, so precision "highest" does not come here.
 *
 * Results are computed in blocks of tiles, each by one thread with its own scratch. The filters'
 * gradient sums over all tiles: blocks are transformed by all threads together, then each thread
 * adds the block's products to its own elements of dU, so that the order of sums does not depend on
 * the number of threads. Few channels are taken by conv_winograd_images.c, if there are enough
 * images. */
#include "core/alloc.h"
#include "core/precision.h"
#include "device/cpu/cpu.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"
#include <omp.h>
#include <string.h>

enum {
    BLOCK = 28,             /* tiles of a thread's block */
    SHARED_BLOCK = 32,      /* of a block that all threads transform together */
    MANY_FILTERS = 1 << 16, /* with more, tiles are of 4x4 results at most, and any block larger: */
    LARGE_BLOCK = 128,
    DEPTH = 256, /* channels that a product sums at a time: its filters stay in the first cache */
    FEWEST = 16, /* channels on either side: with fewer, transforms cost more than they save */
    FEWEST_TILES = 32, /* of 4x4 results */
    MOST_REGIONS = 4,
    PADDING = 16 /* floats between planes: apart by a power of two, they would share cache sets */
};

typedef struct winograd_conv {
    mg_winograd_image image, result;
    mg_winograd_region regions[MOST_REGIONS]; /* that with the largest tiles first */
    int64_t blocks[MOST_REGIONS];             /* of each region, with so many tiles: */
    int64_t block[MOST_REGIONS], largest_block;
    int n_regions, elements; /* elements: of the largest tiles */
    int64_t images;
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

static int64_t divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

/* Whether transformed filters are too large to be read again and again for few tiles. */
static bool is_large(const winograd_conv *s) {
    return s->c * s->k > MANY_FILTERS;
}

typedef struct cut { /* of a side: `count` tiles with `first` elements, one with `last` if not 0 */
    int64_t count;
    int first, last;
} cut;

/* A side of n results in tiles that have at most `most` elements. */
static cut cut_with(int64_t n, int most) {
    const int64_t left = n % (most - 2);
    const int last = left == 0 ? 0 : left <= 2 ? 4 : left <= 4 ? 6 : 8;
    const cut c = {n / (most - 2), most, last};
    if (last == most) return (cut){c.count + 1, most, 0};
    return c.count == 0 ? (cut){1, last, 0} : c;
}

/* With fewest elements; if equally many, with smaller tiles, whose filters have fewer. */
static cut cut_side(int64_t n, bool large) {
    const cut six = cut_with(n, 8), four = cut_with(n, 6);
    if (large) return (cut){divide_up(n, 4), 6, 0};
    return six.count * six.first + six.last < four.count * four.first + four.last ? six : four;
}

static void add_region(winograd_conv *s, mg_winograd_region r) {
    if (r.high > 0 && r.wide > 0) s->regions[s->n_regions++] = r;
}

static void cut_result(winograd_conv *s) {
    const cut y = cut_side(s->result.h, is_large(s)), x = cut_side(s->result.w, is_large(s));
    const int64_t last_y = y.count * (y.first - 2), last_x = x.count * (x.first - 2);
    add_region(s, (mg_winograd_region){0, 0, y.count, x.count, y.first, x.first});
    add_region(s, (mg_winograd_region){0, last_x, y.count, 1, y.first, x.last});
    add_region(s, (mg_winograd_region){last_y, 0, 1, x.count, y.last, x.first});
    add_region(s, (mg_winograd_region){last_y, last_x, 1, 1, y.last, x.last});
    s->elements = y.first * x.first;
}

/* Regions and planes of a convolution that reads `image` and has results like `result`. */
static winograd_conv winograd_sizes(const mg_value *image, const mg_value *result, int64_t top,
                                    int64_t left) {
    const int64_t *x = image->shape.dim, *y = result->shape.dim;
    winograd_conv s = {.image = {x[1], x[2], x[3], top, left},
                       .result = {y[1], y[2], y[3], 0, 0},
                       .images = y[0],
                       .c = x[3],
                       .k = y[3],
                       .team = mg_cpu_threads()};
    const int strip = mg_simd_used->winograd->strip;
    cut_result(&s);
    s.strips = divide_up(s.k, strip);
    s.filter_plane = s.strips * s.c * strip + PADDING;
    s.ld = round_up(s.c, 16) + PADDING;
    s.past_caches = mg_value_bytes(image) + mg_value_bytes(result) > MG_STREAM_ABOVE;
    return s;
}

static int64_t tiles_of(const winograd_conv *s, int region) {
    return s->images * s->regions[region].rows * s->regions[region].columns;
}

/* Tiles of a block, at most `most`, such that n threads get equally many blocks. */
static int64_t even_block(int64_t tiles, int64_t n, int64_t most) {
    const int64_t share = divide_up(tiles, n);
    return divide_up(share, divide_up(share, most));
}

/* Keeps the sizes as the kernel's state, with scratch for the filters, and for a block of each
 * thread, or for one that all threads share. */
static mg_status winograd_prepare(winograd_conv s, bool shared, mg_kernel_plan *plan) {
    const bool large = is_large(&s);
    const int64_t n = shared ? 1 : s.team;
    const int64_t most = large ? LARGE_BLOCK : shared ? SHARED_BLOCK : BLOCK;
    for (int r = 0; r < s.n_regions; r++) {
        s.block[r] = even_block(tiles_of(&s, r), n, most);
        s.blocks[r] = divide_up(tiles_of(&s, r), s.block[r]);
        if (s.block[r] > s.largest_block) s.largest_block = s.block[r];
    }
    s.image_plane = s.largest_block * s.ld + PADDING;
    s.result_plane = s.strips * s.largest_block * mg_simd_used->winograd->strip + PADDING;
    s.thread_floats = (size_t)round_up(s.elements * (s.image_plane + s.result_plane), 16);
    s.threads_at = s.filters_at + (size_t)round_up(s.elements * s.filter_plane, 16);
    plan->scratch = (s.threads_at + (size_t)n * s.thread_floats) * sizeof(float);
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
    return winograd_prepare(s, false, plan);
}

static mg_status winograd_prepare_grad_input(mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    winograd_conv s =
        winograd_sizes(plan->in[0].value, plan->out[0].value, 2 - a->pads.v[0], 2 - a->pads.v[2]);
    s.rotated = true;
    s.filters_at = (size_t)round_up(9 * s.c * s.k, 16); /* behind the rotated ones */
    return winograd_prepare(s, false, plan);
}

/* All threads share one block. */
static mg_status winograd_prepare_grad_weight(mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    return winograd_prepare(
        winograd_sizes(plan->in[0].value, plan->in[1].value, a->pads.v[0], a->pads.v[2]), true,
        plan);
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

typedef struct block { /* n tiles of a region from `first` on */
    const mg_winograd_region *region;
    int64_t first, n;
} block;

static int64_t blocks_of(const winograd_conv *s) {
    int64_t sum = 0;
    for (int r = 0; r < s->n_regions; r++) sum += s->blocks[r];
    return sum;
}

/* Block i of those of all regions. */
static block block_at(const winograd_conv *s, int64_t i) {
    int r = 0;
    while (i >= s->blocks[r]) i -= s->blocks[r++];
    const int64_t first = i * s->block[r], left = tiles_of(s, r) - first;
    return (block){&s->regions[r], first, left < s->block[r] ? left : s->block[r]};
}

static mg_winograd_planes planes_of(const winograd_conv *s, float *at, int64_t plane) {
    return (mg_winograd_planes){at, s->regions[0].high, s->regions[0].wide, plane};
}

/* The plane of element e of a region's tiles. */
static int64_t plane_of(const winograd_conv *s, const mg_winograd_region *r, int64_t e) {
    return e / r->wide * s->regions[0].wide + e % r->wide;
}

/* M of a block from V and U. */
static void multiply_results(const winograd_conv *s, block b, const float *v, const float *u,
                             float *m) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    for (int64_t e = 0; e < b.region->high * b.region->wide; e++)
        for (int64_t strip = 0; strip < s->strips; strip++)
            for (int64_t c = 0; c < s->c; c += DEPTH) {
                const int64_t plane = plane_of(s, b.region, e);
                const mg_winograd_product p = {
                    .a = v + plane * s->image_plane + c,
                    .ra = s->ld,
                    .da = 1,
                    .depth = s->c - c < DEPTH ? s->c - c : DEPTH,
                    .b = u + plane * s->filter_plane + (strip * s->c + c) * simd->strip,
                    .c = m + plane * s->result_plane + strip * s->largest_block * simd->strip,
                    .add = c > 0};
                simd->multiply(&p, b.n);
            }
}

static void make_results(const winograd_conv *s, const float *x, const float *u, const float *bias,
                         float *scratch, float *y) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const mg_winograd_finish finish = {bias, s->relu, s->past_caches};
    float *v = scratch + s->threads_at + (size_t)omp_get_thread_num() * s->thread_floats;
    float *m = v + s->elements * s->image_plane;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < blocks_of(s); i++) {
        const block b = block_at(s, i);
        simd->images(&s->image, b.region, x, b.first, b.n, planes_of(s, v, s->image_plane), s->ld);
        multiply_results(s, b, v, u, m);
        simd->results(&s->result, b.region, planes_of(s, m, s->result_plane), s->largest_block, y,
                      b.first, b.n, &finish);
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
            simd->filters(s->rotated ? scratch : w, s->c, s->k, planes_of(s, u, s->filter_plane),
                          strip, strip + 1);
        make_results(s, x, u, bias, scratch, call->out[0]);
    }
    return MG_OK;
}

/* ---- the filters' gradient ---- */

/* dU of one element and strip, with the tiles of a block. */
static void add_block(const winograd_conv *s, block b, int64_t e, int64_t strip, const float *v,
                      const float *d, bool add, float *du) {
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const int64_t plane = plane_of(s, b.region, e);
    const mg_winograd_product p = {.a = v + plane * s->image_plane,
                                   .ra = 1,
                                   .da = s->ld,
                                   .depth = b.n,
                                   .b = d + plane * s->result_plane +
                                        strip * s->largest_block * simd->strip,
                                   .c = du + plane * s->filter_plane + strip * s->c * simd->strip,
                                   .add = add};
    simd->multiply(&p, s->c);
}

/* V and D of a block, by all threads: each takes a few tiles of x or of dy at a time. */
static void transform_block(const winograd_conv *s, block b, const float *x, const float *dy,
                            float *v, float *d) {
    enum { MOST = 8 }; /* tiles of a thread at a time */
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const int64_t share = even_block(b.n, s->team, MOST), shares = divide_up(b.n, share);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < 2 * shares; i++) {
        const int64_t at = i / 2 * share, n = b.n - at < share ? b.n - at : share;
        if (i % 2 == 0)
            simd->images(&s->image, b.region, x, b.first + at, n,
                         planes_of(s, v + at * s->ld, s->image_plane), s->ld);
        else
            simd->gradients(&s->result, b.region, dy, b.first + at, n,
                            planes_of(s, d + at * simd->strip, s->result_plane), s->largest_block);
    }
}

static mg_status winograd_run_grad_weight(const mg_call *call) {
    const winograd_conv *s = call->plan->state;
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const float *x = call->in[0], *dy = call->in[1];
    float *dw = call->out[0], *scratch = call->scratch;
    float *du = scratch + s->filters_at, *v = scratch + s->threads_at;
    float *d = v + s->elements * s->image_plane;
#pragma omp parallel num_threads(s->team)
    {
        for (int64_t i = 0; i < blocks_of(s); i++) {
            const block b = block_at(s, i);
            transform_block(s, b, x, dy, v, d);
#pragma omp for collapse(2) schedule(static)
            for (int64_t e = 0; e < b.region->high * b.region->wide; e++)
                for (int64_t strip = 0; strip < s->strips; strip++)
                    add_block(s, b, e, strip, v, d, i > 0, du);
        }
#pragma omp for schedule(static)
        for (int64_t strip = 0; strip < s->strips; strip++)
            simd->filter_gradients(planes_of(s, du, s->filter_plane), s->c, s->k, dw, strip,
                                   strip + 1);
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

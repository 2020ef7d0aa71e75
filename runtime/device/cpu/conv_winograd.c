/* conv2d and its gradients with square filters by Winograd's algorithm: float32, row-major.
 *
 * Each side of a result is cut into tiles with eight or six elements, whichever takes fewer
 * multiplications, and a smaller one for what is left: with 3x3 filters, 22 are 6 + 6 + 6 + 4. The
 * choice does not depend on the batch, so that an image has the same result in any. A large tile of
 * 3x3 filters takes 64 multiplications for 36 results of nine weights each, a fifth of a direct
 * sum's; the error is about 1e-5 of the largest result, so precision "highest" does not come here.
 *
 * With stride 2, the pixels of an image in even and in odd rows and columns are four images, each
 * convolved with stride 1 with the weights that meet its pixels. Their sum is the convolution of
 * one image that has the channels of all four: a 7x7 filter becomes one with 4x4 taps and four
 * times as many channels, and a 3x3 filter one with 2x2 taps, of which some are 0.
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
    MANY_FILTERS = 1 << 16, /* with more, tiles have 6x6 elements at most, and any block is: */
    LARGE_BLOCK = 128,
    DEPTH = 256, /* channels that a product sums at a time: its filters stay in the first cache */
    FEWEST = 16, /* channels on either side: with fewer, transforms cost more than they save */
    FEWEST_TILES = 32, /* of 4x4 results */
    TRANSFORM = 14,    /* multiplications in the time that transforming an element takes */
    MOST_REGIONS = 4,
    PADDING = 16 /* floats between planes: apart by a power of two, they would share cache sets */
};

/* One axis of a convolution as one with stride 1: see mg_winograd_image. */
typedef struct axis {
    int64_t step, points; /* pixels of a grid point; points of the result's grid */
    int taps;
    bool rotated;           /* it computes the image's gradient, from dy: */
    int64_t padding, first; /* of the image; dy's point that the first tap of point 0 meets */
} axis;

typedef struct winograd_conv {
    mg_winograd_image image, result;
    axis y, x;
    mg_winograd_region regions[MOST_REGIONS]; /* that with the largest tiles first */
    int64_t blocks[MOST_REGIONS];             /* of each region, with so many tiles: */
    int64_t block[MOST_REGIONS], largest_block;
    int n_regions, elements; /* elements: of the largest tiles */
    int64_t images;
    int64_t c, k, strips; /* channels summed over and made; strips of the latter */
    int64_t filter_plane, image_plane, result_plane, ld; /* floats; of a row of V */
    size_t filters_at, threads_at, thread_floats;        /* places in scratch, in floats */
    int team, taps, side;                                /* of the filters: weights of a side */
    bool bias, relu;
    bool past_caches; /* image and result are too large to stay in the caches */
} winograd_conv;

/* ---- tiles ---- */

static int64_t round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

static int64_t divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

/* Whether transformed filters are too large to be read again and again for few tiles. c, k:
 * channels summed over and made. */
static bool is_large(int64_t c, int64_t k) {
    return c * k > MANY_FILTERS;
}

typedef struct cut { /* of a side: `count` tiles with `first` elements, one with `last` if not 0 */
    int64_t count;
    int first, last;
} cut;

/* A side of n results in tiles that have at most `most` elements. */
static cut cut_with(int64_t n, int taps, int most) {
    const int64_t results = most - taps + 1, left = n % results;
    int last = left == 0 ? 0 : 4;
    while (last && last - taps + 1 < left) last += 2;
    const cut c = {n / results, most, last};
    if (last == most) return (cut){c.count + 1, most, 0};
    return c.count == 0 ? (cut){1, last, 0} : c;
}

static int64_t elements_of(cut side) {
    return side.count * side.first + side.last;
}

/* With fewest elements; if equally many, with smaller tiles, whose filters have fewer. */
static cut cut_side(int64_t n, int taps, bool large) {
    const cut eight = cut_with(n, taps, 8), six = cut_with(n, taps, 6);
    if (large) return (cut){divide_up(n, 7 - taps), 6, 0};
    return elements_of(eight) < elements_of(six) ? eight : six;
}

/* ---- axes ---- */

/* The tap that weight t of a filter's side becomes, and the pixel of a grid point that it meets. */
typedef struct tap_place {
    int64_t tap, phase;
} tap_place;

/* Result i of a convolution meets with weight t pixel i * step + t - padding: pixel t % step of
 * point i + t / step, if points are counted from the padding on. Its gradient goes from result i to
 * that pixel: pixel `phase` of point i is reached from dy's point i + met_point. */
static int64_t met_point(const axis *a, int64_t t) {
    const int64_t phase = (t + a->padding) % a->step;
    return (phase + a->padding - t) / a->step; /* without a rest */
}

static tap_place place_of_weight(const axis *a, int64_t t) {
    if (!a->rotated) return (tap_place){t / a->step, t % a->step};
    return (tap_place){met_point(a, t) - a->first, (t + a->padding) % a->step};
}

static axis axis_of_image(int64_t side, int64_t step, int64_t results) {
    return (axis){.step = step, .points = results, .taps = (int)divide_up(side, step)};
}

static axis axis_of_gradient(int64_t side, int64_t step, int64_t padding, int64_t pixels) {
    axis a = {.step = step, .points = divide_up(pixels, step), .rotated = true, .padding = padding};
    int64_t last = a.first = met_point(&a, 0);
    for (int64_t t = 1; t < side; t++) {
        const int64_t point = met_point(&a, t);
        if (point < a.first) a.first = point;
        if (point > last) last = point;
    }
    a.taps = (int)(last - a.first + 1);
    return a;
}

/* An image whose grid points are step x step pixels. */
static mg_winograd_image image_of(const mg_value *v, int64_t top, int64_t left, int64_t step,
                                  int64_t phase) {
    const int64_t *d = v->shape.dim;
    return (mg_winograd_image){d[1], d[2], d[3], top, left, step, phase};
}

/* That of x with filters like w, whose results are like y: axes, channels and taps. */
static winograd_conv winograd_of_image(const mg_kernel_plan *plan, const mg_value *x,
                                       const mg_value *w, const mg_value *y) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t step = a->strides.v[0], *d = y->shape.dim, c = x->shape.dim[3];
    const int64_t side = w->shape.dim[0];
    return (winograd_conv){.image = image_of(x, a->pads.v[0], a->pads.v[2], step, c),
                           .result = image_of(y, 0, 0, 1, d[3]),
                           .y = axis_of_image(side, step, d[1]),
                           .x = axis_of_image(side, step, d[2]),
                           .images = d[0],
                           .c = step * step * c,
                           .k = d[3],
                           .taps = (int)divide_up(side, step),
                           .side = (int)side};
}

/* That of dy with the rotated filters, whose result is the image's gradient. */
static winograd_conv winograd_of_gradient(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const mg_value *dy = plan->in[0].value, *w = plan->in[1].value, *dx = plan->out[0].value;
    const int64_t step = a->strides.v[0], side = w->shape.dim[0], *d = dx->shape.dim;
    const int64_t phase = step > 1 ? round_up(d[3], mg_simd_used->winograd->strip / 2) : d[3];
    const axis y = axis_of_gradient(side, step, a->pads.v[0], d[1]);
    const axis x = axis_of_gradient(side, step, a->pads.v[2], d[2]);
    return (winograd_conv){.image = image_of(dy, -y.first, -x.first, 1, dy->shape.dim[3]),
                           .result = image_of(dx, 0, 0, step, phase),
                           .y = y,
                           .x = x,
                           .images = d[0],
                           .c = dy->shape.dim[3],
                           .k = step * step * phase,
                           .taps = y.taps > x.taps ? y.taps : x.taps,
                           .side = (int)side};
}

/* ---- which convolutions ---- */

static const char *winograd_refusal(const mg_kernel_plan *plan, const mg_value *w) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t stride = a->strides.v[0], side = w->shape.dim[0];
    if (!mg_all_f32(plan)) return "not float32";
    if (!mg_precision_fast()) return "precision is \"highest\"";
    if (stride > 2 || a->strides.v[1] != stride) return "strides";
    if (a->dilations.v[0] != 1 || a->dilations.v[1] != 1 || a->groups != 1)
        return "dilations or groups";
    if (side != w->shape.dim[1]) return "filters are not square";
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i] >= side) return "padded by more than the filter";
    return NULL;
}

/* Whether the products and transforms of an image take less time than a direct convolution, whose
 * loops are a little faster. c: channels of x, times phases. */
static bool saves_work(const winograd_conv *s, const mg_value *w, const mg_value *y) {
    const int64_t *d = y->shape.dim, *f = w->shape.dim;
    const bool large = is_large(s->c, s->k);
    const cut rows = cut_side(s->y.points, s->taps, large);
    const cut columns = cut_side(s->x.points, s->taps, large);
    const int64_t direct = d[1] * d[2] * f[0] * f[1] * f[2] * f[3];
    const int64_t c = s->c, k = round_up(s->k, mg_simd_used->winograd->strip);
    return elements_of(rows) * elements_of(columns) * (c * k + TRANSFORM * (c + k)) <
           direct / 8 * 7;
}

static const char *winograd_accepts(const mg_kernel_plan *plan, const mg_value *w,
                                    const mg_value *y, const winograd_conv *s) {
    const int64_t *d = y->shape.dim, *f = w->shape.dim;
    if (mg_count(&plan->in[0]) == 0 || mg_count(&plan->out[0]) == 0) return "empty";
    if (s->taps < 2 || s->taps > 5) return "size of the filters";
    if (f[2] < FEWEST || f[3] < FEWEST) return "few channels";
    if (s->y.step > 1 && is_large(s->c, s->k)) return "many filters";
    if (!saves_work(s, w, y)) return "transforms take too long";
    return d[0] * ((d[1] + 3) / 4) * ((d[2] + 3) / 4) < FEWEST_TILES ? "few tiles" : NULL;
}

static const char *winograd_accepts_forward(const mg_kernel_plan *plan) {
    const mg_value *w = plan->in[1].value, *y = plan->out[0].value;
    const char *refusal = winograd_refusal(plan, w);
    if (refusal) return refusal;
    const winograd_conv s = winograd_of_image(plan, plan->in[0].value, w, y);
    return winograd_accepts(plan, w, y, &s);
}

static const char *winograd_accepts_grad_input(const mg_kernel_plan *plan) {
    const mg_value *w = plan->in[1].value, *dy = plan->in[0].value;
    const char *refusal = winograd_refusal(plan, w);
    if (refusal) return refusal;
    const winograd_conv s = winograd_of_gradient(plan);
    return winograd_accepts(plan, w, dy, &s);
}

static const char *winograd_accepts_grad_weight(const mg_kernel_plan *plan) {
    const mg_value *w = plan->out[0].value, *dy = plan->in[1].value;
    const char *refusal = winograd_refusal(plan, w);
    if (refusal) return refusal;
    const winograd_conv s = winograd_of_image(plan, plan->in[0].value, w, dy);
    return winograd_accepts(plan, w, dy, &s);
}

/* ---- sizes ---- */

/* Whether the filters, {taps, taps, c, k}, are in scratch memory, in another order than w. */
static bool is_arranged(const winograd_conv *s) {
    return s->y.rotated || s->y.step > 1;
}

static void add_region(winograd_conv *s, mg_winograd_region r) {
    if (r.high > 0 && r.wide > 0) s->regions[s->n_regions++] = r;
}

/* Cuts the points of the result's grid. */
static void cut_result(winograd_conv *s) {
    const int taps = s->taps;
    const bool large = is_large(s->c, s->k);
    const cut y = cut_side(s->y.points, taps, large), x = cut_side(s->x.points, taps, large);
    const int64_t last_y = y.count * (y.first - taps + 1), last_x = x.count * (x.first - taps + 1);
    add_region(s, (mg_winograd_region){0, 0, y.count, x.count, y.first, x.first, taps});
    add_region(s, (mg_winograd_region){0, last_x, y.count, 1, y.first, x.last, taps});
    add_region(s, (mg_winograd_region){last_y, 0, 1, x.count, y.last, x.first, taps});
    add_region(s, (mg_winograd_region){last_y, last_x, 1, 1, y.last, x.last, taps});
    s->elements = y.first * x.first;
}

/* Sets the regions and the planes. */
static void winograd_sizes(winograd_conv *s, const mg_kernel_plan *plan) {
    const mg_value *in = plan->in[0].value, *out = plan->out[0].value;
    const int strip = mg_simd_used->winograd->strip;
    s->team = mg_cpu_threads();
    cut_result(s);
    if (is_arranged(s)) s->filters_at = (size_t)round_up(s->taps * s->taps * s->c * s->k, 16);
    s->strips = divide_up(s->k, strip);
    s->filter_plane = s->strips * s->c * strip + PADDING;
    s->ld = round_up(s->c, 16) + PADDING;
    s->past_caches = mg_value_bytes(in) + mg_value_bytes(out) > MG_STREAM_ABOVE;
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
    winograd_sizes(&s, plan);
    const bool large = is_large(s.c, s.k);
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
    winograd_conv s =
        winograd_of_image(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    s.bias = plan->step->n_in == 3;
    s.relu = ((const mg_conv_attrs *)plan->step->attrs)->relu;
    return winograd_prepare(s, false, plan);
}

static mg_status winograd_prepare_grad_input(mg_kernel_plan *plan) {
    return winograd_prepare(winograd_of_gradient(plan), false, plan);
}

/* All threads share one block. */
static mg_status winograd_prepare_grad_weight(mg_kernel_plan *plan) {
    return winograd_prepare(
        winograd_of_image(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value), true,
        plan);
}

/* ---- results, and the image's gradient ---- */

/* Where weight (y, x) of a filter, of all channels, lies among arranged filters: {tap, tap, phase
 * and channel, filter}, or if rotated {tap, tap, filter, phase and channel}. */
static int64_t arranged_at(const winograd_conv *s, int64_t y, int64_t x) {
    const tap_place row = place_of_weight(&s->y, y), column = place_of_weight(&s->x, x);
    const int64_t tap = row.tap * s->taps + column.tap;
    const int64_t phase = row.phase * s->y.step + column.phase;
    return tap * s->c * s->k + phase * (s->y.rotated ? s->result.phase : s->image.phase * s->k);
}

/* Turns the filters w {side, side, c, k} by half a turn; in squares that stay in the first cache.
 */
static void rotate_filters(const winograd_conv *s, const float *w, float *rotated) {
    enum { SIDE = 16 };
    const int64_t rows = s->result.c, columns = s->c; /* of the matrix of each weight */
#pragma omp for collapse(2) schedule(static)
    for (int64_t i = 0; i < s->side * s->side; i++)
        for (int64_t first = 0; first < rows; first += SIDE) {
            const int64_t end = first + SIDE < rows ? first + SIDE : rows;
            const float *from = w + i * rows * columns;
            float *to = rotated + arranged_at(s, i / s->side, i % s->side);
            for (int64_t column = 0; column < columns; column++)
                for (int64_t row = first; row < end; row++)
                    to[column * s->k + row] = from[row * columns + column];
        }
}

/* Copies filters w {side, side, c, k} among the arranged ones. */
static void arrange_filters(const winograd_conv *s, const float *w, float *arranged) {
    const int64_t floats = s->image.c * s->k;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < s->side * s->side; i++)
        memcpy(arranged + arranged_at(s, i / s->side, i % s->side), w + i * floats,
               (size_t)floats * sizeof *w);
}

/* The filters of a run, perhaps in scratch memory. Taps that meet no weight are 0. */
static const float *prepared_filters(const winograd_conv *s, const float *w, float *scratch) {
    if (!is_arranged(s)) return w;
    if (s->y.step > 1) {
#pragma omp single
        memset(scratch, 0, s->filters_at * sizeof *scratch);
    }
    if (s->y.rotated)
        rotate_filters(s, w, scratch);
    else
        arrange_filters(s, w, scratch);
    return scratch;
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
    const mg_winograd_filters sizes = {s->taps, s->c, s->k};
#pragma omp parallel num_threads(s->team)
    {
        const float *filters = prepared_filters(s, w, scratch);
#pragma omp for schedule(static)
        for (int64_t strip = 0; strip < s->strips; strip++)
            simd->filters(&sizes, filters, planes_of(s, u, s->filter_plane), strip, strip + 1);
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

/* dw from the gradient of the arranged filters. */
static void collect_gradients(const winograd_conv *s, const float *arranged, float *dw) {
    const int64_t floats = s->image.c * s->k;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < s->side * s->side; i++)
        memcpy(dw + i * floats, arranged + arranged_at(s, i / s->side, i % s->side),
               (size_t)floats * sizeof *dw);
}

static mg_status winograd_run_grad_weight(const mg_call *call) {
    const winograd_conv *s = call->plan->state;
    const mg_simd_winograd *simd = mg_simd_used->winograd;
    const float *x = call->in[0], *dy = call->in[1];
    float *dw = call->out[0], *scratch = call->scratch;
    float *du = scratch + s->filters_at, *v = scratch + s->threads_at;
    float *d = v + s->elements * s->image_plane, *gradients = is_arranged(s) ? scratch : dw;
    const mg_winograd_filters sizes = {s->taps, s->c, s->k};
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
            simd->filter_gradients(&sizes, planes_of(s, du, s->filter_plane), gradients, strip,
                                   strip + 1);
        if (gradients != dw) collect_gradients(s, gradients, dw);
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

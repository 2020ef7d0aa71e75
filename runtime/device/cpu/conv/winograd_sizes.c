/* Which convolutions are computed by Winograd's algorithm, and with which tiles: row-major, with
 * square filters, in float32. float16 and bfloat16 are converted as they are read and written.
 *
 * Each side of a result is cut into tiles with eight or six elements (transformed values along the
 * side), whichever takes fewer multiplications, and a smaller one for what is left. A tile of n
 * elements makes n - taps + 1 results: with 3x3 filters, 22 results are 6 + 6 + 6 + 4. The choice
 * does not depend on the batch, so that an image has the same result in any batch. A large tile of
 * 3x3 filters takes 64 multiplications for 36 results of nine weights each, a fifth of a direct
 * sum's; the error is about 1e-5 of the largest result, so it is not used under precision
 * "highest".
 *
 * Stride 2 becomes stride 1 by space-to-depth: the pixels of even and odd rows and columns are four
 * images, each convolved with those weights that are multiplied by its pixels. The sum of the four
 * is the convolution of one image that has the channels of all four. A 7x7 filter becomes one with
 * 4x4 taps and four times as many channels, and a 3x3 filter one with 2x2 taps, of which some are
 * 0. */
#include "device/cpu/conv/winograd.h"
#include "device/cpu/conv/conv.h"
#include "core/alloc.h"
#include "core/precision.h"
#include "device/cpu/upcast.h"
#include "ops/attrs.h"

enum {
    BLOCK = 28,        /* tiles of a thread's block */
    SHARED_BLOCK = 32, /* tiles of a block that all threads transform together */
    /* weights of a tap, with more of which filters are large: tiles have 6x6 elements */
    MANY_FILTERS = 1 << 16,
    MOST_STRIDED = 1 << 19, /* weights of a tap, at most, with stride 2: dU has 128 MB */
    LARGE_BLOCK = 128,      /* tiles of a block if the filters are large */
    FEWEST = 16, /* input or output channels: with fewer, transforms cost more than they save */
    FEWEST_GATHERED = 12, /* channels of a grid point of an image with stride 2: those of RGB */
    FEWEST_TILES = 32,    /* tiles of 4x4 results */
    TRANSFORM = 14,       /* multiplications in the time that transforming an element takes */
    /* the same for an element of the transformed filters, with stride 2, where they are rearranged
     * first and have four times as many elements for the same weights */
    STRIDED_FILTER = 35,
    /* weights of a tap, with more of which threads share strips of results if the transformed
     * filters of a strip have at most so many bytes and stay in the L2 cache */
    MANY_FOR_BLOCKS = 1 << 15,
    /* the same if the transformed filters are given */
    MANY_FOR_PACKED_BLOCKS = 1 << 13,
    /* multiplications in the time that reading an element of given filters takes, which come from
     * the L3 cache or from memory */
    READ = 16,
    LARGEST_STRIP = 1 << 20
};

/* ---- tiles ---- */

static int64_t round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* Whether transformed filters are too large to be read again and again for few tiles. c, k:
 * channels summed over, and produced. */
static bool is_large(int64_t c, int64_t k) {
    return c * k > MANY_FILTERS;
}

/* a side: `count` tiles with `first` elements, then one with `last` unless that is 0 */
typedef struct cut {
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

/* A side of n results in tiles of `most` elements only. */
static cut cut_evenly(int64_t n, int taps, int most) {
    return (cut){mg_divide_up(n, most - taps + 1), most, 0};
}

/* The cut with fewer elements; if they are equal, the one with smaller tiles, whose transformed
 * filters are smaller. `small`: tiles of six elements. */
static cut cut_side(int64_t n, int taps, bool small) {
    const cut eight = cut_with(n, taps, 8), six = cut_with(n, taps, 6);
    if (small) return cut_evenly(n, taps, 6);
    return elements_of(eight) < elements_of(six) ? eight : six;
}

/* ---- axes ---- */

/* Result i of a convolution multiplies weight t by pixel i * step + t - padding. With points
 * counted from the start of the padding, that is pixel t % step of point i + t / step. The gradient
 * goes back from result i to that pixel: `phase` is that pixel's place in its point, now counted
 * from the start of the image, and point i of dx reads point i + met_point of dy. */
static int64_t met_point(const mg_winograd_axis *a, int64_t t) {
    const int64_t phase = (t + a->padding) % a->step;
    return (phase + a->padding - t) / a->step; /* an integer */
}

mg_tap_place mg_winograd_place(const mg_winograd_axis *a, int64_t t) {
    if (!a->rotated) return (mg_tap_place){t / a->step, t % a->step};
    return (mg_tap_place){met_point(a, t) - a->first, (t + a->padding) % a->step};
}

static mg_winograd_axis axis_of_image(int64_t side, int64_t step, int64_t results) {
    return (mg_winograd_axis){
        .step = step, .points = results, .taps = (int)mg_divide_up(side, step)};
}

static mg_winograd_axis axis_of_gradient(int64_t side, int64_t step, int64_t padding,
                                         int64_t pixels) {
    mg_winograd_axis a = {
        .step = step, .points = mg_divide_up(pixels, step), .rotated = true, .padding = padding};
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
    return (mg_winograd_image){d[1], d[2], d[3], top, left, step, phase, v->dtype};
}

/* The convolution of x: axes, channels and taps. w and y are filters and result, or the gradients
 * of these. */
static mg_winograd_conv winograd_of_image(const mg_kernel_plan *plan, const mg_value *x,
                                          const mg_value *w, const mg_value *y) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t step = a->strides.v[0], *d = y->shape.dim, c = x->shape.dim[3];
    const int64_t side = w->shape.dim[0];
    return (mg_winograd_conv){.image = image_of(x, a->pads.v[0], a->pads.v[2], step, c),
                              .result = image_of(y, 0, 0, 1, d[3]),
                              .y = axis_of_image(side, step, d[1]),
                              .x = axis_of_image(side, step, d[2]),
                              .images = d[0],
                              .c = step * step * c,
                              .k = d[3],
                              .taps = (int)mg_divide_up(side, step),
                              .side = (int)side};
}

/* The convolution of dy with the rotated filters, whose result is the image's gradient. */
static mg_winograd_conv winograd_of_gradient(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const mg_value *dy = plan->in[0].value, *w = plan->in[1].value, *dx = plan->out[0].value;
    const int64_t step = a->strides.v[0], side = w->shape.dim[0], *d = dx->shape.dim;
    const int64_t phase = step > 1 ? round_up(d[3], mg_float_strip() / 2) : d[3];
    const mg_winograd_axis y = axis_of_gradient(side, step, a->pads.v[0], d[1]);
    const mg_winograd_axis x = axis_of_gradient(side, step, a->pads.v[2], d[2]);
    return (mg_winograd_conv){.image = image_of(dy, -y.first, -x.first, 1, dy->shape.dim[3]),
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

/* Whether all have the same dtype: float32, float16 or bfloat16. */
static bool has_one_dtype(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    for (int i = 1; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != t) return false;
    return plan->out[0].value->dtype == t && (t == MG_F32 || mg_dtype_is_half(t));
}

/* few: the kernel of the same form for few channels. */
static const char *winograd_refusal(const mg_kernel_plan *plan, const mg_value *w,
                                    const mg_kernel *few) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t stride = a->strides.v[0], side = w->shape.dim[0];
    if (!has_one_dtype(plan)) return "neither float32 nor halves";
    if (!mg_precision_fast()) return "precision is \"highest\"";
    if (stride > 2 || a->strides.v[1] != stride) return "strides";
    if (a->dilations.v[0] != 1 || a->dilations.v[1] != 1 || a->groups != 1)
        return "dilations or groups";
    if (side != w->shape.dim[1]) return "filters are not square";
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i] >= side) return "padding is as wide as the filter or wider";
    const bool half = mg_dtype_is_half(w->dtype);
    return half && mg_cpu_upcast_suits(plan, few) ? "few channels, faster on copies in float32"
                                                  : NULL;
}

/* Whether tiles have 6x6 elements, because the filters are large. */
static bool has_small_tiles(const mg_winograd_conv *s) {
    return s->y.step == 1 && is_large(s->c, s->k);
}

static cut cut_rows(const mg_winograd_conv *s) {
    if (s->tile) return cut_evenly(s->y.points, s->taps, s->tile);
    return cut_side(s->y.points, s->taps, has_small_tiles(s));
}

static cut cut_columns(const mg_winograd_conv *s) {
    if (s->tile) return cut_evenly(s->x.points, s->taps, s->tile);
    return cut_side(s->x.points, s->taps, has_small_tiles(s));
}

/* Whether products and transforms take less time than a direct convolution, whose loops are a
 * little faster for the same number of multiplications; the more so if dU does not stay in the
 * caches. per_filter: multiplications in the time that an element of the transformed filters
 * takes. */
static bool saves_work(const mg_winograd_conv *s, const mg_value *w, const mg_value *y,
                       int64_t per_filter) {
    const int64_t *d = y->shape.dim, *f = w->shape.dim;
    const bool large = is_large(s->c, s->k), small = has_small_tiles(s);
    const cut rows = cut_rows(s), columns = cut_columns(s);
    const int64_t direct = d[1] * d[2] * f[0] * f[1] * f[2] * f[3];
    const int64_t c = s->c, k = round_up(s->k, mg_float_strip());
    const int64_t filters = rows.first * columns.first * c * k * per_filter / d[0];
    const int64_t work =
        elements_of(rows) * elements_of(columns) * (c * k + TRANSFORM * (c + k)) + filters;
    return work < (large && !small ? direct / 3 * 2 : direct / 8 * 7);
}

/* ---- filters that are given ---- */

/* The filters of a frozen plan stay the same, so they are transformed once. In float32 only: those
 * of halves would take twice the memory. */
static bool is_packed(const mg_kernel_plan *plan) {
    return plan->in[1].fixed && plan->in[1].value->dtype == MG_F32;
}

/* The time of a convolution with given filters, in multiplications: products, transforms, and
 * reading the filters for each block of each region. */
static int64_t packed_work(const mg_winograd_conv *s) {
    const cut rows = cut_rows(s), columns = cut_columns(s);
    const int64_t tiles = s->images * rows.count * columns.count;
    const int64_t k = round_up(s->k, mg_float_strip());
    const int64_t read = (rows.first + rows.last) * (columns.first + columns.last) *
                         mg_divide_up(tiles, LARGE_BLOCK);
    return s->images * elements_of(rows) * elements_of(columns) *
               (s->c * k + TRANSFORM * (s->c + k)) +
           READ * read * s->c * k;
}

/* Chooses the tiles: for few images also larger ones than those of cut_side, all of one size, with
 * which the filters are read once. */
static void choose_packed_tiles(mg_winograd_conv *s) {
    const int tiles[] = {0, 6, 8};
    int64_t least = INT64_MAX;
    int best = 0;
    s->packed = true;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        s->tile = tiles[i];
        const int64_t work = packed_work(s);
        if (work < least) least = work, best = tiles[i];
    }
    s->tile = best;
}

static bool saves_packed_work(const mg_winograd_conv *s, const mg_value *w, const mg_value *y) {
    const int64_t *d = y->shape.dim, *f = w->shape.dim;
    const int64_t direct = (d[0] * d[1] * d[2] + READ) * f[0] * f[1] * f[2] * f[3];
    return packed_work(s) < direct / 8 * 7;
}

static const char *winograd_accepts(const mg_kernel_plan *plan, const mg_value *w,
                                    const mg_value *y, const mg_winograd_conv *s,
                                    int64_t per_filter) {
    const int64_t *d = y->shape.dim, *f = w->shape.dim;
    if (mg_count(&plan->in[0]) == 0 || mg_count(&plan->out[0]) == 0) return "empty";
    if (s->taps < 2 || s->taps > 5) return "size of the filters";
    if ((s->image.step > 1 ? s->c < FEWEST_GATHERED : f[2] < FEWEST) || f[3] < FEWEST)
        return "few channels";
    if (s->y.step > 1 && s->c * s->k > MOST_STRIDED) return "many filters";
    if (s->packed) return saves_packed_work(s, w, y) ? NULL : "transforms take too long";
    if (!saves_work(s, w, y, per_filter)) return "transforms take too long";
    return d[0] * ((d[1] + 3) / 4) * ((d[2] + 3) / 4) < FEWEST_TILES ? "few tiles" : NULL;
}

/* For results and the image's gradient. With stride 2 and large filters they would take as long as
 * a direct convolution. */
static const char *winograd_accepts_results(const mg_kernel_plan *plan, const mg_value *w,
                                            const mg_value *y, const mg_winograd_conv *s) {
    if (s->y.step > 1 && is_large(s->c, s->k)) return "many filters";
    return winograd_accepts(plan, w, y, s, s->y.step > 1 ? STRIDED_FILTER : 0);
}

const char *mg_winograd_accepts_forward(const mg_kernel_plan *plan) {
    const mg_value *w = plan->in[1].value, *y = plan->out[0].value;
    const char *refusal = winograd_refusal(plan, w, &mg_cpu_winograd_images_conv2d);
    if (refusal) return refusal;
    mg_winograd_conv s = winograd_of_image(plan, plan->in[0].value, w, y);
    if (is_packed(plan)) choose_packed_tiles(&s);
    return winograd_accepts_results(plan, w, y, &s);
}

const char *mg_winograd_accepts_grad_input(const mg_kernel_plan *plan) {
    const mg_value *w = plan->in[1].value, *dy = plan->in[0].value;
    const char *refusal = winograd_refusal(plan, w, &mg_cpu_winograd_images_conv2d_grad_input);
    if (refusal) return refusal;
    const mg_winograd_conv s = winograd_of_gradient(plan);
    return winograd_accepts_results(plan, w, dy, &s);
}

const char *mg_winograd_accepts_grad_weight(const mg_kernel_plan *plan) {
    const mg_value *w = plan->out[0].value, *dy = plan->in[1].value;
    const char *refusal = winograd_refusal(plan, w, &mg_cpu_winograd_images_conv2d_grad_weight);
    if (refusal) return refusal;
    const mg_winograd_conv s = winograd_of_image(plan, plan->in[0].value, w, dy);
    return winograd_accepts(plan, w, dy, &s, 0);
}

/* ---- sizes ---- */

bool mg_winograd_is_arranged(const mg_winograd_conv *s) {
    return s->y.rotated || s->y.step > 1;
}

static void add_region(mg_winograd_conv *s, mg_winograd_region r) {
    if (r.high > 0 && r.wide > 0) s->regions[s->n_regions++] = r;
}

/* Cuts the points of the result's grid. */
static void cut_result(mg_winograd_conv *s) {
    const int taps = s->taps;
    const cut y = cut_rows(s), x = cut_columns(s);
    const int64_t last_y = y.count * (y.first - taps + 1), last_x = x.count * (x.first - taps + 1);
    add_region(s, (mg_winograd_region){0, 0, y.count, x.count, y.first, x.first, taps});
    add_region(s, (mg_winograd_region){0, last_x, y.count, 1, y.first, x.last, taps});
    add_region(s, (mg_winograd_region){last_y, 0, 1, x.count, y.last, x.first, taps});
    add_region(s, (mg_winograd_region){last_y, last_x, 1, 1, y.last, x.last, taps});
    s->elements = y.first * x.first;
}

/* Sets the regions and the planes. */
static void winograd_sizes(mg_winograd_conv *s, const mg_kernel_plan *plan) {
    const mg_value *in = plan->in[0].value, *out = plan->out[0].value;
    const int strip = mg_float_strip();
    s->team = mg_cpu_threads();
    s->partials = 1;
    cut_result(s);
    if (mg_winograd_is_arranged(s))
        s->filters_at = (size_t)round_up(s->taps * s->taps * s->c * s->k, 16);
    s->strips = mg_divide_up(s->k, strip);
    s->filter_plane = s->strips * s->c * strip + MG_WINOGRAD_PADDING;
    s->ld = round_up(s->c, 16) + MG_WINOGRAD_PADDING;
    /* Transforms write pixel by pixel, and wait for each line that is not in the caches: with 11 MB
     * of images and results, 7 MB of them results, a forward pass took 1.2 times as long without
     * streaming. */
    s->past_caches = mg_value_bytes(in) + mg_value_bytes(out) > MG_STREAM_ABOVE / 2;
}

size_t mg_winograd_strip_at(const mg_winograd_conv *s, int64_t strip) {
    const int64_t apart = s->by_strips ? s->elements * s->filter_plane : s->c * mg_float_strip();
    return (size_t)(strip * apart);
}

size_t mg_winograd_packed_floats(const mg_winograd_conv *s) {
    return s->by_strips ? mg_winograd_strip_at(s, s->strips) : mg_winograd_filters_floats(s);
}

size_t mg_winograd_filters_floats(const mg_winograd_conv *s) {
    return (size_t)round_up(s->elements * s->filter_plane, 16);
}

int64_t mg_winograd_tiles(const mg_winograd_conv *s, int region) {
    return s->images * s->regions[region].rows * s->regions[region].columns;
}

int64_t mg_winograd_block(int64_t tiles, int64_t n, int64_t most) {
    const int64_t share = mg_divide_up(tiles, n);
    return mg_divide_up(share, mg_divide_up(share, most));
}

/* Sets the blocks of tiles of all regions, such that n threads, or n partial sums, get equally
 * many. Regions after the first, which have few tiles, are not cut into smaller blocks for that. */
static void cut_blocks(mg_winograd_conv *s, int64_t n, int64_t most) {
    for (int r = 0; r < s->n_regions; r++) {
        const int64_t tiles = mg_winograd_tiles(s, r);
        const int64_t shares =
            r == 0 || s->partials == 1 ? n : mg_smaller(n, mg_divide_up(tiles, most));
        s->block[r] = mg_winograd_block(tiles, shares, most);
        s->blocks[r] = mg_divide_up(tiles, s->block[r]);
        if (s->block[r] > s->largest_block) s->largest_block = s->block[r];
    }
    s->image_plane = s->largest_block * s->ld + MG_WINOGRAD_PADDING;
}

/* Keeps the sizes as the kernel's state. Copies of halves come last in scratch. */
static mg_status keep_sizes(const mg_winograd_conv *s, const mg_port *w, mg_kernel_plan *plan) {
    mg_winograd_conv *kept = plan->state = mg_alloc(sizeof *kept);
    if (!kept) return MG_OOM;
    *kept = *s;
    const int64_t copied = s->image.dtype == MG_F32 ? 0 : mg_count(w) + (s->bias ? s->k : 0);
    plan->scratch = (s->copies_at + (size_t)copied) * sizeof(float);
    return MG_OK;
}

/* Scratch: the filters, then for each thread V and M of a block, or before that some channels of
 * the filters. */
static mg_status winograd_prepare_blocks(mg_winograd_conv s, mg_kernel_plan *plan) {
    winograd_sizes(&s, plan);
    cut_blocks(&s, s.team, BLOCK);
    s.result_plane = s.strips * s.largest_block * mg_float_strip() + MG_WINOGRAD_PADDING;
    const int64_t own = MG_WINOGRAD_SHARE * mg_float_strip() + MG_WINOGRAD_PADDING;
    const int64_t block = s.image_plane + s.result_plane;
    s.thread_floats = (size_t)round_up(s.elements * mg_larger(block, own), 16);
    s.threads_at = s.filters_at + mg_winograd_filters_floats(&s);
    s.copies_at = s.threads_at + (size_t)s.team * s.thread_floats;
    return keep_sizes(&s, &plan->in[1], plan);
}

/* Scratch: V of a block, which all threads share; then for each a strip of the filters and of M, or
 * before that some tiles of V, or in the place of M some channels of the filters. */
static mg_status winograd_prepare_strips(mg_winograd_conv s, mg_kernel_plan *plan) {
    const int strip = mg_float_strip();
    s.by_strips = true;
    winograd_sizes(&s, plan);
    cut_blocks(&s, 1, LARGE_BLOCK);
    s.filter_plane = s.c * strip + MG_WINOGRAD_PADDING;
    s.result_plane = s.largest_block * strip + MG_WINOGRAD_PADDING;
    const int64_t channels = MG_WINOGRAD_SHARE * strip + MG_WINOGRAD_PADDING;
    const int64_t tiles = MG_WINOGRAD_SHARE * s.ld;
    s.results_at = s.packed ? 0 : (size_t)(s.elements * s.filter_plane);
    const int64_t own =
        s.packed ? s.result_plane : s.filter_plane + mg_larger(s.result_plane, channels);
    s.thread_floats = (size_t)round_up(s.elements * mg_larger(own, tiles), 16);
    s.threads_at = s.filters_at + (size_t)round_up(s.elements * s.image_plane, 16);
    s.copies_at = s.threads_at + (size_t)s.team * s.thread_floats;
    return keep_sizes(&s, &plan->in[1], plan);
}

/* Whether each thread transforms the filters of its own strips. Reading all of U for each block of
 * tiles takes longer if U does not stay in the caches but a strip of it does: 256 to 256 channels
 * at 14x14 took 1.2 times as long with AVX2. */
static bool suits_strips(const mg_winograd_conv *s) {
    if (s->packed) return s->c * s->k > MANY_FOR_PACKED_BLOCKS;
    const int64_t elements = cut_rows(s).first * cut_columns(s).first;
    const int64_t floats = elements * s->c * mg_float_strip();
    return is_large(s->c, s->k) ||
           (s->c * s->k > MANY_FOR_BLOCKS && floats * (int64_t)sizeof(float) <= LARGEST_STRIP);
}

static mg_status winograd_prepare_results(mg_winograd_conv s, mg_kernel_plan *plan) {
    s.team = mg_cpu_threads();
    return suits_strips(&s) ? winograd_prepare_strips(s, plan) : winograd_prepare_blocks(s, plan);
}

mg_status mg_winograd_prepare_forward(mg_kernel_plan *plan) {
    mg_winograd_conv s =
        winograd_of_image(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    s.bias = plan->step->n_in == 3;
    s.relu = ((const mg_conv_attrs *)plan->step->attrs)->relu;
    if (is_packed(plan)) choose_packed_tiles(&s);
    MG_TRY(winograd_prepare_results(s, plan));
    const mg_winograd_conv *kept = plan->state;
    if (!kept->packed) return MG_OK;
    plan->packer = &mg_winograd_packer;
    plan->packed = 1;
    plan->packed_bytes = mg_winograd_packed_floats(kept) * sizeof(float);
    plan->packer_scratch = kept->filters_at * sizeof(float);
    return MG_OK;
}

mg_status mg_winograd_prepare_grad_input(mg_kernel_plan *plan) {
    return winograd_prepare_results(winograd_of_gradient(plan), plan);
}

/* Whether dU is much larger than V and D of the only block. Then it is computed in parts. */
static bool has_parts(const mg_winograd_conv *s) {
    return s->n_regions == 1 && s->blocks[0] == 1 &&
           s->c * s->k >= 4 * s->largest_block * (s->c + s->k);
}

/* The number of partial sums of the filters' gradient. It may depend on the sizes only, not on the
 * threads; the larger numbers can be divided by most usual numbers of threads. Each sum has blocks
 * of the first region, which has at least a quarter of the tiles, so it sets all of dU. */
static int64_t partials_of(const mg_winograd_conv *s) {
    static const int64_t counts[] = {48, 24, 12, 4, 2};
    enum { LEAST = 200, MOST = 5 << 19 }; /* tiles of a sum; bytes of dU */
    int64_t tiles = 0;
    for (int r = 0; r < s->n_regions; r++) tiles += mg_winograd_tiles(s, r);
    if (mg_winograd_filters_floats(s) * sizeof(float) > MOST) return 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (tiles >= counts[i] * LEAST) return counts[i];
    return 1;
}

/* Whether no thread gets more than 1.05 times the mean number of partial sums. */
static bool has_even_partials(const mg_winograd_conv *s) {
    const int64_t most = mg_divide_up(s->partials, s->team);
    return s->partials > 1 && most * s->team * 20 <= s->partials * 21;
}

/* Scratch: dU, or a part of it for each thread; V and D of a block, which all threads share, or all
 * three for each thread; then the partial sums. */
mg_status mg_winograd_prepare_grad_weight(mg_kernel_plan *plan) {
    enum { MOST = 896, FEWEST_CHANNELS = 14 }; /* floats of an element in a part */
    mg_winograd_conv s =
        winograd_of_image(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value);
    const int strip = mg_float_strip();
    winograd_sizes(&s, plan);
    s.partials = partials_of(&s);
    s.alone = has_even_partials(&s);
    cut_blocks(&s, s.partials, is_large(s.c, s.k) ? LARGE_BLOCK : SHARED_BLOCK);
    if (has_parts(&s)) {
        s.part = mg_even_share(s.strips, s.c, MOST / strip, FEWEST_CHANNELS, s.team);
        s.filter_plane = s.part * strip + MG_WINOGRAD_PADDING;
    }
    s.result_plane = s.strips * s.largest_block * strip + MG_WINOGRAD_PADDING;
    s.thread_floats = (size_t)round_up(s.elements * (s.image_plane + s.result_plane), 16);
    s.threads_at = s.filters_at +
                   (size_t)(s.part > 0 || s.alone ? s.team : 1) * mg_winograd_filters_floats(&s);
    s.partials_at = s.threads_at + (size_t)(s.alone ? s.team : 1) * s.thread_floats;
    s.copies_at = s.partials_at;
    if (s.partials > 1) s.copies_at += (size_t)(s.partials * s.taps * s.taps * s.c * s.k);
    return keep_sizes(&s, &plan->out[0], plan);
}

/* Direct convolution with few channels: float32, row-major, forward and the filters' gradient; any
 * stride, padding and groups, but dilation only between the lines of a filter.
 *
 * The matrix products of products/gemm.h read the pixels in place: the pixels that one line of a
 * filter reads are contiguous, and the next window begins a stride further on. conv/product.c would
 * copy each pixel once for every tap that reads it.
 *
 * Work is cut into units: some lines of results of one group in one image. A unit's pixels are
 * copied to scratch once, with their padding and only the group's channels. */
#include "core/alloc.h"
#include "device/cpu/conv/conv.h"
#include "ops/attrs.h"
#include <omp.h>
#include <string.h>

enum {
    UNIT = 1 << 15, /* floats of a unit's pixels and results, about */
    CHAIN = 64,     /* terms of a partial sum: see mg_gemm_product */
    UNITS_PER_THREAD = 4,
    FEWEST_PIXELS = 256, /* pixels of dy in a part of the filters' gradient, at least */
    PARTS = 64,          /* parts of the filters' gradient, at most */
    /* there are fewer parts, down to FEWEST_PARTS, until all sums have at most FEW_SUMS floats */
    FEW_SUMS = 1 << 19,
    FEWEST_PARTS = 16,
    MOST_SUMS = 1 << 22, /* floats of the sums of FEWEST_PARTS: with more, the kernel refuses */
    FOLDED = 16,         /* rows of sums whose parts are added up at a time */
    /* floats of a strip of filters, at most: it is read again for each line */
    MOST_FILTERS = 1 << 15
};

typedef struct direct {
    int64_t images, groups;
    int64_t c, k;                /* channels and filters of a group */
    int64_t h, w, oh, ow;        /* lines and columns of an image, and of results */
    int64_t kh, kw, terms;       /* taps of a filter; its weights, with all channels */
    int64_t down, across, apart; /* strides; vertical dilation */
    int64_t top, left;           /* padding */
    int64_t wide;                /* floats of a padded line */
    int64_t lines, blocks;       /* lines of results of a unit, units of an image */
    int64_t strips;              /* strips of a group's filters */
    int64_t parts;               /* parts that the sums of the filters' gradient are cut into */
    /* offset of the threads' scratch, and its size for each thread, in floats */
    size_t threads_at, thread;
    /* offset in a thread's scratch, behind a unit's pixels, of its results or dy */
    size_t results_at;
    int team;
} direct;

/* ---- units ---- */

typedef struct unit {
    int64_t image, group, line, lines; /* lines of results */
} unit;

/* Unit number i: first all groups of some lines, then the next lines, then the next image. */
static unit unit_at(const direct *s, int64_t i) {
    const int64_t block = i / s->groups, line = block % s->blocks * s->lines;
    return (unit){block / s->blocks, i % s->groups, line, mg_smaller(s->lines, s->oh - line)};
}

static int64_t lines_met(const direct *s, int64_t lines) {
    return (lines - 1) * s->down + (s->kh - 1) * s->apart + 1;
}

/* Copies n pixels of a group's channels. */
static void copy_pixels(const direct *s, const float *from, int64_t n, float *to) {
    const size_t pixel = (size_t)s->c * sizeof *to;
    if (s->groups == 1) {
        memcpy(to, from, (size_t)n * pixel);
        return;
    }
    for (int64_t i = 0; i < n; i++, from += s->c * s->groups, to += s->c) memcpy(to, from, pixel);
}

/* Copies the pixels that a unit's windows read, with padding. */
static void copy_lines(const direct *s, const float *x, unit u, float *to) {
    const int64_t columns = s->wide / s->c, channels = s->c * s->groups;
    const int64_t first = mg_smaller(s->left, columns);
    const int64_t n = mg_smaller(s->left + s->w, columns) - first;
    x += u.image * s->h * s->w * channels + u.group * s->c;
    for (int64_t i = 0; i < lines_met(s, u.lines); i++, to += s->wide) {
        const int64_t y = u.line * s->down - s->top + i;
        if (y < 0 || y >= s->h || n == 0) {
            memset(to, 0, (size_t)s->wide * sizeof *to);
            continue;
        }
        memset(to, 0, (size_t)(first * s->c) * sizeof *to);
        copy_pixels(s, x + (y * s->w + first - s->left) * channels, n, to + first * s->c);
        memset(to + (first + n) * s->c, 0, (size_t)(s->wide - (first + n) * s->c) * sizeof *to);
    }
}

/* ---- choosing sizes ---- */

static direct direct_sizes(const mg_kernel_plan *plan, const mg_port *x, const mg_port *w,
                           const mg_port *y) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *image = mg_dims(x), *filters = mg_dims(w), *results = mg_dims(y);
    direct s = {.images = image[0],
                .groups = a->groups,
                .c = filters[2],
                .k = filters[3] / a->groups,
                .h = image[1],
                .w = image[2],
                .oh = results[1],
                .ow = results[2],
                .kh = filters[0],
                .kw = filters[1],
                .terms = filters[0] * filters[1] * filters[2],
                .down = a->strides.v[0],
                .across = a->strides.v[1],
                .apart = a->dilations.v[0],
                .top = a->pads.v[0],
                .left = a->pads.v[2]};
    s.strips = mg_divide_up(s.k, mg_float_strip());
    s.wide = ((s.ow - 1) * s.across + s.kw) * s.c;
    s.team = mg_cpu_team(s.images * s.oh * s.ow * filters[3]);
    return s;
}

static void cut_lines(direct *s, int64_t lines) {
    s->lines = mg_divide_up(s->oh, mg_divide_up(s->oh, lines));
    s->blocks = mg_divide_up(s->oh, s->lines);
}

static int64_t units_of(const direct *s) {
    return s->images * s->blocks * s->groups;
}

/* Floats of a unit's pixels, and of its results. */
static int64_t pixel_floats(const direct *s) {
    return lines_met(s, s->lines) * s->wide;
}

static int64_t result_floats(const direct *s) {
    return s->lines * s->ow * s->strips * mg_float_strip();
}

/* As many lines of results in a unit as fit into UNIT. */
static void choose_lines(direct *s) {
    const int64_t line = s->down * s->wide + s->ow * s->strips * mg_float_strip();
    const int64_t most = UNIT / line;
    cut_lines(s, most < 1 ? 1 : mg_smaller(most, s->oh));
}

/* Floats of all filters in strips, and of the sums of their gradient. */
static int64_t filter_floats(const direct *s) {
    return s->groups * s->strips * s->terms * mg_float_strip();
}

static void choose_scratch(direct *s, int64_t shared) {
    const int64_t line = MG_LINE / sizeof(float);
    s->threads_at = (size_t)(mg_divide_up(shared, line) * line);
    s->results_at = (size_t)(mg_divide_up(pixel_floats(s), line) * line);
    s->thread = s->results_at + (size_t)(mg_divide_up(result_floats(s), line) * line);
}

static const char *direct_refusal(const mg_kernel_plan *plan, const mg_port *w) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *filters = mg_dims(w);
    if (!mg_all_f32(plan)) return "not float32";
    if (mg_count(&plan->in[0]) == 0 || mg_count(&plan->in[1]) == 0 || mg_count(&plan->out[0]) == 0)
        return "empty";
    if (a->dilations.v[1] != 1) return "dilated columns";
    if (filters[0] == 1 && filters[1] == 1) return "1x1 filters";
    return filters[0] * filters[1] * filters[2] * mg_float_strip() > MOST_FILTERS ? "many channels"
                                                                                  : NULL;
}

static mg_status keep_direct(mg_kernel_plan *plan, const direct *s) {
    direct *kept = plan->state = mg_alloc(sizeof *kept);
    if (!kept) return MG_OOM;
    *kept = *s;
    plan->scratch = (s->threads_at + (size_t)s->team * s->thread) * sizeof(float);
    return MG_OK;
}

/* ---- forward ---- */

static const char *direct_accepts(const mg_kernel_plan *plan) {
    return direct_refusal(plan, &plan->in[1]);
}

static mg_status direct_prepare(mg_kernel_plan *plan) {
    direct s = direct_sizes(plan, &plan->in[0], &plan->in[1], &plan->out[0]);
    choose_lines(&s);
    while (s.team > 1 && s.lines > 1 && units_of(&s) < s.team * UNITS_PER_THREAD)
        cut_lines(&s, mg_divide_up(s.lines, 2));
    choose_scratch(&s, filter_floats(&s));
    return keep_direct(plan, &s);
}

/* Filters of a group in strip number `strip`. */
static int64_t columns_of(const direct *s, int64_t strip) {
    return mg_smaller(s->k - strip * mg_float_strip(), mg_float_strip());
}

static void pack_filters(const direct *s, const float *w, float *to) {
#pragma omp for schedule(static)
    for (int64_t group = 0; group < s->groups; group++)
        mg_simd_used->gemm[0]->pack_steps(
            w + group * s->k, MG_F32, s->k * s->groups, s->terms, s->k,
            to + group * s->strips * s->terms * mg_float_strip(), s->terms * mg_float_strip());
}

/* The epilogue of a group's results. */
typedef struct finish {
    const float *bias; /* of the group, or NULL */
    bool relu;
} finish;

/* The product of a line of windows and a strip of filters. */
static void multiply_line(const direct *s, const float *pixels, const float *filters, int64_t strip,
                          float *c, int64_t rc, const finish *f) {
    const int64_t run = s->kw * s->c;
    const mg_gemm_product p = {.a = pixels,
                               .ra = s->across * s->c,
                               .da = 1,
                               .depth = s->terms,
                               .run = run,
                               .gap = s->apart * s->wide - run,
                               .b = filters + strip * s->terms * mg_float_strip(),
                               .columns = columns_of(s, strip),
                               .c = c,
                               .rc = rc,
                               .bias = f && f->bias ? f->bias + strip * mg_float_strip() : NULL,
                               .relu = f && f->relu,
                               .chain = CHAIN};
    mg_simd_used->gemm[0]->multiply(&p, s->ow);
}

/* A product writes whole vectors. So the results of strips that fill vectors are written to y
 * directly, and those of others are copied from `sums`. */
static void make_unit(const direct *s, unit u, const float *pixels, const float *filters,
                      const finish *f, float *sums, float *y) {
    const int64_t strip = mg_float_strip(), row = s->k * s->groups;
    for (int64_t i = 0; i < s->strips * u.lines; i++) {
        const int64_t line = i / s->strips, n = i % s->strips, columns = columns_of(s, n);
        const float *windows = pixels + line * s->down * s->wide;
        float *to = y + line * s->ow * row + n * strip;
        if (columns == strip || columns * 2 == strip) {
            multiply_line(s, windows, filters, n, to, row, f);
            continue;
        }
        const mg_gemm_sums results = {.at = sums,
                                      .rows = s->ow,
                                      .columns = columns,
                                      .bias = f->bias ? f->bias + n * strip : NULL,
                                      .relu = f->relu,
                                      .dtype = MG_F32};
        multiply_line(s, windows, filters, n, sums, strip, NULL);
        mg_simd_used->gemm[0]->write(&results, to, row);
    }
}

static mg_status direct_run(const mg_call *call) {
    const direct *s = call->plan->state;
    const float *bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    float *packed = call->scratch;
#pragma omp parallel num_threads(s->team)
    {
        float *pixels = packed + s->threads_at + (size_t)omp_get_thread_num() * s->thread;
        pack_filters(s, call->in[1], packed);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < units_of(s); i++) {
            const unit u = unit_at(s, i);
            const finish f = {bias ? bias + u.group * s->k : NULL,
                              ((const mg_conv_attrs *)call->plan->step->attrs)->relu};
            const int64_t pixel = (u.image * s->oh + u.line) * s->ow;
            copy_lines(s, call->in[0], u, pixels);
            make_unit(s, u, pixels, packed + u.group * s->strips * s->terms * mg_float_strip(), &f,
                      pixels + s->results_at,
                      (float *)call->out[0] + (pixel * s->groups + u.group) * s->k);
        }
    }
    return MG_OK;
}

/* ---- the filters' gradient ---- */

static const char *direct_weight_accepts(const mg_kernel_plan *plan) {
    const char *no = direct_refusal(plan, &plan->out[0]);
    if (no) return no;
    const direct s = direct_sizes(plan, &plan->in[0], &plan->out[0], &plan->in[1]);
    return filter_floats(&s) * FEWEST_PARTS > MOST_SUMS ? "many filters" : NULL;
}

/* The number of parts depends on the sizes only, so that the order of additions does too. */
static int64_t parts_of(const direct *s) {
    const int64_t pixels = s->images * s->oh * s->ow / FEWEST_PIXELS;
    int64_t most = FEW_SUMS / filter_floats(s);
    most = most < FEWEST_PARTS ? FEWEST_PARTS : mg_smaller(most, PARTS);
    most = mg_smaller(mg_smaller(most, pixels), s->images * s->blocks);
    return most < 1 ? 1 : most;
}

static mg_status direct_weight_prepare(mg_kernel_plan *plan) {
    direct s = direct_sizes(plan, &plan->in[0], &plan->out[0], &plan->in[1]);
    choose_lines(&s);
    s.parts = parts_of(&s);
    choose_scratch(&s, s.parts * filter_floats(&s));
    return keep_direct(plan, &s);
}

/* Adds the products of a unit's pixels and dy to the sums {groups, strips, terms, strip}; without
 * `add`, the sums are set to them. */
static void add_unit(const direct *s, unit u, const float *pixels, const float *dy, bool add,
                     float *packed, float *sums) {
    const int64_t strip = mg_float_strip(), n = u.lines * s->ow, filters = s->k * s->groups;
    const bool in_place = s->groups == 1 && filters == strip;
    dy += ((u.image * s->oh + u.line) * s->ow) * filters + u.group * s->k;
    if (!in_place)
        mg_simd_used->gemm[0]->pack_steps(dy, MG_F32, filters, n, s->k, packed, n * strip);
    sums += u.group * s->strips * s->terms * strip;
    for (int64_t i = 0; i < s->strips * s->kh; i++) {
        const int64_t number = i / s->kh, line = i % s->kh, window = s->across * s->c;
        float *to = sums + (number * s->terms + line * s->kw * s->c) * strip;
        const mg_gemm_product p = {.a = pixels + line * s->apart * s->wide,
                                   .ra = 1,
                                   .da = window,
                                   .depth = n,
                                   .run = s->ow,
                                   .gap = s->down * s->wide - s->ow * window,
                                   .b = in_place ? dy : packed + number * n * strip,
                                   .columns = columns_of(s, number),
                                   .c = to,
                                   .rc = strip,
                                   .sums = add ? to : NULL,
                                   .chain = CHAIN};
        mg_simd_used->gemm[0]->multiply(&p, s->kw * s->c);
    }
}

/* Adds up the parts of some rows of sums, and writes them to dw. */
static void fold_rows(const direct *s, float *sums, int64_t matrix, int64_t row, float *dw) {
    const int64_t strip = mg_float_strip(), rows = mg_smaller(FOLDED, s->terms - row);
    const int64_t group = matrix / s->strips, number = matrix % s->strips;
    const int64_t filters = s->k * s->groups;
    float *to = sums + (matrix * s->terms + row) * strip;
    for (int64_t part = 1; part < s->parts; part++)
        mg_simd_used->gemm[0]->add(to, to + part * filter_floats(s), rows * strip);
    const mg_gemm_sums results = {
        .at = to, .rows = rows, .columns = columns_of(s, number), .dtype = MG_F32};
    mg_simd_used->gemm[0]->write(&results, dw + row * filters + group * s->k + number * strip,
                                 filters);
}

static mg_status direct_weight_run(const mg_call *call) {
    const direct *s = call->plan->state;
    const int64_t blocks = s->images * s->blocks;
    float *sums = call->scratch;
#pragma omp parallel num_threads(s->team)
    {
        float *pixels = sums + s->threads_at + (size_t)omp_get_thread_num() * s->thread;
#pragma omp for schedule(dynamic)
        for (int64_t part = 0; part < s->parts; part++) {
            const int64_t first = blocks * part / s->parts * s->groups;
            const int64_t end = blocks * (part + 1) / s->parts * s->groups;
            for (int64_t i = first; i < end; i++) {
                const unit u = unit_at(s, i);
                copy_lines(s, call->in[0], u, pixels);
                add_unit(s, u, pixels, call->in[1], i >= first + s->groups, pixels + s->results_at,
                         sums + part * filter_floats(s));
            }
        }
#pragma omp for collapse(2) schedule(static)
        for (int64_t matrix = 0; matrix < s->groups * s->strips; matrix++)
            for (int64_t row = 0; row < s->terms; row += FOLDED)
                fold_rows(s, sums, matrix, row, call->out[0]);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_direct_conv2d = {.op = "conv2d",
                                        .name = "direct",
                                        .accepts = direct_accepts,
                                        .prepare = direct_prepare,
                                        .run = direct_run,
                                        .release = mg_free};
const mg_kernel mg_cpu_direct_conv2d_grad_weight = {.op = "conv2d_grad_weight",
                                                    .name = "direct",
                                                    .accepts = direct_weight_accepts,
                                                    .prepare = direct_weight_prepare,
                                                    .run = direct_weight_run,
                                                    .release = mg_free};

/* conv2d_int8: the images become codes with their padding around them, then tiles of windows and
 * filters are multiplied (simd/int8.c) and scaled.
 *
 * A code that stands for 0 is not 0 but the zero point, so each sum is too large by the zero point
 * times the sum of the filter's weights. These sums are computed in each run, by the same loops:
 * they cost as much as one pixel more. */
#include "core/alloc.h"
#include "device/cpu/int8/int8.h"
#include "ops/int8_formulas.h"
#include "ops/window.h"
#include <math.h>
#include <string.h>

enum {
    CHUNK = 48,     /* windows that a thread takes at a time, a multiple of all tiles' */
    SLACK = 64,     /* bytes behind codes: the last run is read in fours */
    SMALL = 1 << 17 /* products up to which one thread computes them alone */
};

typedef struct int8_state {
    const mg_simd_int8 *kind;
    mg_int8_layout layout;
    int64_t images, rows, columns, channels; /* of x */
    int64_t out_rows, out_columns, filters;  /* of y */
    int64_t stride[2], before[2];            /* before: cells of padding above and to the left */
    int64_t tall, wide;                      /* rows and columns of padded codes */
    int64_t *run;                            /* where the runs of a window begin */
    int64_t groups;                          /* parts of x with a scale of their own */
    bool dynamic;                            /* a group is a pixel, else an image */
    int team;
    size_t ones, weights, factor, unit, bad, bytes; /* places in scratch, after the codes */
} int8_state;

/* The operands of a call and the parts of its scratch memory. */
typedef struct int8_call {
    const int8_state *s;
    const float *x, *bias;
    const int8_t *w;
    float *y;
    uint8_t *codes, *ones, *bad;
    int32_t *weights; /* sums of each filter's weights */
    float *factor;    /* 1 / scale of each filter */
    float *unit;      /* 1 / steps of each group */
    float steps;      /* static: of all groups */
    int32_t zero;
    int64_t activation;
} int8_call;

/* ---- preparing ---- */

static const mg_simd_int8 *fastest_kind(void) {
    const mg_simd_int8 *const *kind = mg_simd_used->int8->kinds;
    while ((*kind)->available && !(*kind)->available()) kind++;
    return *kind;
}

/* Aligned places for the parts of scratch memory. */
static void plan_scratch(mg_kernel_plan *plan, int8_state *s) {
    size_t at = (size_t)(s->images * s->tall * s->wide * s->channels) + SLACK;
    const size_t filters = (size_t)mg_divide_up(s->filters, MG_INT8_CHANNELS) * MG_INT8_CHANNELS;
#define PLACE(field, size) s->field = at = (at + MG_LINE - 1) / MG_LINE * MG_LINE, at += (size)
    PLACE(ones, (size_t)s->layout.quads * 4);
    PLACE(weights, filters * sizeof(int32_t));
    PLACE(factor, filters * sizeof(float));
    PLACE(unit, (size_t)s->groups * sizeof(float));
    PLACE(bad, (size_t)s->groups);
#undef PLACE
    plan->scratch = s->bytes = at;
}

/* Where each run of a window begins, in bytes from the window's first one. */
static void place_runs(int8_state *s, const mg_int8_attrs *a) {
    const int64_t across = s->layout.runs / a->size.v[0]; /* runs in a row of the window */
    for (int64_t r = 0; r < s->layout.runs; r++)
        s->run[r] = (r / across * a->dilations.v[0] * s->wide + r % across * a->dilations.v[1]) *
                    s->channels;
}

static mg_status int8_prepare(mg_kernel_plan *plan) {
    const mg_int8_attrs *a = plan->step->attrs;
    const int64_t *x = mg_dims(&plan->in[0]), *y = mg_dims(&plan->out[0]);
    const mg_int8_layout layout = mg_int8_layout_of(a, x[3]);
    int8_state *s = plan->state = mg_alloc_zero(sizeof *s + (size_t)layout.runs * sizeof *s->run);
    if (!s) return MG_OOM;
    s->run = (int64_t *)(s + 1);
    s->kind = fastest_kind();
    s->layout = layout;
    s->images = x[0], s->rows = x[1], s->columns = x[2], s->channels = x[3];
    s->out_rows = y[1], s->out_columns = y[2], s->filters = y[3];
    for (int i = 0; i < 2; i++) s->stride[i] = a->strides.v[i], s->before[i] = a->pads.v[2 * i];
    s->tall = (y[1] - 1) * s->stride[0] + (a->size.v[0] - 1) * a->dilations.v[0] + 1;
    s->wide = (y[2] - 1) * s->stride[1] + (a->size.v[1] - 1) * a->dilations.v[1] + 1;
    s->dynamic = mg_count(&plan->in[4]) == 0;
    s->groups = s->dynamic ? s->images * s->rows * s->columns : s->images;
    const int64_t products = mg_count(&plan->out[0]) * layout.runs * layout.quads * 4;
    s->team = products > SMALL ? mg_cpu_threads() : 1;
    place_runs(s, a);
    plan_scratch(plan, s);
    return MG_OK;
}

/* ---- codes ---- */

/* The codes of a line of padded images, numbered over all images. */
static void quantize_line(const int8_call *c, int64_t line) {
    const int8_state *s = c->s;
    const int64_t image = line / s->tall, row = line % s->tall - s->before[0];
    uint8_t *to = c->codes + line * s->wide * s->channels;
    if (row < 0 || row >= s->rows) {
        memset(to, c->zero, (size_t)(s->wide * s->channels));
        return;
    }
    const int64_t left = mg_smaller(s->before[1], s->wide);
    const int64_t columns = mg_smaller(s->columns, s->wide - left), n = columns * s->channels;
    const float *from = c->x + (image * s->rows + row) * s->columns * s->channels;
    memset(to, c->zero, (size_t)(left * s->channels));
    to += left * s->channels;
    if (!mg_simd_used->int8->quantize(from, n, c->steps, (float)c->zero, to)) {
#pragma omp atomic write
        c->bad[image] = 1;
    }
    memset(to + n, c->zero, (size_t)((s->wide - left - columns) * s->channels));
}

/* The codes of a pixel, with a scale of its own. */
static void quantize_pixel(const int8_call *c, int64_t pixel) {
    const int64_t n = c->s->channels;
    const mg_simd_int8_rows *loops = mg_simd_used->int8;
    const float *from = c->x + pixel * n, largest = loops->largest(from, n);
    const float steps = mg_int8_row_steps(largest);
    c->bad[pixel] = (uint8_t)!isfinite(largest);
    c->unit[pixel] = 1.0f / steps;
    loops->quantize(from, n, steps, (float)c->zero, c->codes + pixel * n);
}

static void quantize_all(const int8_call *c) {
    const int8_state *s = c->s;
    const int64_t n = s->dynamic ? s->groups : s->images * s->tall;
#pragma omp parallel for schedule(static) num_threads(s->team)
    for (int64_t i = 0; i < n; i++) {
        if (s->dynamic)
            quantize_pixel(c, i);
        else
            quantize_line(c, i);
    }
}

/* ---- products ---- */

/* The part of the filters' weights from filter k on. */
static mg_int8_tile tile_of(const int8_call *c, int64_t k, int32_t *sums) {
    const int8_state *s = c->s;
    return (mg_int8_tile){.channels = (int)mg_smaller(s->kind->channels, s->filters - k),
                          .run = s->run,
                          .runs = s->layout.runs,
                          .quads = s->layout.quads,
                          .w = c->w + k * 4,
                          .row = s->filters,
                          .sums = sums};
}

/* Adds up the weights of each filter, as the products with a window of ones, run by run. */
static void sum_weights(const int8_call *c) {
    const int8_state *s = c->s;
    memset(c->ones, 1, (size_t)s->layout.quads * 4);
#pragma omp parallel for schedule(static) num_threads(s->team)
    for (int64_t k = 0; k < s->filters; k += s->kind->channels) {
        static const int64_t begin = 0;
        int32_t sums[MG_INT8_CHANNELS];
        mg_int8_tile t = tile_of(c, k, sums);
        t.pixels = 1, t.x[0] = c->ones, t.run = &begin, t.runs = 1;
        memset(c->weights + k, 0, (size_t)t.channels * sizeof *sums);
        for (int64_t r = 0; r < s->layout.runs; r++, t.w += t.quads * 4 * t.row) {
            s->kind->multiply(&t);
            for (int i = 0; i < t.channels; i++) c->weights[k + i] += sums[i];
        }
    }
}

/* Writes the results of the windows of a tile, from window `first` on. */
static void write_tile(const int8_call *c, const mg_int8_tile *t, int64_t first, int64_t k) {
    const int8_state *s = c->s;
    const mg_int8_scaling scaling = {c->weights, c->factor, c->bias, c->activation};
    for (int p = 0; p < t->pixels; p++) {
        const int64_t at = first + p;
        const int64_t group = s->dynamic ? at : at / (s->out_rows * s->out_columns);
        float *y = c->y + at * s->filters + k;
        if (c->bad[group])
            for (int i = 0; i < t->channels; i++) y[i] = NAN;
        else
            mg_simd_used->int8->scale(t->sums + p * MG_INT8_CHANNELS, &scaling, k, t->channels,
                                      c->zero, c->unit[group], y);
    }
}

/* Where window `at` begins, numbered over all images. */
static const uint8_t *window_at(const int8_call *c, int64_t at) {
    const int8_state *s = c->s;
    const int64_t column = at % s->out_columns, line = at / s->out_columns;
    const int64_t row = line % s->out_rows, image = line / s->out_rows;
    return c->codes +
           ((image * s->tall + row * s->stride[0]) * s->wide + column * s->stride[1]) * s->channels;
}

/* Filters from k on, windows [first, end). */
static void compute_chunk(const int8_call *c, int64_t k, int64_t first, int64_t end) {
    int32_t sums[MG_INT8_PIXELS * MG_INT8_CHANNELS];
    mg_int8_tile t = tile_of(c, k, sums);
    while (first < end) {
        const int64_t left = end - first, most = c->s->kind->pixels;
        t.pixels = (int)mg_divide_up(left, mg_divide_up(left, most)); /* even tiles */
        for (int p = 0; p < t.pixels; p++) t.x[p] = window_at(c, first + p);
        c->s->kind->multiply(&t);
        write_tile(c, &t, first, k);
        first += t.pixels;
    }
}

static int8_call call_of(const mg_call *call) {
    const int8_state *s = call->plan->state;
    char *scratch = call->scratch;
    const float *range = s->dynamic ? NULL : call->in[4];
    return (int8_call){.s = s,
                       .x = call->in[0],
                       .w = call->in[1],
                       .bias = call->in[3],
                       .y = call->out[0],
                       .codes = (uint8_t *)scratch,
                       .ones = (uint8_t *)scratch + s->ones,
                       .weights = (int32_t *)(void *)(scratch + s->weights),
                       .factor = (float *)(void *)(scratch + s->factor),
                       .unit = (float *)(void *)(scratch + s->unit),
                       .bad = (uint8_t *)scratch + s->bad,
                       .steps = range ? range[0] : 0,
                       .zero = range ? mg_int8_zero(range[1]) : 128,
                       .activation = ((const mg_int8_attrs *)call->plan->step->attrs)->activation};
}

static mg_status int8_run(const mg_call *call) {
    const int8_call c = call_of(call);
    const int8_state *s = c.s;
    const float *scale = call->in[2];
    const int64_t windows = s->images * s->out_rows * s->out_columns;
    const int64_t chunks = mg_divide_up(windows, CHUNK);
    const int64_t blocks = mg_divide_up(s->filters, s->kind->channels);
    memset(c.codes + s->images * s->tall * s->wide * s->channels, 0, SLACK);
    memset(c.bad, 0, (size_t)s->groups);
    for (int64_t i = 0; i < s->filters; i++) c.factor[i] = 1.0f / scale[i];
    for (int64_t i = 0; i < s->groups && !s->dynamic; i++) c.unit[i] = 1.0f / c.steps;
    quantize_all(&c);
    sum_weights(&c);
#pragma omp parallel for schedule(static) num_threads(s->team)
    for (int64_t i = 0; i < blocks * chunks; i++) {
        const int64_t first = i % chunks * CHUNK;
        compute_chunk(&c, i / chunks * s->kind->channels, first,
                      mg_smaller(first + CHUNK, windows));
    }
    return MG_OK;
}

const mg_kernel mg_cpu_conv2d_int8 = {.op = "conv2d_int8",
                                      .name = "8-bit integers",
                                      .prepare = int8_prepare,
                                      .run = int8_run,
                                      .release = mg_free};

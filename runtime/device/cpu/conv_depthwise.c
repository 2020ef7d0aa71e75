/* The filters' gradient of a convolution that has a filter of its own for each channel: float32,
 * row-major, any stride, dilation and padding. oneDNN takes the 3x3 filters, but three to five
 * times as long for larger ones (5x5 on 32 images of 14x14x64: 1.24 ms with one thread, 0.30 here).
 * The forward form and the input's gradient are as fast there.
 *
 * The columns of a result are cut into runs that meet the same columns of the filter: one long one
 * inside, and short ones at the edges. */
#include "core/alloc.h"
#include "device/cpu/cpu.h"
#include "ops/attrs.h"
#include <string.h>

enum {
    FEWEST_TAPS = 10,
    FEWEST = 8, /* channels */
    PARTS = 64  /* of the sums, at most */
};

/* An axis: result i meets with tap t pixel i * stride + t * dilation - padding. */
typedef struct axis {
    int64_t pixels, results, taps, stride, dilation, padding;
} axis;

typedef struct run { /* of columns that meet the taps [first_tap, end_tap) */
    int64_t first, count, first_tap, end_tap;
} run;

typedef struct depthwise {
    int64_t images, c;
    axis y, x;
    run *runs;
    int64_t n_runs, parts;
    int team;
} depthwise;

static int64_t pixel_of(const axis *a, int64_t result, int64_t tap) {
    return result * a->stride + tap * a->dilation - a->padding;
}

/* The taps that a result meets inside the image, as a run of one; there may be none. */
static run run_at(const axis *a, int64_t result) {
    run r = {result, 1, 0, a->taps};
    while (r.first_tap < r.end_tap && pixel_of(a, result, r.first_tap) < 0) r.first_tap++;
    while (r.first_tap < r.end_tap && pixel_of(a, result, r.end_tap - 1) >= a->pixels) r.end_tap--;
    return r;
}

static mg_status cut_columns(depthwise *s) {
    s->runs = mg_alloc((size_t)s->x.results * sizeof *s->runs);
    if (!s->runs) return MG_OOM;
    for (int64_t i = 0; i < s->x.results; i++) {
        const run r = run_at(&s->x, i);
        run *last = s->runs + s->n_runs - 1;
        if (i > 0 && last->first_tap == r.first_tap && last->end_tap == r.end_tap)
            last->count++;
        else
            s->runs[s->n_runs++] = r;
    }
    return MG_OK;
}

/* ---- the kernel ---- */

static const char *depthwise_accepts(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *x = plan->in[0].value->shape.dim, *dy = plan->in[1].value->shape.dim;
    const int64_t *dw = plan->out[0].value->shape.dim;
    if (!mg_all_f32(plan)) return "not float32";
    if (a->groups != x[3] || dy[3] != x[3]) return "not one filter for each channel";
    if (x[3] < FEWEST) return "few channels";
    if (dw[0] * dw[1] < FEWEST_TAPS) return "small filters";
    if (dw[0] * dw[1] > MG_DEPTHWISE_TAPS) return "large filters";
    return mg_count(&plan->in[0]) == 0 || mg_count(&plan->in[1]) == 0 ? "empty" : NULL;
}

static axis axis_of(const mg_kernel_plan *plan, int i) {
    const mg_conv_attrs *a = plan->step->attrs;
    return (axis){plan->in[0].value->shape.dim[1 + i],
                  plan->in[1].value->shape.dim[1 + i],
                  plan->out[0].value->shape.dim[i],
                  a->strides.v[i],
                  a->dilations.v[i],
                  a->pads.v[2 * i]};
}

/* The sums are cut into parts by the shape only, as the order of additions must be. */
static mg_status depthwise_prepare(mg_kernel_plan *plan) {
    const int64_t *dy = plan->in[1].value->shape.dim, rows = dy[0] * dy[1];
    depthwise *s = plan->state = mg_alloc(sizeof *s);
    if (!s) return MG_OOM;
    *s = (depthwise){.images = dy[0],
                     .c = dy[3],
                     .y = axis_of(plan, 0),
                     .x = axis_of(plan, 1),
                     .parts = rows < PARTS ? rows : PARTS,
                     .team = mg_cpu_team(mg_count(&plan->in[1]))};
    plan->scratch = (size_t)(s->parts * mg_count(&plan->out[0])) * sizeof(float);
    return cut_columns(s);
}

static void depthwise_release(void *state) {
    depthwise *s = state;
    if (s) mg_free(s->runs);
    mg_free(s);
}

/* The taps that a run meets in a row of results, whose rows of taps are `rows`. */
static void taps_of_run(const depthwise *s, const float *image, const run *rows, const run *columns,
                        mg_depthwise_run *r) {
    r->taps = 0;
    r->results = columns->count;
    r->step = s->x.stride * s->c;
    r->c = s->c;
    for (int64_t i = rows->first_tap; i < rows->end_tap; i++)
        for (int64_t k = columns->first_tap; k < columns->end_tap; k++) {
            const int64_t row = pixel_of(&s->y, rows->first, i);
            const int64_t column = pixel_of(&s->x, columns->first, k);
            r->at[r->taps] = image + (row * s->x.pixels + column) * s->c;
            r->weight[r->taps++] = (i * s->x.taps + k) * s->c;
        }
}

/* Adds the rows [first, end), counted over all images, to the sums of a part. */
static void add_rows(const depthwise *s, const float *x, const float *dy, int64_t first,
                     int64_t end, float *sums) {
    for (int64_t row = first; row < end; row++) {
        const float *image = x + row / s->y.results * s->y.pixels * s->x.pixels * s->c;
        const run rows = run_at(&s->y, row % s->y.results);
        for (int64_t i = 0; i < s->n_runs; i++) {
            const float *from = dy + (row * s->x.results + s->runs[i].first) * s->c;
            mg_depthwise_run r;
            taps_of_run(s, image, &rows, s->runs + i, &r);
            mg_simd_used->depthwise->add_gradient(&r, from, sums);
        }
    }
}

/* The parts of all sums, side by side in scratch, are added up in their order. */
static mg_status depthwise_run(const mg_call *call) {
    const depthwise *s = call->plan->state;
    const int64_t rows = s->images * s->y.results, n = s->y.taps * s->x.taps * s->c;
    float *parts = call->scratch, *dw = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
#pragma omp for schedule(static)
        for (int64_t part = 0; part < s->parts; part++) {
            memset(parts + part * n, 0, (size_t)n * sizeof *parts);
            add_rows(s, call->in[0], call->in[1], rows * part / s->parts,
                     rows * (part + 1) / s->parts, parts + part * n);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i++) {
            float sum = parts[i];
            for (int64_t part = 1; part < s->parts; part++) sum += parts[part * n + i];
            dw[i] = sum;
        }
    }
    return MG_OK;
}

const mg_kernel mg_cpu_depthwise_conv2d_grad_weight = {.op = "conv2d_grad_weight",
                                                       .name = "depthwise",
                                                       .accepts = depthwise_accepts,
                                                       .prepare = depthwise_prepare,
                                                       .run = depthwise_run,
                                                       .release = depthwise_release};

/* Convolutions that have a filter of their own for each channel, and their gradients: float32,
 * row-major, any stride, dilation and padding. oneDNN comes first where it is as fast.
 *
 * The columns of a line of windows are cut into runs that meet the same columns of the filter: one
 * long one inside, and short ones at the edges. */
#include "core/alloc.h"
#include "device/cpu/conv_windows.h"
#include "device/cpu/cpu.h"
#include <string.h>

enum { PARTS = 64 }; /* that the sums of the filters' gradient are cut into, at most */

typedef struct columns { /* neighbouring windows of a line that meet the same taps */
    int64_t first, count;
} columns;

typedef struct view { /* the windows of one place within a stride */
    mg_windows windows;
    columns *runs;
    int64_t n_runs;
} view;

typedef struct depthwise {
    int64_t images, results; /* results: elements of an image of them */
    view *views;
    int64_t n_views;
    mg_tap *taps; /* of all views */
    columns *runs;
    int64_t parts;
    int team;
} depthwise;

/* ---- which windows meet which taps ---- */

static bool meets_column(const mg_windows *w, const mg_tap *t, int64_t column) {
    const int64_t x = column * w->stride_x + t->x;
    return x >= 0 && x < w->image[2];
}

static bool meet_the_same(const mg_windows *w, int64_t column, int64_t other) {
    for (int64_t t = 0; t < w->taps; t++)
        if (meets_column(w, &w->tap[t], column) != meets_column(w, &w->tap[t], other)) return false;
    return true;
}

/* `runs` has room for as many as there are columns. */
static void cut_columns(view *v, columns *runs) {
    v->runs = runs;
    for (int64_t i = 0; i < v->windows.columns; i++) {
        columns *last = runs + v->n_runs - 1;
        if (i > 0 && meet_the_same(&v->windows, last->first, i))
            last->count++;
        else
            runs[v->n_runs++] = (columns){i, 1};
    }
}

/* The taps that a run of a line meets in an image. */
static void taps_of_run(const view *v, const float *image, int64_t line, const columns *run,
                        mg_depthwise_run *r) {
    const mg_windows *w = &v->windows;
    const int64_t c = w->image[3];
    r->taps = 0;
    r->results = run->count;
    r->step = w->stride_x * c;
    r->result_step = v->windows.pixel;
    r->c = c;
    for (int64_t t = 0; t < w->taps; t++) {
        const int64_t y = line * w->stride_y + w->tap[t].y;
        const int64_t x = run->first * w->stride_x + w->tap[t].x;
        if (y < 0 || y >= w->image[1] || !meets_column(w, &w->tap[t], run->first)) continue;
        r->at[r->taps] = image + (y * w->image[2] + x) * c;
        r->weight[r->taps++] = w->tap[t].number * c;
    }
}

/* ---- preparing ---- */

/* x, y: images, whichever the op computes. */
static const char *refusal(const mg_kernel_plan *plan, const int64_t *x, const int64_t *y,
                           const int64_t *filters) {
    const mg_conv_attrs *a = plan->step->attrs;
    if (!mg_all_f32(plan)) return "not float32";
    if (a->groups != x[3] || y[3] != x[3]) return "not one filter for each channel";
    if (filters[0] * filters[1] > MG_DEPTHWISE_TAPS) return "large filters";
    return mg_count(&plan->in[0]) == 0 || mg_count(&plan->in[1]) == 0 ? "empty" : NULL;
}

static const char *conv2d_accepts(const mg_kernel_plan *plan) {
    return refusal(plan, mg_dims(&plan->in[0]), mg_dims(&plan->out[0]), mg_dims(&plan->in[1]));
}

static const char *conv2d_grad_input_accepts(const mg_kernel_plan *plan) {
    return refusal(plan, mg_dims(&plan->out[0]), mg_dims(&plan->in[0]), mg_dims(&plan->in[1]));
}

static const char *conv2d_grad_weight_accepts(const mg_kernel_plan *plan) {
    return refusal(plan, mg_dims(&plan->in[0]), mg_dims(&plan->in[1]), mg_dims(&plan->out[0]));
}

/* Room for views of images of results of shape y. */
static mg_status new_depthwise(mg_kernel_plan *plan, const int64_t *y, const int64_t *filters,
                               int64_t views) {
    const int64_t taps = filters[0] * filters[1];
    depthwise *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->images = y[0];
    s->results = y[1] * y[2] * y[3];
    s->team = mg_cpu_team(y[0] * s->results);
    s->n_views = views;
    s->views = mg_alloc_zero((size_t)views * sizeof *s->views);
    s->taps = mg_alloc_zero((size_t)(views * taps) * sizeof *s->taps);
    s->runs = mg_alloc((size_t)(views * y[2]) * sizeof *s->runs);
    if (!s->views || !s->taps || !s->runs) return MG_OOM;
    for (int64_t i = 0; i < views; i++) s->views[i].windows.tap = s->taps + i * taps;
    return MG_OK;
}

/* Results, or dy, side by side. */
static mg_status look_forward(mg_kernel_plan *plan, const int64_t *y, const int64_t *filters) {
    MG_TRY(new_depthwise(plan, y, filters, 1));
    depthwise *s = plan->state;
    mg_look_forward(&s->views->windows, plan->step->attrs, mg_dims(&plan->in[0]), y, filters);
    cut_columns(s->views, s->runs);
    return MG_OK;
}

static mg_status conv2d_prepare(mg_kernel_plan *plan) {
    return look_forward(plan, mg_dims(&plan->out[0]), mg_dims(&plan->in[1]));
}

/* The sums are cut into parts by the shape only, as the order of additions must be. */
static mg_status conv2d_grad_weight_prepare(mg_kernel_plan *plan) {
    const int64_t *dy = mg_dims(&plan->in[1]), rows = dy[0] * dy[1];
    MG_TRY(look_forward(plan, dy, mg_dims(&plan->out[0])));
    depthwise *s = plan->state;
    s->parts = rows < PARTS ? rows : PARTS;
    plan->scratch = (size_t)(s->parts * mg_count(&plan->out[0])) * sizeof(float);
    return MG_OK;
}

static mg_status conv2d_grad_input_prepare(mg_kernel_plan *plan) {
    const int64_t *dx = mg_dims(&plan->out[0]), *filters = mg_dims(&plan->in[1]);
    MG_TRY(new_depthwise(plan, dx, filters, mg_look_back_places(plan->step->attrs, dx)));
    depthwise *s = plan->state;
    for (int64_t i = 0; i < s->n_views; i++) {
        view *v = &s->views[i];
        mg_look_back(&v->windows, plan->step->attrs, mg_dims(&plan->in[0]), dx, filters, i);
        cut_columns(v, s->runs + i * dx[2]);
    }
    return MG_OK;
}

/* Also after a prepare that failed half-way. */
static void depthwise_release(void *state) {
    depthwise *s = state;
    if (!s) return;
    mg_free(s->views);
    mg_free(s->taps);
    mg_free(s->runs);
    mg_free(s);
}

/* ---- running ---- */

/* Elements of an image that a view looks at. */
static int64_t image_elements(const view *v) {
    const int64_t *d = v->windows.image;
    return d[1] * d[2] * d[3];
}

/* Lines of results, counted over all images, are shared among the threads. */
static mg_status depthwise_run(const mg_call *call) {
    const depthwise *s = call->plan->state;
    const float *x = call->in[0], *bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    const bool relu = ((const mg_conv_attrs *)call->plan->step->attrs)->relu;
    for (int64_t i = 0; i < s->n_views; i++) {
        const view *v = &s->views[i];
        const int64_t lines = v->windows.lines;
#pragma omp parallel for schedule(static) num_threads(s->team)
        for (int64_t at = 0; at < s->images * lines; at++) {
            const int64_t image = at / lines, line = at % lines;
            float *y = (float *)call->out[0] + image * s->results + v->windows.first +
                       line * v->windows.line;
            for (int64_t k = 0; k < v->n_runs; k++) {
                mg_depthwise_run r;
                taps_of_run(v, x + image * image_elements(v), line, &v->runs[k], &r);
                mg_simd_used->depthwise->sum_taps(&r, call->in[1], bias, relu,
                                                  y + v->runs[k].first * v->windows.pixel);
            }
        }
    }
    return MG_OK;
}

/* Adds the lines [first, end), counted over all images, to the sums of a part. */
static void add_lines(const depthwise *s, const float *x, const float *dy, int64_t first,
                      int64_t end, float *sums) {
    const view *v = s->views;
    for (int64_t at = first; at < end; at++) {
        const int64_t image = at / v->windows.lines, line = at % v->windows.lines;
        for (int64_t k = 0; k < v->n_runs; k++) {
            const float *from = dy + at * v->windows.line + v->runs[k].first * v->windows.pixel;
            mg_depthwise_run r;
            taps_of_run(v, x + image * image_elements(v), line, &v->runs[k], &r);
            mg_simd_used->depthwise->add_gradient(&r, from, sums);
        }
    }
}

/* The parts of all sums, side by side in scratch, are added up in their order. */
static mg_status depthwise_run_grad_weight(const mg_call *call) {
    const depthwise *s = call->plan->state;
    const int64_t lines = s->images * s->views->windows.lines, n = mg_count(&call->plan->out[0]);
    float *parts = call->scratch, *dw = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
#pragma omp for schedule(static)
        for (int64_t part = 0; part < s->parts; part++) {
            memset(parts + part * n, 0, (size_t)n * sizeof *parts);
            add_lines(s, call->in[0], call->in[1], lines * part / s->parts,
                      lines * (part + 1) / s->parts, parts + part * n);
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

#define DEPTHWISE(id, runs)                                                                        \
    const mg_kernel mg_cpu_depthwise_##id = {.op = #id,                                            \
                                             .name = "depthwise",                                  \
                                             .accepts = id##_accepts,                              \
                                             .prepare = id##_prepare,                              \
                                             .run = depthwise_##runs,                              \
                                             .release = depthwise_release}
DEPTHWISE(conv2d, run);
DEPTHWISE(conv2d_grad_input, run);
DEPTHWISE(conv2d_grad_weight, run_grad_weight);
#undef DEPTHWISE

/* Depthwise convolutions (one filter for each channel) and their gradients: float32, float16 or
 * bfloat16, row-major, any stride, dilation and padding. Sums and weights are floats. oneDNN comes
 * first where it is as fast (is_slow in onednn/conv.c).
 *
 * A line of results is cut into runs whose windows (conv/windows.h) have the same columns of the
 * filter inside the image: one long run in the middle, and short ones at the edges. */
#include "core/alloc.h"
#include "device/cpu/conv/windows.h"
#include "device/cpu/conv/conv.h"
#include <string.h>

enum {
    PARTS = 64, /* parts that the sums of the filters' gradient are cut into, at most */
    /* pixels of a part: with fewer, adding up the parts takes much of the time */
    FEWEST_PIXELS = 64,
    FOLDED = 256,        /* sums whose parts are added up at a time */
    ALIGNED = 16,        /* results of a line are cut at multiples of so many channels, */
    FEWEST_CHANNELS = 64 /* into pieces of about so many, at least */
};

typedef struct group { /* neighbouring taps of a line */
    int64_t y, x;      /* the pixel that the first one reads, as in mg_tap */
    int64_t weight;    /* where its weights begin; distance of one tap's weights from the next */
    int64_t apart;
    int width; /* taps */
} group;

/* a run: neighbouring windows of a line with the same taps inside the image */
typedef struct columns {
    int64_t first, count;
    group *groups; /* the widest first */
    int n_groups;
} columns;

typedef struct view { /* the windows of one place within a stride (conv/windows.h), in runs */
    mg_windows windows;
    columns *runs;
    int64_t n_runs;
} view;

typedef struct depthwise {
    const mg_simd_depthwise *loops;
    int64_t images, results; /* results: elements of an image of results */
    int64_t size;            /* bytes of an element */
    view *views;
    int64_t n_views;
    mg_tap *taps; /* of all views */
    columns *runs;
    group *groups;
    int64_t channels, pieces; /* pieces that the channels of a line of results are cut into */
    int64_t parts;
    int team;
} depthwise;

/* ---- which taps of a window lie inside the image ---- */

static bool meets_column(const mg_windows *w, const mg_tap *t, int64_t column) {
    const int64_t x = column * w->stride_x + t->x;
    return x >= 0 && x < w->image[2];
}

static bool meet_the_same(const mg_windows *w, int64_t column, int64_t other) {
    for (int64_t t = 0; t < w->taps; t++)
        if (meets_column(w, &w->tap[t], column) != meets_column(w, &w->tap[t], other)) return false;
    return true;
}

/* Cuts a line of windows into runs; `runs` has room for as many as there are columns. */
static void cut_columns(view *v, columns *runs) {
    v->runs = runs;
    for (int64_t i = 0; i < v->windows.columns; i++) {
        columns *last = runs + v->n_runs - 1;
        if (i > 0 && meet_the_same(&v->windows, last->first, i))
            last->count++;
        else
            runs[v->n_runs++] = (columns){.first = i, .count = 1};
    }
}

/* The size of the group that begins with tap t: neighbouring taps of a line, all inside the image
 * for this run. Only with stride 1, where tap t + 1 of a window reads the pixel that tap t of the
 * next window reads. */
static int group_width(const mg_windows *w, const columns *run, int64_t t) {
    int n = 1;
    for (; n < MG_DEPTHWISE_WIDTH && t + n < w->taps; n++) {
        const mg_tap *now = &w->tap[t + n], *last = now - 1;
        if (w->stride_x != 1 || now->y != last->y || now->x != last->x + 1 ||
            !meets_column(w, now, run->first))
            break;
    }
    return n;
}

/* Groups the taps of a run; run->groups has room for as many as there are taps. */
static void group_taps(const mg_windows *w, columns *run) {
    for (int width = MG_DEPTHWISE_WIDTH; width > 0; width--)
        for (int64_t t = 0, n; t < w->taps; t += n) {
            const mg_tap *tap = &w->tap[t];
            n = meets_column(w, tap, run->first) ? group_width(w, run, t) : 1;
            if (n != width || !meets_column(w, tap, run->first)) continue;
            const int64_t c = w->image[3];
            run->groups[run->n_groups++] =
                (group){tap->y, tap->x, tap->number * c,
                        n > 1 ? (tap[1].number - tap->number) * c : 0, width};
        }
}

/* The taps of a run in one line of an image with elements of `size` bytes. */
static void taps_of_run(const view *v, const char *image, int64_t size, int64_t line,
                        const columns *run, mg_depthwise_run *r) {
    const mg_windows *w = &v->windows;
    const int64_t c = w->image[3];
    mg_depthwise_group *to = r->groups;
    memset(r->count, 0, sizeof r->count);
    r->results = run->count;
    r->step = w->stride_x * c;
    r->result_step = w->pixel;
    r->c = c;
    for (const group *g = run->groups; g < run->groups + run->n_groups; g++) {
        const int64_t y = line * w->stride_y + g->y, x = run->first * w->stride_x + g->x;
        if (y < 0 || y >= w->image[1]) continue;
        const char *first = image + (y * w->image[2] + x) * c * size;
        *to++ = (mg_depthwise_group){first, g->weight, g->apart};
        r->count[g->width]++;
    }
}

/* ---- preparing ---- */

/* The loops for the dtype of all operands; NULL if they differ or there are no loops for it. */
static const mg_simd_depthwise *loops_of(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != t) return NULL;
    const mg_simd_depthwise *const *loops = mg_simd_used->depthwise;
    return t == MG_F32 ? loops[0] : t == MG_F16 ? loops[1] : t == MG_BF16 ? loops[2] : NULL;
}

/* x, y: shapes of the images and the results, whichever the op computes. */
static const char *refusal(const mg_kernel_plan *plan, const int64_t *x, const int64_t *y,
                           const int64_t *filters) {
    const mg_conv_attrs *a = plan->step->attrs;
    if (!loops_of(plan))
        return "not all float32, bfloat16, or float16 with instructions that convert it";
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

/* Allocates the state, with `views` views for images of results of shape y. */
static mg_status new_depthwise(mg_kernel_plan *plan, const int64_t *y, const int64_t *filters,
                               int64_t views) {
    const int64_t taps = filters[0] * filters[1];
    depthwise *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->loops = loops_of(plan);
    s->size = (int64_t)mg_dtype_size(plan->out[0].value->dtype);
    s->images = y[0];
    s->results = y[1] * y[2] * y[3];
    s->channels = y[3];
    s->team = mg_cpu_team(y[0] * s->results);
    s->pieces =
        mg_divide_up(y[3], mg_even_share(y[0] * y[1], y[3], y[3], FEWEST_CHANNELS, s->team));
    s->n_views = views;
    s->views = mg_alloc_zero((size_t)views * sizeof *s->views);
    s->taps = mg_alloc_zero((size_t)(views * taps) * sizeof *s->taps);
    s->runs = mg_alloc((size_t)(views * y[2]) * sizeof *s->runs);
    if (!s->views || !s->taps || !s->runs) return MG_OOM;
    for (int64_t i = 0; i < views; i++) s->views[i].windows.tap = s->taps + i * taps;
    return MG_OK;
}

/* Cuts the lines of all views into runs, and groups their taps. */
static mg_status cut_views(depthwise *s) {
    columns *run = s->runs;
    int64_t room = 0;
    for (int64_t i = 0; i < s->n_views; i++) {
        cut_columns(&s->views[i], run);
        run += s->views[i].n_runs;
        room += s->views[i].n_runs * s->views[i].windows.taps;
    }
    group *to = s->groups = mg_alloc((size_t)room * sizeof *to);
    if (!to) return MG_OOM;
    for (const view *v = s->views; v < s->views + s->n_views; v++)
        for (int64_t k = 0; k < v->n_runs; k++, to += v->windows.taps) {
            v->runs[k].groups = to;
            group_taps(&v->windows, &v->runs[k]);
        }
    return MG_OK;
}

/* Prepares the windows of the results, or of dy, in the image. */
static mg_status look_forward(mg_kernel_plan *plan, const int64_t *y, const int64_t *filters) {
    MG_TRY(new_depthwise(plan, y, filters, 1));
    depthwise *s = plan->state;
    mg_look_forward(&s->views->windows, plan->step->attrs, mg_dims(&plan->in[0]), y, filters);
    return cut_views(s);
}

/* Scratch for the filters and the bias as floats, if they are halves. */
static size_t parameter_bytes(const mg_kernel_plan *plan) {
    if (plan->out[0].value->dtype == MG_F32) return 0;
    return (size_t)(mg_count(&plan->in[1]) + mg_dims(&plan->in[1])[3]) * sizeof(float);
}

static mg_status conv2d_prepare(mg_kernel_plan *plan) {
    plan->scratch = parameter_bytes(plan);
    return look_forward(plan, mg_dims(&plan->out[0]), mg_dims(&plan->in[1]));
}

/* The number of parts depends on the shape only, so that the order of additions does too. */
static mg_status conv2d_grad_weight_prepare(mg_kernel_plan *plan) {
    const int64_t *dy = mg_dims(&plan->in[1]), lines = dy[0] * dy[1];
    const int64_t most = mg_larger(lines * dy[2] / FEWEST_PIXELS, 1);
    MG_TRY(look_forward(plan, dy, mg_dims(&plan->out[0])));
    depthwise *s = plan->state;
    s->parts = mg_smaller(mg_smaller(most, lines), PARTS);
    plan->scratch = (size_t)(s->parts * mg_count(&plan->out[0])) * sizeof(float);
    return MG_OK;
}

static mg_status conv2d_grad_input_prepare(mg_kernel_plan *plan) {
    plan->scratch = parameter_bytes(plan);
    const int64_t *dx = mg_dims(&plan->out[0]), *filters = mg_dims(&plan->in[1]);
    MG_TRY(new_depthwise(plan, dx, filters, mg_look_back_places(plan->step->attrs, dx)));
    depthwise *s = plan->state;
    for (int64_t i = 0; i < s->n_views; i++) {
        mg_windows *w = &s->views[i].windows;
        mg_look_back(w, plan->step->attrs, mg_dims(&plan->in[0]), dx, filters, i);
    }
    return cut_views(s);
}

/* Also after a prepare that failed half-way. */
static void depthwise_release(void *state) {
    depthwise *s = state;
    if (!s) return;
    mg_free(s->views);
    mg_free(s->taps);
    mg_free(s->runs);
    mg_free(s->groups);
    mg_free(s);
}

/* ---- running ---- */

/* Elements of an image in which a view's windows lie. */
static int64_t image_elements(const view *v) {
    const int64_t *d = v->windows.image;
    return d[1] * d[2] * d[3];
}

/* An operand as floats: itself, or a copy in scratch memory. */
static const float *as_floats(const mg_call *call, int operand, float *scratch) {
    const mg_port *port = &call->plan->in[operand];
    if (port->value->dtype == MG_F32) return call->in[operand];
    mg_simd_used->conversions->load_f32(scratch, call->in[operand], port->value->dtype,
                                        (int)mg_count(port));
    return scratch;
}

typedef struct operands {
    const char *x;
    const float *w, *bias; /* bias: or NULL */
    bool relu;
    char *y;
} operands;

/* Computes a piece of the channels of one line of results, counted over all images. */
static void run_piece(const depthwise *s, const view *v, const operands *o, int64_t at,
                      int64_t piece) {
    const int64_t image = at / v->windows.lines, line = at % v->windows.lines;
    const int64_t c = s->channels * piece / s->pieces / ALIGNED * ALIGNED;
    const int64_t next = s->channels * (piece + 1) / s->pieces / ALIGNED * ALIGNED;
    const int64_t first = image * s->results + v->windows.first + line * v->windows.line + c;
    const char *x = o->x + (image * image_elements(v) + c) * s->size;
    for (int64_t k = 0; k < v->n_runs; k++) {
        mg_depthwise_run r;
        taps_of_run(v, x, s->size, line, &v->runs[k], &r);
        r.c = (piece + 1 < s->pieces ? next : s->channels) - c;
        s->loops->sum_taps(&r, o->w + c, o->bias ? o->bias + c : NULL, o->relu,
                           o->y + (first + v->runs[k].first * v->windows.pixel) * s->size);
    }
}

/* Threads share the lines of results, or pieces of their channels if there are few lines. */
static mg_status depthwise_run(const mg_call *call) {
    const depthwise *s = call->plan->state;
    float *scratch = call->scratch;
    const bool has_bias = call->plan->step->n_in == 3;
    const operands o = {
        .x = call->in[0],
        .w = as_floats(call, 1, scratch),
        .bias = has_bias ? as_floats(call, 2, scratch + mg_count(&call->plan->in[1])) : NULL,
        .relu = ((const mg_conv_attrs *)call->plan->step->attrs)->relu,
        .y = call->out[0]};
    for (const view *v = s->views; v < s->views + s->n_views; v++) {
#pragma omp parallel for collapse(2) schedule(static) num_threads(s->team)
        for (int64_t at = 0; at < s->images * v->windows.lines; at++)
            for (int64_t piece = 0; piece < s->pieces; piece++) run_piece(s, v, &o, at, piece);
    }
    return MG_OK;
}

/* Adds the lines [first, end) of dy, counted over all images, to the sums of a part. */
static void add_lines(const depthwise *s, const char *x, const char *dy, int64_t first, int64_t end,
                      float *sums) {
    const view *v = s->views;
    for (int64_t at = first; at < end; at++) {
        const int64_t image = at / v->windows.lines, line = at % v->windows.lines;
        for (int64_t k = 0; k < v->n_runs; k++) {
            const int64_t from = at * v->windows.line + v->runs[k].first * v->windows.pixel;
            mg_depthwise_run r;
            taps_of_run(v, x + image * image_elements(v) * s->size, s->size, line, &v->runs[k], &r);
            s->loops->add_gradient(&r, dy + from * s->size, sums);
        }
    }
}

/* Adds up the parts of the sums [first, end), in the order of the parts, and writes them to dw. */
static void fold_parts(const mg_call *call, float *parts, int64_t n, int64_t first, int64_t end) {
    const depthwise *s = call->plan->state;
    char *dw = (char *)call->out[0] + first * s->size;
    for (int64_t part = 1; part < s->parts; part++)
        mg_simd_used->gemm[0]->add(parts + first, parts + part * n + first, end - first);
    mg_simd_used->conversions->store_f32(dw, parts + first, call->plan->out[0].value->dtype,
                                         (int)(end - first));
}

/* Scratch holds the parts one after another; each has the sums of all weights. */
static mg_status depthwise_run_grad_weight(const mg_call *call) {
    const depthwise *s = call->plan->state;
    const int64_t lines = s->images * s->views->windows.lines, n = mg_count(&call->plan->out[0]);
    float *parts = call->scratch;
#pragma omp parallel num_threads(s->team)
    {
#pragma omp for schedule(static)
        for (int64_t part = 0; part < s->parts; part++) {
            memset(parts + part * n, 0, (size_t)n * sizeof *parts);
            add_lines(s, call->in[0], call->in[1], lines * part / s->parts,
                      lines * (part + 1) / s->parts, parts + part * n);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i += FOLDED)
            fold_parts(call, parts, n, i, mg_smaller(i + FOLDED, n));
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

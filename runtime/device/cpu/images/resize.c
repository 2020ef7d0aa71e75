/* image_resize and its gradient.
 *
 * Both are made along rows first and then along columns, from tables that say of each row and
 * column which others make it (mg_taps). The tables of the gradient are the transposed ones, so one
 * kernel does both. Threads share the rows of the result. Nearest neighbours are copies, whatever
 * the dtype. Compiled without contraction: see ops/resize_formulas.h. */
#include "core/alloc.h"
#include "device/cpu/images/images.h"
#include "ops/attrs.h"
#include "ops/resize_formulas.h"
#include <omp.h>
#include <string.h>

typedef struct state {
    mg_taps rows, columns;
    bool same_rows, same_columns; /* an axis that keeps its size needs no pass */
    int team;                     /* threads */
    size_t thread_bytes;          /* a row of the source, for each thread */
} state;

/* ---- the tables ---- */

static void free_taps(mg_taps *t) {
    mg_free(t->first);
    mg_free(t->weight);
}

static void resize_release(void *p) {
    state *s = p;
    free_taps(&s->rows);
    free_taps(&s->columns);
    mg_free(s);
}

/* The cells of cell p: forward, those of the source; back, those of the result. */
static void cells_of(const mg_resize_axis *a, bool back, int64_t p, int64_t *first, int64_t *last) {
    if (back)
        mg_resize_users(a, p, first, last);
    else
        mg_resize_cells(a, p, first, last);
}

/* Sets first, count and most for the n cells of the axis. */
static mg_status find_cells(const mg_resize_axis *a, bool back, mg_taps *t) {
    int64_t first, last;
    t->n = back ? a->from : a->to;
    t->first = mg_alloc((size_t)t->n * 2 * sizeof *t->first);
    if (!t->first) return MG_OOM;
    t->count = t->first + t->n;
    for (int64_t p = 0; p < t->n; p++) {
        cells_of(a, back, p, &first, &last);
        t->count[p] = (int32_t)(last < first ? 0 : last - first + 1);
        t->first[p] = (int32_t)(t->count[p] ? first : 0);
        if (t->count[p] > t->most) t->most = t->count[p];
    }
    return MG_OK;
}

/* The sum of the kernel for each cell of the result; NULL after MG_OOM. */
static double *sums_of(const mg_resize_axis *a) {
    double *sums = mg_alloc((size_t)a->to * sizeof *sums);
    for (int64_t o = 0; sums && o < a->to; o++) sums[o] = mg_resize_sum(a, o);
    return sums;
}

/* Sets the weights, in the dtype, of cells that were found. */
static mg_status find_weights(const mg_resize_axis *a, bool back, mg_dtype dtype, mg_taps *t) {
    size_t bytes;
    if (!mg_size_mul((size_t)t->n * mg_dtype_size(dtype), (size_t)t->most, &bytes))
        return mg_fail(MG_OOM, "image_resize: a table of weights is too large");
    t->weight = mg_alloc(bytes);
    double *sums = sums_of(a);
    if (!t->weight || !sums) {
        mg_free(sums);
        return MG_OOM;
    }
    for (int64_t p = 0; p < t->n; p++)
        for (int64_t k = 0; k < t->count[p]; k++) {
            const int64_t other = t->first[p] + k, o = back ? other : p;
            const double w = mg_resize_kernel(a, o, back ? p : other) / sums[o];
            if (dtype == MG_F64)
                ((double *)t->weight)[p * t->most + k] = w;
            else
                ((float *)t->weight)[p * t->most + k] = (float)w;
        }
    mg_free(sums);
    return MG_OK;
}

/* ---- the kernels ---- */

static bool is_copy(const mg_kernel_plan *plan) {
    const mg_resize_attrs *a = plan->step->attrs;
    return a->interpolation == MG_RESIZE_NEAREST &&
           strcmp(plan->step->op->name, "image_resize") == 0;
}

/* Halves are upcast first. */
static const char *resize_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    if (t == MG_F32 || t == MG_F64 || is_copy(plan)) return NULL;
    return "neither float32 nor float64";
}

/* Makes the tables for a resize from `from` to `to`, the shapes before and after image_resize. */
static mg_status prepare_tables(mg_kernel_plan *plan, const mg_shape *from, const mg_shape *to,
                                bool back) {
    const mg_resize_attrs *a = plan->step->attrs;
    const mg_value *x = plan->in[0].value;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    for (int axis = 0; axis < 2; axis++) {
        const mg_resize_axis line = {.from = from->dim[1 + axis],
                                     .to = to->dim[1 + axis],
                                     .kind = (int)a->interpolation,
                                     .antialias = (int)a->antialias};
        mg_taps *taps = axis == 0 ? &s->rows : &s->columns;
        MG_TRY(find_cells(&line, back, taps));
        if (!is_copy(plan)) MG_TRY(find_weights(&line, back, x->dtype, taps));
    }
    s->same_rows = from->dim[1] == to->dim[1];
    s->same_columns = from->dim[2] == to->dim[2];
    s->team = mg_cpu_team(mg_count(&plan->in[0]) + mg_count(&plan->out[0]));
    s->thread_bytes = (size_t)(x->shape.dim[2] * x->shape.dim[3]) * mg_dtype_size(x->dtype);
    s->thread_bytes = (s->thread_bytes + MG_LINE - 1) / MG_LINE * MG_LINE;
    plan->scratch = (size_t)s->team * s->thread_bytes;
    return MG_OK;
}

static mg_status resize_prepare(mg_kernel_plan *plan) {
    return prepare_tables(plan, &plan->in[0].value->shape, &plan->out[0].value->shape, false);
}

static mg_status resize_grad_prepare(mg_kernel_plan *plan) {
    return prepare_tables(plan, &plan->out[0].value->shape, &plan->in[0].value->shape, true);
}

/* Copies the pixels, of `bytes` each, that the table names. */
static inline __attribute__((always_inline)) void copy_each(const mg_taps *columns, const char *x,
                                                            char *y, size_t bytes) {
    for (int64_t p = 0; p < columns->n; p++)
        memcpy(y + (size_t)p * bytes, x + (size_t)columns->first[p] * bytes, bytes);
}

/* The same; the usual sizes are constants, so that a copy is a move or two. */
static void copy_pixels(const mg_taps *columns, const char *x, char *y, size_t bytes) {
    switch (bytes) {
    case 1: copy_each(columns, x, y, 1); break;
    case 2: copy_each(columns, x, y, 2); break;
    case 3: copy_each(columns, x, y, 3); break;
    case 4: copy_each(columns, x, y, 4); break;
    case 8: copy_each(columns, x, y, 8); break;
    case 12: copy_each(columns, x, y, 12); break;
    case 16: copy_each(columns, x, y, 16); break;
    default: copy_each(columns, x, y, bytes);
    }
}

/* One row of the result from the source x of its image; `line` has room for a row of x. */
static void resize_row(const mg_kernel_plan *plan, int64_t oy, const char *x, char *y, void *line) {
    const state *s = plan->state;
    const mg_shape *shape = &plan->in[0].value->shape;
    const mg_dtype dtype = plan->in[0].value->dtype;
    const mg_simd_resize *loops = mg_simd_used->resize[mg_simd_index(dtype)];
    const int64_t c = shape->dim[3], row = shape->dim[2] * c;
    const int64_t size = (int64_t)mg_dtype_size(dtype);
    const void *weight = (const char *)s->rows.weight + oy * s->rows.most * size;
    x += (s->same_rows ? oy : s->rows.first[oy]) * row * size;
    if (is_copy(plan)) {
        copy_pixels(&s->columns, x, y, (size_t)(c * size));
    } else if (s->same_rows && s->same_columns) {
        memcpy(y, x, (size_t)(row * size));
    } else if (s->same_columns) {
        loops->blend_rows(x, row, weight, s->rows.count[oy], row, y);
    } else if (s->same_rows) {
        loops->blend_columns(&s->columns, x, c, y);
    } else {
        loops->blend_rows(x, row, weight, s->rows.count[oy], row, line);
        loops->blend_columns(&s->columns, line, c, y);
    }
}

static mg_status resize_run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const mg_shape *from = &plan->in[0].value->shape, *to = &plan->out[0].value->shape;
    const int64_t size = (int64_t)mg_dtype_size(plan->in[0].value->dtype);
    const int64_t image = from->dim[1] * from->dim[2] * from->dim[3] * size;
    const int64_t row = to->dim[2] * to->dim[3] * size, rows = to->dim[0] * to->dim[1];
    if (row == 0) return MG_OK;
#pragma omp parallel num_threads(s->team)
    {
        char *line = (char *)call->scratch + (size_t)omp_get_thread_num() * s->thread_bytes;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < rows; i++)
            resize_row(plan, i % to->dim[1], (const char *)call->in[0] + i / to->dim[1] * image,
                       (char *)call->out[0] + i * row, line);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_image_resize = {.op = "image_resize",
                                       .name = "image_resize",
                                       .accepts = resize_accepts,
                                       .prepare = resize_prepare,
                                       .run = resize_run,
                                       .release = resize_release};
const mg_kernel mg_cpu_image_resize_grad = {.op = "image_resize_grad",
                                            .name = "image_resize",
                                            .accepts = resize_accepts,
                                            .prepare = resize_grad_prepare,
                                            .run = resize_run,
                                            .release = resize_release};

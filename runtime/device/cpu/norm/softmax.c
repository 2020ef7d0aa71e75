/* softmax, log_softmax and the gradient of softmax over one axis; the loops are in
 * simd/softmax_loops.h.
 *
 * Along the last axis, a unit of work is a row. Along another axis, it is up to MG_TILE
 * neighbouring columns, so that memory is read in contiguous pieces. */
#include "device/cpu/halves.h"
#include "device/cpu/norm/norm.h"
#include "ops/attrs.h"
#include "ops/loops.h"

static const char *softmax_accepts(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->in[0].value->dtype) ? NULL : "not floating point";
}

/* The tensor is {outer, n, inner} around the axis. */
static mg_axis_view view_of(const mg_kernel_plan *plan) {
    return mg_axis_view_of(&plan->in[0].value->shape,
                           ((const mg_axis_attrs *)plan->step->attrs)->axis);
}

static int64_t tiles_of(const mg_axis_view *v) {
    return mg_divide_up(v->inner, MG_TILE);
}

/* Most elements of a unit. */
static int64_t unit_count(const mg_axis_view *v) {
    return v->n * mg_smaller(v->inner, MG_TILE);
}

/* A unit of an operand or result, whose elements `at` may be a copy in floats. */
typedef struct unit {
    int64_t offset, step; /* of its first element; from a row of the unit to the next, in memory */
    int64_t rows, width;  /* rows that lie `step` apart: one if the axis is the last */
    mg_dtype t;
} unit;

static unit unit_of(const mg_axis_view *v, mg_dtype t, int64_t number) {
    const int64_t tiles = tiles_of(v), first = number % tiles * MG_TILE;
    const int64_t offset = number / tiles * v->n * v->inner + first;
    if (v->inner == 1) return (unit){offset, v->n, 1, v->n, t};
    return (unit){offset, v->inner, v->n, mg_smaller(v->inner - first, MG_TILE), t};
}

/* The unit of x: in place, or converted to `copy`. */
static const void *read_unit(const unit *u, const void *x, float *copy) {
    const void *at = (const char *)x + u->offset * (int64_t)mg_dtype_size(u->t);
    if (!copy) return at;
    mg_simd_used->conversions->load_rows(copy, at, u->step, u->rows, u->width, u->t);
    return copy;
}

/* Rounds the unit of y from `copy`, if it was computed there. */
static void write_unit(const unit *u, const float *copy, void *y) {
    if (copy)
        mg_simd_used->conversions->store_rows((uint16_t *)y + u->offset, u->step, copy, u->rows,
                                              u->width, u->t);
}

/* Scratch for the copies of a thread: `operands` units. */
static void ask_for_copies(mg_kernel_plan *plan, int operands) {
    const mg_axis_view v = view_of(plan);
    plan->scratch =
        mg_copies_bytes(plan->in[0].value->dtype, operands * unit_count(&v), mg_cpu_threads());
}

static mg_status softmax_prepare(mg_kernel_plan *plan) {
    ask_for_copies(plan, 2);
    return MG_OK;
}

/* softmax or its logarithm, which differ in the last pass only. */
static mg_status softmax_run_either(const mg_call *call, bool logarithm) {
    const mg_axis_view v = view_of(call->plan);
    const mg_dtype t = call->plan->in[0].value->dtype;
    const mg_simd_softmax *loops = mg_simd_used->softmax[mg_simd_index(t)];
    const int64_t units = v.outer * tiles_of(&v), count = unit_count(&v);
    if (v.n == 0) return MG_OK;
#pragma omp parallel for schedule(static) if (v.outer * v.n * v.inner > MG_SERIAL_BELOW / 4)
    for (int64_t i = 0; i < units; i++) {
        const unit u = unit_of(&v, t, i);
        float *copy = mg_own_copy(call->scratch, t, 2 * count),
              *result = copy ? copy + count : NULL;
        const void *x = read_unit(&u, call->in[0], copy);
        void *y = mg_target_elements(call->out[0], t, u.offset, result);
        if (v.inner == 1)
            loops->row(x, y, v.n, logarithm);
        else
            loops->columns(x, y, v.n, copy ? u.width : v.inner, (int)u.width, logarithm);
        write_unit(&u, result, call->out[0]);
    }
    return MG_OK;
}

static mg_status softmax_run(const mg_call *call) {
    return softmax_run_either(call, false);
}

static mg_status log_softmax_run(const mg_call *call) {
    return softmax_run_either(call, true);
}

static mg_status softmax_grad_prepare(mg_kernel_plan *plan) {
    ask_for_copies(plan, 3);
    return MG_OK;
}

/* dx = y * (dy - sum(y * dy)); inputs y and dy, cut into units in the same way. */
static mg_status softmax_grad_run(const mg_call *call) {
    const mg_axis_view v = view_of(call->plan);
    const mg_dtype t = call->plan->in[0].value->dtype;
    const mg_simd_softmax *loops = mg_simd_used->softmax[mg_simd_index(t)];
    const int64_t units = v.outer * tiles_of(&v), count = unit_count(&v);
    if (v.n == 0) return MG_OK;
#pragma omp parallel for schedule(static) if (v.outer * v.n * v.inner > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < units; i++) {
        const unit u = unit_of(&v, t, i);
        float *copy = mg_own_copy(call->scratch, t, 3 * count);
        float *slope = copy ? copy + count : NULL, *result = copy ? copy + 2 * count : NULL;
        const void *y = read_unit(&u, call->in[0], copy), *dy = read_unit(&u, call->in[1], slope);
        void *dx = mg_target_elements(call->out[0], t, u.offset, result);
        if (v.inner == 1)
            loops->grad_row(y, dy, dx, v.n);
        else
            loops->grad_columns(y, dy, dx, v.n, copy ? u.width : v.inner, (int)u.width);
        write_unit(&u, result, call->out[0]);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_softmax_grad = {.op = "softmax_grad",
                                       .name = "softmax_grad",
                                       .accepts = softmax_accepts,
                                       .prepare = softmax_grad_prepare,
                                       .run = softmax_grad_run};
const mg_kernel mg_cpu_softmax = {.op = "softmax",
                                  .name = "softmax",
                                  .accepts = softmax_accepts,
                                  .prepare = softmax_prepare,
                                  .run = softmax_run};
const mg_kernel mg_cpu_log_softmax = {.op = "log_softmax",
                                      .name = "log_softmax",
                                      .accepts = softmax_accepts,
                                      .prepare = softmax_prepare,
                                      .run = log_softmax_run};

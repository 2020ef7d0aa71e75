/* Movement: ops that place elements elsewhere, whatever their dtype; only the size of an element
 * counts. Nearly all of them are walks over a shape (movement/walk.h). */
#include "core/alloc.h"
#include "device/cpu/movement/movement.h"
#include "device/cpu/movement/walk.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <math.h>
#include <string.h>

enum { PIECE = 16384, UNIT = 64 }; /* elements that a thread fills at a time: at most, at least */

/* ---- fills ---- */

/* One loop per element size. */
#define FILL(type)                                                                                 \
    static void fill_##type(const void *value, void *dst, int64_t n) {                             \
        const type v = *(const type *)value;                                                       \
        for (int64_t i = 0; i < n; i++) ((type *)dst)[i] = v;                                      \
    }
FILL(uint8_t)
FILL(uint16_t)
FILL(uint32_t)
FILL(uint64_t)

/* Sets n elements of dst to the one at `value`. */
static void fill_elements(const void *value, void *dst, int64_t n, int64_t size) {
    const int team = mg_cpu_team(n);
    const int64_t units = mg_divide_up(n, UNIT);
    const int64_t piece = n ? UNIT * mg_even_share(1, units, PIECE / UNIT, 1, team) : 1;
#pragma omp parallel for schedule(static) num_threads(team)
    for (int64_t first = 0; first < n; first += piece) {
        const int64_t count = mg_smaller(piece, n - first);
        char *to = (char *)dst + first * size;
        switch (size) {
        case 1: fill_uint8_t(value, to, count); break;
        case 2: fill_uint16_t(value, to, count); break;
        case 4: fill_uint32_t(value, to, count); break;
        default: fill_uint64_t(value, to, count); break;
        }
    }
}

/* Fills a whole result with a number. */
static void fill_number(const mg_port *out, void *dst, double value) {
    uint64_t element[1];
    mg_from_double(element, &value, out->value->dtype, 1);
    fill_elements(element, dst, mg_shape_count(&out->value->shape),
                  (int64_t)mg_dtype_size(out->value->dtype));
}

/* ---- the ops ---- */

/* Bytes of an element of the result. */
static int64_t element_size(const mg_call *call) {
    return (int64_t)mg_dtype_size(call->plan->out[0].value->dtype);
}

/* A walk of the call's input 0 that fills the result in row-major order; the caller sets the
 * source's strides. */
static mg_walk walk_of(const mg_call *call) {
    const mg_shape *y = &call->plan->out[0].value->shape;
    mg_walk w = {
        .src = call->in[0], .dst = call->out[0], .size = element_size(call), .rank = y->rank};
    for (int i = 0; i < y->rank; i++) w.n[i] = y->dim[i];
    mg_shape_strides(y, NULL, w.to);
    return w;
}

static mg_status run_walk(mg_walk w) {
    mg_walks_run(&w, 1);
    return MG_OK;
}

/* Axis i of the result is axis order[i] of the source. */
static mg_status permute_run(const mg_call *call) {
    const mg_ints *order = &((const mg_ints_attrs *)call->plan->step->attrs)->list;
    int64_t stride[MG_MAX_RANK];
    mg_walk w = walk_of(call);
    mg_shape_strides(&call->plan->in[0].value->shape, NULL, stride);
    for (int i = 0; i < order->n; i++) w.from[i] = stride[order->v[i]];
    return run_walk(w);
}

/* Steps multiply the source's strides; a negative one walks backwards. */
static mg_walk slice_walk(const mg_call *call) {
    const mg_slice_attrs *a = call->plan->step->attrs;
    int64_t stride[MG_MAX_RANK];
    mg_walk w = walk_of(call);
    mg_shape_strides(&call->plan->in[0].value->shape, NULL, stride);
    for (int i = 0; i < w.rank; i++) {
        w.from[i] = stride[i] * a->step.v[i];
        w.from_first += stride[i] * a->start.v[i];
    }
    return w;
}

static mg_status slice_run(const mg_call *call) {
    return run_walk(slice_walk(call));
}

/* The slices of one tensor (the gradients of a concatenation) advance side by side. */
static mg_status slice_run_many(const mg_call *calls, int n) {
    mg_walk walks[MG_MAX_LAUNCH];
    for (int i = 0; i < n; i++) walks[i] = slice_walk(&calls[i]);
    mg_walks_run(walks, n);
    return MG_OK;
}

static size_t slice_scratch_many(const mg_kernel_plan *const *plans, int n) {
    (void)plans, (void)n;
    return 0;
}

/* Starts at the last element of the axis and steps backwards. */
static mg_status reverse_run(const mg_call *call) {
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    mg_walk w = walk_of(call);
    memcpy(w.from, w.to, sizeof w.from);
    w.from_first = (w.n[axis] - 1) * w.from[axis];
    w.from[axis] = -w.from[axis];
    return run_walk(w);
}

/* A broadcast axis has stride 0 in the source. */
static mg_status broadcast_to_run(const mg_call *call) {
    mg_walk w = walk_of(call);
    mg_shape_strides(&call->plan->in[0].value->shape, &call->plan->out[0].value->shape, w.from);
    return run_walk(w);
}

/* Fills the result with the padding value, then copies x into it. */
static mg_status pad_run(const mg_call *call) {
    const mg_pad_attrs *a = call->plan->step->attrs;
    const mg_shape *x = &call->plan->in[0].value->shape;
    int64_t stride[MG_MAX_RANK];
    mg_walk w = walk_of(call);
    mg_shape_strides(x, NULL, w.from);
    mg_shape_strides(&call->plan->out[0].value->shape, NULL, stride);
    for (int i = 0; i < x->rank; i++) {
        w.n[i] = x->dim[i];
        w.to[i] = stride[i] * (a->interior.v[i] + 1);
        w.to_first += stride[i] * a->before.v[i];
    }
    fill_number(&call->plan->out[0], call->out[0], a->value);
    return run_walk(w);
}

/* One walk for each operand: the operand's part of the axis is a row. */
static mg_status concat_run(const mg_call *call) {
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_axis_view out = mg_axis_view_of(&call->plan->out[0].value->shape, axis);
    mg_walk walks[MG_MAX_LAUNCH];
    int64_t first = 0;
    int n = 0;
    for (int k = 0; k < call->plan->step->n_in; k++) {
        const int64_t run = call->plan->in[k].value->shape.dim[axis] * out.inner;
        walks[n] = (mg_walk){.src = call->in[k],
                             .dst = call->out[0],
                             .size = element_size(call),
                             .rank = 2,
                             .n = {out.outer, run},
                             .from = {run, 1},
                             .to = {out.n * out.inner, 1},
                             .to_first = first};
        first += run;
        if (++n < MG_MAX_LAUNCH && k + 1 < call->plan->step->n_in) continue;
        mg_walks_run(walks, n);
        n = 0;
    }
    return MG_OK;
}

/* The parts are read side by side, row by row. */
static mg_status split_run(const mg_call *call) {
    const mg_split_attrs *a = call->plan->step->attrs;
    const mg_axis_view v = mg_axis_view_of(&call->plan->in[0].value->shape, a->axis);
    const int64_t run = v.n / a->parts * v.inner;
    mg_walk walks[MG_MOST_PARTS];
    for (int k = 0; k < a->parts; k++)
        walks[k] = (mg_walk){.src = call->in[0],
                             .dst = call->out[k],
                             .size = element_size(call),
                             .rank = 2,
                             .n = {v.outer, run},
                             .from = {v.n * v.inner, 1},
                             .to = {run, 1},
                             .from_first = k * run};
    mg_walks_run(walks, (int)a->parts);
    return MG_OK;
}

/* A copy: row-major tensors with the same elements differ in their shape only. */
static mg_status reshape_run(const mg_call *call) {
    return run_walk((mg_walk){.src = call->in[0],
                              .dst = call->out[0],
                              .size = element_size(call),
                              .rank = 1,
                              .n = {mg_shape_count(&call->plan->out[0].value->shape)},
                              .from = {1},
                              .to = {1}});
}

/* Ids have 4 or 8 bytes; ids of smaller dtypes are upcast first (upcast.c). */
static const char *gather_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[1].value->dtype;
    return t == MG_I32 || t == MG_I64 ? NULL : "ids are neither int32 nor int64";
}

/* An id out of range gives NaN, or 0 in integers. */
static mg_status gather_run(const mg_call *call) {
    const mg_port *in = call->plan->in;
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_dtype dtype = in[0].value->dtype;
    const mg_axis_view v = mg_axis_view_of(&in[0].value->shape, axis);
    const int64_t n = mg_shape_count(&in[1].value->shape), bytes = v.inner * element_size(call);
    const bool wide = in[1].value->dtype == MG_I64;
    /* what an id out of range gives */
    const double nothing = mg_dtype_is_float(dtype) ? NAN : 0;
    uint64_t element[1];
    mg_from_double(element, &nothing, dtype, 1);
#pragma omp parallel for schedule(static) if (v.outer * n * v.inner > MG_SERIAL_BELOW)
    for (int64_t k = 0; k < v.outer * n; k++) {
        const int64_t i = k % n;
        const int64_t id =
            wide ? ((const int64_t *)call->in[1])[i] : ((const int32_t *)call->in[1])[i];
        char *to = (char *)call->out[0] + k * bytes;
        if (id >= 0 && id < v.n) {
            const char *from = (const char *)call->in[0] + (k / n * v.n + id) * bytes;
            memcpy(to, from, (size_t)bytes);
        } else {
            for (int64_t j = 0; j < v.inner; j++)
                memcpy(to + j * element_size(call), element, (size_t)element_size(call));
        }
    }
    return MG_OK;
}

static mg_status full_run(const mg_call *call) {
    const mg_full_attrs *a = call->plan->step->attrs;
    fill_number(&call->plan->out[0], call->out[0], a->value);
    return MG_OK;
}

/* ---- iota: a row 0, 1, 2, ... in scratch, repeated along the other axes ---- */

/* The result as {outer, n, inner} around the axis that counts. */
static mg_axis_view iota_view(const mg_kernel_plan *plan) {
    const mg_iota_attrs *a = plan->step->attrs;
    return mg_axis_view_of(&plan->out[0].value->shape, a->axis);
}

static mg_status iota_prepare(mg_kernel_plan *plan) {
    size_t bytes;
    if (!mg_size_mul((size_t)iota_view(plan).n, sizeof(uint64_t), &bytes))
        return mg_fail(MG_OOM, "iota: axis too long");
    plan->scratch = bytes;
    return MG_OK;
}

/* The row is computed once; a walk with stride 0 repeats it. */
static mg_status iota_run(const mg_call *call) {
    const mg_axis_view v = iota_view(call->plan);
    const mg_dtype t = call->plan->out[0].value->dtype;
    for (int64_t i = 0; i < v.n; i++) {
        const double at = (double)i;
        mg_from_double((char *)call->scratch + i * element_size(call), &at, t, 1);
    }
    return run_walk((mg_walk){.src = call->scratch,
                              .dst = call->out[0],
                              .size = element_size(call),
                              .rank = 3,
                              .n = {v.outer, v.n, v.inner},
                              .from = {0, 1, 0},
                              .to = {v.n * v.inner, v.inner, 1}});
}

#define MOVEMENT(id) .op = #id, .name = #id, .run = id##_run

const mg_kernel mg_cpu_permute = {MOVEMENT(permute)};
const mg_kernel mg_cpu_slice = {MOVEMENT(slice), .run_many = slice_run_many,
                                .scratch_many = slice_scratch_many};
const mg_kernel mg_cpu_reverse = {MOVEMENT(reverse)};
const mg_kernel mg_cpu_pad = {MOVEMENT(pad)};
const mg_kernel mg_cpu_concat = {MOVEMENT(concat)};
const mg_kernel mg_cpu_split = {MOVEMENT(split)};
const mg_kernel mg_cpu_broadcast_to = {MOVEMENT(broadcast_to)};
const mg_kernel mg_cpu_gather = {MOVEMENT(gather), .accepts = gather_accepts};
const mg_kernel mg_cpu_reshape = {MOVEMENT(reshape)};
const mg_kernel mg_cpu_full = {MOVEMENT(full)};
const mg_kernel mg_cpu_iota = {MOVEMENT(iota), .prepare = iota_prepare};

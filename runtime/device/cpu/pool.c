/* Pooling of images; the loops are in simd/pool_loops.h.
 *
 * An image is a plane of h x w pixels with `width` neighbouring channels. Threads share rows of
 * results. Each result is computed by one thread, so the order of additions does not depend on the
 * number of threads. The gradient of max_pool2d finds the maximum again: it is the first element of
 * the window that equals y. */
#include "device/cpu/cpu.h"
#include "ops/attrs.h"

/* Rows of windows that a unit's rows of dx lie under, at least. */
enum { FEWEST_WINDOWS = 8 };

/* The loops for the dtype of input 0. */
static const mg_simd_pool *loops_of(const mg_kernel_plan *plan) {
    return mg_simd_used->pool[mg_simd_index(plan->in[0].value->dtype)];
}

/* The planes of images of shape x, pooled to shape y. */
static mg_pool_plane plane_of(const mg_kernel_plan *plan, const mg_shape *x, const mg_shape *y) {
    const mg_pool_attrs *a = plan->step->attrs;
    mg_pool_plane p = {.count = x->dim[0],
                       .h = x->dim[1],
                       .w = x->dim[2],
                       .oh = y->dim[1],
                       .ow = y->dim[2],
                       .width = x->dim[3],
                       .pairs = true};
    for (int axis = 0; axis < 2; axis++) {
        p.size[axis] = a->size.v[axis];
        p.stride[axis] = a->strides.v[axis];
        p.before[axis] = a->pads.v[2 * axis];
        if (p.size[axis] != 2 || p.stride[axis] != 2 || p.before[axis] || a->pads.v[2 * axis + 1])
            p.pairs = false;
    }
    return p;
}

/* Elements of a plane before pooling. */
static int64_t image_size(const mg_pool_plane *p) {
    return p->h * p->w * p->width;
}

/* Elements of a pooled plane. */
static int64_t pooled_size(const mg_pool_plane *p) {
    return p->oh * p->ow * p->width;
}

/* Threads for the images before pooling. */
static int team_of(const mg_pool_plane *p) {
    return mg_cpu_team(p->count * image_size(p));
}

/* An address `bytes` after base; target_at is the same for results. */
static const void *source_at(const void *base, int64_t bytes) {
    return (const char *)base + bytes;
}

static void *target_at(void *base, int64_t bytes) {
    return (char *)base + bytes;
}

/* ---- the kernels ---- */

/* float16 and bfloat16 are upcast first (upcast.c). */
static const char *pool_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

/* 2 x 2 windows that do not overlap are read before their part of dx is written, so dx may be
 * written over x. */
static mg_status max_pool_grad_prepare(mg_kernel_plan *plan) {
    const mg_pool_plane p = plane_of(plan, &plan->in[0].value->shape, &plan->in[1].value->shape);
    plan->overwrites = p.pairs;
    return MG_OK;
}

/* Threads share the rows of the result. */
static mg_status pool_forward_run(const mg_call *call,
                                  void (*row)(const mg_pool_plane *p, const void *x, void *y,
                                              int64_t oy)) {
    const mg_kernel_plan *plan = call->plan;
    const mg_pool_plane p = plane_of(plan, &plan->in[0].value->shape, &plan->out[0].value->shape);
    const int64_t size = loops_of(plan)->size, rows = p.count * p.oh;
    const int64_t x_size = image_size(&p) * size, y_size = p.ow * p.width * size;
#pragma omp parallel for schedule(static) num_threads(team_of(&p))
    for (int64_t i = 0; i < rows; i++)
        row(&p, source_at(call->in[0], i / p.oh * x_size), target_at(call->out[0], i * y_size),
            i % p.oh);
    return MG_OK;
}

/* The forward ops differ in their loop only. */
static mg_status max_pool_run(const mg_call *call) {
    return pool_forward_run(call, loops_of(call->plan)->max_row);
}

static mg_status avg_pool_run(const mg_call *call) {
    return pool_forward_run(call, loops_of(call->plan)->avg_row);
}

/* The rows of dx that a thread computes at a time: whole planes where that shares the work evenly,
 * because windows that reach across the first of the rows are read twice. */
static int64_t unit_rows(const mg_pool_plane *p) {
    return mg_even_share(p->count, p->h, p->h, FEWEST_WINDOWS * p->stride[0], team_of(p));
}

/* 2 x 2 windows that do not overlap, a row of them at a time: inputs x, y and dy. */
static void grad_of_pairs(const mg_call *call, const mg_pool_plane *p) {
    const mg_simd_pool *l = loops_of(call->plan);
    const int64_t x_size = image_size(p) * l->size, y_size = pooled_size(p) * l->size;
#pragma omp parallel for schedule(static) num_threads(team_of(p))
    for (int64_t i = 0; i < p->count * p->oh; i++) {
        const int64_t k = i / p->oh;
        l->max_grad_row(p, source_at(call->in[0], k * x_size), source_at(call->in[1], k * y_size),
                        source_at(call->in[2], k * y_size), target_at(call->out[0], k * x_size),
                        i % p->oh);
    }
}

/* Inputs x, y and dy. */
static mg_status max_pool_grad_run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const mg_pool_plane p = plane_of(plan, &plan->in[0].value->shape, &plan->in[1].value->shape);
    const mg_simd_pool *l = loops_of(plan);
    const int64_t x_size = image_size(&p) * l->size, y_size = pooled_size(&p) * l->size;
    if (mg_count(&plan->in[0]) == 0) return MG_OK;
    if (p.pairs) {
        grad_of_pairs(call, &p);
        return MG_OK;
    }
    const int64_t rows = unit_rows(&p);
#pragma omp parallel for collapse(2) schedule(static) num_threads(team_of(&p))
    for (int64_t k = 0; k < p.count; k++)
        for (int64_t row = 0; row < p.h; row += rows)
            l->max_grad_rows(&p, source_at(call->in[0], k * x_size),
                             source_at(call->in[1], k * y_size), source_at(call->in[2], k * y_size),
                             target_at(call->out[0], k * x_size), row, mg_smaller(row + rows, p.h));
    return MG_OK;
}

static mg_status avg_pool_grad_run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const mg_pool_plane p = plane_of(plan, &plan->out[0].value->shape, &plan->in[0].value->shape);
    const mg_simd_pool *l = loops_of(plan);
    const int64_t x_size = image_size(&p) * l->size, y_size = pooled_size(&p) * l->size;
    if (mg_count(&plan->out[0]) == 0) return MG_OK;
    const int64_t rows = unit_rows(&p);
#pragma omp parallel for collapse(2) schedule(static) num_threads(team_of(&p))
    for (int64_t k = 0; k < p.count; k++)
        for (int64_t row = 0; row < p.h; row += rows)
            l->avg_grad_rows(&p, source_at(call->in[0], k * y_size),
                             target_at(call->out[0], k * x_size), row, mg_smaller(row + rows, p.h));
    return MG_OK;
}

const mg_kernel mg_cpu_max_pool2d = {
    .op = "max_pool2d", .name = "max_pool2d", .accepts = pool_accepts, .run = max_pool_run};
const mg_kernel mg_cpu_max_pool2d_grad = {.op = "max_pool2d_grad",
                                          .name = "max_pool2d_grad",
                                          .accepts = pool_accepts,
                                          .prepare = max_pool_grad_prepare,
                                          .run = max_pool_grad_run};
const mg_kernel mg_cpu_avg_pool2d = {
    .op = "avg_pool2d", .name = "avg_pool2d", .accepts = pool_accepts, .run = avg_pool_run};
const mg_kernel mg_cpu_avg_pool2d_grad = {.op = "avg_pool2d_grad",
                                          .name = "avg_pool2d_grad",
                                          .accepts = pool_accepts,
                                          .run = avg_pool_grad_run};

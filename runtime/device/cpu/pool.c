/* Pooling, in row-major and in blocked images.
 *
 * Either layout is a number of planes, h x w pixels of `width` neighbouring channels: one plane an
 * image (width C), or one a block (width 16). A plane is never split between threads where windows
 * may overlap, so every sum has one order. The backward form of max_pool2d finds the winner again:
 * the first cell of the window that equals y. */
#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "ops/attrs.h"
#include <string.h>

enum { MAX_RUN = 64 }; /* channels of a window that are worked on at a time */

typedef struct plane {
    int64_t count, h, w, oh, ow, width;
    int64_t size[2], stride[2], before[2];
    bool pairs; /* 2 x 2 windows side by side, no padding */
} plane;

typedef struct span { /* cells low .. high - 1 of the image along one axis */
    int64_t low, high;
} span;

static inline span span_of(const plane *p, int axis, int64_t o) {
    const int64_t first = o * p->stride[axis] - p->before[axis], end = first + p->size[axis];
    const int64_t image = axis == 0 ? p->h : p->w;
    return (span){.low = first > 0 ? first : 0, .high = end < image ? end : image};
}

/* Widths with a loop of their own: a vector register can then be filled without asking. With 6
 * channels that made 2 x 2 max pools three times as fast. */
#define KNOWN_WIDTHS(X) X(1) X(2) X(3) X(4) X(6) X(8) X(12) X(16)

#define REAL float
#define NAME(x) x##_f32
#include "device/cpu/pool_loops.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(x) x##_f64
#include "device/cpu/pool_loops.h"
#undef REAL
#undef NAME

typedef struct loops {
    void (*max_row)(const plane *p, const void *x, void *y, int64_t oy);
    void (*avg_row)(const plane *p, const void *x, void *y, int64_t oy);
    void (*max_grad_row)(const plane *p, const void *x, const void *y, const void *dy, void *dx,
                         int64_t oy);
    void (*max_grad_plane)(const plane *p, const void *x, const void *y, const void *dy, void *dx);
    void (*avg_grad_plane)(const plane *p, const void *dy, void *dx);
    int64_t size;
} loops;

static const loops loops_f32 = {max_row_f32,        avg_row_f32,        max_grad_row_f32,
                                max_grad_plane_f32, avg_grad_plane_f32, sizeof(float)};
static const loops loops_f64 = {max_row_f64,        avg_row_f64,        max_grad_row_f64,
                                max_grad_plane_f64, avg_grad_plane_f64, sizeof(double)};

static const loops *loops_of(const mg_kernel_plan *plan) {
    return plan->in[0].value->dtype == MG_F32 ? &loops_f32 : &loops_f64;
}

static plane plane_of(const mg_kernel_plan *plan, const mg_shape *x, const mg_shape *y) {
    const mg_pool_attrs *a = plan->step->attrs;
    const bool blocked = plan->in[0].layout == MG_BLOCKED;
    plane p = {.count = blocked ? x->dim[0] * x->dim[3] / MG_LANES : x->dim[0],
               .h = x->dim[1],
               .w = x->dim[2],
               .oh = y->dim[1],
               .ow = y->dim[2],
               .width = blocked ? MG_LANES : x->dim[3],
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

static int64_t image_size(const plane *p) {
    return p->h * p->w * p->width;
}

static int64_t pooled_size(const plane *p) {
    return p->oh * p->ow * p->width;
}

static const void *at(const void *base, int64_t bytes) {
    return (const char *)base + bytes;
}

static void *into(void *base, int64_t bytes) {
    return (char *)base + bytes;
}

/* ---- the kernels ---- */

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

/* All ports are images: they follow the first. */
static mg_status prepare(mg_kernel_plan *plan) {
    for (int i = 1; i < plan->step->n_in; i++) plan->in[i].layout = plan->in[0].layout;
    plan->out[0].layout = plan->in[0].layout;
    return MG_OK;
}

/* Windows that lie apart are read before their part of dx is written. */
static mg_status prepare_max_grad(mg_kernel_plan *plan) {
    MG_TRY(prepare(plan));
    const plane p = plane_of(plan, &plan->in[0].value->shape, &plan->in[1].value->shape);
    plan->overwrites = p.pairs;
    return MG_OK;
}

static mg_status run_forward(const mg_call *call,
                             void (*row)(const plane *p, const void *x, void *y, int64_t oy)) {
    const mg_kernel_plan *plan = call->plan;
    const plane p = plane_of(plan, &plan->in[0].value->shape, &plan->out[0].value->shape);
    const int64_t size = loops_of(plan)->size, rows = p.count * p.oh;
    const int64_t x_size = image_size(&p) * size, y_size = p.ow * p.width * size;
#pragma omp parallel for schedule(static) if (p.count * image_size(&p) > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < rows; i++)
        row(&p, at(call->in[0], i / p.oh * x_size), into(call->out[0], i * y_size), i % p.oh);
    return MG_OK;
}

static mg_status run_max(const mg_call *call) {
    return run_forward(call, loops_of(call->plan)->max_row);
}

static mg_status run_avg(const mg_call *call) {
    return run_forward(call, loops_of(call->plan)->avg_row);
}

static mg_status run_max_grad(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const plane p = plane_of(plan, &plan->in[0].value->shape, &plan->in[1].value->shape);
    const loops *l = loops_of(plan);
    const int64_t x_size = image_size(&p) * l->size, y_size = pooled_size(&p) * l->size;
    const int64_t parts = p.pairs ? p.oh : 1, n = p.count * parts;
#pragma omp parallel for schedule(static) if (p.count * image_size(&p) > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i / parts;
        const void *x = at(call->in[0], k * x_size), *y = at(call->in[1], k * y_size);
        const void *dy = at(call->in[2], k * y_size);
        if (p.pairs)
            l->max_grad_row(&p, x, y, dy, into(call->out[0], k * x_size), i % parts);
        else
            l->max_grad_plane(&p, x, y, dy, into(call->out[0], k * x_size));
    }
    return MG_OK;
}

static mg_status run_avg_grad(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const plane p = plane_of(plan, &plan->out[0].value->shape, &plan->in[0].value->shape);
    const loops *l = loops_of(plan);
    const int64_t x_size = image_size(&p) * l->size, y_size = pooled_size(&p) * l->size;
#pragma omp parallel for schedule(static) if (p.count * image_size(&p) > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < p.count; i++)
        l->avg_grad_plane(&p, at(call->in[0], i * y_size), into(call->out[0], i * x_size));
    return MG_OK;
}

const mg_kernel mg_cpu_max_pool2d = {.op = "max_pool2d",
                                     .name = "max_pool2d",
                                     .accepts = accepts,
                                     .prepare = prepare,
                                     .run = run_max};
const mg_kernel mg_cpu_max_pool2d_grad = {.op = "max_pool2d_grad",
                                          .name = "max_pool2d_grad",
                                          .accepts = accepts,
                                          .prepare = prepare_max_grad,
                                          .run = run_max_grad};
const mg_kernel mg_cpu_avg_pool2d = {.op = "avg_pool2d",
                                     .name = "avg_pool2d",
                                     .accepts = accepts,
                                     .prepare = prepare,
                                     .run = run_avg};
const mg_kernel mg_cpu_avg_pool2d_grad = {.op = "avg_pool2d_grad",
                                          .name = "avg_pool2d_grad",
                                          .accepts = accepts,
                                          .prepare = prepare,
                                          .run = run_avg_grad};

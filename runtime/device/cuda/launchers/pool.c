/* max_pool2d, avg_pool2d and their backward forms (kernels/pool.cu).
 *
 * In a backward form each cell of the image finds the windows that hold it and adds up their
 * gradients in a fixed order; atomic additions would make the result depend on timing. If windows
 * do not overlap, each window writes its own cells instead. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/layer_params.h"
#include "ops/attrs.h"
#include <stdio.h>

enum {
    THREADS = 128,
    VECTOR = 4, /* channels that a thread takes at once */
};

typedef struct state {
    CUfunction one, vector; /* vector: NULL if the channels are no multiple of VECTOR */
    pool_params p;          /* without the addresses */
    int64_t rows;           /* that blocks take one at a time */
} state;

/* Whether positions in an image fit an int, also those in the padding around it. */
static bool fits_int(const mg_shape *s) {
    int64_t cells = 1;
    for (int i = 1; i < 4; i++) {
        if (s->dim[i] > INT32_MAX / 4) return false;
        if (s->dim[i] > 0 && (cells *= s->dim[i]) > INT32_MAX / 4) return false;
    }
    return true;
}

static const char *accepts_pool(const mg_kernel_plan *plan) {
    const mg_value *y = plan->out[0].value;
    if (!mg_dtype_is_float(y->dtype)) return "only floating dtypes";
    return fits_int(&y->shape) && fits_int(&plan->in[0].value->shape) ? NULL : "too large an image";
}

/* `kind` is the kernel's name without a suffix; `image` and `pooled` are the shapes of x and y. A
 * block takes a row of the image if `whole`, and otherwise one of the pooled image. */
static mg_status prepare_pool(mg_kernel_plan *plan, const char *kind, const mg_shape *image,
                              const mg_shape *pooled, bool whole) {
    const mg_pool_attrs *a = plan->step->attrs;
    const mg_dtype t = plan->out[0].value->dtype;
    char name[32];
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->p = (pool_params){.n = image->dim[0],
                         .h = (int)image->dim[1],
                         .w = (int)image->dim[2],
                         .c = (int)image->dim[3],
                         .oh = (int)pooled->dim[1],
                         .ow = (int)pooled->dim[2],
                         .rows = (int)a->size.v[0],
                         .columns = (int)a->size.v[1],
                         .down = (int)a->strides.v[0],
                         .across = (int)a->strides.v[1],
                         .top = (int)a->pads.v[0],
                         .left = (int)a->pads.v[2]};
    s->rows = s->p.n * (whole ? s->p.h : s->p.oh);
    if (s->p.c % VECTOR == 0) {
        snprintf(name, sizeof name, "%s_vector", kind);
        MG_TRY(mg_cuda_find_typed(plan->device, name, t, &s->vector));
    }
    return mg_cuda_find_typed(plan->device, kind, t, &s->one);
}

/* x: the tensor that is read by position in the image; v: the corresponding values or gradients, or
 * NULL. Uses vectors of channels if all addresses are aligned to them. */
static mg_status launch_pool(const mg_call *call, const void *x, const void *v) {
    const state *s = call->plan->state;
    const uintptr_t access = VECTOR * mg_dtype_size(call->plan->out[0].value->dtype);
    const uintptr_t all = (uintptr_t)x | (uintptr_t)v | (uintptr_t)call->out[0];
    const bool vector = s->vector && all % access == 0;
    pool_params p = s->p;
    p.x = x;
    p.v = v;
    p.out = call->out[0];
    if (vector) p.c /= VECTOR;
    const int64_t most = 1 << 20; /* blocks: they loop over the rest */
    return mg_cuda_launch(call->plan->device, vector ? s->vector : s->one,
                          s->rows < most ? s->rows : most, THREADS, 0, &p);
}

/* Shapes of the step's operands and result. */
static const mg_shape *in_shape(const mg_kernel_plan *plan, int i) {
    return &plan->in[i].value->shape;
}

static const mg_shape *out_shape(const mg_kernel_plan *plan) {
    return &plan->out[0].value->shape;
}

/* The forward forms, and max_pool2d_pick: a block takes a row of the pooled image. */
static mg_status prepare_max(mg_kernel_plan *plan) {
    return prepare_pool(plan, "max_pool", in_shape(plan, 0), out_shape(plan), false);
}

/* If windows do not overlap, the result may overwrite the image. */
static mg_status prepare_max_grad(mg_kernel_plan *plan) {
    const mg_pool_attrs *a = plan->step->attrs;
    const bool apart = a->strides.v[0] >= a->size.v[0] && a->strides.v[1] >= a->size.v[1];
    plan->overwrites = apart;
    return prepare_pool(plan, apart ? "max_pool_grad_apart" : "max_pool_grad", in_shape(plan, 0),
                        in_shape(plan, 2), !apart);
}

static mg_status prepare_avg(mg_kernel_plan *plan) {
    return prepare_pool(plan, "avg_pool", in_shape(plan, 0), out_shape(plan), false);
}

/* Only the gradient of the result is an input: averaging needs no image. */
static mg_status prepare_avg_grad(mg_kernel_plan *plan) {
    return prepare_pool(plan, "avg_pool_grad", out_shape(plan), in_shape(plan, 0), true);
}

/* The maximum is found by the values themselves. */
static mg_status run_max(const mg_call *call) {
    return launch_pool(call, call->in[0], call->in[0]);
}

/* max_pool2d_grad, and max_pool2d_pick: both find each window's maximum again. */
static mg_status run_picking(const mg_call *call) {
    return launch_pool(call, call->in[0], call->in[2]);
}

static mg_status run_avg(const mg_call *call) {
    return launch_pool(call, call->in[0], NULL);
}

static mg_status run_avg_grad(const mg_call *call) {
    return launch_pool(call, NULL, call->in[0]);
}

#define POOL(op_name, PREPARE, RUN)                                                                \
    const mg_kernel mg_cuda_##op_name = {.op = #op_name,                                           \
                                         .name = "pool",                                           \
                                         .accepts = accepts_pool,                                  \
                                         .prepare = PREPARE,                                       \
                                         .run = RUN,                                               \
                                         .release = mg_free}
POOL(max_pool2d, prepare_max, run_max);
POOL(max_pool2d_grad, prepare_max_grad, run_picking);
POOL(max_pool2d_pick, prepare_max, run_picking);
POOL(avg_pool2d, prepare_avg, run_avg);
POOL(avg_pool2d_grad, prepare_avg_grad, run_avg_grad);

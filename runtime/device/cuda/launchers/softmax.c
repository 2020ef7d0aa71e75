/* softmax, log_softmax and softmax_grad along an axis, and the cross-entropy of softmax with its
 * gradients along the last axis, for targets (probabilities) or labels (ids).
 *
 * A run is the elements along the axis that are normalized together. A contiguous run is computed
 * by a warp, or by a block if it is longer than LONG. If the axis is not the last, neighbouring
 * runs are interleaved, and each is computed by a thread. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/layer_params.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <string.h>

enum {
    THREADS = 256,
    WARP = 32,   /* also: from this many interleaved runs on, a thread computes a run */
    LONG = 1024, /* from this many elements on, a block computes a run */
};

/* ---- softmax ---- */

typedef struct softmax_state {
    CUfunction function;
    softmax_params p; /* without the addresses */
    int64_t blocks;
} softmax_state;

static const char *accepts_softmax(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->out[0].value->dtype) ? NULL : "only floating dtypes";
}

/* p.kind: 0 softmax, 1 log_softmax, 2 softmax_grad. */
static mg_status prepare_softmax(mg_kernel_plan *plan) {
    const mg_value *y = plan->out[0].value;
    const char *op = plan->step->op->name;
    const mg_axis_view v =
        mg_axis_view_of(&y->shape, ((const mg_axis_attrs *)plan->step->attrs)->axis);
    const int64_t runs = v.outer * v.inner;
    softmax_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->p = (softmax_params){.outer = v.outer, .n = v.n, .inner = v.inner};
    s->p.kind = strcmp(op, "softmax") == 0 ? 0 : strcmp(op, "log_softmax") == 0 ? 1 : 2;
    const bool across = v.inner >= WARP, wide = !across && v.n > LONG;
    const int64_t threads = across ? runs : wide ? runs * THREADS : runs * WARP;
    s->blocks = v.n ? mg_cuda_blocks(plan->device, threads, THREADS) : 0;
    return mg_cuda_find_typed(plan->device,
                              across ? "softmax_thread"
                              : wide ? "softmax_block"
                                     : "softmax_warp",
                              y->dtype, &s->function);
}

/* softmax_grad reads y and dy; the others read x. */
static mg_status run_softmax(const mg_call *call) {
    const softmax_state *s = call->plan->state;
    softmax_params p = s->p;
    p.x = call->in[0];
    p.dy = p.kind == 2 ? call->in[1] : NULL;
    p.y = call->out[0];
    return mg_cuda_launch(call->plan->device, s->function, s->blocks, THREADS, 0, &p);
}

#define SOFTMAX(op_name)                                                                           \
    const mg_kernel mg_cuda_##op_name = {.op = #op_name,                                           \
                                         .name = "softmax",                                        \
                                         .accepts = accepts_softmax,                               \
                                         .prepare = prepare_softmax,                               \
                                         .run = run_softmax,                                       \
                                         .release = mg_free}
SOFTMAX(softmax);
SOFTMAX(softmax_grad);
SOFTMAX(log_softmax);

/* ---- cross-entropy ---- */

typedef struct cross_entropy_state {
    CUfunction function;
    cross_entropy_params p; /* without the addresses */
    int64_t blocks;
    bool of_gradient; /* the first result is the gradient */
} cross_entropy_state;

/* The number in each row of dy. */
static double constant_dy(const mg_full_attrs *full) {
    return mg_dtype_round((mg_dtype)full->dtype, full->value);
}

/* Labels have one axis less than the logits. A gradient has one more input, dy, or in its place the
 * attributes of a `full`, and may have the loss as a second result (graph/loss_fusion.c). */
static mg_status prepare_cross_entropy(mg_kernel_plan *plan) {
    const mg_step *step = plan->step;
    const mg_value *x = plan->in[0].value, *t = plan->in[1].value, *y = plan->out[0].value;
    const bool labels = t->shape.rank < x->shape.rank;
    cross_entropy_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->p.n = x->shape.dim[x->shape.rank - 1];
    s->p.rows = 1;
    for (int i = 0; i + 1 < x->shape.rank; i++) s->p.rows *= x->shape.dim[i];
    if (labels) s->p.label_bytes = (int)mg_dtype_size(t->dtype);
    s->of_gradient = y->shape.rank == x->shape.rank;
    s->p.beside = plan->out[step->n_out - 1].value->dtype != x->dtype;
    s->p.gradient_beside = s->of_gradient && y->dtype != x->dtype;
    if (s->of_gradient && step->n_in == 2) s->p.dy_value = constant_dy(step->attrs);
    const bool is_long = s->p.n > LONG;
    s->blocks = mg_cuda_blocks(plan->device, s->p.rows * (is_long ? THREADS : WARP), THREADS);
    return mg_cuda_find_typed(plan->device, is_long ? "cross_entropy_block" : "cross_entropy_warp",
                              x->dtype, &s->function);
}

/* `targets` are probabilities, or labels of label_bytes each. */
static mg_status run_cross_entropy(const mg_call *call) {
    const mg_step *step = call->plan->step;
    const cross_entropy_state *s = call->plan->state;
    cross_entropy_params p = s->p;
    p.x = call->in[0];
    p.targets = call->in[1];
    p.dy = step->n_in > 2 ? call->in[2] : NULL;
    p.gradient = s->of_gradient ? call->out[0] : NULL;
    p.loss = !s->of_gradient ? call->out[0] : step->n_out > 1 ? call->out[1] : NULL;
    return mg_cuda_launch(call->plan->device, s->function, s->blocks, THREADS, 0, &p);
}

#define CROSS_ENTROPY(op_name)                                                                     \
    const mg_kernel mg_cuda_##op_name = {.op = #op_name,                                           \
                                         .name = "cross_entropy",                                  \
                                         .prepare = prepare_cross_entropy,                         \
                                         .run = run_cross_entropy,                                 \
                                         .release = mg_free}
CROSS_ENTROPY(softmax_cross_entropy);
CROSS_ENTROPY(softmax_cross_entropy_grad);
CROSS_ENTROPY(sparse_softmax_cross_entropy);
CROSS_ENTROPY(sparse_softmax_cross_entropy_grad);

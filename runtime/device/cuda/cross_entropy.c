/* The cross-entropy of softmax and its gradient, with targets or labels: short rows by warps, long
 * ones by blocks (kernels/cross_entropy.cu). */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/cross_entropy_params.h"

enum { THREADS = 256, WARP = 32, LONG = 1024 };

typedef struct state {
    CUfunction function;
    cross_entropy_params p; /* without the addresses */
    int64_t blocks;
} state;

static mg_status prepare(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value, *t = plan->in[1].value;
    const bool labels = t->shape.rank < x->shape.rank;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->p.n = x->shape.dim[x->shape.rank - 1];
    s->p.rows = 1;
    for (int i = 0; i + 1 < x->shape.rank; i++) s->p.rows *= x->shape.dim[i];
    if (labels) s->p.label_bytes = (int)mg_dtype_size(t->dtype);
    const bool is_long = s->p.n > LONG;
    s->blocks = mg_cuda_blocks(plan->device, s->p.rows * (is_long ? THREADS : WARP), THREADS);
    return mg_cuda_find_typed(plan->device, is_long ? "cross_entropy_block" : "cross_entropy_warp",
                              x->dtype, &s->function);
}

static mg_status run(const mg_call *call) {
    const state *s = call->plan->state;
    cross_entropy_params p = s->p;
    p.x = call->in[0];
    p.targets = call->in[1];
    p.dy = call->plan->step->n_in > 2 ? call->in[2] : NULL;
    p.y = call->out[0];
    return mg_cuda_launch(call->plan->device, s->function, s->blocks, THREADS, 0, &p);
}

#define CROSS_ENTROPY(op_name)                                                                     \
    const mg_kernel mg_cuda_##op_name = {.op = #op_name,                                           \
                                         .name = "cross_entropy",                                  \
                                         .prepare = prepare,                                       \
                                         .run = run,                                               \
                                         .release = mg_free}
CROSS_ENTROPY(softmax_cross_entropy);
CROSS_ENTROPY(softmax_cross_entropy_grad);
CROSS_ENTROPY(sparse_softmax_cross_entropy);
CROSS_ENTROPY(sparse_softmax_cross_entropy_grad);

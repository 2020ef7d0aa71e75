/* softmax, log_softmax and softmax_grad: short runs by warps, long ones by blocks, runs that lie
 * across each other by threads. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/norm_params.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <string.h>

enum { THREADS = 256, WARP = 32, LONG = 1024 };

typedef struct state {
    CUfunction function;
    softmax_params p; /* without the addresses */
    int64_t blocks;
} state;

static const char *accepts(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->out[0].value->dtype) ? NULL : "only floating dtypes";
}

static mg_status prepare(mg_kernel_plan *plan) {
    const mg_value *y = plan->out[0].value;
    const char *op = plan->step->op->name;
    const mg_axis_view v =
        mg_axis_view_of(&y->shape, ((const mg_axis_attrs *)plan->step->attrs)->axis);
    const int64_t runs = v.outer * v.inner;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
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

static mg_status run(const mg_call *call) {
    const state *s = call->plan->state;
    softmax_params p = s->p;
    p.x = call->in[0];
    p.dy = p.kind == 2 ? call->in[1] : NULL;
    p.y = call->out[0];
    return mg_cuda_launch(call->plan->device, s->function, s->blocks, THREADS, 0, &p);
}

#define SOFTMAX(op_name)                                                                           \
    const mg_kernel mg_cuda_##op_name = {.op = #op_name,                                           \
                                         .name = "softmax",                                        \
                                         .accepts = accepts,                                       \
                                         .prepare = prepare,                                       \
                                         .run = run,                                               \
                                         .release = mg_free}
SOFTMAX(softmax);
SOFTMAX(softmax_grad);
SOFTMAX(log_softmax);

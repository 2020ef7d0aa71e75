/* matmul by a kernel of our own, for what cuBLASLt does not take. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/product_params.h"
#include "device/cuda/product.h"
#include <string.h>

typedef struct state {
    CUfunction function;
    mg_product product;
} state;

static const char *accepts(const mg_kernel_plan *plan) {
    if (plan->step->n_out > 1) return "no sums";
    return mg_dtype_is_float(plan->out[0].value->dtype) ? NULL : "only floating dtypes";
}

static mg_status prepare(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->product = mg_product_of(plan);
    return mg_cuda_find_typed(plan->device, "matmul", plan->out[0].value->dtype, &s->function);
}

static mg_status run(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_product *m = &s->product;
    const int64_t down = (m->m + MG_TILE - 1) / MG_TILE, across = (m->n + MG_TILE - 1) / MG_TILE;
    matmul_params p = {.a = call->in[0],
                       .b = call->in[1],
                       .bias = m->bias ? call->in[2] : NULL,
                       .y = call->out[0],
                       .m = m->m,
                       .n = m->n,
                       .k = m->k,
                       .matrices = m->matrices,
                       .rank = m->batch.rank,
                       .turn_a = m->turn_a,
                       .turn_b = m->turn_b,
                       .relu = m->relu};
    for (int i = 0; i < m->batch.rank; i++) {
        p.dim[i] = m->batch.dim[i];
        p.stride_a[i] = m->stride_a[i];
        p.stride_b[i] = m->stride_b[i];
    }
    return mg_cuda_launch(call->plan->device, s->function, down * across * m->matrices,
                          MG_TILE_THREADS, 0, &p);
}

const mg_kernel mg_cuda_matmul = {.op = "matmul",
                                  .name = "tiles",
                                  .accepts = accepts,
                                  .prepare = prepare,
                                  .run = run,
                                  .release = mg_free};

/* matmul: products of gemm.c in every floating dtype, with bias and relu where the results are
 * written. Many small matrices are shared among the threads. */
#include "core/alloc.h"
#include "device/cpu/gemm.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <omp.h>
#include <string.h>

/* Multiply-adds of a product up to which a thread makes it alone. */
enum { SMALL = 1 << 21 };

typedef struct matmul_state {
    mg_gemm one; /* of the batch; the only one if a single b serves all matrices a */
    bool transpose_a, transpose_b;
    bool shared;   /* threads make products of their own */
    int64_t count; /* products */
    mg_shape batch;
    int64_t stride_a[MG_MAX_RANK], stride_b[MG_MAX_RANK]; /* over the batch, in matrices */
} matmul_state;

static const char *matmul_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != t) return "dtypes differ";
    return mg_dtype_is_float(t) ? NULL : "not floating point";
}

/* The shape of a matrix: a vector becomes a row, or a column. */
static mg_shape with_two_axes(const mg_shape *s, bool column) {
    if (s->rank > 1) return *s;
    return column ? MG_SHAPE(s->dim[0], 1) : MG_SHAPE(1, s->dim[0]);
}

/* All axes but the last two. */
static mg_shape batch_axes(const mg_shape *s) {
    return mg_shape_of(s->rank - 2, s->dim);
}

/* How the products of a batch are made. Where all matrices a meet the same b, the batch axes of a
 * are taken as more rows of one product. */
static mg_status matmul_prepare(mg_kernel_plan *plan) {
    const mg_matmul_attrs *attrs = plan->step->attrs;
    const mg_dtype t = plan->out[0].value->dtype;
    matmul_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    const mg_shape *raw_a = &plan->in[0].value->shape, *raw_b = &plan->in[1].value->shape;
    const mg_shape a = with_two_axes(raw_a, false), b = with_two_axes(raw_b, true);
    s->transpose_a = attrs->transpose_a && raw_a->rank > 1;
    s->transpose_b = attrs->transpose_b && raw_b->rank > 1;
    int64_t m = a.dim[a.rank - 2 + s->transpose_a];
    const int64_t n = b.dim[b.rank - 1 - s->transpose_b], k = a.dim[a.rank - 1 - s->transpose_a];
    const mg_shape lead_a = batch_axes(&a), lead_b = batch_axes(&b);
    s->count = 1;
    if (!s->transpose_a && mg_shape_count(&lead_b) == 1 && a.rank >= b.rank) {
        m *= mg_shape_count(&lead_a);
    } else {
        MG_TRY(mg_shape_broadcast(&lead_a, &lead_b, &s->batch, "matmul"));
        mg_shape_strides(&lead_a, &s->batch, s->stride_a);
        mg_shape_strides(&lead_b, &s->batch, s->stride_b);
        s->count = mg_shape_count(&s->batch);
    }
    const int team = mg_cpu_threads();
    s->shared = s->count >= 2 * team && m * n * k <= SMALL;
    s->one = s->shared ? mg_gemm_plan_single(m, n, k, t) : mg_gemm_plan(m, n, k, t);
    plan->scratch = s->one.scratch * (size_t)(s->shared ? team : 1);
    return MG_OK;
}

/* One product of the batch: matrices a, b and i of the result. */
static void multiply_one(const mg_call *call, int64_t a, int64_t b, int64_t i, char *scratch) {
    const matmul_state *s = call->plan->state;
    const mg_gemm *g = &s->one;
    const mg_dtype t = call->plan->out[0].value->dtype;
    const int64_t size = (int64_t)mg_dtype_size(t);
    const mg_factor left = {.read = mg_read_matrix,
                            .at = (const char *)call->in[0] + a * g->m * g->k * size,
                            .dtype = t,
                            .by_steps = s->transpose_a,
                            .row = s->transpose_a ? g->m : g->k};
    const mg_factor right = {.read = mg_read_matrix,
                             .at = (const char *)call->in[1] + b * g->k * g->n * size,
                             .dtype = t,
                             .by_steps = !s->transpose_b,
                             .row = s->transpose_b ? g->k : g->n};
    mg_gemm_result y = mg_gemm_matrix(g->m, g->n, t);
    y.at = (char *)call->out[0] + i * g->m * g->n * size;
    y.bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    y.relu = ((const mg_matmul_attrs *)call->plan->step->attrs)->relu;
    mg_gemm_run(g, &left, &right, &y, scratch);
}

/* Products [first, end) of the batch. */
static void multiply_some(const mg_call *call, int64_t first, int64_t end, char *scratch) {
    const matmul_state *s = call->plan->state;
    mg_loop a = {.shape = s->batch}, b = {.shape = s->batch};
    memcpy(a.stride, s->stride_a, sizeof a.stride);
    memcpy(b.stride, s->stride_b, sizeof b.stride);
    for (int64_t i = 0; i < end; i++, mg_loop_next(&a), mg_loop_next(&b))
        if (i >= first) multiply_one(call, a.offset, b.offset, i, scratch);
}

static mg_status matmul_run(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    if (s->count == 1) {
        multiply_one(call, 0, 0, 0, call->scratch);
        return MG_OK;
    }
    if (!s->shared) {
        multiply_some(call, 0, s->count, call->scratch);
        return MG_OK;
    }
    const int64_t parts = mg_cpu_threads();
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < parts; part++)
        multiply_some(call, s->count * part / parts, s->count * (part + 1) / parts,
                      (char *)call->scratch + (size_t)part * s->one.scratch);
    return MG_OK;
}

const mg_kernel mg_cpu_matmul = {.op = "matmul",
                                 .name = "matrix product",
                                 .accepts = matmul_accepts,
                                 .prepare = matmul_prepare,
                                 .run = matmul_run,
                                 .release = mg_free};

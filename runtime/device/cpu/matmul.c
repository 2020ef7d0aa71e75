/* matmul in float32 by dnnl_sgemm, one call per matrix of the batch; bias and relu in one pass. */
#include "core/alloc.h"
#include "device/cpu/onednn.h"
#include "ops/attrs.h"
#include <string.h>
#include "ops/loops.h"

typedef struct matmul_state {
    int64_t m, n, k;
    char turn_a, turn_b; /* 'N' or 'T' */
    mg_shape batch;
    int64_t stride_a[MG_MAX_RANK], stride_b[MG_MAX_RANK]; /* over the batch, in matrices */
    bool shared_b; /* one b for all: a's batch axes are more rows */
} matmul_state;

static const char *accepts(const mg_kernel_plan *plan) {
    return mg_all_f32(plan) ? NULL : "not float32";
}

/* The shape with two axes at least; a vector has become a row (or a column). */
static mg_shape widened(const mg_shape *s, bool column) {
    if (s->rank > 1) return *s;
    return column ? MG_SHAPE(s->dim[0], 1) : MG_SHAPE(1, s->dim[0]);
}

static mg_shape leading(const mg_shape *s) {
    return mg_shape_of(s->rank - 2, s->dim);
}

static mg_status prepare(mg_kernel_plan *plan) {
    const mg_matmul_attrs *attrs = plan->step->attrs;
    matmul_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    mg_all_row_major(plan);
    const mg_shape *raw_a = &plan->in[0].value->shape, *raw_b = &plan->in[1].value->shape;
    const mg_shape a = widened(raw_a, false), b = widened(raw_b, true);
    const bool turn_a = attrs->transpose_a && raw_a->rank > 1;
    const bool turn_b = attrs->transpose_b && raw_b->rank > 1;
    s->turn_a = turn_a ? 'T' : 'N';
    s->turn_b = turn_b ? 'T' : 'N';
    s->m = a.dim[a.rank - 2 + turn_a];
    s->k = a.dim[a.rank - 1 - turn_a];
    s->n = b.dim[b.rank - 1 - turn_b];
    const mg_shape lead_a = leading(&a), lead_b = leading(&b);
    s->shared_b = !turn_a && mg_shape_count(&lead_b) == 1 && a.rank >= b.rank;
    if (s->shared_b) {
        s->m *= mg_shape_count(&lead_a);
        return MG_OK;
    }
    MG_TRY(mg_shape_broadcast(&lead_a, &lead_b, &s->batch, "matmul"));
    mg_shape_strides(&lead_a, &s->batch, s->stride_a);
    mg_shape_strides(&lead_b, &s->batch, s->stride_b);
    return MG_OK;
}

static mg_status multiply(const mg_call *call, const float *a, const float *b, float *y) {
    const matmul_state *s = call->plan->state;
    const dnnl_status_t status =
        dnnl_sgemm(s->turn_a, s->turn_b, s->m, s->n, s->k, 1, a, s->turn_a == 'T' ? s->m : s->k, b,
                   s->turn_b == 'T' ? s->k : s->n, 0, y, s->n);
    return mg_dnnl_check(status, call->plan);
}

static mg_status multiply_all(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    if (s->shared_b) return multiply(call, call->in[0], call->in[1], call->out[0]);
    mg_loop a = {.shape = s->batch}, b = {.shape = s->batch};
    memcpy(a.stride, s->stride_a, sizeof a.stride);
    memcpy(b.stride, s->stride_b, sizeof b.stride);
    const int64_t n = mg_shape_count(&s->batch);
    for (int64_t i = 0; i < n; i++, mg_loop_next(&a), mg_loop_next(&b))
        MG_TRY(multiply(call, (const float *)call->in[0] + a.offset * s->m * s->k,
                        (const float *)call->in[1] + b.offset * s->k * s->n,
                        (float *)call->out[0] + i * s->m * s->n));
    return MG_OK;
}

static void add_bias_and_relu(float *y, int64_t rows, int64_t n, const float *bias, bool relu) {
#pragma omp parallel for num_threads(mg_cpu_team(rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float *row = y + i * n;
        if (bias)
            for (int64_t j = 0; j < n; j++) row[j] += bias[j];
        if (relu)
            for (int64_t j = 0; j < n; j++) row[j] = row[j] < 0 ? 0 : row[j];
    }
}

static mg_status run(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    const int64_t count = mg_count(&call->plan->out[0]);
    const bool relu = ((const mg_matmul_attrs *)call->plan->step->attrs)->relu;
    const float *bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    if (count == 0) return MG_OK;
    if (s->k == 0)
        memset(call->out[0], 0, (size_t)count * sizeof(float));
    else
        MG_TRY(multiply_all(call));
    if (bias || relu) add_bias_and_relu(call->out[0], count / s->n, s->n, bias, relu);
    return MG_OK;
}

const mg_kernel mg_cpu_matmul = {.op = "matmul",
                                 .name = "oneDNN",
                                 .accepts = accepts,
                                 .prepare = prepare,
                                 .run = run,
                                 .release = mg_free};

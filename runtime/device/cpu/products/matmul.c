/* matmul by products/gemm.c, in every floating dtype; bias and relu are applied when the results
 * are written. Many small matrices are shared among the threads. */
#include "core/alloc.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/products/matmul_batch.h"
#include "device/cpu/products/products.h"
#include "ops/attrs.h"

/* Multiply-adds of a product up to which one thread computes it alone. */
enum { SMALL = 1 << 21 };

typedef struct matmul_state {
    mg_matmul_batch batch;
    mg_gemm gemm; /* of one product */
    int parts;    /* parts of the batch, which run at the same time */
} matmul_state;

static const char *matmul_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != t) return "dtypes differ";
    return mg_dtype_is_float(t) ? NULL : "not floating point";
}

static mg_status matmul_prepare(mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    matmul_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    MG_TRY(mg_matmul_batch_of(&s->batch, plan));
    const mg_product *p = &s->batch.one;
    const int team = mg_cpu_threads();
    const bool small = s->batch.count >= 2 * team && p->m * p->n * p->k <= SMALL;
    s->parts = small ? team : 1;
    s->gemm = small ? mg_gemm_plan_single(p->m, p->n, p->k, t) : mg_gemm_plan(p->m, p->n, p->k, t);
    plan->scratch = s->gemm.scratch * (size_t)s->parts;
    return MG_OK;
}

/* ---- a second factor that stays the same ---- */

/* The second factor as it lies in memory. */
static mg_factor right_factor(const mg_product *p, const void *at, mg_dtype t) {
    return (mg_factor){.read = mg_read_matrix,
                       .at = at,
                       .dtype = t,
                       .by_steps = !p->transpose_b,
                       .row = p->transpose_b ? p->k : p->n};
}

static mg_status pack_factor(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    const mg_factor b = right_factor(&s->batch.one, call->in[0], MG_F32);
    mg_gemm_pack(&s->gemm, &b, call->out[0], call->scratch);
    return MG_OK;
}

static const mg_kernel factor_packer = {.name = "pack for matrix product", .run = pack_factor};

/* One product with a second factor that is the same in all runs: the weights of a dense layer that
 * predicts. */
static const char *packed_accepts(const mg_kernel_plan *plan) {
    mg_matmul_batch batch = {0};
    if (!plan->in[1].fixed) return "the second factor is not fixed";
    if (!mg_all_f32(plan)) return "not float32";
    if (mg_matmul_batch_of(&batch, plan) != MG_OK) {
        mg_error_clear();
        return "the batch axes differ";
    }
    if (batch.count != 1) return "several products";
    if (batch.one.m == 0 || batch.one.n == 0 || batch.one.k == 0) return "empty";
    return NULL;
}

static mg_status packed_prepare(mg_kernel_plan *plan) {
    matmul_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    MG_TRY(mg_matmul_batch_of(&s->batch, plan));
    const mg_product *p = &s->batch.one;
    s->parts = 1;
    s->gemm = mg_gemm_plan_packed(p->m, p->n, p->k);
    plan->scratch = s->gemm.scratch;
    plan->packer = &factor_packer;
    plan->packed = 1;
    plan->packed_bytes = mg_gemm_packed_bytes(&s->gemm);
    plan->packer_scratch = mg_gemm_packing_scratch(&s->gemm);
    return MG_OK;
}

/* ---- running ---- */

/* Product i of the batch. */
static void multiply_one(const mg_call *call, int64_t i, char *scratch) {
    const matmul_state *s = call->plan->state;
    const mg_product *p = &s->batch.one;
    const mg_dtype t = call->plan->out[0].value->dtype;
    const int64_t size = (int64_t)mg_dtype_size(t);
    const mg_matmul_operands at = mg_matmul_operands_of(&s->batch, i);
    const mg_factor a = {.read = mg_read_matrix,
                         .at = (const char *)call->in[0] + at.a * p->m * p->k * size,
                         .dtype = t,
                         .by_steps = p->transpose_a,
                         .row = p->transpose_a ? p->m : p->k};
    const char *right = (const char *)call->in[1] + at.b * p->k * p->n * size;
    const mg_factor b = right_factor(p, right, t); /* packed: the address is all that counts */
    mg_gemm_result y = mg_gemm_matrix(p->m, p->n, t);
    y.at = (char *)call->out[0] + i * p->m * p->n * size;
    y.bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    y.relu = ((const mg_matmul_attrs *)call->plan->step->attrs)->relu;
    mg_gemm_run(&s->gemm, &a, &b, &y, scratch);
}

/* Part `part` of the batch, with its own scratch. */
static void multiply_part(const mg_call *call, int64_t part) {
    const matmul_state *s = call->plan->state;
    const int64_t n = s->batch.count;
    char *scratch = (char *)call->scratch + (size_t)part * s->gemm.scratch;
    for (int64_t i = n * part / s->parts; i < n * (part + 1) / s->parts; i++)
        multiply_one(call, i, scratch);
}

/* A single part runs outside of a parallel region, because mg_gemm_run opens one. */
static mg_status matmul_run(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    if (s->parts == 1) {
        multiply_part(call, 0);
        return MG_OK;
    }
#pragma omp parallel for schedule(static) num_threads(s->parts)
    for (int64_t part = 0; part < s->parts; part++) multiply_part(call, part);
    return MG_OK;
}

const mg_kernel mg_cpu_matmul = {.op = "matmul",
                                 .name = "matrix product",
                                 .accepts = matmul_accepts,
                                 .prepare = matmul_prepare,
                                 .run = matmul_run,
                                 .release = mg_free};
const mg_kernel mg_cpu_packed_matmul = {.op = "matmul",
                                        .name = "packed matrix product",
                                        .accepts = packed_accepts,
                                        .prepare = packed_prepare,
                                        .run = matmul_run,
                                        .release = mg_free};

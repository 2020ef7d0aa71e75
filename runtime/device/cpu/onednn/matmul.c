/* matmul in float32, with one call of dnnl_sgemm per matrix of the batch. Bias and relu follow in
 * one pass.
 *
 * oneDNN takes about twice as long when the second factor is transposed. So a b' is computed either
 * as a times a copy of b', or as the transpose of b a', whichever moves fewer bytes. Many small
 * matrices are shared among the threads. */
#include "core/alloc.h"
#include "device/cpu/gemm.h"
#include "device/cpu/onednn/matmul.h"
#include "ops/attrs.h"
#include <string.h>
#include "ops/loops.h"

/* Rows and columns transposed at a time, which stay in the first-level cache; multiply-adds from
 * which a transposed copy pays; multiply-adds of a product up to which a thread makes it alone. */
enum { BLOCK = 64, LARGE = 1 << 22, SMALL = 1 << 21 };

/* How a product with a transposed second factor is made. */
typedef enum order { DIRECT, TRANSPOSE_B, TRANSPOSE_RESULT } order;

typedef struct matmul_state {
    mg_product one; /* of the batch; the only one if shared_b */
    mg_shape batch;
    int64_t stride_a[MG_MAX_RANK], stride_b[MG_MAX_RANK]; /* over the batch, in matrices */
    bool shared_b;                                        /* one b for all matrices a */
} matmul_state;

/* ---- one product in float32 ---- */

static order order_of(const mg_product *p) {
    if (!p->transpose_b || p->transpose_a || p->m * p->n * p->k < LARGE) return DIRECT;
    return p->n * p->k <= p->m * (p->n + p->k) ? TRANSPOSE_B : TRANSPOSE_RESULT;
}

/* The transposed b, or the transposed a and the result before it is transposed. */
size_t mg_product_scratch(const mg_product *p) {
    const order way = order_of(p);
    if (way == DIRECT) return 0;
    return (size_t)(way == TRANSPOSE_B ? p->n * p->k : p->m * (p->n + p->k)) * sizeof(float);
}

/* y {n, m} = transposed x {m, n}. */
static void transpose(const float *x, float *y, int64_t m, int64_t n) {
#pragma omp parallel for collapse(2) schedule(static) if (m * n > MG_SERIAL_BELOW)
    for (int64_t row = 0; row < m; row += BLOCK)
        for (int64_t column = 0; column < n; column += BLOCK) {
            const int64_t end_row = row + BLOCK < m ? row + BLOCK : m;
            const int64_t end_column = column + BLOCK < n ? column + BLOCK : n;
            mg_simd_used->movement->transpose_block(
                x, y, m, n, (mg_matrix_part){row, end_row, column, end_column});
        }
}

/* dnnl_sgemm is row-major; leading dimensions are row lengths as stored. */
static dnnl_status_t multiply_direct(const mg_product *p, const float *a, const float *b,
                                     float *y) {
    return dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, 1,
                      a, p->transpose_a ? p->m : p->k, b, p->transpose_b ? p->k : p->n, 0, y, p->n);
}

dnnl_status_t mg_product_run(const mg_product *p, const float *a, const float *b, float *y,
                             float *scratch) {
    const order way = order_of(p);
    if (way == DIRECT) return multiply_direct(p, a, b, y);
    if (way == TRANSPOSE_B) {
        transpose(b, scratch, p->n, p->k);
        return multiply_direct(&(mg_product){.m = p->m, .n = p->n, .k = p->k}, a, scratch, y);
    }
    float *transposed = scratch + p->m * p->k;
    transpose(a, scratch, p->m, p->k);
    const dnnl_status_t status =
        multiply_direct(&(mg_product){.m = p->n, .n = p->m, .k = p->k}, b, scratch, transposed);
    transpose(transposed, y, p->n, p->m);
    return status;
}

/* ---- the op ---- */

/* Products for which gemm.c is faster than oneDNN's AVX2 kernel: 64 to 256 rows times a matrix that
 * does not fit into the second cache. 128 rows, 1024 x 1024: 4.0 ms instead of 6.1 with one thread
 * of a Zen 3, 2.5 instead of 3.5 with two; 512 rows or more, or a transposed factor: oneDNN's is up
 * to 1.3 times as fast. */
static bool is_slow(const mg_kernel_plan *plan) {
    enum { FEWEST = 64, MOST = 256, LARGE_MATRIX = 1 << 18 };
    const mg_matmul_attrs *attrs = plan->step->attrs;
    const mg_shape *b = &plan->in[1].value->shape;
    if (!mg_dnnl_is_avx2() || attrs->transpose_a || attrs->transpose_b || b->rank != 2)
        return false;
    const int64_t rows = b->dim[1] ? mg_count(&plan->out[0]) / b->dim[1] : 0;
    return rows >= FEWEST && rows <= MOST && b->dim[0] * b->dim[1] >= LARGE_MATRIX;
}

static const char *matmul_accepts(const mg_kernel_plan *plan) {
    if (!mg_dnnl_engine()) return "oneDNN is not used";
    if (!mg_all_f32(plan)) return "not float32";
    return is_slow(plan) ? "faster as a product of our own" : NULL;
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

/* Asks for scratch; several matrices are multiplied without. */
static void ask_for_scratch(const matmul_state *s, mg_kernel_plan *plan) {
    const int64_t matrices = s->shared_b ? 1 : mg_shape_count(&s->batch);
    if (matrices == 1) plan->scratch = mg_product_scratch(&s->one);
}

/* Where all matrices a meet the same b, the batch axes of a are taken as more rows of one product.
 */
static mg_status matmul_prepare(mg_kernel_plan *plan) {
    const mg_matmul_attrs *attrs = plan->step->attrs;
    matmul_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    const mg_shape *raw_a = &plan->in[0].value->shape, *raw_b = &plan->in[1].value->shape;
    const mg_shape a = with_two_axes(raw_a, false), b = with_two_axes(raw_b, true);
    const bool transpose_a = attrs->transpose_a && raw_a->rank > 1;
    const bool transpose_b = attrs->transpose_b && raw_b->rank > 1;
    s->one = (mg_product){.m = a.dim[a.rank - 2 + transpose_a],
                          .n = b.dim[b.rank - 1 - transpose_b],
                          .k = a.dim[a.rank - 1 - transpose_a],
                          .transpose_a = transpose_a,
                          .transpose_b = transpose_b};
    const mg_shape lead_a = batch_axes(&a), lead_b = batch_axes(&b);
    s->shared_b = !transpose_a && mg_shape_count(&lead_b) == 1 && a.rank >= b.rank;
    if (s->shared_b) {
        s->one.m *= mg_shape_count(&lead_a);
        ask_for_scratch(s, plan);
        return MG_OK;
    }
    MG_TRY(mg_shape_broadcast(&lead_a, &lead_b, &s->batch, "matmul"));
    mg_shape_strides(&lead_a, &s->batch, s->stride_a);
    mg_shape_strides(&lead_b, &s->batch, s->stride_b);
    ask_for_scratch(s, plan);
    return MG_OK;
}

/* Products first .. end - 1 of the batch. */
static dnnl_status_t multiply_some(const mg_call *call, int64_t first, int64_t end) {
    const matmul_state *s = call->plan->state;
    const mg_product *p = &s->one;
    mg_loop a = {.shape = s->batch}, b = {.shape = s->batch};
    memcpy(a.stride, s->stride_a, sizeof a.stride);
    memcpy(b.stride, s->stride_b, sizeof b.stride);
    dnnl_status_t status = dnnl_success;
    for (int64_t i = 0; i < end && status == dnnl_success; i++, mg_loop_next(&a), mg_loop_next(&b))
        if (i >= first)
            status = multiply_direct(p, (const float *)call->in[0] + a.offset * p->m * p->k,
                                     (const float *)call->in[1] + b.offset * p->k * p->n,
                                     (float *)call->out[0] + i * p->m * p->n);
    return status;
}

/* All products; small ones are dealt out to the threads. */
static mg_status multiply_all(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    dnnl_status_t status = dnnl_success;
    const int64_t n = s->shared_b ? 1 : mg_shape_count(&s->batch), team = mg_cpu_threads();
    if (n == 1)
        return mg_dnnl_check(
            mg_product_run(&s->one, call->in[0], call->in[1], call->out[0], call->scratch),
            call->plan);
    /* large products, and few of them, are left to oneDNN's own threads */
    if (n < 2 * team || s->one.m * s->one.n * s->one.k > SMALL)
        return mg_dnnl_check(multiply_some(call, 0, n), call->plan);
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < team; part++) {
        const dnnl_status_t mine = multiply_some(call, n * part / team, n * (part + 1) / team);
#pragma omp critical(mg_matmul_status)
        if (mine != dnnl_success) status = mine;
    }
    return mg_dnnl_check(status, call->plan);
}

/* A sum over no terms (k == 0) is 0. */
static mg_status matmul_run(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    const int64_t count = mg_count(&call->plan->out[0]);
    const bool relu = ((const mg_matmul_attrs *)call->plan->step->attrs)->relu;
    const float *bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    if (count == 0) return MG_OK;
    if (s->one.k == 0)
        memset(call->out[0], 0, (size_t)count * sizeof(float));
    else
        MG_TRY(multiply_all(call));
    mg_finish_rows(call->out[0], count / s->one.n, s->one.n, bias, relu);
    return MG_OK;
}

const mg_kernel mg_cpu_onednn_matmul = {.op = "matmul",
                                        .name = "oneDNN",
                                        .accepts = matmul_accepts,
                                        .prepare = matmul_prepare,
                                        .run = matmul_run,
                                        .release = mg_free};

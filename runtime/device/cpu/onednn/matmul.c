/* matmul in float32, with one call of dnnl_sgemm per matrix of the batch. Bias and relu follow in
 * one pass.
 *
 * oneDNN takes about twice as long when the second factor is transposed. So a b' is computed either
 * as a times a copy of b', or as the transpose of b a', whichever moves fewer bytes. Many small
 * matrices are shared among the threads. */
#include "core/alloc.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/onednn/matmul.h"
#include "ops/attrs.h"
#include <string.h>

/* BLOCK: most rows and columns that are transposed at a time; they stay in the L1 cache. LARGE:
 * multiply-adds from which a transposed copy pays. SMALL: multiply-adds of a product up to which
 * one thread computes it alone. */
enum { BLOCK = 64, LARGE = 1 << 22, SMALL = 1 << 21 };

/* How a product with a transposed second factor is computed. */
typedef enum order { DIRECT, TRANSPOSE_B, TRANSPOSE_RESULT } order;

/* ---- one product in float32 ---- */

static order order_of(const mg_product *p) {
    if (!p->transpose_b || p->transpose_a || p->m * p->n * p->k < LARGE) return DIRECT;
    return p->n * p->k <= p->m * (p->n + p->k) ? TRANSPOSE_B : TRANSPOSE_RESULT;
}

/* Room for the transposed b, or for the transposed a and the result before it is transposed. */
size_t mg_product_scratch(const mg_product *p) {
    const order way = order_of(p);
    if (way == DIRECT) return 0;
    return (size_t)(way == TRANSPOSE_B ? p->n * p->k : p->m * (p->n + p->k)) * sizeof(float);
}

/* y {n, m} = transposed x {m, n}. */
static void transpose(const float *x, float *y, int64_t m, int64_t n) {
    const int team = mg_cpu_team(m * n);
    int64_t columns = BLOCK;
    while (mg_divide_up(n, columns) < team && columns > MG_SQUARE) columns /= 2;
    const int64_t rows = mg_even_share(mg_divide_up(n, columns), m, BLOCK, 2 * MG_SQUARE, team);
#pragma omp parallel for collapse(2) schedule(static) num_threads(team)
    for (int64_t row = 0; row < m; row += rows)
        for (int64_t column = 0; column < n; column += columns) {
            const int64_t end_row = mg_smaller(row + rows, m);
            const int64_t end_column = mg_smaller(column + columns, n);
            mg_simd_used->movement->transpose_block(
                x, y, m, n, (mg_matrix_part){row, end_row, column, end_column});
        }
}

/* dnnl_sgemm is row-major; leading dimensions are row lengths as stored. */
static dnnl_status_t multiply_direct(const mg_product *p, const float *a, const float *b,
                                     float *y) {
    static atomic_bool known[2][2]; /* oneDNN generates code for each of these at its first call */
    const dnnl_status_t room = mg_dnnl_room(&known[p->transpose_a][p->transpose_b]);
    if (room != dnnl_success) return room;
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

/* Products for which products/gemm.c is faster than oneDNN's AVX2 kernel: 32 to 256 rows times a
 * matrix that does not fit into the L2 cache. 128 rows, 1024 x 1024: 4.0 ms instead of 6.1 with one
 * thread of a Zen 3, 2.5 instead of 3.5 with two; 32 rows: 0.83 instead of 1.41 with one thread of
 * a Zen 4, limited to AVX2. With 512 rows or more, or a transposed factor, oneDNN's is up to 1.3
 * times as fast. */
static bool is_slow(const mg_kernel_plan *plan) {
    enum { FEWEST = 32, MOST = 256, LARGE_MATRIX = 1 << 18 };
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
    return is_slow(plan) ? "our own matrix product is faster" : NULL;
}

/* Several matrices are multiplied without scratch. */
static mg_status matmul_prepare(mg_kernel_plan *plan) {
    mg_matmul_batch *batch = plan->state = mg_alloc_zero(sizeof *batch);
    if (!batch) return MG_OOM;
    MG_TRY(mg_matmul_batch_of(batch, plan));
    if (batch->count == 1) plan->scratch = mg_product_scratch(&batch->one);
    return MG_OK;
}

/* Products first .. end - 1 of the batch. */
static dnnl_status_t multiply_some(const mg_call *call, int64_t first, int64_t end) {
    const mg_matmul_batch *batch = call->plan->state;
    const mg_product *p = &batch->one;
    dnnl_status_t status = dnnl_success;
    for (int64_t i = first; i < end && status == dnnl_success; i++) {
        const mg_matmul_operands at = mg_matmul_operands_of(batch, i);
        status = multiply_direct(p, (const float *)call->in[0] + at.a * p->m * p->k,
                                 (const float *)call->in[1] + at.b * p->k * p->n,
                                 (float *)call->out[0] + i * p->m * p->n);
    }
    return status;
}

/* All products. Threads share small ones, each product on one thread. */
static mg_status multiply_all(const mg_call *call) {
    const mg_matmul_batch *batch = call->plan->state;
    const mg_product *p = &batch->one;
    dnnl_status_t status = dnnl_success;
    const int64_t n = batch->count, team = mg_cpu_threads();
    if (n == 1)
        return mg_dnnl_check(
            mg_product_run(p, call->in[0], call->in[1], call->out[0], call->scratch), call->plan);
    /* large products, and few of them, are left to oneDNN's own threads */
    if (n < 2 * team || p->m * p->n * p->k > SMALL)
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
    const mg_product *p = &((const mg_matmul_batch *)call->plan->state)->one;
    const int64_t count = mg_count(&call->plan->out[0]);
    const bool relu = ((const mg_matmul_attrs *)call->plan->step->attrs)->relu;
    const float *bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    if (count == 0) return MG_OK;
    if (p->k == 0)
        memset(call->out[0], 0, (size_t)count * sizeof(float));
    else
        MG_TRY(multiply_all(call));
    mg_finish_rows(call->out[0], count / p->n, p->n, bias, relu);
    return MG_OK;
}

const mg_kernel mg_cpu_onednn_matmul = {.op = "matmul",
                                        .name = "oneDNN",
                                        .accepts = matmul_accepts,
                                        .prepare = matmul_prepare,
                                        .run = matmul_run,
                                        .release = mg_free};

/* matmul, with one library call per matrix of the batch: dnnl_sgemm in float32, gemm.c in float64.
 * Bias and relu follow in one pass.
 *
 * oneDNN takes about twice as long when the second factor is transposed. So a b' is computed either
 * as a times a copy of b', or as the transpose of b a', whichever moves fewer bytes. Many small
 * matrices are shared among the threads. */
#include "core/alloc.h"
#include "device/cpu/gemm.h"
#include "device/cpu/matmul.h"
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
    bool wide;                                            /* float64 */
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

/* All operands have one dtype; halves are upcast first. */
static const char *matmul_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != t) return "dtypes differ";
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
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
    if (matrices == 1)
        plan->scratch =
            s->wide ? mg_gemm_scratch(s->one.m, s->one.n, s->one.k) : mg_product_scratch(&s->one);
}

/* Where all matrices a meet the same b, the batch axes of a are taken as more rows of one product.
 */
static mg_status matmul_prepare(mg_kernel_plan *plan) {
    const mg_matmul_attrs *attrs = plan->step->attrs;
    matmul_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->wide = plan->out[0].value->dtype == MG_F64;
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

/* One product in float64. */
static dnnl_status_t multiply_f64(const mg_product *p, const double *a, const double *b, double *y,
                                  double *scratch) {
    const mg_factor rows = {.read = mg_read_matrix,
                            .at = a,
                            .lane = p->transpose_a ? 1 : p->k,
                            .step = p->transpose_a ? p->m : 1};
    const mg_factor columns = {.read = mg_read_matrix,
                               .at = b,
                               .lane = p->transpose_b ? p->k : 1,
                               .step = p->transpose_b ? 1 : p->n};
    mg_gemm(p->m, p->n, p->k, &rows, &columns, y, p->n, scratch);
    return dnnl_success;
}

/* The only product, in either dtype. */
static dnnl_status_t multiply_one(const matmul_state *s, const void *a, const void *b, void *y,
                                  void *scratch) {
    return s->wide ? multiply_f64(&s->one, a, b, y, scratch)
                   : mg_product_run(&s->one, a, b, y, scratch);
}

/* One of several, which may run at the same time. */
static dnnl_status_t multiply_without_scratch(const matmul_state *s, const void *a, const void *b,
                                              void *y) {
    return s->wide ? multiply_f64(&s->one, a, b, y, NULL) : multiply_direct(&s->one, a, b, y);
}

/* Products first .. end - 1 of the batch. */
static dnnl_status_t multiply_some(const mg_call *call, int64_t first, int64_t end) {
    const matmul_state *s = call->plan->state;
    const mg_product *p = &s->one;
    const int64_t size = s->wide ? sizeof(double) : sizeof(float);
    mg_loop a = {.shape = s->batch}, b = {.shape = s->batch};
    memcpy(a.stride, s->stride_a, sizeof a.stride);
    memcpy(b.stride, s->stride_b, sizeof b.stride);
    dnnl_status_t status = dnnl_success;
    for (int64_t i = 0; i < end && status == dnnl_success; i++, mg_loop_next(&a), mg_loop_next(&b))
        if (i >= first)
            status = multiply_without_scratch(
                s, (const char *)call->in[0] + a.offset * p->m * p->k * size,
                (const char *)call->in[1] + b.offset * p->k * p->n * size,
                (char *)call->out[0] + i * p->m * p->n * size);
    return status;
}

/* All products; small ones are dealt out to the threads. */
static mg_status multiply_all(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    dnnl_status_t status = dnnl_success;
    const int64_t n = s->shared_b ? 1 : mg_shape_count(&s->batch), team = mg_cpu_threads();
    if (n == 1)
        return mg_dnnl_check(multiply_one(s, call->in[0], call->in[1], call->out[0], call->scratch),
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

/* The float32 counterpart of mg_finish_rows. */
static void add_bias_and_relu(float *y, int64_t rows, int64_t n, const float *bias, bool relu) {
#pragma omp parallel for num_threads(mg_cpu_team(rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        mg_simd_used->matmul->finish_rows_f32(y + i * n, 1, n, bias, relu);
}

/* A sum over no terms (k == 0) is 0. */
static mg_status matmul_run(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    const int64_t count = mg_count(&call->plan->out[0]);
    const bool relu = ((const mg_matmul_attrs *)call->plan->step->attrs)->relu;
    const void *bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    if (count == 0) return MG_OK;
    if (s->one.k == 0)
        memset(call->out[0], 0, (size_t)count * mg_dtype_size(call->plan->out[0].value->dtype));
    else
        MG_TRY(multiply_all(call));
    if (!bias && !relu) return MG_OK;
    if (s->wide)
        mg_finish_rows(call->out[0], count / s->one.n, s->one.n, bias, relu);
    else
        add_bias_and_relu(call->out[0], count / s->one.n, s->one.n, bias, relu);
    return MG_OK;
}

const mg_kernel mg_cpu_matmul = {.op = "matmul",
                                 .name = "oneDNN",
                                 .accepts = matmul_accepts,
                                 .prepare = matmul_prepare,
                                 .run = matmul_run,
                                 .release = mg_free};

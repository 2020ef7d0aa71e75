/* matmul, with one library call per matrix of the batch: dnnl_sgemm in float32, gemm.c in float64.
 * Bias and relu follow in one pass.
 *
 * oneDNN takes about twice as long when the second factor is transposed. So a b' is computed either
 * as a times a copy of b', or as the transpose of b a', whichever moves fewer bytes. Many small
 * matrices are shared among the threads. */
#include "core/alloc.h"
#include "device/cpu/gemm.h"
#include "device/cpu/onednn.h"
#include "ops/attrs.h"
#include <string.h>
#include "ops/loops.h"

/* Columns transposed at a time; multiply-adds from which a transposed copy pays; multiply-adds of a
 * product up to which a thread makes it alone. */
enum { SQUARE = 16, LARGE = 1 << 22, SMALL = 1 << 21 };

/* How a product with a transposed second factor is made. */
typedef enum order { DIRECT, TRANSPOSE_B, TRANSPOSE_RESULT } order;

typedef struct matmul_state {
    int64_t m, n, k;
    char transpose_a, transpose_b; /* 'N' or 'T' */
    mg_shape batch;
    int64_t stride_a[MG_MAX_RANK], stride_b[MG_MAX_RANK]; /* over the batch, in matrices */
    bool shared_b;                                        /* one b for all matrices a */
    order order;
    bool wide; /* float64 */
} matmul_state;

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

/* Chooses the order and asks for scratch: for the transposed b, or for the transposed a and the
 * result before it is transposed. */
static void choose_order(matmul_state *s, mg_kernel_plan *plan) {
    const int64_t matrices = s->shared_b ? 1 : mg_shape_count(&s->batch);
    if (s->wide) {
        plan->scratch = matrices == 1 ? mg_gemm_scratch(s->m, s->n, s->k) : 0;
        return;
    }
    if (s->transpose_b != 'T' || s->transpose_a == 'T' || matrices > 1 ||
        s->m * s->n * s->k < LARGE)
        return;
    const int64_t b = s->n * s->k, others = s->m * (s->n + s->k);
    s->order = b <= others ? TRANSPOSE_B : TRANSPOSE_RESULT;
    plan->scratch = (size_t)(b <= others ? b : others) * sizeof(float);
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
    s->transpose_a = transpose_a ? 'T' : 'N';
    s->transpose_b = transpose_b ? 'T' : 'N';
    s->m = a.dim[a.rank - 2 + transpose_a];
    s->k = a.dim[a.rank - 1 - transpose_a];
    s->n = b.dim[b.rank - 1 - transpose_b];
    const mg_shape lead_a = batch_axes(&a), lead_b = batch_axes(&b);
    s->shared_b = !transpose_a && mg_shape_count(&lead_b) == 1 && a.rank >= b.rank;
    if (s->shared_b) {
        s->m *= mg_shape_count(&lead_a);
        choose_order(s, plan);
        return MG_OK;
    }
    MG_TRY(mg_shape_broadcast(&lead_a, &lead_b, &s->batch, "matmul"));
    mg_shape_strides(&lead_a, &s->batch, s->stride_a);
    mg_shape_strides(&lead_b, &s->batch, s->stride_b);
    choose_order(s, plan);
    return MG_OK;
}

/* y {n, m} = transposed x {m, n}. */
static void transpose(const float *x, float *y, int64_t m, int64_t n) {
#pragma omp parallel for schedule(static) if (m * n > MG_SERIAL_BELOW)
    for (int64_t first = 0; first < n; first += SQUARE)
        mg_simd_used->movement->transpose_columns(x, y, m, n, first,
                                                  first + SQUARE < n ? first + SQUARE : n);
}

/* One product in float64. */
static dnnl_status_t multiply_f64(const matmul_state *s, const double *a, const double *b,
                                  double *y, double *scratch) {
    const bool transpose_a = s->transpose_a == 'T', transpose_b = s->transpose_b == 'T';
    const mg_factor rows = {.read = mg_read_matrix,
                            .at = a,
                            .lane = transpose_a ? 1 : s->k,
                            .step = transpose_a ? s->m : 1};
    const mg_factor columns = {.read = mg_read_matrix,
                               .at = b,
                               .lane = transpose_b ? s->k : 1,
                               .step = transpose_b ? 1 : s->n};
    mg_gemm(s->m, s->n, s->k, &rows, &columns, y, s->n, scratch);
    return dnnl_success;
}

/* One product in either dtype. dnnl_sgemm is row-major; leading dimensions are row lengths as
 * stored. */
static dnnl_status_t multiply_matrix(const matmul_state *s, const void *a, const void *b, void *y,
                                     void *scratch) {
    if (s->wide) return multiply_f64(s, a, b, y, scratch);
    return dnnl_sgemm(s->transpose_a, s->transpose_b, s->m, s->n, s->k, 1, a,
                      s->transpose_a == 'T' ? s->m : s->k, b, s->transpose_b == 'T' ? s->k : s->n,
                      0, y, s->n);
}

/* One float32 product whose b is transposed, by way of copies in scratch. */
static dnnl_status_t multiply_transposed(const matmul_state *s, const float *a, const float *b,
                                         float *y, float *scratch) {
    if (s->order == TRANSPOSE_B) {
        transpose(b, scratch, s->n, s->k);
        return dnnl_sgemm('N', 'N', s->m, s->n, s->k, 1, a, s->k, scratch, s->n, 0, y, s->n);
    }
    float *transposed = scratch + s->m * s->k;
    transpose(a, scratch, s->m, s->k);
    const dnnl_status_t status =
        dnnl_sgemm('N', 'N', s->n, s->m, s->k, 1, b, s->k, scratch, s->m, 0, transposed, s->m);
    transpose(transposed, y, s->n, s->m);
    return status;
}

/* Products first .. end - 1 of the batch. */
static dnnl_status_t multiply_some(const mg_call *call, int64_t first, int64_t end) {
    const matmul_state *s = call->plan->state;
    const int64_t size = s->wide ? sizeof(double) : sizeof(float);
    mg_loop a = {.shape = s->batch}, b = {.shape = s->batch};
    memcpy(a.stride, s->stride_a, sizeof a.stride);
    memcpy(b.stride, s->stride_b, sizeof b.stride);
    dnnl_status_t status = dnnl_success;
    for (int64_t i = 0; i < end && status == dnnl_success; i++, mg_loop_next(&a), mg_loop_next(&b))
        if (i >= first)
            status = multiply_matrix(s, (const char *)call->in[0] + a.offset * s->m * s->k * size,
                                     (const char *)call->in[1] + b.offset * s->k * s->n * size,
                                     (char *)call->out[0] + i * s->m * s->n * size, NULL);
    return status;
}

/* All products; small ones are dealt out to the threads. */
static mg_status multiply_all(const mg_call *call) {
    const matmul_state *s = call->plan->state;
    dnnl_status_t status = dnnl_success;
    if (s->order != DIRECT)
        return mg_dnnl_check(
            multiply_transposed(s, call->in[0], call->in[1], call->out[0], call->scratch),
            call->plan);
    if (s->shared_b)
        return mg_dnnl_check(
            multiply_matrix(s, call->in[0], call->in[1], call->out[0], call->scratch), call->plan);
    const int64_t n = mg_shape_count(&s->batch), team = mg_cpu_threads();
    /* large products, and few of them, are left to oneDNN's own threads */
    if (n < 2 * team || s->m * s->n * s->k > SMALL)
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
    if (s->k == 0)
        memset(call->out[0], 0, (size_t)count * mg_dtype_size(call->plan->out[0].value->dtype));
    else
        MG_TRY(multiply_all(call));
    if (!bias && !relu) return MG_OK;
    if (s->wide)
        mg_finish_rows(call->out[0], count / s->n, s->n, bias, relu);
    else
        add_bias_and_relu(call->out[0], count / s->n, s->n, bias, relu);
    return MG_OK;
}

const mg_kernel mg_cpu_matmul = {.op = "matmul",
                                 .name = "oneDNN",
                                 .accepts = matmul_accepts,
                                 .prepare = matmul_prepare,
                                 .run = matmul_run,
                                 .release = mg_free};

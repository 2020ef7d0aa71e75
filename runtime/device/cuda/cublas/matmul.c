/* matmul by cuBLASLt, with bias and relu, or with the column sums of an operand, as its epilogue.
 *
 * cuBLASLt is column-major, and a row-major matrix read column by column is its transpose. So y = a
 * b is requested as y' = b' a', with b as the first operand. The bias gradient of cuBLASLt's first
 * operand (BGRADA) is then the sum of the columns of b.
 *
 * The autotuner picks one of the algorithms that cuBLASLt's heuristic offers. cuBLASLt's relu may
 * turn NaN into 0, which would hide a failed step, so it is used only if a trial shows that NaN
 * stays NaN; otherwise our own bias_relu kernel follows the product. */
#include "core/alloc.h"
#include "core/precision.h"
#include "device/cuda/autotune.h"
#include "device/cuda/launchers/launchers.h"
#include "device/cuda/cublas/cublas.h"
#include "device/cuda/kernels.h"
#include <stdio.h>
#include <string.h>

/* OFFERED: requested algorithms. WORKSPACE: the largest workspace of one in bytes, as NVIDIA
 * recommends for sm_90. ALIGNED: the smallest alignment of operands in bytes. */
enum { OFFERED = MG_AUTOTUNE_CANDIDATES, WORKSPACE = 32 << 20, ALIGNED = 16 };

typedef struct state {
    mg_device *device;
    mg_dtype dtype;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t what;              /* the operation: transposes, epilogue, precision */
    cublasLtMatrixLayout_t b, a, y;         /* first factor, second factor, result */
    cublasLtMatmulHeuristicResult_t chosen; /* the algorithm */
    mg_product product;
    int64_t step_a, step_b; /* matrices from one product of the batch to the next: 0 or 1 */
    bool wide;              /* alpha and beta are doubles */
    bool relu;              /* the epilogue has relu */
    mg_bias_relu apart;     /* the kernel that applies relu if the epilogue cannot */
} state;

/* Also accepts a partly constructed state. */
static void release_matmul(void *kept) {
    state *s = kept;
    if (s->what) mg_blas.cublasLtMatmulDescDestroy(s->what);
    if (s->b) mg_blas.cublasLtMatrixLayoutDestroy(s->b);
    if (s->a) mg_blas.cublasLtMatrixLayoutDestroy(s->a);
    if (s->y) mg_blas.cublasLtMatrixLayoutDestroy(s->y);
    mg_free(s);
}

/* ---- describing the product ---- */

/* CUDA's name of a floating dtype. */
static cudaDataType_t type_of(mg_dtype t) {
    return t == MG_F16    ? CUDA_R_16F
           : t == MG_BF16 ? CUDA_R_16BF
           : t == MG_F32  ? CUDA_R_32F
                          : CUDA_R_64F;
}

/* In "fast" precision float32 products may use TF32. */
static cublasComputeType_t compute_type(mg_dtype t) {
    if (t == MG_F64) return CUBLAS_COMPUTE_64F;
    return t == MG_F32 && mg_precision_fast() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* *layout: a row-major matrix {rows, columns}; the next matrix of the batch begins `step` matrices
 * later. */
static cublasStatus_t describe_matrix(const state *s, cublasLtMatrixLayout_t *layout, mg_dtype t,
                                      int64_t rows, int64_t columns, int64_t step) {
    const int32_t batch = (int32_t)s->product.matrices;
    const int64_t stride = step * rows * columns;
    cublasStatus_t r = mg_blas.cublasLtMatrixLayoutCreate(layout, type_of(t), (uint64_t)columns,
                                                          (uint64_t)rows, columns);
    if (r == CUBLAS_STATUS_SUCCESS && batch > 1)
        r = mg_blas.cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                     &batch, sizeof batch);
    if (r == CUBLAS_STATUS_SUCCESS && batch > 1)
        r = mg_blas.cublasLtMatrixLayoutSetAttribute(
            *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return r;
}

static cublasStatus_t set_attribute(const state *s, cublasLtMatmulDescAttributes_t which,
                                    const void *value, size_t bytes) {
    return mg_blas.cublasLtMatmulDescSetAttribute(s->what, which, value, bytes);
}

/* Whether the epilogue reads a bias or writes sums. */
static bool has_vector(const mg_product *p) {
    return p->bias || p->sums;
}

/* Sets the address of the bias or of the sums. */
static cublasStatus_t set_vector(const state *s, const void *vector) {
    if (!has_vector(&s->product)) return CUBLAS_STATUS_SUCCESS;
    return set_attribute(s, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
}

/* s->what: the transposes, the epilogue and the precision. */
static cublasStatus_t describe_product(state *s, mg_dtype t) {
    const mg_product *p = &s->product;
    const cublasOperation_t turn_b = p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t turn_a = p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t end = p->sums              ? CUBLASLT_EPILOGUE_BGRADA
                                   : p->bias && s->relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                   : p->bias            ? CUBLASLT_EPILOGUE_BIAS
                                   : s->relu            ? CUBLASLT_EPILOGUE_RELU
                                                        : CUBLASLT_EPILOGUE_DEFAULT;
    const int32_t vector_type = (int32_t)type_of(t);
    s->wide = t == MG_F64;
    cublasStatus_t r = mg_blas.cublasLtMatmulDescCreate(&s->what, compute_type(t),
                                                        s->wide ? CUDA_R_64F : CUDA_R_32F);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = set_attribute(s, CUBLASLT_MATMUL_DESC_TRANSA, &turn_b, sizeof turn_b);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = set_attribute(s, CUBLASLT_MATMUL_DESC_TRANSB, &turn_a, sizeof turn_a);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = set_attribute(s, CUBLASLT_MATMUL_DESC_EPILOGUE, &end, sizeof end);
    if (r == CUBLAS_STATUS_SUCCESS && has_vector(p))
        r = set_attribute(s, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &vector_type, sizeof vector_type);
    return r;
}

/* In the order of cuBLASLt: b first. */
static cublasStatus_t describe_all(state *s, mg_dtype t) {
    const mg_product *p = &s->product;
    cublasStatus_t r = describe_product(s, t);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = describe_matrix(s, &s->b, t, p->turn_b ? p->n : p->k, p->turn_b ? p->k : p->n,
                            s->step_b);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = describe_matrix(s, &s->a, t, p->turn_a ? p->k : p->m, p->turn_a ? p->m : p->k,
                            s->step_a);
    return r == CUBLAS_STATUS_SUCCESS ? describe_matrix(s, &s->y, t, p->m, p->n, 1) : r;
}

/* ---- choosing an algorithm ---- */

static cublasStatus_t set_preference(cublasLtMatmulPreference_t p,
                                     cublasLtMatmulPreferenceAttributes_t a, const void *value,
                                     size_t bytes) {
    return mg_blas.cublasLtMatmulPreferenceSetAttribute(p, a, value, bytes);
}

/* Keeps the usable entries of the list, and returns their number. */
static int keep_usable(cublasLtMatmulHeuristicResult_t *list, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (list[i].state == CUBLAS_STATUS_SUCCESS) list[kept++] = list[i];
    return kept;
}

/* Asks the heuristic for algorithms, best first, and returns how many there are. Split sums are
 * allowed only by reductions whose order is fixed; in "highest" precision partial sums in f16 and
 * bf16 are ruled out, too. The vector's memory need not exist yet, but the library derives its
 * alignment from the address, so a dummy address is set. */
static int ask_heuristic(const state *s, cublasLtMatmulHeuristicResult_t list[OFFERED]) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const bool rounds = s->dtype == MG_F16 || s->dtype == MG_BF16;
    const uint32_t schemes =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
        (rounds && !mg_precision_fast() ? 0 : CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
    const uint32_t aligned = ALIGNED;
    const uint64_t workspace = WORKSPACE;
    cublasLtMatmulPreference_t p = NULL;
    int n = 0;
    cublasStatus_t r = mg_blas.cublasLtMatmulPreferenceCreate(&p);
    if (r == CUBLAS_STATUS_SUCCESS) r = set_vector(s, (const void *)(uintptr_t)ALIGNED);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = set_preference(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                           sizeof workspace);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = set_preference(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    for (int i = 0; i < 4 && r == CUBLAS_STATUS_SUCCESS; i++)
        r = set_preference(p, alignments[i], &aligned, sizeof aligned);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = mg_blas.cublasLtMatmulAlgoGetHeuristic(s->handle, s->what, s->b, s->a, s->y, s->y, p,
                                                   OFFERED, list, &n);
    if (p) mg_blas.cublasLtMatmulPreferenceDestroy(p);
    return r == CUBLAS_STATUS_SUCCESS ? keep_usable(list, n) : 0;
}

/* Enqueues y = a b by one algorithm. */
static cublasStatus_t multiply(const state *s, const cublasLtMatmulHeuristicResult_t *how,
                               const void *a, const void *b, void *y, void *workspace) {
    const double one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    const mg_cuda *gpu = s->device->state;
    return mg_blas.cublasLtMatmul(s->handle, s->what, s->wide ? (const void *)&one : &one_f, b,
                                  s->b, a, s->a, s->wide ? (const void *)&zero : &zero_f, y, s->y,
                                  y, s->y, &how->algo, workspace, how->workspaceSize,
                                  (cudaStream_t)gpu->stream);
}

typedef struct algorithm_choice { /* the problem of the tuning */
    state *state;
    cublasLtMatmulHeuristicResult_t list[OFFERED];
} algorithm_choice;

/* The trial's buffers. */
enum { BUFFER_A, BUFFER_B, BUFFER_Y, BUFFER_VECTOR };

/* The vector buffer holds the bias or receives the sums. */
static mg_status list_algorithms(mg_autotune *t) {
    algorithm_choice *c = t->problem;
    const mg_product *p = &c->state->product;
    const size_t size = mg_dtype_size(c->state->dtype);
    t->n = ask_heuristic(c->state, c->list);
    if (t->n == 0)
        return mg_fail(MG_INTERNAL,
                       "matmul: cuBLASLt offered an algorithm before, and offers none now");
    t->buffer_bytes[BUFFER_A] = (size_t)(p->matrices * p->m * p->k) * size;
    t->buffer_bytes[BUFFER_B] = (size_t)(p->matrices * p->k * p->n) * size;
    t->buffer_bytes[BUFFER_Y] = (size_t)(p->matrices * p->m * p->n) * size;
    t->buffer_bytes[BUFFER_VECTOR] = (size_t)p->n * size;
    t->workspace_bytes = WORKSPACE;
    return MG_OK;
}

/* The vector's address is part of the operation's description. */
static mg_status run_algorithm(mg_autotune *t, int i) {
    const algorithm_choice *c = t->problem;
    cublasStatus_t r = set_vector(c->state, t->buffers[BUFFER_VECTOR]);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = multiply(c->state, &c->list[i], t->buffers[BUFFER_A], t->buffers[BUFFER_B],
                     t->buffers[BUFFER_Y], t->workspace);
    return mg_blas_check(t->device, r, "matmul");
}

/* Saves the library's struct unchanged: cuBLASLt documents that it may be saved and reused. */
static void *save_algorithm(mg_autotune *t, int i, size_t *bytes) {
    const algorithm_choice *c = t->problem;
    void *copy = mg_alloc(sizeof c->list[i]);
    if (copy) memcpy(copy, &c->list[i], sizeof c->list[i]);
    *bytes = sizeof c->list[i];
    return copy;
}

/* The bytes are the library's struct, valid for the version named in the key. */
static bool load_algorithm(mg_autotune *t, const void *data, size_t bytes) {
    const algorithm_choice *c = t->problem;
    if (bytes != sizeof c->state->chosen) return false;
    memcpy(&c->state->chosen, data, bytes);
    return true;
}

/* The cache key: everything that the choice depends on. */
static void matmul_key(const state *s, char *key, size_t size) {
    const mg_product *p = &s->product;
    snprintf(key, size,
             "%s, cuBLASLt %zu: %s %lld x %lld x %lld, %lld times by %lld and %lld, %d%d%d%d%d, %s",
             mg_cuda_of(s->device)->gpu_name, mg_blas.cublasLtGetVersion(), mg_dtype_name(s->dtype),
             (long long)p->m, (long long)p->k, (long long)p->n, (long long)p->matrices,
             (long long)s->step_a, (long long)s->step_b, p->turn_a, p->turn_b, p->bias, s->relu,
             p->sums, mg_precision_fast() ? "fast" : "highest");
}

/* Sets state->chosen to the fastest algorithm: timed now, or in an earlier run. */
static mg_status choose_algorithm(state *s) {
    const mg_value result = {.dtype = s->dtype}; /* a matrix: its first element is checked */
    algorithm_choice c = {.state = s};
    char key[256];
    int best;
    matmul_key(s, key, sizeof key);
    mg_autotune t = {.device = s->device,
                     .problem = &c,
                     .what = "cuBLASLt's matmul",
                     .kind = "matmul",
                     .key = key,
                     .must_keep_nan = s->relu,
                     .result = &result,
                     .result_buffer = BUFFER_Y,
                     .list = list_algorithms,
                     .run = run_algorithm,
                     .save = save_algorithm,
                     .load = load_algorithm};
    MG_TRY(mg_cuda_autotune(&t, &best));
    if (best >= 0) s->chosen = c.list[best];
    return MG_OK;
}

/* ---- the kernel ---- */

/* *made: the description of the step's product, with relu as epilogue if `relu`. Unless it is NULL,
 * release_matmul must be called also after an error. */
static mg_status new_state(const mg_kernel_plan *plan, bool relu, state **made) {
    const mg_dtype t = plan->out[0].value->dtype;
    state *s = *made = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->device = plan->device;
    s->dtype = t;
    s->relu = relu;
    s->product = mg_product_of(plan);
    mg_product_is_even(&s->product, s->product.stride_a, &s->step_a);
    mg_product_is_even(&s->product, s->product.stride_b, &s->step_b);
    MG_TRY(mg_blas_open(s->device, &s->handle));
    return mg_blas_check(s->device, describe_all(s, t), "describe a product");
}

/* Whether cuBLASLt has any algorithm for the product; asking its heuristic takes microseconds. */
static const char *accepts_matmul(const mg_kernel_plan *plan) {
    cublasLtMatmulHeuristicResult_t list[OFFERED];
    const mg_product p = mg_product_of(plan);
    int64_t step;
    state *s;
    if (!mg_dtype_is_float(plan->out[0].value->dtype)) return "only floating dtypes";
    if (p.m == 0 || p.n == 0 || p.k == 0 || p.matrices == 0) return "nothing to multiply";
    if (p.m > INT32_MAX || p.n > INT32_MAX || p.k > INT32_MAX || p.matrices > INT32_MAX)
        return "too large";
    if (!mg_product_is_even(&p, p.stride_a, &step) || !mg_product_is_even(&p, p.stride_b, &step))
        return "the batch is broadcast along some of its axes only";
    const mg_status status = new_state(plan, p.relu, &s);
    const int n = s && status == MG_OK ? ask_heuristic(s, list) : 0;
    if (s) release_matmul(s);
    mg_error_clear();
    return n > 0 ? NULL : status == MG_UNSUPPORTED ? "there is no cuBLASLt" : "no algorithm";
}

/* Tries relu in the epilogue first. If no algorithm then keeps NaN, prepares the product again
 * without it. */
static mg_status prepare_matmul(mg_kernel_plan *plan) {
    bool relu = mg_product_of(plan).relu;
    state *s;
    mg_status status = new_state(plan, relu, &s);
    plan->state = s;
    if (status == MG_OK) status = choose_algorithm(s);
    if (status == MG_UNSUPPORTED && relu) {
        mg_error_clear();
        release_matmul(s);
        status = new_state(plan, false, &s);
        plan->state = s;
        if (status == MG_OK) status = choose_algorithm(s);
        if (status == MG_OK) status = mg_cuda_find_bias_relu(plan->device, s->dtype, &s->apart);
    }
    MG_TRY(status);
    plan->scratch = s->chosen.workspaceSize;
    return MG_OK;
}

/* Applies relu to the finished product, in place. */
static mg_status run_relu(const mg_call *call, const state *s) {
    const bias_relu_params p = {
        .y = call->out[0], .count = mg_shape_count(&call->plan->out[0].value->shape), .relu = 1};
    return mg_cuda_run_bias_relu(s->device, &s->apart, &p);
}

static mg_status run_matmul(const mg_call *call) {
    const state *s = call->plan->state;
    cublasStatus_t r = set_vector(s, s->product.sums   ? call->out[1]
                                     : s->product.bias ? call->in[2]
                                                       : NULL);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = multiply(s, &s->chosen, call->in[0], call->in[1], call->out[0], call->scratch);
    MG_TRY(mg_blas_check(s->device, r, "matmul"));
    return s->product.relu && !s->relu ? run_relu(call, s) : MG_OK;
}

const mg_kernel mg_cuda_blas_matmul = {.op = "matmul",
                                       .name = "cuBLASLt",
                                       .accepts = accepts_matmul,
                                       .prepare = prepare_matmul,
                                       .run = run_matmul,
                                       .release = release_matmul};

/* The fake cuBLASLt: matrix products with epilogues, as plain loops in double over column-major
 * matrices.
 *
 * It keeps the attributes that are set on its objects, and rejects sizes, types, alignments and
 * addresses that the real library rejects. It offers three algorithms, to exercise the code that
 * chooses: the first reports that it cannot be used, the last needs a workspace, which it
 * overwrites.
 *
 * This proves that our calls are consistent and that epilogues and layouts are set up correctly. It
 * says nothing about speed, about the real heuristics, or about rounding: sums here are in double.
 */
#include "fake_cuda.h"
#include <cublasLt.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of objects; bytes of workspace of the last algorithm; how many algorithms there are. */
enum { LAYOUT = 0x6c61, PRODUCT = 0x7072, PREFERENCE = 0x7066, SCRATCH = 4096, OFFERED = 3 };

/* The three kinds of objects begin with their kind. */
typedef struct layout {
    int kind;
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld, stride; /* elements from column to column, and from matrix to matrix */
    int32_t batch;      /* matrices */
} layout;

typedef struct product {
    int kind;
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t turn_a, turn_b; /* whether A and B are transposed */
    uint32_t epilogue;
    void *bias; /* the vector that an epilogue reads, or writes (BGRADA) */
} product;

typedef struct preference {
    int kind;
    uint64_t workspace; /* limit of the workspace, in bytes */
} preference;

/* An enqueued product. It has copies of all objects, since these may be destroyed before a graph is
 * replayed. */
typedef struct job {
    layout a, b, d;
    product what;
    const void *at_a, *at_b;
    void *at_d, *workspace;
    size_t bytes;
    double alpha;
} job;

/* ---- elements ---- */

static double f16_to_double(uint16_t v) {
    _Float16 h;
    memcpy(&h, &v, sizeof h);
    return (double)h;
}

/* Element i of an array, as a double. bfloat16 is the upper half of a float. */
static double load(const void *base, cudaDataType type, int64_t i) {
    uint32_t bits;
    float f;
    switch (type) {
    case CUDA_R_16F: return f16_to_double(((const uint16_t *)base)[i]);
    case CUDA_R_16BF:
        bits = (uint32_t)((const uint16_t *)base)[i] << 16;
        memcpy(&f, &bits, sizeof f);
        return f;
    case CUDA_R_32F: return ((const float *)base)[i];
    default: return ((const double *)base)[i];
    }
}

/* Rounds a double and stores it as element i. bfloat16 is rounded from float, to nearest, ties
 * to even. */
static void store(void *base, cudaDataType type, int64_t i, double v) {
    const _Float16 h = (_Float16)v;
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (type == CUDA_R_16F)
        memcpy((uint16_t *)base + i, &h, sizeof h);
    else if (type == CUDA_R_16BF)
        ((uint16_t *)base)[i] =
            (uint16_t)(v != v ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    else if (type == CUDA_R_32F)
        ((float *)base)[i] = f;
    else
        ((double *)base)[i] = v;
}

static size_t size_of(cudaDataType type) {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

/* Bytes from the first to the last element of all matrices. */
static size_t extent(const layout *l) {
    return ((size_t)(l->batch - 1) * (size_t)l->stride + (size_t)(l->columns - 1) * (size_t)l->ld +
            (size_t)l->rows) *
           size_of(l->type);
}

/* ---- the work ---- */

/* Element (i, j) of op(X): of the matrix, or of its transpose. */
static double element(const layout *l, const void *base, int32_t turn, int64_t i, int64_t j) {
    return load(base, l->type, turn ? i * l->ld + j : j * l->ld + i);
}

/* The epilogue of a sum in row i of D. With MGPU_FAKE_CUDA_NAN set, relu turns NaN into 0, as some
 * real kernels do. */
static double apply_epilogue(const job *w, int64_t i, double v) {
    const uint32_t e = w->what.epilogue;
    if (e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_RELU_BIAS)
        v += load(w->what.bias, w->d.type, i);
    const bool relu = e == CUBLASLT_EPILOGUE_RELU || e == CUBLASLT_EPILOGUE_RELU_BIAS;
    if (relu && v != v && getenv("MGPU_FAKE_CUDA_NAN")) return 0;
    return relu && v < 0 ? 0 : v;
}

/* The epilogue BGRADA: for each row of op(A), its sum over the inner axis; the gradient of a bias.
 */
static void sum_a(const job *w, int64_t inner) {
    for (int64_t i = 0; i < (int64_t)w->d.rows; i++) {
        double sum = 0;
        for (int64_t l = 0; l < inner; l++) sum += element(&w->a, w->at_a, w->what.turn_a, i, l);
        store(w->what.bias, w->d.type, i, sum);
    }
}

/* D = alpha * op(A) * op(B) for all matrices of the batch, with the epilogue; args: a job. */
static void run_product(void *args) {
    const job *w = args;
    if (fake_cuda_is_still()) return;
    const int64_t inner = (int64_t)(w->what.turn_a ? w->a.rows : w->a.columns);
    if (w->what.epilogue == CUBLASLT_EPILOGUE_BGRADA) sum_a(w, inner);
    /* An operand that overlaps the workspace would be destroyed: the result shows it. */
    if (w->workspace) memset(w->workspace, 0x5a, w->bytes);
    for (int64_t z = 0; z < w->d.batch; z++) {
        const char *a = (const char *)w->at_a + (size_t)(z * w->a.stride) * size_of(w->a.type);
        const char *b = (const char *)w->at_b + (size_t)(z * w->b.stride) * size_of(w->b.type);
        char *d = (char *)w->at_d + (size_t)(z * w->d.stride) * size_of(w->d.type);
        for (int64_t j = 0; j < (int64_t)w->d.columns; j++)
            for (int64_t i = 0; i < (int64_t)w->d.rows; i++) {
                double sum = 0;
                for (int64_t l = 0; l < inner; l++)
                    sum += element(&w->a, a, w->what.turn_a, i, l) *
                           element(&w->b, b, w->what.turn_b, l, j);
                store(d, w->d.type, j * w->d.ld + i, apply_epilogue(w, i, w->alpha * sum));
            }
    }
}

/* ---- objects ---- */

#define CALL(name)                                                                                 \
    const int failure = fake_cuda_enter(#name);                                                    \
    if (failure) return (cublasStatus_t)failure

/* Sets *handle to a copy of an object, which the matching Destroy frees. */
static cublasStatus_t give_object(void *handle, const void *object, size_t bytes) {
    void *own = malloc(bytes);
    if (!own) return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(own, object, bytes);
    memcpy(handle, &own, sizeof own);
    return CUBLAS_STATUS_SUCCESS;
}

/* The handle has no state; Destroy functions do not fail, so they are not counted. */
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    CALL(cublasLtCreate);
    const int any = 1;
    return give_object(handle, &any, sizeof any);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
    return CUBLAS_VERSION;
}

/* Names for the statuses that tests check. */
const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : status == CUBLAS_STATUS_INVALID_VALUE  ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_ALLOC_FAILED   ? "CUBLAS_STATUS_ALLOC_FAILED"
                                                    : "another status";
}

/* A column-major matrix: the leading dimension is at least the number of rows. */
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
    CALL(cublasLtMatrixLayoutCreate);
    const layout l = {
        .kind = LAYOUT, .type = type, .rows = rows, .columns = columns, .ld = ld, .batch = 1};
    if (!rows || !columns || ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    return give_object(made, &l, sizeof l);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

/* Sets an attribute, whose size must be right. */
static cublasStatus_t set_field(void *field, size_t size, const void *value, size_t bytes) {
    if (!value || size != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* Only the attributes that our code sets are known. */
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t bytes) {
    CALL(cublasLtMatrixLayoutSetAttribute);
    layout *l = (layout *)handle;
    switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set_field(&l->batch, sizeof l->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set_field(&l->stride, sizeof l->stride, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* alpha is a double exactly if the product is computed in double. */
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    CALL(cublasLtMatmulDescCreate);
    const product p = {
        .kind = PRODUCT, .compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    if ((compute == CUBLAS_COMPUTE_64F) != (scale == CUDA_R_64F))
        return CUBLAS_STATUS_INVALID_VALUE;
    return give_object(made, &p, sizeof p);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t p) {
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

/* The type of the bias is accepted and ignored: the bias has the type of D. */
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes) {
    CALL(cublasLtMatmulDescSetAttribute);
    product *p = (product *)handle;
    int32_t ignored;
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set_field(&p->turn_a, sizeof p->turn_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set_field(&p->turn_b, sizeof p->turn_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set_field(&p->epilogue, sizeof p->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set_field(&p->bias, sizeof p->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set_field(&ignored, sizeof ignored, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    CALL(cublasLtMatmulPreferenceCreate);
    const preference p = {.kind = PREFERENCE};
    return give_object(made, &p, sizeof p);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

/* Alignments are accepted and ignored; cublasLtMatmul checks the addresses themselves. */
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes) {
    CALL(cublasLtMatmulPreferenceSetAttribute);
    preference *p = (preference *)handle;
    uint32_t ignored;
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set_field(&p->workspace, sizeof p->workspace, value, bytes);
    return set_field(&ignored, sizeof ignored, value, bytes);
}

/* ---- products ---- */

/* Whether shapes, types and batches of a product go together. */
static bool fits(const product *p, const layout *a, const layout *b, const layout *d) {
    const uint64_t m = p->turn_a ? a->columns : a->rows, k = p->turn_a ? a->rows : a->columns;
    const uint64_t l = p->turn_b ? b->columns : b->rows, n = p->turn_b ? b->rows : b->columns;
    return p->kind == PRODUCT && a->kind == LAYOUT && b->kind == LAYOUT && d->kind == LAYOUT &&
           k == l && m == d->rows && n == d->columns && a->type == d->type && b->type == d->type &&
           a->batch == d->batch && b->batch == d->batch &&
           (d->type == CUDA_R_64F) == (p->compute == CUBLAS_COMPUTE_64F);
}

/* Whether the epilogue has a vector, of as many elements as D has rows. */
static bool has_vector(const product *p) {
    return p->epilogue == CUBLASLT_EPILOGUE_BIAS || p->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
           p->epilogue == CUBLASLT_EPILOGUE_BGRADA;
}

/* Lists the algorithms whose workspace the preference allows. Refused, as by the real library for
 * some types: epilogues with doubles, and BGRADA for a batch. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t what,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int wanted,
                                              cublasLtMatmulHeuristicResult_t list[], int *n) {
    CALL(cublasLtMatmulAlgoGetHeuristic);
    const product *p = (const product *)what;
    (void)c;
    *n = 0;
    if (!handle || !fits(p, (const layout *)a, (const layout *)b, (const layout *)d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->compute == CUBLAS_COMPUTE_64F && p->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p->epilogue == CUBLASLT_EPILOGUE_BGRADA && ((const layout *)d)->batch > 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_vector(p) && (!p->bias || (uintptr_t)p->bias % size_of(((const layout *)d)->type)))
        return CUBLAS_STATUS_INVALID_VALUE; /* the bias must be set before, with its alignment */
    for (int i = 0; i < OFFERED && i < wanted; i++) {
        list[i] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
        /* Refused in its own entry, as the real library may do: the caller must look at each state.
         */
        if (i == 0) list[i].state = CUBLAS_STATUS_NOT_SUPPORTED;
        list[i].algo.data[0] = (uint64_t)i;
        list[i].workspaceSize = i == OFFERED - 1 ? SCRATCH : 0;
        if (list[i].workspaceSize <= ((const preference *)wish)->workspace) *n = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Checks everything that the real library would read or reject, then enqueues the product. C and
 * beta are not used by our code. */
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t what, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream) {
    CALL(cublasLtMatmul);
    const product *p = (const product *)what;
    (void)c, (void)lc, (void)beta;
    job w = {.what = *p,
             .at_a = a,
             .at_b = b,
             .at_d = d,
             .workspace = bytes ? workspace : NULL,
             .bytes = bytes};
    memcpy(&w.a, la, sizeof w.a);
    memcpy(&w.b, lb, sizeof w.b);
    memcpy(&w.d, ld, sizeof w.d);
    w.alpha = load(alpha, p->scale, 0); /* the host's, of the scale type; beta is always 0 */
    if (!handle || !fits(p, &w.a, &w.b, &w.d) || !algo || !algo->data[0])
        return CUBLAS_STATUS_INVALID_VALUE;
    /* Algorithm 2 needs its workspace, in device memory. */
    if (algo->data[0] == 2 && (bytes < SCRATCH || !fake_cuda_owns(workspace, bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes && (uintptr_t)workspace % 256) return CUBLAS_STATUS_INVALID_VALUE;
    /* The alignment that our code declares in the preference. */
    if ((uintptr_t)a % 16 || (uintptr_t)b % 16 || (uintptr_t)d % 16)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!fake_cuda_owns(a, extent(&w.a)) || !fake_cuda_owns(b, extent(&w.b)) ||
        !fake_cuda_owns(d, extent(&w.d)) ||
        (has_vector(p) && !fake_cuda_owns(p->bias, w.d.rows * size_of(w.d.type))))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return fake_cuda_enqueue((CUstream)stream, "cublasLtMatmul", run_product, &w, sizeof w) ==
                   CUDA_SUCCESS
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

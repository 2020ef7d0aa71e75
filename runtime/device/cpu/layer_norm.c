/* layer_norm, layer_norm_grad and layer_norm_reduce. Threads share the rows; a row is read several
 * times while it is in the cache (simd/layer_norm_loops.h).
 *
 * layer_norm_reduce sums over rows. It takes CHUNK rows together, so that the order of its
 * additions depends on the shape only. */
#include "device/cpu/cpu.h"
#include "ops/attrs.h"

enum { CHUNK = 128 }; /* rows that layer_norm_reduce takes together */

/* The rows of x. */
typedef struct rows { /* of x */
    int64_t n, length, size;
    double epsilon;
    const mg_simd_layer_norm *loops;
} rows;

/* Every op here has x as input 0. */
static rows rows_of(const mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const int64_t length = x->shape.dim[x->shape.rank - 1], count = mg_shape_count(&x->shape);
    return (rows){.n = length ? count / length : 0,
                  .length = length,
                  .size = (int64_t)mg_dtype_size(x->dtype),
                  .epsilon = ((const mg_norm_attrs *)plan->step->attrs)->epsilon,
                  .loops = mg_simd_used->layer_norm[mg_simd_index(x->dtype)]};
}

/* Halves are upcast first. */
static const char *layer_norm_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

/* The address of row i. */
static void *row_at(void *base, const rows *r, int64_t i) {
    return (char *)base + i * r->length * r->size;
}

/* Rows that are computed together: few enough to stay in the first-level cache. */
static int64_t rows_of_block(const rows *r) {
    enum { NUMBERS = 2048 };
    const int64_t n = r->length ? NUMBERS / r->length : 1;
    return n < 1 ? 1 : n > MG_NORM_ROWS ? MG_NORM_ROWS : n;
}

/* y = (x - mean) / deviation * gamma + beta. */
static mg_status layer_norm_run(const mg_call *call) {
    const rows r = rows_of(call->plan);
    const int64_t block = rows_of_block(&r);
#pragma omp parallel for schedule(static) if (r.n * r.length > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < r.n; i += block)
        r.loops->normalise_rows(row_at(call->in[0], &r, i), call->in[1], call->in[2],
                                row_at(call->out[0], &r, i), r.n - i < block ? r.n - i : block,
                                r.length, r.epsilon);
    return MG_OK;
}

/* dx from x, gamma and dy. */
static mg_status layer_norm_grad_run(const mg_call *call) {
    const rows r = rows_of(call->plan);
    const int64_t block = rows_of_block(&r);
#pragma omp parallel for schedule(static) if (r.n * r.length > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < r.n; i += block) {
        const mg_layer_norm_rows these = {
            .x = row_at(call->in[0], &r, i),
            .gamma = call->in[1],
            .dy = row_at(call->in[2], &r, i),
            .dx = row_at(call->out[0], &r, i),
            .n = r.n - i < block ? r.n - i : block,
            .length = r.length,
            .few = block,
            .epsilon = r.epsilon,
        };
        r.loops->gradients(&these);
    }
    return MG_OK;
}

/* Chunks of rows, the last one perhaps shorter. */
static int64_t chunks_of(const rows *r) {
    return (r->n + CHUNK - 1) / CHUNK;
}

/* Scratch: the sums {2, length} of each chunk, their total, and partial sums of each chunk. */
static mg_status layer_norm_reduce_prepare(mg_kernel_plan *plan) {
    const rows r = rows_of(plan);
    const int64_t chunks = chunks_of(&r), width = 2 * r.length;
    plan->scratch =
        (size_t)((chunks + 1) * width) * sizeof(double) + (size_t)(chunks * width) * (size_t)r.size;
    return MG_OK;
}

/* The result {2, length}: dgamma's and dbeta's sums. Chunks are summed side by side, then added in
 * their order. */
static mg_status layer_norm_reduce_run(const mg_call *call) {
    const rows r = rows_of(call->plan);
    const int64_t chunks = chunks_of(&r), width = 2 * r.length, block = rows_of_block(&r);
    double *parts = call->scratch, *total = parts + chunks * width;
    char *partial = (char *)(total + width);
#pragma omp parallel for schedule(static) if (r.n * r.length > MG_SERIAL_BELOW)
    for (int64_t k = 0; k < chunks; k++) {
        const int64_t first = k * CHUNK, left = r.n - first;
        double *part = parts + k * width;
        for (int64_t j = 0; j < width; j++) part[j] = 0;
        const mg_layer_norm_rows these = {
            .x = row_at(call->in[0], &r, first),
            .dy = row_at(call->in[1], &r, first),
            .sums = part,
            .partial = partial + k * width * r.size,
            .n = left < CHUNK ? left : CHUNK,
            .length = r.length,
            .few = block,
            .epsilon = r.epsilon,
        };
        r.loops->gradients(&these);
    }
    /* the chunks in order, whichever thread made them */
    for (int64_t j = 0; j < width; j++) total[j] = 0;
    for (int64_t k = 0; k < chunks; k++)
        for (int64_t j = 0; j < width; j++) total[j] += parts[k * width + j];
    for (int64_t j = 0; j < width; j++) {
        if (r.size == sizeof(float))
            ((float *)call->out[0])[j] = (float)total[j];
        else
            ((double *)call->out[0])[j] = total[j];
    }
    return MG_OK;
}

#define KERNEL(id) .op = #id, .name = #id, .accepts = layer_norm_accepts

const mg_kernel mg_cpu_layer_norm = {KERNEL(layer_norm), .run = layer_norm_run};
const mg_kernel mg_cpu_layer_norm_grad = {KERNEL(layer_norm_grad), .run = layer_norm_grad_run};
const mg_kernel mg_cpu_layer_norm_reduce = {
    KERNEL(layer_norm_reduce), .prepare = layer_norm_reduce_prepare, .run = layer_norm_reduce_run};

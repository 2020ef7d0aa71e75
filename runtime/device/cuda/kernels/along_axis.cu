/* Kernels along one axis of {outer, n, inner}: take_along_axis, scatter_along_axis, linear_scan,
 * argsort of lines that fit a block, and scatter_last. See ops/along_axis.c for what they mean. */
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/movement_params.h"

#define MG_FORMULA DEVICE
#include "ops/sort_formulas.h"

/* ---- take_along_axis ---- */

/* A thread makes an element of {outer, k, inner} at a time. */
#define TAKE(unit)                                                                                 \
    KERNEL(take_##unit, along_params) {                                                            \
        for (int64_t i = FIRST; i < p.count; i += STEP) {                                          \
            const uint32_t row = mg_divide((uint32_t)i, p.inner);                                  \
            const uint32_t outer = mg_divide(row, p.k), j = (uint32_t)i - row * p.inner.n;         \
            const int64_t id = mg_id(p.ids, p.id_bytes, p.by_row ? row : i);                       \
            const int64_t at = ((int64_t)outer * p.n + id) * p.inner.n + j;                        \
            ((unit *)p.out)[i] =                                                                   \
                id >= 0 && id < p.n ? ((const unit *)p.x)[at] : *(const unit *)p.value;            \
        }                                                                                          \
    }
TAKE(unit_1)
TAKE(unit_2)
TAKE(unit_4)
TAKE(unit_8)

/* ---- scatter_last ---- */

/* The result was set to -1. The order of the threads does not matter: the largest position stays.
 */
KERNEL(scatter_last, along_params) {
    for (int64_t i = FIRST; i < p.count; i += STEP) {
        const int64_t id = mg_id(p.ids, p.id_bytes, i);
        if (id >= 0 && id < p.n) atomicMax((int *)p.out + id, (int)i);
    }
}

/* ---- argsort ---- */

/* The key of element i of x, by the dtype. */
DEVICE uint64_t mg_sort_key(const sort_lines_params *p, int64_t i) {
    const uint64_t top = 1ull << 63;
    if (p->type == MG_SORT_F64) {
        const double v = mg_load_f64(p->x, i);
        return mg_sort_key_of_float(((const uint64_t *)p->x)[i], top, v != v, p->flip);
    }
    if (p->type == MG_SORT_I64)
        return mg_sort_key_of_integer(((const uint64_t *)p->x)[i], top, ~0ull, p->flip);
    if (p->type == MG_SORT_I32)
        return mg_sort_key_of_integer(((const uint32_t *)p->x)[i], 1u << 31, ~0u, p->flip);
    if (p->type == MG_SORT_U8)
        return mg_sort_key_of_integer(((const uint8_t *)p->x)[i], 0, 255, p->flip);
    if (p->type == MG_SORT_BOOL)
        return mg_sort_key_of_integer(((const uint8_t *)p->x)[i] != 0, 0, 255, p->flip);
    const float v = p->type == MG_SORT_F32   ? mg_load_f32(p->x, i)
                    : p->type == MG_SORT_F16 ? mg_load_f16(p->x, i)
                                             : mg_load_bf16(p->x, i);
    return mg_sort_key_of_float(__float_as_uint(v), 1u << 31, v != v, p->flip);
}

/* A bitonic sort of (key, position) in shared memory; a block takes a line. p.room is a power of
 * two; entries beyond the line sort last. Since entries contain the position, no two are equal, and
 * equal elements keep their order. */
KERNEL(sort_lines, sort_lines_params) {
    __shared__ uint64_t key[MG_SORT_ROOM];
    __shared__ uint32_t at[MG_SORT_ROOM];
    for (int64_t line = blockIdx.x; line < p.lines; line += gridDim.x) {
        const int64_t outer = line / p.inner, j = line % p.inner;
        for (int i = threadIdx.x; i < p.room; i += blockDim.x) {
            key[i] = i < p.n ? mg_sort_key(&p, (outer * p.n + i) * p.inner + j) : ~0ull;
            at[i] = i < p.n ? (uint32_t)i : ~0u;
        }
        __syncthreads();
        for (int run = 2; run <= p.room; run *= 2)
            for (int apart = run / 2; apart > 0; apart /= 2) {
                for (int i = threadIdx.x; i < p.room; i += blockDim.x) {
                    const int other = i ^ apart;
                    if (other < i) continue;
                    const bool after =
                        key[i] > key[other] || (key[i] == key[other] && at[i] > at[other]);
                    if (after != ((i & run) == 0)) continue;
                    const uint64_t moved = key[i];
                    const uint32_t from = at[i];
                    key[i] = key[other], at[i] = at[other];
                    key[other] = moved, at[other] = from;
                }
                __syncthreads();
            }
        for (int i = threadIdx.x; i < p.count; i += blockDim.x)
            p.out[(outer * p.count + i) * p.inner + j] = (int)at[i];
        __syncthreads();
    }
}

#define BODY "device/cuda/kernels/along_axis_body.h"
#include "device/cuda/kernels/each_float.h"

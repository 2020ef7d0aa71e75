/* add_parts: adds n partial sums {n, count} that the blocks of another kernel left, to out {count}.
 *
 * Partial sums have the type that is computed with (float, or double for f64) and are rounded to
 * the dtype once, at the end. A block takes MG_PARTS_WIDTH neighbouring elements and has one lane
 * of threads for each LANES-th part; the lanes are then added as a tree. The order depends on sizes
 * only, so the bits are the same every time, which atomics would not give. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/layer_params.h"

enum { LANES = MG_PARTS_THREADS / MG_PARTS_WIDTH };

#define ADD_PARTS(dtype, REAL)                                                                     \
    KERNEL(add_parts_##dtype, parts_params) {                                                      \
        __shared__ REAL cells[MG_PARTS_THREADS];                                                   \
        const int t = threadIdx.x, lane = t / MG_PARTS_WIDTH;                                      \
        const int64_t i = (int64_t)blockIdx.x * MG_PARTS_WIDTH + t % MG_PARTS_WIDTH;               \
        REAL sum = 0;                                                                              \
        for (int64_t k = lane; k < p.n && i < p.count; k += LANES)                                 \
            sum += ((const REAL *)p.parts)[k * p.count + i];                                       \
        cells[t] = sum;                                                                            \
        for (int half = LANES / 2; half > 0; half /= 2) {                                          \
            __syncthreads();                                                                       \
            if (lane < half) cells[t] += cells[t + half * MG_PARTS_WIDTH];                         \
        }                                                                                          \
        if (lane == 0 && i < p.count) mg_store_##dtype(p.out, i, cells[t]);                        \
    }
ADD_PARTS(f16, float)
ADD_PARTS(bf16, float)
ADD_PARTS(f32, float)
ADD_PARTS(f64, double)

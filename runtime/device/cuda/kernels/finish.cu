/* Kernels that finish the results of other kernels: adding up partial sums; bias and relu. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/layer_params.h"

/* add_parts: adds n partial sums {n, count} that the blocks of another kernel left, to out {count}.
 *
 * Partial sums have the arithmetic type (float, or double for f64) and are rounded to the dtype
 * once, at the end. A block takes MG_PARTS_WIDTH neighbouring elements and has one lane of threads
 * for each LANES-th part; the lanes are then added as a tree. The order depends on sizes only, so
 * the bits are the same every time, which atomics would not give. */
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

/* bias_relu: y = relu(y + bias), in place; the bias has one element per channel (last axis). Runs
 * after a library's kernel that cannot do this as its epilogue. relu(NaN) is NaN. */

/* One element, in float whatever the dtype. NaN < 0 is false, so NaN passes. */
DEVICE float mg_bias_relu(float v, float bias, int relu) {
    v += bias;
    return relu && v < 0 ? 0 : v;
}

/* bias_relu_<dtype>: a thread takes one element at a time. bias_relu_vector_<dtype>: a thread takes
 * MG_BIAS_VECTOR elements in one access. The host chooses the number of threads so that the grid's
 * stride is a multiple of the channels; a thread then has the same channels in each turn and loads
 * their bias once. */
#define BIAS_RELU(dtype, stored)                                                                   \
    KERNEL(bias_relu_##dtype, bias_relu_params) {                                                  \
        for (int64_t i = FIRST; i < p.count; i += STEP) {                                          \
            const float bias = p.bias ? mg_load_##dtype(p.bias, i % p.channels) : 0;               \
            mg_store_##dtype(p.y, i, mg_bias_relu(mg_load_##dtype(p.y, i), bias, p.relu));         \
        }                                                                                          \
    }                                                                                              \
    KERNEL(bias_relu_vector_##dtype, bias_relu_params) {                                           \
        typedef struct vector {                                                                    \
            stored at[MG_BIAS_VECTOR];                                                             \
        } __attribute__((aligned(sizeof(stored) * MG_BIAS_VECTOR))) vector;                        \
        const int64_t c = p.bias ? FIRST * MG_BIAS_VECTOR % p.channels : 0;                        \
        float bias[MG_BIAS_VECTOR];                                                                \
        for (int k = 0; k < MG_BIAS_VECTOR; k++)                                                   \
            bias[k] = p.bias ? mg_load_##dtype(p.bias, c + k) : 0;                                 \
        for (int64_t i = FIRST; i < p.count / MG_BIAS_VECTOR; i += STEP) {                         \
            vector v = ((vector *)p.y)[i];                                                         \
            for (int k = 0; k < MG_BIAS_VECTOR; k++)                                               \
                mg_store_##dtype(v.at, k,                                                          \
                                 mg_bias_relu(mg_load_##dtype(v.at, k), bias[k], p.relu));         \
            ((vector *)p.y)[i] = v;                                                                \
        }                                                                                          \
    }
BIAS_RELU(bf16, uint16_t)
BIAS_RELU(f16, uint16_t)
BIAS_RELU(f32, float)

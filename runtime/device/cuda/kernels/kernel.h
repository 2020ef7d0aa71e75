/* The language that kernels are written in: the common subset of C11 and CUDA C.
 *
 * Three compilers read the same kernel text:
 *
 *     nvcc    compiles kernels/<file>.cu when the plug-in is built; the plug-in carries the images
 *     NVRTC   compiles generated kernels on the user's machine (fused.h, reduce.h, scan.h and all
 *             they include; codegen/nvrtc.c carries those headers as text)
 *     gcc     compiles both as C for the fake CUDA of the tests (tests/cuda/fake_cuda), which runs
 *             them block by block on the CPU
 *
 * C has no templates, overloads or references, so macros choose the element type. That decides how
 * the files of this folder are split:
 *
 *     <name>.cu         one image: the includes, and one instance of the kernels for each dtype
 *     <name>_body.h     kernels for one floating dtype; each_float.h includes the body four times.
 *                       It is a separate file because it must be included to be instantiated
 *     *_params.h        the parameter structs, which the host code includes too
 *
 * A kernel takes one struct by value, which its body knows as `p`:
 *
 *     KERNEL(fill_u32, fill_params) {
 *         for (int64_t i = FIRST; i < p.n; i += STEP) ((uint32_t *)p.out)[i] = p.value;
 *     }
 *
 * A kernel may use blockIdx, threadIdx, blockDim and gridDim (x, y, z), __syncthreads,
 * __threadfence, shuffles and votes with a full mask and no width, __shared__ arrays, SHARED
 * memory, and atomicAdd, atomicMin, atomicMax, atomicExch and atomicCAS. All threads of a block
 * must reach each barrier and all threads of a warp each shuffle, so kernels with shuffles are
 * launched with whole warps. 16-bit floats are uint16_t in memory and are computed with as float.
 */
#ifndef MG_DEVICE_CUDA_KERNEL_H
#define MG_DEVICE_CUDA_KERNEL_H

#ifdef __CUDACC__
#define KERNEL(name, type) extern "C" __global__ void name(const __grid_constant__ type p)
/* A kernel that is compiled so that `blocks` blocks of `threads` threads fit on a multiprocessor at
 * once: the compiler limits the registers of a thread accordingly. */
#define KERNEL_FULL(name, type, threads, blocks)                                                   \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ type p)
#define DEVICE static __device__ __forceinline__
/* A variable in device memory, 0 when the image is loaded. */
#define GLOBAL static __device__
/* Declares `type *name`: the block's dynamic shared memory, whose size the launch gives. */
#define SHARED(type, name)                                                                         \
    extern __shared__ __align__(16) unsigned char mg_shared[];                                     \
    type *const name = (type *)mg_shared
#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
#else
#include <stdint.h>
#endif
#endif /* else the compiler is gcc, and the fake CUDA's cuda_as_c.h has been included before */

/* A grid-wide loop over elements: a thread starts at FIRST and steps over the whole grid. */
#define FIRST ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((int64_t)gridDim.x * blockDim.x)

enum { MG_WARP = 32 }; /* threads */

/* ---- 16-bit floats ----
 *
 * Conversions to 16 bits round to nearest, ties to even; NaN stays NaN. */

DEVICE float mg_bf16_to_float(uint16_t v) {
    return __uint_as_float((uint32_t)v << 16);
}

DEVICE uint16_t mg_float_to_bf16(float v) {
    const uint32_t u = __float_as_uint(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

#ifdef __CUDACC__
DEVICE float mg_f16_to_float(uint16_t v) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(v));
    return y;
}

DEVICE uint16_t mg_float_to_f16(float v) {
    uint16_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(v));
    return y;
}
#endif

/* double to float with "round to odd": a double between two floats becomes the odd one, whose
 * last bit is set. Rounding that float to 16 bits gives the same result as rounding the double
 * directly, whereas two roundings to nearest could differ by one unit in the last place. */
DEVICE float mg_double_to_odd(double v) {
    const float f = (float)v;
    const uint32_t u = __float_as_uint(f);
    if ((double)f == v || (u & 0x7f800000u) == 0x7f800000u) return f;
    return __uint_as_float((fabs((double)f) > fabs(v) ? u - 1 : u) | 1u);
}

DEVICE uint16_t mg_double_to_bf16(double v) {
    return mg_float_to_bf16(mg_double_to_odd(v));
}

DEVICE uint16_t mg_double_to_f16(double v) {
    return mg_float_to_f16(mg_double_to_odd(v));
}

/* ---- doubles to integers: truncated, saturated at the type's limits, NaN becomes 0 ---- */

DEVICE uint8_t mg_to_u8(double v) {
    return v >= 255.0 ? 255 : v > 0.0 ? (uint8_t)v : 0;
}

DEVICE int32_t mg_to_i32(double v) {
    if (v != v) return 0;
    if (v <= -2147483648.0) return -2147483647 - 1;
    return v >= 2147483647.0 ? 2147483647 : (int32_t)v;
}

DEVICE int64_t mg_to_i64(double v) {
    const int64_t most = 0x7fffffffffffffff;
    if (v != v) return 0;
    if (v <= -9223372036854775808.0) return -most - 1;
    return v >= 9223372036854775808.0 ? most : (int64_t)v;
}

/* ---- elements by dtype: mg_load_f16(base, i), mg_store_f16(base, i, value) ----
 *
 * bool, bf16, f16 and f32 are loaded as float and stored from float; u8, i32, i64 and f64 are
 * loaded and stored in their own type. */

#define MG_ELEMENT(dtype, stored, computed, LOADED, STORED)                                        \
    DEVICE computed mg_load_##dtype(const void *base, int64_t i) {                                 \
        return LOADED(((const stored *)base)[i]);                                                  \
    }                                                                                              \
    DEVICE void mg_store_##dtype(void *base, int64_t i, computed v) {                              \
        ((stored *)base)[i] = STORED(v);                                                           \
    }

MG_ELEMENT(bool, uint8_t, float, 0 !=, 0 !=)
MG_ELEMENT(u8, uint8_t, uint8_t, , )
MG_ELEMENT(i32, int32_t, int32_t, , )
MG_ELEMENT(i64, int64_t, int64_t, , )
MG_ELEMENT(bf16, uint16_t, float, mg_bf16_to_float, mg_float_to_bf16)
MG_ELEMENT(f16, uint16_t, float, mg_f16_to_float, mg_float_to_f16)
MG_ELEMENT(f32, float, float, , )
MG_ELEMENT(f64, double, double, , )

/* ---- reductions over the threads of a warp or block ----
 *
 * Every thread passes its own variable `v` of `type`; afterwards `v` holds OP over all of them in
 * each thread. The order is fixed, so floating-point results are the same in every run. A block
 * must be one-dimensional and consist of whole warps. `cells` is shared memory for 32 values (one
 * per warp), which may be reused afterwards. */

/* Butterfly exchange: after each step, groups of twice as many lanes hold the same value. */
#define WARP_REDUCE(type, v, OP)                                                                   \
    for (int mg_lane = MG_WARP / 2; mg_lane > 0; mg_lane /= 2) {                                   \
        const type mg_other = __shfl_xor_sync(0xffffffffu, v, mg_lane);                            \
        v = OP(v, mg_other);                                                                       \
    }

/* Each warp reduces its values, then every thread reads the warps' results in order. The second
 * barrier lets the next BLOCK_REDUCE write `cells` again. */
#define BLOCK_REDUCE(type, v, OP, cells)                                                           \
    do {                                                                                           \
        WARP_REDUCE(type, v, OP)                                                                   \
        if (threadIdx.x % MG_WARP == 0) (cells)[threadIdx.x / MG_WARP] = v;                        \
        __syncthreads();                                                                           \
        v = (cells)[0];                                                                            \
        for (int mg_warp = 1; mg_warp < (int)blockDim.x / MG_WARP; mg_warp++)                      \
            v = OP(v, (cells)[mg_warp]);                                                           \
        __syncthreads();                                                                           \
    } while (0)

#define MG_ADD(a, b) ((a) + (b))
/* NaN propagates: if one operand is NaN, so is the result. */
#define MG_MAX(a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))
#define MG_MIN(a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))

#endif

/* What kernels are written in: the common subset of C11 and CUDA C.
 *
 * The same text is compiled by nvcc (kernels/<file>.cu), by NVRTC (generated kernels) and, as C, by
 * the host's compiler, which runs it block by block in tests. So: no templates, no overloading, no
 * references; types are chosen by macro, a body file being included once per type. A kernel takes
 * one struct by value:
 *
 *     KERNEL(fill_u32, fill_params) {
 *         for (int64_t i = FIRST; i < p.n; i += STEP) ((uint32_t *)p.out)[i] = p.value;
 *     }
 *
 * and has blockIdx.x, threadIdx.x, blockDim.x, gridDim.x, __syncthreads, shuffles with a full mask,
 * __shared__ arrays, and atomicAdd of int, unsigned long long, float and double. All threads of a
 * block must reach each barrier. 16-bit floats are uint16_t in memory, converted by mg_load/store.
 */
#ifndef MG_DEVICE_CUDA_KERNEL_H
#define MG_DEVICE_CUDA_KERNEL_H

#ifdef __CUDACC__
#define KERNEL(name, type) extern "C" __global__ void name(const __grid_constant__ type p)
#define DEVICE static __device__ __forceinline__
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
#endif /* else: the header that stands in for CUDA has been included before */

/* The elements of a grid-wide loop. */
#define FIRST ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((int64_t)gridDim.x * blockDim.x)

/* ---- 16-bit floats ---- */

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

#endif

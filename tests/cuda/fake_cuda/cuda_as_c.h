/* CUDA's built-ins for kernels that are compiled as C: included before their text.
 *
 * Single threads take turns (see threads.h), so what is atomic on a GPU is a plain statement here.
 * Only what the common subset of kernel.h has, and what a kernel may call besides, is here: what is
 * missing does not compile. */
#ifndef CUDA_AS_C_H
#define CUDA_AS_C_H

#include "threads.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

/* No macro, as <stdbool.h> has it: kernels paste names of types together. */
typedef _Bool bool;
#define true 1
#define false 0

/* ---- kernels and memory ---- */

/* The linker's names for where that section begins and ends. */
extern unsigned char __start_standin_shared[] __attribute__((weak, visibility("hidden")));
extern unsigned char __stop_standin_shared[] __attribute__((weak, visibility("hidden")));

#define KERNEL(name, type) STANDIN_KERNEL(name, type)
#define KERNEL_FULL(name, type, threads, blocks) STANDIN_KERNEL(name, type)
#define STANDIN_KERNEL(kernel, type)                                                               \
    static void kernel(const type p);                                                              \
    static void standin_run_##kernel(const void *standin_params) {                                 \
        do kernel(*(const type *)standin_params);                                                  \
        while (standin_next_thread());                                                             \
    }                                                                                              \
    const standin_kernel standin_kernel_##kernel = {#kernel, sizeof(type), standin_run_##kernel,   \
                                                    __start_standin_shared,                        \
                                                    __stop_standin_shared};                        \
    static void kernel(const type p)

#define DEVICE static inline __attribute__((unused))
#define SHARED(type, name) type *const name = (type *)(void *)standin_dynamic
/* Kernels run one at a time, and their blocks too. */
#define __shared__ static __attribute__((section("standin_shared")))
#define __constant__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx standin_at.thread
#define blockIdx standin_at.block
#define blockDim standin_at.threads
#define gridDim standin_at.blocks
#define warpSize 32

#define __ldg(p) (*(p))
#define __ldcs(p) (*(p))
#define __ldcg(p) (*(p))
#define __stcs(p, v) ((void)(*(p) = (v)))
#define __stcg(p, v) ((void)(*(p) = (v)))

#define STANDIN_VECTOR2(name, type, size)                                                          \
    typedef struct __attribute__((aligned(size), may_alias)) name##2 {                             \
        type x, y;                                                                                 \
    }                                                                                              \
    name##2;                                                                                       \
    DEVICE name##2 make_##name##2(type x, type y) {                                                \
        return (name##2){x, y};                                                                    \
    }
#define STANDIN_VECTOR4(name, type, size)                                                          \
    STANDIN_VECTOR2(name, type, size / 2)                                                          \
    typedef struct __attribute__((aligned(size), may_alias)) name##4 {                             \
        type x, y, z, w;                                                                           \
    }                                                                                              \
    name##4;                                                                                       \
    DEVICE name##4 make_##name##4(type x, type y, type z, type w) {                                \
        return (name##4){x, y, z, w};                                                              \
    }

STANDIN_VECTOR4(char, signed char, 4)
STANDIN_VECTOR4(uchar, unsigned char, 4)
STANDIN_VECTOR4(short, short, 8)
STANDIN_VECTOR4(ushort, unsigned short, 8)
STANDIN_VECTOR4(int, int, 16)
STANDIN_VECTOR4(uint, unsigned, 16)
STANDIN_VECTOR4(float, float, 16)
STANDIN_VECTOR2(longlong, long long, 16)
STANDIN_VECTOR2(ulonglong, unsigned long long, 16)
STANDIN_VECTOR2(double, double, 16)

/* ---- among threads ---- */

#define __syncthreads() standin_sync_threads()
#define __syncwarp() standin_sync_warp(0xffffffffu)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

#define STANDIN_SHUFFLE(mask, v, from)                                                             \
    __extension__({                                                                                \
        __typeof__((v)) standin_v = (v);                                                           \
        standin_shuffle(mask, &standin_v, sizeof standin_v, from);                                 \
        standin_v;                                                                                 \
    })
#define __shfl_sync(mask, v, from) STANDIN_SHUFFLE(mask, v, (int)(from)&31)
#define __shfl_up_sync(mask, v, by) STANDIN_SHUFFLE(mask, v, standin_lane() - (int)(by))
#define __shfl_down_sync(mask, v, by) STANDIN_SHUFFLE(mask, v, standin_lane() + (int)(by))
#define __shfl_xor_sync(mask, v, with) STANDIN_SHUFFLE(mask, v, standin_lane() ^ (int)(with))
#define __ballot_sync(mask, predicate) standin_ballot(mask, (predicate) != 0)
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, predicate) == 0xffffffffu)

/* What was at `p`, where now stands `next`, in which `standin_old` is the old one. */
#define STANDIN_ATOMIC(p, v, next)                                                                 \
    __extension__({                                                                                \
        __typeof__(&*(p)) standin_p = (p);                                                         \
        const __typeof__(*(p)) standin_old = *standin_p, standin_new = (v);                        \
        *standin_p = (next);                                                                       \
        standin_old;                                                                               \
    })
#define atomicAdd(p, v) STANDIN_ATOMIC(p, v, standin_old + standin_new)
#define atomicSub(p, v) STANDIN_ATOMIC(p, v, standin_old - standin_new)
#define atomicMax(p, v) STANDIN_ATOMIC(p, v, standin_old > standin_new ? standin_old : standin_new)
#define atomicMin(p, v) STANDIN_ATOMIC(p, v, standin_old < standin_new ? standin_old : standin_new)
#define atomicAnd(p, v) STANDIN_ATOMIC(p, v, standin_old &standin_new)
#define atomicOr(p, v) STANDIN_ATOMIC(p, v, standin_old | standin_new)
#define atomicExch(p, v) STANDIN_ATOMIC(p, v, standin_new)
#define atomicCAS(p, expected, v)                                                                  \
    STANDIN_ATOMIC(p, v, standin_old == (expected) ? standin_new : standin_old)

/* ---- numbers ---- */

#define STANDIN_BITS(name, from, to)                                                               \
    DEVICE to name(from v) {                                                                       \
        to bits;                                                                                   \
        _Static_assert(sizeof bits == sizeof v, "as many bits");                                   \
        memcpy(&bits, &v, sizeof bits);                                                            \
        return bits;                                                                               \
    }

STANDIN_BITS(__float_as_uint, float, unsigned)
STANDIN_BITS(__uint_as_float, unsigned, float)
STANDIN_BITS(__float_as_int, float, int)
STANDIN_BITS(__int_as_float, int, float)
STANDIN_BITS(__double_as_longlong, double, long long)
STANDIN_BITS(__longlong_as_double, long long, double)

#define STANDIN_ROUNDED(suffix, type, root)                                                        \
    DEVICE type __##suffix##add_rn(type a, type b) {                                               \
        return a + b;                                                                              \
    }                                                                                              \
    DEVICE type __##suffix##sub_rn(type a, type b) {                                               \
        return a - b;                                                                              \
    }                                                                                              \
    DEVICE type __##suffix##mul_rn(type a, type b) {                                               \
        return a * b;                                                                              \
    }                                                                                              \
    DEVICE type __##suffix##div_rn(type a, type b) {                                               \
        return a / b;                                                                              \
    }                                                                                              \
    DEVICE type __##suffix##sqrt_rn(type a) {                                                      \
        return root(a);                                                                            \
    }                                                                                              \
    DEVICE type __##suffix##rcp_rn(type a) {                                                       \
        return 1 / a;                                                                              \
    }

STANDIN_ROUNDED(f, float, sqrtf)
STANDIN_ROUNDED(d, double, sqrt)

#define __fmaf_rn fmaf
#define __fma_rn fma
#define __expf expf
#define __logf logf
#define __log2f log2f
#define __sinf sinf
#define __cosf cosf
#define __powf powf
#define __fdividef(a, b) ((float)(a) / (float)(b))
#define __saturatef(v) fminf(fmaxf(v, 0.0f), 1.0f)
#define exp10f(v) powf(10.0f, v)
#define rsqrtf(v) (1.0f / sqrtf(v))
#define rsqrt(v) (1.0 / sqrt(v))
#define __frsqrt_rn(v) ((float)(1.0 / sqrt((double)(float)(v))))
#define sincosf(v, s, c) ((void)(*(s) = sinf(v), *(c) = cosf(v)))
#define sincos(v, s, c) ((void)(*(s) = sin(v), *(c) = cos(v)))
#define sinpif(v) ((float)sin(3.14159265358979323846 * fmod((double)(float)(v), 2)))
#define cospif(v) ((float)cos(3.14159265358979323846 * fmod((double)(float)(v), 2)))

#define STANDIN_CHOOSE(a, b, how)                                                                  \
    __extension__({                                                                                \
        const __typeof__((a) + (b)) standin_a = (a), standin_b = (b);                              \
        standin_a how standin_b ? standin_a : standin_b;                                           \
    })
#define max(a, b) STANDIN_CHOOSE(a, b, >)
#define min(a, b) STANDIN_CHOOSE(a, b, <)

#define __popc(v) __builtin_popcount(v)
#define __popcll(v) __builtin_popcountll(v)
#define __clz(v) ((v) ? __builtin_clz((unsigned)(v)) : 32)
#define __clzll(v) ((v) ? __builtin_clzll((unsigned long long)(v)) : 64)
#define __ffs(v) __builtin_ffs((int)(v))
#define __umulhi(a, b) ((unsigned)(((uint64_t)(unsigned)(a) * (unsigned)(b)) >> 32))
#define __umul64hi(a, b)                                                                           \
    ((unsigned long long)(((unsigned __int128)(uint64_t)(a) * (uint64_t)(b)) >> 64))

/* Towards zero or to nearest, to the nearest integer that there is, NaN to 0. */
#define STANDIN_INTEGER(name, from, to, low, high, most, least, ROUND)                             \
    DEVICE to name(from v) {                                                                       \
        const from r = ROUND(v);                                                                   \
        if (r != r) return 0;                                                                      \
        return r >= (from)high ? most : r <= (from)low ? least : (to)r;                            \
    }

STANDIN_INTEGER(__float2int_rz, float, int, -0x1p31, 0x1p31, INT32_MAX, INT32_MIN, )
STANDIN_INTEGER(__float2int_rn, float, int, -0x1p31, 0x1p31, INT32_MAX, INT32_MIN, rintf)
STANDIN_INTEGER(__double2int_rz, double, int, -0x1p31, 0x1p31, INT32_MAX, INT32_MIN, )
STANDIN_INTEGER(__double2int_rn, double, int, -0x1p31, 0x1p31, INT32_MAX, INT32_MIN, rint)
STANDIN_INTEGER(__float2uint_rz, float, unsigned, 0, 0x1p32, UINT32_MAX, 0, )
STANDIN_INTEGER(__double2uint_rz, double, unsigned, 0, 0x1p32, UINT32_MAX, 0, )
STANDIN_INTEGER(__float2ll_rz, float, long long, -0x1p63, 0x1p63, INT64_MAX, INT64_MIN, )
STANDIN_INTEGER(__double2ll_rz, double, long long, -0x1p63, 0x1p63, INT64_MAX, INT64_MIN, )

/* y with erfc(y) = v: Newton's method from a start that is good to a few digits. */
DEVICE double standin_erfcinv(double v) {
    if (!(v > 0 && v < 2)) return v == 0 ? INFINITY : v == 2 ? -INFINITY : NAN;
    if (v > 1) return -standin_erfcinv(2 - v);
    const double l = log(v * (2 - v)), t = 4.330746750799873 + l / 2;
    double y = sqrt(sqrt(t * t - l / 0.147) - t);
    for (int i = 0; i < 4; i++) y += (erfc(y) - v) / (1.1283791670955126 * exp(-y * y));
    return y;
}
#define erfcinvf(v) ((float)standin_erfcinv((double)(float)(v)))
#define erfinvf(v) ((float)standin_erfcinv(1.0 - (double)(float)(v)))
#define normcdfinvf(v) ((float)(-1.4142135623730951 * standin_erfcinv(2.0 * (double)(float)(v))))

/* ---- 16-bit floats: as core/dtype.c has them ---- */

DEVICE float mg_f16_to_float(uint16_t v) {
    const uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = (v >> 10) & 31u, m = v & 0x3ffu;
    if (exponent == 0) return copysignf((float)m * 0x1p-24f, __uint_as_float(sign));
    return __uint_as_float(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) |
                           (m << 13));
}

DEVICE uint16_t mg_float_to_f16(float v) {
    const uint32_t u = __float_as_uint(v), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7fffu); /* as cvt.rn.f16 has it */
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u)
        return (uint16_t)(sign | (uint32_t)lrintf(__uint_as_float(magnitude) * 0x1p24f));
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

#endif

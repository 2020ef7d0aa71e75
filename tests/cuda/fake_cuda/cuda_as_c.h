/* CUDA's built-ins for kernels that are compiled as C: gcc includes this before the kernel's text.
 *
 * The threads of a block take turns (threads.h), so atomic operations are plain statements here.
 * Only the built-ins that kernels may use, by the rules of kernels/kernel.h, are defined; any other
 * is a compile error, which keeps the kernels to that subset. */
#ifndef CUDA_AS_C_H
#define CUDA_AS_C_H

#include "threads.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

/* A typedef, not the macro of <stdbool.h>: kernels paste type names together, as in load_bool. */
typedef _Bool bool;
#define true 1
#define false 0

/* ---- kernels and memory ---- */

/* __shared__ variables go to a separate section, so that block.c can fill it with NaN before a
 * launch. The linker defines these names for its beginning and end. */
extern unsigned char __start_fake_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern unsigned char __stop_fake_cuda_shared[] __attribute__((weak, visibility("hidden")));

/* A kernel becomes a static function, a loop that runs it for one thread after another, and the
 * struct that cuModuleGetFunction finds. KERNEL_FULL's limits mean nothing here. */
#define KERNEL(name, type) FAKE_CUDA_KERNEL(name, type)
#define KERNEL_FULL(name, type, threads, blocks) FAKE_CUDA_KERNEL(name, type)
#define FAKE_CUDA_KERNEL(kernel, type)                                                             \
    static void kernel(const type p);                                                              \
    static void fake_cuda_run_##kernel(const void *fake_cuda_params) {                             \
        do kernel(*(const type *)fake_cuda_params);                                                \
        while (fake_cuda_next_thread());                                                           \
    }                                                                                              \
    const fake_cuda_kernel fake_cuda_kernel_##kernel = {                                           \
        #kernel, sizeof(type), fake_cuda_run_##kernel, __start_fake_cuda_shared,                   \
        __stop_fake_cuda_shared};                                                                  \
    static void kernel(const type p)

#define DEVICE static inline __attribute__((unused))
#define GLOBAL static
#define SHARED(type, name) type *const name = (type *)(void *)fake_cuda_dynamic
/* Static variables will do for shared memory: kernels and blocks run one at a time. */
#define __shared__ static __attribute__((section("fake_cuda_shared")))
/* Qualifiers that mean nothing in C. */
#define __constant__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* CUDA's variables are fields of block.c's position. */
#define threadIdx fake_cuda_at.thread
#define blockIdx fake_cuda_at.block
#define blockDim fake_cuda_at.threads
#define gridDim fake_cuda_at.blocks
#define warpSize 32

/* Loads and stores with cache hints. */
#define __ldg(p) (*(p))
#define __ldcs(p) (*(p))
#define __ldcg(p) (*(p))
#define __stcs(p, v) ((void)(*(p) = (v)))
#define __stcg(p, v) ((void)(*(p) = (v)))

/* float4 and its like, with CUDA's alignment. */
#define FAKE_CUDA_VECTOR2(name, type, size)                                                        \
    typedef struct __attribute__((aligned(size), may_alias)) name##2 {                             \
        type x, y;                                                                                 \
    }                                                                                              \
    name##2;                                                                                       \
    DEVICE name##2 make_##name##2(type x, type y) {                                                \
        return (name##2){x, y};                                                                    \
    }
#define FAKE_CUDA_VECTOR4(name, type, size)                                                        \
    FAKE_CUDA_VECTOR2(name, type, size / 2)                                                        \
    typedef struct __attribute__((aligned(size), may_alias)) name##4 {                             \
        type x, y, z, w;                                                                           \
    }                                                                                              \
    name##4;                                                                                       \
    DEVICE name##4 make_##name##4(type x, type y, type z, type w) {                                \
        return (name##4){x, y, z, w};                                                              \
    }

FAKE_CUDA_VECTOR4(char, signed char, 4)
FAKE_CUDA_VECTOR4(uchar, unsigned char, 4)
FAKE_CUDA_VECTOR4(short, short, 8)
FAKE_CUDA_VECTOR4(ushort, unsigned short, 8)
FAKE_CUDA_VECTOR4(int, int, 16)
FAKE_CUDA_VECTOR4(uint, unsigned, 16)
FAKE_CUDA_VECTOR4(float, float, 16)
FAKE_CUDA_VECTOR2(longlong, long long, 16)
FAKE_CUDA_VECTOR2(ulonglong, unsigned long long, 16)
FAKE_CUDA_VECTOR2(double, double, 16)

/* ---- among threads ---- */

/* Memory is never out of order here: fences do nothing, so a missing one cannot be found. */
#define __syncthreads() fake_cuda_sync_threads()
#define __syncwarp() fake_cuda_sync_warp(0xffffffffu)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

/* Shuffles: reading a lane that does not exist gives the thread's own value, as in CUDA. */
#define FAKE_CUDA_SHUFFLE(mask, v, from)                                                           \
    __extension__({                                                                                \
        __typeof__((v)) fake_cuda_v = (v);                                                         \
        fake_cuda_shuffle(mask, &fake_cuda_v, sizeof fake_cuda_v, from);                           \
        fake_cuda_v;                                                                               \
    })
#define __shfl_sync(mask, v, from) FAKE_CUDA_SHUFFLE(mask, v, (int)(from)&31)
#define __shfl_up_sync(mask, v, by) FAKE_CUDA_SHUFFLE(mask, v, fake_cuda_lane() - (int)(by))
#define __shfl_down_sync(mask, v, by) FAKE_CUDA_SHUFFLE(mask, v, fake_cuda_lane() + (int)(by))
#define __shfl_xor_sync(mask, v, with) FAKE_CUDA_SHUFFLE(mask, v, fake_cuda_lane() ^ (int)(with))
#define __ballot_sync(mask, predicate) fake_cuda_ballot(mask, (predicate) != 0)
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, predicate) == 0xffffffffu)

/* Stores `next` at `p` and returns the old value. `next` is an expression in which fake_cuda_old is
 * the old value and fake_cuda_new is v. */
#define FAKE_CUDA_ATOMIC(p, v, next)                                                               \
    __extension__({                                                                                \
        __typeof__(&*(p)) fake_cuda_p = (p);                                                       \
        const __typeof__(*(p)) fake_cuda_old = *fake_cuda_p, fake_cuda_new = (v);                  \
        *fake_cuda_p = (next);                                                                     \
        fake_cuda_old;                                                                             \
    })
/* The atomics that kernels use; they work on any type. */
#define atomicAdd(p, v) FAKE_CUDA_ATOMIC(p, v, fake_cuda_old + fake_cuda_new)
#define atomicSub(p, v) FAKE_CUDA_ATOMIC(p, v, fake_cuda_old - fake_cuda_new)
#define atomicMax(p, v)                                                                            \
    FAKE_CUDA_ATOMIC(p, v, fake_cuda_old > fake_cuda_new ? fake_cuda_old : fake_cuda_new)
#define atomicMin(p, v)                                                                            \
    FAKE_CUDA_ATOMIC(p, v, fake_cuda_old < fake_cuda_new ? fake_cuda_old : fake_cuda_new)
#define atomicAnd(p, v) FAKE_CUDA_ATOMIC(p, v, fake_cuda_old &fake_cuda_new)
#define atomicOr(p, v) FAKE_CUDA_ATOMIC(p, v, fake_cuda_old | fake_cuda_new)
#define atomicExch(p, v) FAKE_CUDA_ATOMIC(p, v, fake_cuda_new)
#define atomicCAS(p, expected, v)                                                                  \
    FAKE_CUDA_ATOMIC(p, v, fake_cuda_old == (expected) ? fake_cuda_new : fake_cuda_old)

/* ---- numbers ---- */

/* Reinterpretation of bits. */
#define FAKE_CUDA_BITS(name, from, to)                                                             \
    DEVICE to name(from v) {                                                                       \
        to bits;                                                                                   \
        _Static_assert(sizeof bits == sizeof v, "as many bits");                                   \
        memcpy(&bits, &v, sizeof bits);                                                            \
        return bits;                                                                               \
    }

FAKE_CUDA_BITS(__float_as_uint, float, unsigned)
FAKE_CUDA_BITS(__uint_as_float, unsigned, float)
FAKE_CUDA_BITS(__float_as_int, float, int)
FAKE_CUDA_BITS(__int_as_float, int, float)
FAKE_CUDA_BITS(__double_as_longlong, double, long long)
FAKE_CUDA_BITS(__longlong_as_double, long long, double)

/* Functions with a rounding mode in their name, rounding to nearest: that is what C does. */
#define FAKE_CUDA_ROUNDED(suffix, type, root)                                                      \
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

FAKE_CUDA_ROUNDED(f, float, sqrtf)
FAKE_CUDA_ROUNDED(d, double, sqrt)

/* Fast versions of functions are the exact ones here, so results may differ in the last bits from a
 * GPU's.
 */
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
/* Functions that CUDA has and C lacks. */
#define exp10f(v) powf(10.0f, v)
#define rsqrtf(v) (1.0f / sqrtf(v))
#define rsqrt(v) (1.0 / sqrt(v))
#define __frsqrt_rn(v) ((float)(1.0 / sqrt((double)(float)(v))))
#define sincosf(v, s, c) ((void)(*(s) = sinf(v), *(c) = cosf(v)))
#define sincos(v, s, c) ((void)(*(s) = sin(v), *(c) = cos(v)))
#define sinpif(v) ((float)sin(3.14159265358979323846 * fmod((double)(float)(v), 2)))
#define cospif(v) ((float)cos(3.14159265358979323846 * fmod((double)(float)(v), 2)))

/* max and min work on any arithmetic types, as the overloads of CUDA do. */
#define FAKE_CUDA_CHOOSE(a, b, how)                                                                \
    __extension__({                                                                                \
        const __typeof__((a) + (b)) fake_cuda_a = (a), fake_cuda_b = (b);                          \
        fake_cuda_a how fake_cuda_b ? fake_cuda_a : fake_cuda_b;                                   \
    })
#define max(a, b) FAKE_CUDA_CHOOSE(a, b, >)
#define min(a, b) FAKE_CUDA_CHOOSE(a, b, <)

/* Bit counts and high halves of products. */
#define __popc(v) __builtin_popcount(v)
#define __popcll(v) __builtin_popcountll(v)
#define __clz(v) ((v) ? __builtin_clz((unsigned)(v)) : 32)
#define __clzll(v) ((v) ? __builtin_clzll((unsigned long long)(v)) : 64)
#define __ffs(v) __builtin_ffs((int)(v))
#define __umulhi(a, b) ((unsigned)(((uint64_t)(unsigned)(a) * (unsigned)(b)) >> 32))
#define __umul64hi(a, b)                                                                           \
    ((unsigned long long)(((unsigned __int128)(uint64_t)(a) * (uint64_t)(b)) >> 64))

/* Conversions to integers, truncated (_rz) or to nearest (_rn), saturated; NaN becomes 0. */
#define FAKE_CUDA_INTEGER(name, from, to, low, high, most, least, ROUND)                           \
    DEVICE to name(from v) {                                                                       \
        const from r = ROUND(v);                                                                   \
        if (r != r) return 0;                                                                      \
        return r >= (from)high ? most : r <= (from)low ? least : (to)r;                            \
    }

FAKE_CUDA_INTEGER(__float2int_rz, float, int, -0x1p31, 0x1p31, INT32_MAX, INT32_MIN, )
FAKE_CUDA_INTEGER(__float2int_rn, float, int, -0x1p31, 0x1p31, INT32_MAX, INT32_MIN, rintf)
FAKE_CUDA_INTEGER(__double2int_rz, double, int, -0x1p31, 0x1p31, INT32_MAX, INT32_MIN, )
FAKE_CUDA_INTEGER(__double2int_rn, double, int, -0x1p31, 0x1p31, INT32_MAX, INT32_MIN, rint)
FAKE_CUDA_INTEGER(__float2uint_rz, float, unsigned, 0, 0x1p32, UINT32_MAX, 0, )
FAKE_CUDA_INTEGER(__double2uint_rz, double, unsigned, 0, 0x1p32, UINT32_MAX, 0, )
FAKE_CUDA_INTEGER(__float2ll_rz, float, long long, -0x1p63, 0x1p63, INT64_MAX, INT64_MIN, )
FAKE_CUDA_INTEGER(__double2ll_rz, double, long long, -0x1p63, 0x1p63, INT64_MAX, INT64_MIN, )

/* The inverse of erfc: y with erfc(y) = v, by Newton's method from a start with a few right digits.
 */
DEVICE double fake_cuda_erfcinv(double v) {
    if (!(v > 0 && v < 2)) return v == 0 ? INFINITY : v == 2 ? -INFINITY : NAN;
    if (v > 1) return -fake_cuda_erfcinv(2 - v);
    const double l = log(v * (2 - v)), t = 4.330746750799873 + l / 2;
    double y = sqrt(sqrt(t * t - l / 0.147) - t);
    for (int i = 0; i < 4; i++) y += (erfc(y) - v) / (1.1283791670955126 * exp(-y * y));
    return y;
}
#define erfcinvf(v) ((float)fake_cuda_erfcinv((double)(float)(v)))
#define erfinvf(v) ((float)fake_cuda_erfcinv(1.0 - (double)(float)(v)))
#define normcdfinvf(v) ((float)(-1.4142135623730951 * fake_cuda_erfcinv(2.0 * (double)(float)(v))))

/* ---- 16-bit floats: the conversions of core/dtype.c, where a GPU has instructions ---- */

/* Subnormal halves are exact multiples of 2^-24. */
DEVICE float mg_f16_to_float(uint16_t v) {
    const uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = (v >> 10) & 31u, m = v & 0x3ffu;
    if (exponent == 0) return copysignf((float)m * 0x1p-24f, __uint_as_float(sign));
    return __uint_as_float(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) |
                           (m << 13));
}

/* To nearest, ties to even; infinite from 65520 on; subnormal below 2^-14. */
DEVICE uint16_t mg_float_to_f16(float v) {
    const uint32_t u = __float_as_uint(v), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7fffu); /* NaN, as cvt.rn.f16 gives it */
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u)
        return (uint16_t)(sign | (uint32_t)lrintf(__uint_as_float(magnitude) * 0x1p24f));
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

#endif

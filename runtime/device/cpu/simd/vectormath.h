/* exp, log, erf and related functions in float, without branches or calls, so that the compiler can
 * turn loops over them into vector code.
 *
 * Errors are 1 to 2 units in the last place. Infinities, NaN, subnormal results and signs of zero
 * come out as in libm. The polynomials are those of Cephes, except for erf's, which are our own
 * fits. */
#ifndef MG_DEVICE_CPU_VECTORMATH_H
#define MG_DEVICE_CPU_VECTORMATH_H

#include "device/cpu/simd/fma.h"
#include <math.h>
#include <stdint.h>

#define VM_INLINE static inline __attribute__((always_inline))

/* The bits of a float, and the float with given bits. */
VM_INLINE uint32_t vm_bits(float v) {
    union {
        float f;
        uint32_t u;
    } x = {.f = v};
    return x.u;
}

VM_INLINE float vm_from_bits(uint32_t bits) {
    union {
        uint32_t u;
        float f;
    } x = {.u = bits};
    return x.f;
}

/* Returns e^r - 1, where x = n ln 2 + r and |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds x / ln 2 to
 * an integer and leaves it in the low bits. ln 2 is subtracted in two parts, of which the first is
 * exact. */
VM_INLINE float vm_exp_reduced(float x, uint32_t *n) {
    const float magic = 12582912.0f;
    const float shifted = mg_fma_f32(x, 1.44269504088896341f, magic);
    const float k = shifted - magic;
    const float r = mg_fma_f32(k, 2.12194440e-4f, mg_fma_f32(k, -0.693359375f, x));
    *n = vm_bits(shifted) - 0x4b400000u;
    float p = 1.9875691500e-4f;
    p = mg_fma_f32(p, r, 1.3981999507e-3f);
    p = mg_fma_f32(p, r, 8.3334519073e-3f);
    p = mg_fma_f32(p, r, 4.1665795894e-2f);
    p = mg_fma_f32(p, r, 1.6666665459e-1f);
    p = mg_fma_f32(p, r, 5.0000001201e-1f);
    return mg_fma_f32(p, r * r, r);
}

/* 2^n for n in -126 .. 127. */
VM_INLINE float vm_power_of_two(uint32_t n) {
    return vm_from_bits((n + 127u) << 23);
}

/* e^x. The power of two is applied as two factors, so that results at both ends of the range are
 * rounded once, and too large ones become infinity. x is clamped to where the result is 0 or
 * infinity anyway. */
VM_INLINE float vm_exp(float x) {
    uint32_t n;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    const float e = vm_exp_reduced(x, &n) + 1.0f;
    const uint32_t half = (uint32_t)((int32_t)n >> 1);
    return e * vm_power_of_two(half) * vm_power_of_two(n - half);
}

/* e^x - 1 = 2^n (e^r - 1) + (2^n - 1), at half the scale, where 2^n cannot overflow. The sign of a
 * zero is kept. */
VM_INLINE float vm_expm1(float x) {
    uint32_t n;
    float c = x < -20.0f ? -20.0f : x;
    c = c > 89.0f ? 89.0f : c;
    const float q = vm_exp_reduced(c, &n);
    const float half = vm_power_of_two(n - 1u);
    const float y = mg_fma_f32(half, q, half - 0.5f) * 2.0f;
    return x == 0.0f ? x : y;
}

/* log x = e ln 2 + log m, with the mantissa m in [sqrt(1/2), sqrt(2)). Subnormal numbers are scaled
 * into the normal range first. log 0 is -infinity, and NaN below 0. */
VM_INLINE float vm_log(float x) {
    const int small = x < 1.17549435e-38f;
    const uint32_t bits = vm_bits(small ? x * 8388608.0f : x);
    /* mantissa in [sqrt(1/2), sqrt(2)) */
    const uint32_t shifted = bits - 0x3f3504f3u;
    const float e = (float)((int32_t)shifted >> 23) - (small ? 23.0f : 0.0f);
    const float m = vm_from_bits((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    const float z = m * m;
    float p = 7.0376836292e-2f;
    p = mg_fma_f32(p, m, -1.1514610310e-1f);
    p = mg_fma_f32(p, m, 1.1676998740e-1f);
    p = mg_fma_f32(p, m, -1.2420140846e-1f);
    p = mg_fma_f32(p, m, 1.4249322787e-1f);
    p = mg_fma_f32(p, m, -1.6668057665e-1f);
    p = mg_fma_f32(p, m, 2.0000714765e-1f);
    p = mg_fma_f32(p, m, -2.4999993993e-1f);
    p = mg_fma_f32(p, m, 3.3333331174e-1f);
    float y = p * m * z;
    y = mg_fma_f32(-2.12194440e-4f, e, y);
    y = mg_fma_f32(-0.5f, z, y);
    y = mg_fma_f32(0.693359375f, e, m + y);
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f || x != x ? NAN : y;
    return x == INFINITY ? x : y;
}

/* log(1 + x): the rounding error of 1 + x is added to the result, to first order. */
VM_INLINE float vm_log1p(float x) {
    const float u = 1.0f + x;
    const float lost = (x - (u - 1.0f)) / u;
    const float y = vm_log(u);
    const float exact = x < 1e8f && x > -1.0f ? y + lost : y;
    return x == 0.0f ? x : exact;
}

/* (e^2x - 1) / (e^2x + 1): exact near 0 because expm1 is. From 10 on the result is 1. */
VM_INLINE float vm_tanh(float x) {
    const float a = fabsf(x) > 10.0f ? 10.0f : fabsf(x);
    const float e = vm_expm1(2.0f * a);
    const float y = copysignf(e / (e + 2.0f), x);
    return x != x ? x : y;
}

/* Near 0: x + x p(x^2). From 0.92 on: 1 - e^-(x + x q(x)). Both polynomials were fitted to libm's
 * double erf and erfc by reweighted least squares. Both are computed and one is selected. */
VM_INLINE float vm_erf(float x) {
    const float a = fabsf(x) > 4.0f ? 4.0f : fabsf(x), s = x * x;
    uint32_t n;
    float q = -2.1398593e-4f;
    q = mg_fma_f32(q, a, 3.214963e-3f);
    q = mg_fma_f32(q, a, -2.2889987e-2f);
    q = mg_fma_f32(q, a, 1.0526188e-1f);
    q = mg_fma_f32(q, a, 6.357183e-1f);
    q = mg_fma_f32(q, a, 1.2851436e-1f);
    const float e = vm_exp_reduced(-mg_fma_f32(q, a, a), &n) + 1.0f;
    const float outer = copysignf(mg_fma_f32(-e, vm_power_of_two(n), 1.0f), x);
    float p = -5.9657975e-4f;
    p = mg_fma_f32(p, s, 4.988306e-3f);
    p = mg_fma_f32(p, s, -2.676333e-2f);
    p = mg_fma_f32(p, s, 1.12817265e-1f);
    p = mg_fma_f32(p, s, -3.7612486e-1f);
    p = mg_fma_f32(p, s, 1.2837915e-1f);
    const float inner = mg_fma_f32(p, x, x);
    return a > 0.92f ? outer : inner;
}

#undef VM_INLINE
#endif

/* Elements and arithmetic for generated kernels (fused.h, reduce.h, scan.h).
 *
 * The generated text defines WIDE before it includes this. Kernels compute with the type REAL:
 * double if WIDE, else float. A wide kernel knows all dtypes, a narrow one those whose values a
 * float holds exactly. With INTEGER, REAL is int64_t, and the kernel knows integers and bool.
 *
 *     load_<dtype>(element)   the element as a REAL
 *     store_<dtype>(real)     the REAL as an element: rounded to nearest for floats; truncated and
 *                             saturated for integers, NaN becomes 0; non-zero is true
 *     ROUND_TO(dtype, real)   a store and a load: the value that the dtype can hold
 *
 * The included headers elementwise_double.h and elementwise_float.h define the functions used in
 * ops/elementwise.def, such as K(1) for a constant. */
#ifndef MG_DEVICE_CUDA_ELEMENTS_H
#define MG_DEVICE_CUDA_ELEMENTS_H

#include "device/cuda/kernels/kernel.h"

/* UNROLL stands before a loop over arrays that must live in registers: registers have no addresses,
 * so the index must be a constant. ROLLED stands before a loop that rarely runs, to keep code
 * small. */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#else
#define UNROLL
#define ROLLED
#endif

/* Pastes names together, after their macros are expanded: JOIN(load, IN) is load_f32 where IN is
 * f32. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

typedef uint8_t type_bool8, type_u8;
typedef int32_t type_i32;
typedef int64_t type_i64;
typedef uint16_t type_bf16, type_f16;
typedef float type_f32;
typedef double type_f64;

/* LEAST and MOST: what every number wins against in a maximum or minimum. ADD and MULTIPLY: sums
 * and products of integers wrap around. */
#if INTEGER
typedef int64_t REAL;
#define K(v) ((REAL)(v))
#define MOST ((REAL)0x7fffffffffffffff)
#define LEAST (-MOST - 1)
#define ADD(a, b) ((REAL)((uint64_t)(a) + (uint64_t)(b)))
#define MULTIPLY(a, b) ((REAL)((uint64_t)(a) * (uint64_t)(b)))
#else
#if WIDE
typedef double REAL;
#include "ops/elementwise_double.h"
#else
typedef float REAL;
#include "ops/elementwise_float.h"
#endif
#define INFINITE K(__uint_as_float(0x7f800000u))
#define LEAST (-INFINITE)
#define MOST INFINITE
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#endif

/* ---- elements to REAL ---- */

DEVICE REAL load_bool8(uint8_t v) {
    return v ? K(1) : K(0);
}

DEVICE REAL load_u8(uint8_t v) {
    return K(v);
}

#if WIDE || INTEGER
DEVICE REAL load_i32(int32_t v) {
    return (REAL)v;
}

DEVICE REAL load_i64(int64_t v) {
    return (REAL)v;
}
#endif

#if !INTEGER
DEVICE REAL load_bf16(uint16_t v) {
    return K(mg_bf16_to_float(v));
}

DEVICE REAL load_f16(uint16_t v) {
    return K(mg_f16_to_float(v));
}

DEVICE REAL load_f32(float v) {
    return K(v);
}
#endif

/* ---- REAL to elements ---- */

DEVICE uint8_t store_bool8(REAL v) {
    return v != K(0);
}

DEVICE uint8_t store_u8(REAL v) {
    return v >= K(255) ? 255 : v > K(0) ? (uint8_t)v : 0;
}

#if INTEGER
DEVICE int32_t store_i32(REAL v) {
    return v >= 0x7fffffff ? 0x7fffffff : v > -0x7fffffff ? (int32_t)v : -0x7fffffff - 1;
}

DEVICE int64_t store_i64(REAL v) {
    return v;
}
#else
DEVICE uint16_t store_bf16(REAL v) {
    return WIDE ? mg_double_to_bf16(v) : mg_float_to_bf16((float)v);
}

DEVICE uint16_t store_f16(REAL v) {
    return WIDE ? mg_double_to_f16(v) : mg_float_to_f16((float)v);
}

DEVICE float store_f32(REAL v) {
    return (float)v;
}
#endif

#if WIDE && !INTEGER
DEVICE REAL load_f64(double v) {
    return v;
}

DEVICE int32_t store_i32(REAL v) {
    return mg_to_i32(v);
}

DEVICE int64_t store_i64(REAL v) {
    return mg_to_i64(v);
}

DEVICE double store_f64(REAL v) {
    return v;
}
#endif

#define ROUND_TO(dtype, v) JOIN(load, dtype)(JOIN(store, dtype)(v))

/* ---- several elements at once ---- */

#ifdef __CUDACC__
/* Writes n words of 4 bytes with one store instruction for each 16 bytes. Otherwise, if the
 * compiler does not know at compile time which of several tensors is written, it stores element by
 * element: eight times the memory traffic. */
DEVICE void write_words(void *to, const uint32_t *w, int n) {
    uint32_t *const at = (uint32_t *)to;
    if (n == 1) asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(w[0]) : "memory");
    if (n == 2)
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(w[0]), "r"(w[1]) : "memory");
    UNROLL
    for (int i = 0; i + 4 <= n; i += 4)
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at + i), "r"(w[i]),
                     "r"(w[i + 1]), "r"(w[i + 2]), "r"(w[i + 3])
                     : "memory");
}
#define WRITE_VECTOR(to, v)                                                                        \
    if (sizeof(v) >= 4) {                                                                          \
        uint32_t words[sizeof(v) / 4 + 1];                                                         \
        memcpy(words, &v, sizeof(v));                                                              \
        write_words(to, words, sizeof(v) / 4);                                                     \
        return;                                                                                    \
    }                                                                                              \
    *to = v
#else
#define WRITE_VECTOR(to, v) *to = v
#endif

/* VECTOR_OF(f32, 4) defines the type vector_f32, four elements that are read and written together
 * with accesses of up to 16 bytes, and write_f32, which stores one. may_alias: an in-place result
 * may lie in the memory of an input of another dtype. */
#define VECTOR_OF(dtype, n) VECTOR_OF_(dtype, n)
#define VECTOR_OF_(dtype, n)                                                                       \
    typedef struct __attribute__((                                                                 \
        may_alias, aligned(n * sizeof(type_##dtype) < 16 ? n * sizeof(type_##dtype) : 16)))        \
    vector_##dtype {                                                                               \
        type_##dtype at[n];                                                                        \
    } vector_##dtype;                                                                              \
    DEVICE void write_##dtype(type_##dtype *first, vector_##dtype v) {                             \
        vector_##dtype *const to = (vector_##dtype *)first;                                        \
        WRITE_VECTOR(to, v);                                                                       \
    }

/* ---- positions ---- */

/* Positions have 32 bits unless the generated text defines WIDE_INDEX for a large tensor: 64-bit
 * integer arithmetic takes several instructions on a GPU. */
#if WIDE_INDEX
typedef int64_t INDEX;
#else
typedef uint32_t INDEX;
#endif

/* An axis, with what `divide` needs: positions below 2^31 are divided by a multiplication and a
 * shift (see divisor.h). */
typedef struct axis {
    int64_t size;
    uint32_t magic, shift;
} axis;

DEVICE INDEX divide(INDEX n, axis a) {
#if WIDE_INDEX
    return n / a.size;
#else
    return ((INDEX)(((uint64_t)n * a.magic) >> 32) + n) >> a.shift;
#endif
}

#endif

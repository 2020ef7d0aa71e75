/* The instruction set that a file of this folder is compiled for.
 *
 * The build compiles every .c file of this folder once per instruction set, with MG_ISA set to the
 * set's name (baseline, avx2, avx512 or neon) and with the compiler's flags for it; see
 * cpu/rules.mk. All that may differ between the sets is derived here from the compiler's own
 * macros: the width of a vector, the number of vector registers, stores that bypass the caches. A
 * kernel must not declare a vector type wider than MG_VECTOR: gcc then keeps sums in memory instead
 * of registers (2 to 3 GFLOP/s instead of 62 to 80).
 *
 * The files hold plain loops: no OpenMP regions, no memory allocation, no knowledge of plans. The
 * kernels one folder up share the work among threads and call these loops through the table that
 * mg_simd_choose picked. */
#ifndef MG_DEVICE_CPU_SIMD_ISA_H
#define MG_DEVICE_CPU_SIMD_ISA_H

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef MG_ISA /* for a linter, which reads the file by itself */
#define MG_ISA baseline
#endif
#define MG_ISA_PASTE(name, isa) name##_##isa
#define MG_ISA_EXPAND(name, isa) MG_ISA_PASTE(name, isa)
/* The symbol of a table: MG_ISA_NAME(mg_simd_pool) is mg_simd_pool_avx2, for example. */
#define MG_ISA_NAME(name) MG_ISA_EXPAND(name, MG_ISA)

/* MG_VECTOR: bytes of a vector register. MG_REGISTERS: the number of vector registers, which limits
 * how many sums a kernel can keep at a time. MG_STREAM: a non-temporal store of a vector of floats,
 * which goes past the caches, to an address that is a multiple of MG_VECTOR. */
#if defined(__AVX512F__)
#define MG_VECTOR 64
#define MG_REGISTERS 32
#define MG_STREAM(place, v) _mm512_stream_ps(place, v)
typedef __m512 mg_floats;
#elif defined(__AVX2__)
#define MG_VECTOR 32
#define MG_REGISTERS 16
#define MG_STREAM(place, v) _mm256_stream_ps(place, v)
typedef __m256 mg_floats;
#elif defined(__SSE2__)
#define MG_VECTOR 16
#define MG_REGISTERS 16
#define MG_STREAM(place, v) _mm_stream_ps(place, v)
typedef __m128 mg_floats;
#else
#define MG_VECTOR 16
#ifdef __aarch64__
#define MG_REGISTERS 32
#else
#define MG_REGISTERS 16
#endif
/* gcc has no non-temporal store here. */
#define MG_STREAM(place, v) (void)(*(mg_floats *)(void *)(place) = (v))
typedef float mg_floats __attribute__((vector_size(MG_VECTOR)));
#endif

/* Whether there are instructions that convert vectors between float16 and float. */
#if defined(__F16C__) || defined(__aarch64__)
#define MG_CONVERTS_F16 1
#else
#define MG_CONVERTS_F16 0
#endif

/* A vector of floats at any address that is aligned for a float. */
typedef mg_floats mg_loose_floats __attribute__((aligned(sizeof(float)), may_alias));
/* Floats of a vector. */
enum { MG_WIDTH = MG_VECTOR / 4 };

/* Keeps a loaded vector in a register. gcc would join the load and a selection with a mask to a
 * masked load, for which Zen 5 does not prefetch: `where` over 26 MB took 2.5 times as long. */
#if defined(__AVX512F__)
#define MG_KEEP(v) __asm__("" : "+v"(v))
#else
#define MG_KEEP(v) (void)(v)
#endif

#define MG_INLINE static inline __attribute__((always_inline))

#endif

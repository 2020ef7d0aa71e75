/* Sums of products of 8-bit codes and weights, exact in int32.
 *
 * The weights of four steps lie side by side for each filter, as the instruction vpdpbusd (VNNI)
 * takes them: a vector of 32-bit sums, plus for each the four products of the bytes of a pixel,
 * which is the same for all, and the filter's weights. AVX2 without VNNI widens both to 16 bits
 * and uses vpmaddwd, since vpmaddubsw would saturate. Elsewhere, on aarch64 too, plain C does what
 * the compiler makes of it. */
#include "device/cpu/simd/int8.h"
#include "device/cpu/simd/isa.h"
#include "ops/int8_formulas.h"
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

enum { ROW = MG_INT8_CHANNELS };

/* Loops over the vectors of a tile: sums stay in registers only if they are unrolled. */
#define EACH(i, n) _Pragma("GCC unroll 8") for (int i = 0; i < n; i++)

/* ---- codes and results ---- */

static bool quantize(const float *x, int64_t n, float steps, float zero, uint8_t *codes) {
    int bad = 0;
    for (int64_t i = 0; i < n; i++) {
        bad |= !(fabsf(x[i]) <= 3.402823466e38f);
        codes[i] = mg_int8_code(x[i], steps, zero);
    }
    return !bad;
}

static float largest(const float *x, int64_t n) {
    float lanes[MG_WIDTH] = {0}, all = 0;
    int bad = 0;
    for (int64_t i = 0; i < n; i++) {
        const float v = fabsf(x[i]);
        float *at = &lanes[i % MG_WIDTH];
        bad |= !(v <= 3.402823466e38f);
        *at = v > *at ? v : *at;
    }
    for (int i = 0; i < MG_WIDTH; i++) all = lanes[i] > all ? lanes[i] : all;
    return bad ? INFINITY : all;
}

#define SCALE_EACH(activation)                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const uint32_t own = (uint32_t)sums[i] - (uint32_t)zero * (uint32_t)weights[i];            \
        y[i] = mg_int8_result((int32_t)own, factor[i] * unit, bias[i], activation);                \
    }

static void scale(const int32_t *sums, const mg_int8_scaling *s, int64_t first, int64_t n,
                  int32_t zero, float unit, float *restrict y) {
    const int32_t *weights = s->weights + first;
    const float *factor = s->factor + first, *bias = s->bias + first;
    if (s->activation == MG_INT8_LINEAR)
        SCALE_EACH(MG_INT8_LINEAR)
    else if (s->activation == MG_INT8_RELU)
        SCALE_EACH(MG_INT8_RELU)
    else
        SCALE_EACH(MG_INT8_RELU6)
}

/* ---- VNNI ---- */

#define EACH_PIXELS(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)

#if defined(__AVX2__)
static inline int32_t four_bytes(const uint8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
#endif

#if defined(__AVX512F__)
#define VNNI __attribute__((target("avx512vnni")))

/* Tiles of P pixels and V vectors of 16 filters, the last one with `mask`. */
VNNI MG_INLINE void vnni_tile(const mg_int8_tile *t, const int P, const int V, __mmask16 mask) {
    __m512i sum[MG_INT8_PIXELS][4];
    EACH(p, P)
    EACH(v, V) sum[p][v] = _mm512_setzero_si512();
    const int8_t *w = t->w;
    for (int64_t r = 0; r < t->runs; r++) {
        const int64_t run = t->run[r];
        for (int64_t q = 0; q < t->quads; q++, w += 4 * t->row) {
            __m512i weights[4];
            EACH(v, V)
            weights[v] = _mm512_maskz_loadu_epi32(v + 1 < V ? 0xffff : mask, w + 64 * v);
            EACH(p, P) {
                const __m512i x = _mm512_set1_epi32(four_bytes(t->x[p] + run + 4 * q));
                EACH(v, V)
                sum[p][v] = _mm512_dpbusd_epi32(sum[p][v], x, weights[v]);
            }
        }
    }
    EACH(p, P)
    EACH(v, V) _mm512_storeu_si512(t->sums + p * ROW + 16 * v, sum[p][v]);
}

#define VNNI_PIXELS(n)                                                                             \
    case n:                                                                                        \
        vnni_tile(t, n, V, mask);                                                                  \
        return;
#define VNNI_VECTORS(v)                                                                            \
    VNNI static void vnni_##v(const mg_int8_tile *t, __mmask16 mask) {                             \
        enum { V = v };                                                                            \
        switch (t->pixels) { EACH_PIXELS(VNNI_PIXELS) }                                            \
    }
VNNI_VECTORS(1)
VNNI_VECTORS(2)
VNNI_VECTORS(3)
VNNI_VECTORS(4)

static void multiply_vnni(const mg_int8_tile *t) {
    const int vectors = (t->channels + 15) / 16;
    const __mmask16 mask = (__mmask16)(0xffff >> (16 * vectors - t->channels));
    if (vectors == 1)
        vnni_1(t, mask);
    else if (vectors == 2)
        vnni_2(t, mask);
    else if (vectors == 3)
        vnni_3(t, mask);
    else
        vnni_4(t, mask);
}

static bool has_vnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 11 & 1);
}

static const mg_simd_int8 vnni = {.name = "AVX-512 VNNI",
                                  .available = has_vnni,
                                  .pixels = 6,
                                  .channels = 64,
                                  .multiply = multiply_vnni};
#define KIND_VNNI &vnni,

#elif defined(__AVX2__)
#define VNNI __attribute__((target("avxvnni")))

/* Tiles of P pixels and V vectors of 8 filters, the last one with `mask`. */
VNNI MG_INLINE void vnni_tile(const mg_int8_tile *t, const int P, const int V, __m256i mask) {
    __m256i sum[MG_INT8_PIXELS][2];
    EACH(p, P)
    EACH(v, V) sum[p][v] = _mm256_setzero_si256();
    const int8_t *w = t->w;
    for (int64_t r = 0; r < t->runs; r++) {
        const int64_t run = t->run[r];
        for (int64_t q = 0; q < t->quads; q++, w += 4 * t->row) {
            __m256i weights[2];
            EACH(v, V)
            weights[v] = v + 1 < V ? _mm256_loadu_si256((const void *)(w + 32 * v))
                                   : _mm256_maskload_epi32((const void *)(w + 32 * v), mask);
            EACH(p, P) {
                const __m256i x = _mm256_set1_epi32(four_bytes(t->x[p] + run + 4 * q));
                EACH(v, V)
                sum[p][v] = _mm256_dpbusd_avx_epi32(sum[p][v], x, weights[v]);
            }
        }
    }
    EACH(p, P)
    EACH(v, V) _mm256_storeu_si256((void *)(t->sums + p * ROW + 8 * v), sum[p][v]);
}

#define VNNI_PIXELS(n)                                                                             \
    case n:                                                                                        \
        vnni_tile(t, n, V, mask);                                                                  \
        return;
#define VNNI_VECTORS(v)                                                                            \
    VNNI static void vnni_##v(const mg_int8_tile *t, __m256i mask) {                               \
        enum { V = v };                                                                            \
        switch (t->pixels) { EACH_PIXELS(VNNI_PIXELS) }                                            \
    }
VNNI_VECTORS(1)
VNNI_VECTORS(2)

static void multiply_vnni(const mg_int8_tile *t) {
    const int vectors = (t->channels + 7) / 8;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask =
        _mm256_cmpgt_epi32(_mm256_set1_epi32(t->channels - 8 * (vectors - 1)), lanes);
    if (vectors == 1)
        vnni_1(t, mask);
    else
        vnni_2(t, mask);
}

/* AVX-VNNI: bit 4 of EAX in the second part of leaf 7. */
static bool has_vnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static const mg_simd_int8 vnni = {.name = "AVX-VNNI",
                                  .available = has_vnni,
                                  .pixels = 6,
                                  .channels = 16,
                                  .multiply = multiply_vnni};
#define KIND_VNNI &vnni,
#else
#define KIND_VNNI
#endif

/* ---- AVX2: 16 bits ---- */

#if defined(__AVX2__)
enum { WIDE_PIXELS = 4 };

/* Sums of pairs of products are kept in two vectors: filters 0 to 3 and 4 to 7. */
MG_INLINE void wide_tile(const mg_int8_tile *t, const int P, __m256i mask) {
    __m256i low[WIDE_PIXELS], high[WIDE_PIXELS];
    EACH(p, P) low[p] = high[p] = _mm256_setzero_si256();
    const int8_t *w = t->w;
    for (int64_t r = 0; r < t->runs; r++) {
        const int64_t run = t->run[r];
        for (int64_t q = 0; q < t->quads; q++, w += 4 * t->row) {
            const __m256i both = _mm256_maskload_epi32((const void *)w, mask);
            const __m256i first = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(both));
            const __m256i second = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(both, 1));
            EACH(p, P) {
                const __m128i bytes = _mm_set1_epi32(four_bytes(t->x[p] + run + 4 * q));
                const __m256i x = _mm256_cvtepu8_epi16(bytes);
                low[p] = _mm256_add_epi32(low[p], _mm256_madd_epi16(x, first));
                high[p] = _mm256_add_epi32(high[p], _mm256_madd_epi16(x, second));
            }
        }
    }
    EACH(p, P) {
        const __m256i pairs = _mm256_hadd_epi32(low[p], high[p]);
        const __m256i sums = _mm256_permute4x64_epi64(pairs, 0xd8);
        _mm256_storeu_si256((void *)(t->sums + p * ROW), sums);
    }
}

static void multiply_wide(const mg_int8_tile *t) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(t->channels), lanes);
    switch (t->pixels) {
    case 1: wide_tile(t, 1, mask); return;
    case 2: wide_tile(t, 2, mask); return;
    case 3: wide_tile(t, 3, mask); return;
    case 4: wide_tile(t, 4, mask); return;
    }
}

static const mg_simd_int8 last_kind = {
    .name = "16 bits", .pixels = WIDE_PIXELS, .channels = 8, .multiply = multiply_wide};

/* ---- plain C ---- */

#else
enum { PLAIN_CHANNELS = 16 };

static void multiply_plain(const mg_int8_tile *t) {
    for (int p = 0; p < t->pixels; p++) {
        int32_t sums[PLAIN_CHANNELS] = {0};
        const int8_t *w = t->w;
        for (int64_t r = 0; r < t->runs; r++) {
            const uint8_t *x = t->x[p] + t->run[r];
            for (int64_t q = 0; q < t->quads; q++, w += 4 * t->row, x += 4)
                for (int k = 0; k < t->channels; k++)
                    sums[k] += x[0] * w[4 * k] + x[1] * w[4 * k + 1] + x[2] * w[4 * k + 2] +
                               x[3] * w[4 * k + 3];
        }
        memcpy(t->sums + p * ROW, sums, sizeof sums);
    }
}

static const mg_simd_int8 last_kind = {
    .name = "plain C", .pixels = 1, .channels = PLAIN_CHANNELS, .multiply = multiply_plain};
#endif

const mg_simd_int8_rows MG_ISA_NAME(mg_simd_int8) = {
    .quantize = quantize, .largest = largest, .scale = scale, .kinds = {KIND_VNNI & last_kind}};

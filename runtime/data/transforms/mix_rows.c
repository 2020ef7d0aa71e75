/* The loops of mg_resample.
 *
 * Values are mixed in float32, one row at a time: first the input rows of the output row,
 * vectorised over all columns and channels, then along the row, where pixels of 3 and 4 channels
 * are vectors. All of it is compiled twice on x86-64: for every processor, and for those with AVX2.
 * There is no fused multiply-add, so both give the same bits. */
#include "data/transforms/mix_rows.h"
#include "core/isa.h"
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* Four floats, with vector instructions on every processor. */
typedef float float4 __attribute__((vector_size(16)));

INLINE float4 load4(const float *p) {
    float4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store4(float *p, float4 v) {
    memcpy(p, &v, sizeof v);
}

INLINE float4 all4(float v) {
    return (float4){v, v, v, v};
}

/* ---- from the input rows to a line of floats ---- */

/* line = a, or line = w0 a + w1 b, or line += w a; for both input types. */
#define LINE_LOOPS(T, name)                                                                        \
    INLINE void load_##name(float *restrict line, const T *restrict a, int64_t n) {                \
        for (int64_t i = 0; i < n; i++) line[i] = (float)a[i];                                     \
    }                                                                                              \
    INLINE void mix_##name(float *restrict line, const T *restrict a, const T *restrict b,         \
                           float w0, float w1, int64_t n) {                                        \
        for (int64_t i = 0; i < n; i++) line[i] = w0 * (float)a[i] + w1 * (float)b[i];             \
    }                                                                                              \
    INLINE void add_##name(float *restrict line, const T *restrict a, float w, int64_t n) {        \
        for (int64_t i = 0; i < n; i++) line[i] += w * (float)a[i];                                \
    }                                                                                              \
    INLINE void line_##name(const mg_mixing *m, int64_t r) {                                       \
        const int64_t c = m->src->channels, n = m->n * c, stride = m->src->width * c;              \
        const T *src = (const T *)m->src->data + m->first * c;                                     \
        const mg_axis *rows = m->rows;                                                             \
        const int32_t *index = rows->index + r * rows->taps;                                       \
        const float *weight = rows->weight + r * rows->taps;                                       \
        if (rows->taps == 1) {                                                                     \
            load_##name(m->line, src + index[0] * stride, n);                                      \
            return;                                                                                \
        }                                                                                          \
        mix_##name(m->line, src + index[0] * stride, src + index[1] * stride, weight[0],           \
                   weight[1], n);                                                                  \
        for (int t = 2; t < rows->taps; t++)                                                       \
            if (weight[t] != 0) add_##name(m->line, src + index[t] * stride, weight[t], n);        \
    }
LINE_LOOPS(uint8_t, u8)
LINE_LOOPS(float, f32)

/* ---- along a row ---- */

/* Pixels of any number of channels. */
INLINE void along_row(float *restrict dst, const mg_mixing *m, const int64_t c) {
    const int64_t n = m->columns->n, taps = m->columns->taps;
    const int64_t *restrict place = m->place;
    const float *restrict weight = m->columns->weight, *restrict line = m->line;
    for (int64_t i = 0; i < n; i++, dst += c, place += taps) {
        if (place[0] < 0) {
            for (int64_t k = 0; k < c; k++) dst[k] = m->constant;
        } else if (taps == 1) {
            for (int64_t k = 0; k < c; k++) dst[k] = line[place[0] + k];
        } else {
            const float *w = weight + i * taps;
            for (int64_t k = 0; k < c; k++)
                dst[k] = w[0] * line[place[0] + k] + w[1] * line[place[1] + k];
            for (int64_t t = 2; t < taps; t++)
                for (int64_t k = 0; k < c; k++) dst[k] += w[t] * line[place[t] + k];
        }
    }
}

/* Pixels of 3 or 4 channels as vectors of four: with 3 channels, the fourth value is overwritten by
 * the next pixel. So one float after the end of `line` is read, and one after the end of dst is
 * written. `c` and `taps` are constants after inlining. */
INLINE void along_row_of_vectors(float *restrict dst, const mg_mixing *m, const int64_t c,
                                 const int64_t taps) {
    const int64_t n = m->columns->n;
    const int64_t *restrict place = m->place;
    const float *restrict w = m->columns->weight, *restrict line = m->line;
    const float4 constant = all4(m->constant);
    for (int64_t i = 0; i < n; i++, dst += c, place += taps) {
        float4 v = constant;
        if (place[0] >= 0) v = load4(line + place[0]);
        if (place[0] >= 0 && taps > 1) v = all4(w[0]) * v + all4(w[1]) * load4(line + place[1]);
        for (int64_t t = 2; t < taps && place[0] >= 0; t++)
            v += all4(w[t]) * load4(line + place[t]);
        store4(dst, v);
        if (taps > 1) w += taps;
    }
}

INLINE void along_row_of_pixels(float *restrict dst, const mg_mixing *m, const int64_t c) {
    switch (m->columns->taps) {
    case 1: along_row_of_vectors(dst, m, c, 1); break;
    case 2: along_row_of_vectors(dst, m, c, 2); break;
    default: along_row_of_vectors(dst, m, c, m->columns->taps);
    }
}

/* ---- rows ---- */

#if defined(__SSE2__)
/* Four values as integers; mg_to_byte's comparisons are the instructions for maximum and minimum.
 */
INLINE __m128i round4(const float *p) {
    const __m128 both = _mm_min_ps(_mm_max_ps(_mm_loadu_ps(p), _mm_setzero_ps()), _mm_set1_ps(255));
    return _mm_cvttps_epi32(_mm_add_ps(both, _mm_set1_ps(0.5f)));
}

/* Converts sixteen values at a time. Returns the number of converted values. */
INLINE int64_t to_bytes_by_16(uint8_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const float *p = src + i;
        const __m128i low = _mm_packs_epi32(round4(p), round4(p + 4));
        const __m128i high = _mm_packs_epi32(round4(p + 8), round4(p + 12));
        _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm_packus_epi16(low, high));
    }
    return i;
}
#else
INLINE int64_t to_bytes_by_16(uint8_t *dst, const float *src, int64_t n) {
    (void)dst, (void)src, (void)n;
    return 0;
}
#endif

INLINE void to_bytes(uint8_t *restrict dst, const float *restrict src, int64_t n) {
    for (int64_t i = to_bytes_by_16(dst, src, n); i < n; i++) dst[i] = mg_to_byte(src[i]);
}

INLINE void mix_row(const mg_mixing *m, int64_t r, float *to) {
    const int64_t c = m->src->channels, out = m->columns->n * c;
    if (m->rows->index[r * m->rows->taps] < 0) {
        for (int64_t i = 0; i < out; i++) to[i] = m->constant;
        return;
    }
    if (m->src->dtype == MG_F32)
        line_f32(m, r);
    else
        line_u8(m, r);
    switch (c) {
    case 1: along_row(to, m, 1); break;
    case 3: along_row_of_pixels(to, m, 3); break;
    case 4: along_row_of_pixels(to, m, 4); break;
    default: along_row(to, m, c);
    }
}

INLINE void mix_rows(const mg_mixing *m) {
    const int64_t out = m->columns->n * m->src->channels, last = m->rows->n - 1;
    uint8_t *bytes = m->dst->data;
    float *floats = m->dst->data;
    for (int64_t r = 0; m->dst->dtype == MG_U8 && r <= last; r++, bytes += out) {
        mix_row(m, r, m->mixed);
        to_bytes(bytes, m->mixed, out);
    }
    if (m->dst->dtype == MG_U8) return;
    for (int64_t r = 0; r < last; r++, floats += out) mix_row(m, r, floats);
    mix_row(m, last, m->mixed); /* because mix_row writes one float too many */
    memcpy(floats, m->mixed, (size_t)out * sizeof *floats);
}

void mg_mix_rows_baseline(const mg_mixing *m) {
    mix_rows(m);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void mix_rows_avx2(const mg_mixing *m) {
    mix_rows(m);
}
#else
#define mix_rows_avx2 mg_mix_rows_baseline
#endif

mg_mix_rows *mg_mix_rows_chosen(void) {
    return mg_isa_used() >= MG_ISA_AVX2 ? mix_rows_avx2 : mg_mix_rows_baseline;
}

void mg_to_bytes(uint8_t *restrict dst, const float *restrict src, int64_t n) {
    to_bytes(dst, src, n);
}

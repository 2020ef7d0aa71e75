/* The table of conversions.h. */
#include "device/cpu/simd/conversions.h"
#include "device/cpu/simd/elements.h"

static void load_f32(float *out, const void *src, mg_dtype t, int n) {
    mg_load_f32(out, src, t, n);
}

static void store_f32(void *dst, const float *v, mg_dtype t, int n) {
    mg_store_f32(dst, v, t, n);
}

static void load_f64(double *out, const void *src, mg_dtype t, int n) {
    mg_load_f64(out, src, t, n);
}

static void store_f64(void *dst, const double *v, mg_dtype t, int n) {
    mg_store_f64(dst, v, t, n);
}

/* ---- rows of halves, a vector at a time ---- */

MG_INLINE void load_halves(float *out, const uint16_t *src, int64_t row, int64_t rows, int64_t n,
                           const mg_dtype t) {
    for (int64_t r = 0; r < rows; r++, src += row, out += n) {
        int64_t i = 0;
        for (; i + MG_WIDTH <= n; i += MG_WIDTH) mg_put_f32(out + i, mg_get_half(src + i, t));
        mg_load_f32(out + i, src + i, t, (int)(n - i));
    }
}

static void load_rows(float *out, const uint16_t *src, int64_t row, int64_t rows, int64_t n,
                      mg_dtype t) {
    if (row == n) n *= rows, rows = 1;
    MG_WITH_HALF(t, load_halves, out, src, row, rows, n);
}

MG_INLINE void store_halves(uint16_t *dst, int64_t row, const float *v, int64_t rows, int64_t n,
                            const mg_dtype t) {
    for (int64_t r = 0; r < rows; r++, dst += row, v += n) {
        int64_t i = 0;
        for (; i + MG_WIDTH <= n; i += MG_WIDTH) mg_put_half(dst + i, mg_get_f32(v + i), t);
        mg_store_f32(dst + i, v + i, t, (int)(n - i));
    }
}

static void store_rows(uint16_t *dst, int64_t row, const float *v, int64_t rows, int64_t n,
                       mg_dtype t) {
    if (row == n) n *= rows, rows = 1;
    MG_WITH_HALF(t, store_halves, dst, row, v, rows, n);
}

const mg_simd_conversions MG_ISA_NAME(mg_simd_conversions) = {.load_f32 = load_f32,
                                                              .store_f32 = store_f32,
                                                              .load_f64 = load_f64,
                                                              .store_f64 = store_f64,
                                                              .load_rows = load_rows,
                                                              .store_rows = store_rows};

/* The table of conversions.h. */
#include "device/cpu/simd/conversions.h"
#include "device/cpu/simd/conversion_loops.h"

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

const mg_simd_conversions MG_ISA_NAME(mg_simd_conversions) = {
    .load_f32 = load_f32, .store_f32 = store_f32, .load_f64 = load_f64, .store_f64 = store_f64};

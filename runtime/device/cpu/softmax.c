/* softmax and log_softmax over one axis, shifted by the maximum; sums in double.
 *
 * Along the last axis a row is read three times out of the cache. Along another axis up to 64
 * neighbouring columns go together. The maximum passes over NaN, which the sum then spreads. */
#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "device/cpu/vectormath.h"
#include "ops/attrs.h"
#include "ops/loops.h"

enum { COLUMNS = 64, SHORT = 64 }; /* columns together; rows too short for vector maxima */

static inline double wide_exp(double x) {
    return exp(x);
}

#define SOFTMAX(REAL, T, EXP)                                                                      \
    MG_CLONES static void row_##T(const void *src, void *dst, int64_t n, bool logarithm) {         \
        const REAL *restrict x = src;                                                              \
        REAL *restrict y = dst, largest = -INFINITY;                                               \
        double sum = 0;                                                                            \
        if (n < SHORT) {                                                                           \
            for (int64_t i = 0; i < n; i++) largest = x[i] > largest ? x[i] : largest;             \
        } else {                                                                                   \
            _Pragma("omp simd reduction(max : largest)") for (int64_t i = 0; i < n; i++) largest = \
                x[i] > largest ? x[i] : largest;                                                   \
        }                                                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = EXP(x[i] - largest);            \
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum +=              \
            (double)y[i];                                                                          \
        const double shift = logarithm ? log(sum) : 0, scale = 1 / sum;                            \
        if (logarithm) {                                                                           \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] =                             \
                (REAL)((double)(x[i] - largest) - shift);                                          \
        } else {                                                                                   \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] =                             \
                (REAL)((double)y[i] * scale);                                                      \
        }                                                                                          \
    }                                                                                              \
    MG_CLONES static void columns_##T(const void *src, void *dst, int64_t n, int64_t step,         \
                                      int width, bool logarithm) {                                 \
        const REAL *restrict x = src;                                                              \
        REAL *restrict y = dst, largest[COLUMNS];                                                  \
        double sum[COLUMNS];                                                                       \
        for (int j = 0; j < width; j++) largest[j] = -INFINITY, sum[j] = 0;                        \
        for (int64_t i = 0; i < n; i++)                                                            \
            for (int j = 0; j < width; j++)                                                        \
                largest[j] = x[i * step + j] > largest[j] ? x[i * step + j] : largest[j];          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            _Pragma("omp simd") for (int j = 0; j < width; j++) {                                  \
                const REAL e = EXP(x[i * step + j] - largest[j]);                                  \
                sum[j] += (double)e;                                                               \
                y[i * step + j] = e;                                                               \
            }                                                                                      \
        }                                                                                          \
        for (int j = 0; j < width; j++) sum[j] = logarithm ? log(sum[j]) : 1 / sum[j];             \
        for (int64_t i = 0; i < n; i++) {                                                          \
            _Pragma("omp simd") for (int j = 0; j < width; j++) {                                  \
                const double d = (double)(x[i * step + j] - largest[j]);                           \
                const double e = (double)y[i * step + j];                                          \
                y[i * step + j] = (REAL)(logarithm ? d - sum[j] : e * sum[j]);                     \
            }                                                                                      \
        }                                                                                          \
    }
SOFTMAX(float, f32, vm_exp)
SOFTMAX(double, f64, wide_exp)

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

static mg_status prepare(mg_kernel_plan *plan) {
    plan->in[0].layout = MG_ROW_MAJOR;
    return MG_OK;
}

static mg_status run(const mg_call *call, bool logarithm) {
    const mg_value *x = call->plan->in[0].value;
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_axis_view v = mg_axis_view_of(&x->shape, axis);
    const bool f32 = x->dtype == MG_F32;
    const int64_t size = f32 ? 4 : 8, tiles = (v.inner + COLUMNS - 1) / COLUMNS;
    if (v.n == 0) return MG_OK;
#pragma omp parallel for schedule(static) if (v.outer * v.n * v.inner > MG_SERIAL_BELOW / 4)
    for (int64_t unit = 0; unit < v.outer * tiles; unit++) {
        const int64_t first = unit % tiles * COLUMNS;
        const int64_t at = (unit / tiles * v.n * v.inner + first) * size;
        const void *src = (const char *)call->in[0] + at;
        void *dst = (char *)call->out[0] + at;
        if (v.inner == 1) {
            (f32 ? row_f32 : row_f64)(src, dst, v.n, logarithm);
        } else {
            const int64_t left = v.inner - first;
            (f32 ? columns_f32 : columns_f64)(src, dst, v.n, v.inner,
                                              (int)(left < COLUMNS ? left : COLUMNS), logarithm);
        }
    }
    return MG_OK;
}

static mg_status run_softmax(const mg_call *call) {
    return run(call, false);
}

static mg_status run_log_softmax(const mg_call *call) {
    return run(call, true);
}

const mg_kernel mg_cpu_softmax = {
    .op = "softmax", .name = "softmax", .accepts = accepts, .prepare = prepare, .run = run_softmax};
const mg_kernel mg_cpu_log_softmax = {.op = "log_softmax",
                                      .name = "log_softmax",
                                      .accepts = accepts,
                                      .prepare = prepare,
                                      .run = run_log_softmax};

/* softmax and log_softmax over one axis, shifted by the maximum; long sums in double.
 *
 * Along the last axis a row is read three times out of the cache. Along another axis up to 64
 * neighbouring columns go together. The maximum passes over NaN, which the sum then spreads. */
#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "device/cpu/row_loops.h"
#include "device/cpu/vectormath.h"
#include "ops/attrs.h"
#include "ops/loops.h"

enum { COLUMNS = 64 }; /* together */

#define SOFTMAX(REAL, T, EXP)                                                                      \
    MG_CLONES static void row_##T(const void *src, void *dst, int64_t n, bool logarithm) {         \
        const REAL *restrict x = src;                                                              \
        REAL *restrict y = dst, largest = -INFINITY;                                               \
        double sum = 0;                                                                            \
        ROW_LARGEST(largest)                                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = EXP(x[i] - largest);            \
        ROW_SUM(REAL, sum, y[i])                                                                   \
        const double shift = logarithm ? log(sum) : 0;                                             \
        const REAL scale = (REAL)(1 / sum);                                                        \
        if (logarithm) {                                                                           \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] =                             \
                (REAL)((double)(x[i] - largest) - shift);                                          \
        } else {                                                                                   \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = y[i] * scale;               \
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

/* y (dy - sum(dy y)) along rows, or along columns of which some go together. */
#define SOFTMAX_GRAD(REAL, T)                                                                      \
    MG_CLONES static void grad_row_##T(const REAL *restrict y, const REAL *restrict dy,            \
                                       REAL *restrict dx, int64_t n) {                             \
        double sum = 0;                                                                            \
        ROW_SUM(REAL, sum, dy[i] * y[i])                                                           \
        const REAL s = (REAL)sum;                                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - s);            \
    }                                                                                              \
    MG_CLONES static void grad_columns_##T(const REAL *restrict y, const REAL *restrict dy,        \
                                           REAL *restrict dx, int64_t n, int64_t step,             \
                                           int width) {                                            \
        double sum[COLUMNS] = {0};                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            _Pragma("omp simd") for (int j = 0; j < width; j++) sum[j] +=                          \
                (double)(dy[i * step + j] * y[i * step + j]);                                      \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            _Pragma("omp simd") for (int j = 0; j < width; j++) dx[i * step + j] =                 \
                y[i * step + j] * (dy[i * step + j] - (REAL)sum[j]);                               \
        }                                                                                          \
    }                                                                                              \
    static void grad_unit_##T(const mg_call *call, int64_t at, int64_t n, int64_t step,            \
                              int width) {                                                         \
        const REAL *y = (const REAL *)call->in[0] + at, *dy = (const REAL *)call->in[1] + at;      \
        REAL *dx = (REAL *)call->out[0] + at;                                                      \
        if (step == 1)                                                                             \
            grad_row_##T(y, dy, dx, n);                                                            \
        else                                                                                       \
            grad_columns_##T(y, dy, dx, n, step, width);                                           \
    }
SOFTMAX_GRAD(float, f32)
SOFTMAX_GRAD(double, f64)

SOFTMAX(float, f32, vm_exp)
SOFTMAX(double, f64, wide_exp)

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

static mg_status prepare(mg_kernel_plan *plan) {
    mg_all_row_major(plan);
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

static mg_status run_softmax_grad(const mg_call *call) {
    const mg_value *y = call->plan->in[0].value;
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_axis_view v = mg_axis_view_of(&y->shape, axis);
    const int64_t tiles = (v.inner + COLUMNS - 1) / COLUMNS;
    if (v.n == 0) return MG_OK;
#pragma omp parallel for schedule(static) if (v.outer * v.n * v.inner > MG_SERIAL_BELOW)
    for (int64_t unit = 0; unit < v.outer * tiles; unit++) {
        const int64_t first = unit % tiles * COLUMNS, left = v.inner - first;
        const int width = (int)(left < COLUMNS ? left : COLUMNS);
        const int64_t at = unit / tiles * v.n * v.inner + first;
        (y->dtype == MG_F32 ? grad_unit_f32 : grad_unit_f64)(call, at, v.n, v.inner, width);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_softmax_grad = {.op = "softmax_grad",
                                       .name = "softmax_grad",
                                       .accepts = accepts,
                                       .prepare = prepare,
                                       .run = run_softmax_grad};
const mg_kernel mg_cpu_softmax = {
    .op = "softmax", .name = "softmax", .accepts = accepts, .prepare = prepare, .run = run_softmax};
const mg_kernel mg_cpu_log_softmax = {.op = "log_softmax",
                                      .name = "log_softmax",
                                      .accepts = accepts,
                                      .prepare = prepare,
                                      .run = run_log_softmax};

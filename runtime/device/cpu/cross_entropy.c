/* Cross-entropy of softmax by rows, and its gradient: see ops/cross_entropy.c; long sums in double.
 *
 * A row is read out of the cache for its maximum, its sum of exponentials and its result. The
 * maximum passes over NaN, which the sum then spreads. */
#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "device/cpu/row_loops.h"
#include "device/cpu/vectormath.h"

#define CROSS_ENTROPY(REAL, T, EXP)                                                                \
    MG_CLONES static REAL largest_##T(const REAL *restrict x, int64_t n) {                         \
        REAL largest = -INFINITY;                                                                  \
        ROW_LARGEST(largest)                                                                       \
        return largest;                                                                            \
    }                                                                                              \
    MG_CLONES static double exponentials_##T(const REAL *restrict x, int64_t n, REAL largest) {    \
        double sum = 0;                                                                            \
        ROW_SUM(REAL, sum, EXP(x[i] - largest))                                                    \
        return sum;                                                                                \
    }                                                                                              \
    MG_CLONES static REAL loss_##T(const REAL *restrict x, const REAL *restrict t, int64_t n) {    \
        const REAL largest = largest_##T(x, n);                                                    \
        const double shift = log(exponentials_##T(x, n, largest));                                 \
        double total = 0;                                                                          \
        ROW_SUM(REAL, total, t[i] * (REAL)((double)(x[i] - largest) - shift))                      \
        return (REAL)-total;                                                                       \
    }                                                                                              \
    MG_CLONES static void grad_##T(const REAL *restrict x, const REAL *restrict t, REAL dy,        \
                                   REAL *restrict dx, int64_t n) {                                 \
        const REAL largest = largest_##T(x, n);                                                    \
        double sum = 0, targets = 0;                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = EXP(x[i] - largest);           \
        ROW_SUM(REAL, sum, dx[i])                                                                  \
        ROW_SUM(REAL, targets, t[i])                                                               \
        const REAL scale = (REAL)(targets / sum);                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = dy * (dx[i] * scale - t[i]);   \
    }                                                                                              \
    static REAL label_loss_##T(const REAL *x, int64_t label, int64_t n) {                          \
        if (label < 0 || label >= n) return 0;                                                     \
        const REAL largest = largest_##T(x, n);                                                    \
        return (REAL)(log(exponentials_##T(x, n, largest)) - (double)(x[label] - largest));        \
    }                                                                                              \
    MG_CLONES static void label_grad_##T(const REAL *restrict x, int64_t label, REAL dy,           \
                                         REAL *restrict dx, int64_t n) {                           \
        const REAL largest = largest_##T(x, n);                                                    \
        const bool inside = label >= 0 && label < n;                                               \
        double sum = 0;                                                                            \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = EXP(x[i] - largest);           \
        ROW_SUM(REAL, sum, dx[i])                                                                  \
        const REAL scale = (REAL)((double)inside / sum);                                           \
        const REAL own = inside ? dy * (dx[label] * scale - 1) : 0;                                \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = dy * (dx[i] * scale);          \
        if (inside) dx[label] = own;                                                               \
    }                                                                                              \
    static void dense_unit_##T(const mg_call *call, int64_t row, int64_t n) {                      \
        const REAL *x = call->in[0], *t = call->in[1];                                             \
        ((REAL *)call->out[0])[row] = loss_##T(x + row * n, t + row * n, n);                       \
    }                                                                                              \
    static void dense_grad_unit_##T(const mg_call *call, int64_t row, int64_t n) {                 \
        const REAL *x = call->in[0], *t = call->in[1], *dy = call->in[2];                          \
        grad_##T(x + row * n, t + row * n, dy[row], (REAL *)call->out[0] + row * n, n);            \
    }                                                                                              \
    static void sparse_unit_##T(const mg_call *call, int64_t row, int64_t n) {                     \
        const REAL *x = call->in[0];                                                               \
        ((REAL *)call->out[0])[row] = label_loss_##T(x + row * n, label_of(call, row), n);         \
    }                                                                                              \
    static void sparse_grad_unit_##T(const mg_call *call, int64_t row, int64_t n) {                \
        const REAL *x = call->in[0], *dy = call->in[2];                                            \
        label_grad_##T(x + row * n, label_of(call, row), dy[row], (REAL *)call->out[0] + row * n,  \
                       n);                                                                         \
    }

static int64_t label_of(const mg_call *call, int64_t row) {
    const bool wide = call->plan->in[1].value->dtype == MG_I64;
    return wide ? ((const int64_t *)call->in[1])[row] : ((const int32_t *)call->in[1])[row];
}

CROSS_ENTROPY(float, f32, vm_exp)
CROSS_ENTROPY(double, f64, wide_exp)

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_dtype x = plan->in[0].value->dtype, t = plan->in[1].value->dtype;
    if (x != MG_F32 && x != MG_F64) return "neither float32 nor float64";
    return t == x || t == MG_I32 || t == MG_I64 ? NULL : "labels neither int32 nor int64";
}

static mg_status prepare(mg_kernel_plan *plan) {
    mg_all_row_major(plan);
    return MG_OK;
}

typedef void unit(const mg_call *call, int64_t row, int64_t n);

static mg_status run_rows(const mg_call *call, unit *narrow, unit *wide) {
    const mg_value *x = call->plan->in[0].value;
    const int64_t n = x->shape.dim[x->shape.rank - 1];
    unit *each = x->dtype == MG_F32 ? narrow : wide;
    int64_t rows = 1;
    for (int i = 0; i + 1 < x->shape.rank; i++) rows *= x->shape.dim[i];
#pragma omp parallel for schedule(static) if (rows * n > MG_SERIAL_BELOW / 4)
    for (int64_t row = 0; row < rows; row++) each(call, row, n);
    return MG_OK;
}

#define KERNEL(id, units)                                                                          \
    static mg_status run_##units(const mg_call *call) {                                            \
        return run_rows(call, units##_unit_f32, units##_unit_f64);                                 \
    }                                                                                              \
    const mg_kernel mg_cpu_##id = {.op = #id,                                                      \
                                   .name = "cross_entropy",                                        \
                                   .accepts = accepts,                                             \
                                   .prepare = prepare,                                             \
                                   .run = run_##units}
KERNEL(softmax_cross_entropy, dense);
KERNEL(softmax_cross_entropy_grad, dense_grad);
KERNEL(sparse_softmax_cross_entropy, sparse);
KERNEL(sparse_softmax_cross_entropy_grad, sparse_grad);

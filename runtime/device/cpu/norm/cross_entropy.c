/* Cross-entropy of softmax by rows, and its gradient, for dense targets and for labels: see
 * ops/cross_entropy.c for the ops and simd/softmax_loops.h for the loops. */
#include "device/cpu/norm/norm.h"

/* The label of a row. */
static int64_t label_of(const mg_call *call, int64_t row) {
    const bool wide = call->plan->in[1].value->dtype == MG_I64;
    return wide ? ((const int64_t *)call->in[1])[row] : ((const int32_t *)call->in[1])[row];
}

/* Dense targets have the dtype of x; labels are 32 or 64 bits wide. */
static const char *cross_entropy_accepts(const mg_kernel_plan *plan) {
    const mg_dtype x = plan->in[0].value->dtype, t = plan->in[1].value->dtype;
    if (x != MG_F32 && x != MG_F64) return "neither float32 nor float64";
    return t == x || t == MG_I32 || t == MG_I64 ? NULL : "labels neither int32 nor int64";
}

/* Computes one row of an op; the loops are those for the dtype of x. */
typedef void row_function(const mg_simd_cross_entropy *loops, const mg_call *call, int64_t row,
                          int64_t n);

/* One function for each op: passes the op's operands to its loop. */
static void loss_row(const mg_simd_cross_entropy *loops, const mg_call *call, int64_t row,
                     int64_t n) {
    loops->loss(call->in[0], call->in[1], row, n, call->out[0]);
}

static void grad_row(const mg_simd_cross_entropy *loops, const mg_call *call, int64_t row,
                     int64_t n) {
    loops->grad(call->in[0], call->in[1], call->in[2], row, n, call->out[0]);
}

static void label_loss_row(const mg_simd_cross_entropy *loops, const mg_call *call, int64_t row,
                           int64_t n) {
    loops->label_loss(call->in[0], label_of(call, row), row, n, call->out[0]);
}

static void label_grad_row(const mg_simd_cross_entropy *loops, const mg_call *call, int64_t row,
                           int64_t n) {
    loops->label_grad(call->in[0], label_of(call, row), call->in[2], row, n, call->out[0]);
}

/* Threads share the rows. */
static mg_status run_rows(const mg_call *call, row_function *each) {
    const mg_value *x = call->plan->in[0].value;
    const mg_simd_cross_entropy *loops = mg_simd_used->cross_entropy[mg_simd_index(x->dtype)];
    const int64_t n = x->shape.dim[x->shape.rank - 1];
    int64_t rows = 1;
    for (int i = 0; i + 1 < x->shape.rank; i++) rows *= x->shape.dim[i];
#pragma omp parallel for schedule(static) if (rows * n > MG_SERIAL_BELOW / 4)
    for (int64_t row = 0; row < rows; row++) each(loops, call, row, n);
    return MG_OK;
}

/* The run function and the kernel of an op. */
#define KERNEL(id, each)                                                                           \
    static mg_status run_##each(const mg_call *call) {                                             \
        return run_rows(call, each);                                                               \
    }                                                                                              \
    const mg_kernel mg_cpu_##id = {                                                                \
        .op = #id, .name = "cross_entropy", .accepts = cross_entropy_accepts, .run = run_##each}
KERNEL(softmax_cross_entropy, loss_row);
KERNEL(softmax_cross_entropy_grad, grad_row);
KERNEL(sparse_softmax_cross_entropy, label_loss_row);
KERNEL(sparse_softmax_cross_entropy_grad, label_grad_row);

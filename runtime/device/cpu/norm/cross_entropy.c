/* Cross-entropy of softmax by rows, and its gradient, for dense targets and for labels: see
 * ops/cross_entropy.c for the ops and simd/softmax_loops.h for the loops. */
#include "device/cpu/halves.h"
#include "device/cpu/norm/norm.h"

/* Dense targets have the dtype of x; labels are 32 or 64 bits wide. */
static const char *cross_entropy_accepts(const mg_kernel_plan *plan) {
    const mg_dtype x = plan->in[0].value->dtype, t = plan->in[1].value->dtype;
    if (!mg_dtype_is_float(x)) return "not floating point";
    return t == x || t == MG_I32 || t == MG_I64 ? NULL : "labels neither int32 nor int64";
}

/* A row of the operands, and this thread's copies of three rows, for halves. */
typedef struct row {
    const mg_call *call;
    const mg_simd_cross_entropy *loops;
    mg_dtype t; /* of x */
    int64_t at, n;
    float *copy;
} row;

/* The elements of row r of an input of the shape of x: in place, or copied to place `copy`. */
static const void *read_row(const row *r, int input, int copy) {
    return mg_read_elements(r->call->in[input], r->t, r->at * r->n, r->n,
                            r->copy ? r->copy + copy * r->n : NULL);
}

static int64_t label_of(const row *r) {
    const bool wide = r->call->plan->in[1].value->dtype == MG_I64;
    return wide ? ((const int64_t *)r->call->in[1])[r->at]
                : ((const int32_t *)r->call->in[1])[r->at];
}

/* The losses of a row, and their gradients: one function for each op. */
static void loss_row(const row *r, void *loss) {
    r->loops->loss(read_row(r, 0, 0), read_row(r, 1, 1), r->n, loss);
}

static void label_loss_row(const row *r, void *loss) {
    r->loops->label_loss(read_row(r, 0, 0), label_of(r), r->n, loss);
}

static void grad_row(const row *r, const void *dy, void *dx) {
    r->loops->grad(read_row(r, 0, 0), read_row(r, 1, 1), dy, r->n, dx);
}

static void label_grad_row(const row *r, const void *dy, void *dx) {
    r->loops->label_grad(read_row(r, 0, 0), label_of(r), dy, r->n, dx);
}

/* The row of the call's operands from which the others are counted, and the number of rows. */
static row first_row(const mg_call *call, int64_t *rows) {
    const mg_value *x = call->plan->in[0].value;
    *rows = 1;
    for (int i = 0; i + 1 < x->shape.rank; i++) *rows *= x->shape.dim[i];
    return (row){.call = call,
                 .loops = mg_simd_used->cross_entropy[mg_simd_index(x->dtype)],
                 .t = x->dtype,
                 .n = x->shape.dim[x->shape.rank - 1]};
}

static mg_status cross_entropy_prepare(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    plan->scratch =
        mg_copies_bytes(x->dtype, 3 * x->shape.dim[x->shape.rank - 1], mg_cpu_threads());
    return MG_OK;
}

/* Threads share the rows. */
static mg_status run_losses(const mg_call *call, void (*each)(const row *r, void *loss)) {
    int64_t rows;
    const row all = first_row(call, &rows);
#pragma omp parallel for schedule(static) if (rows * all.n > MG_SERIAL_BELOW / 4)
    for (int64_t i = 0; i < rows; i++) {
        row r = all;
        float loss;
        r.at = i, r.copy = mg_own_copy(call->scratch, r.t, 3 * r.n);
        each(&r, mg_target_elements(call->out[0], r.t, i, &loss));
        mg_round_elements(call->out[0], r.t, i, 1, &loss);
    }
    return MG_OK;
}

static mg_status run_gradients(const mg_call *call,
                               void (*each)(const row *r, const void *dy, void *dx)) {
    int64_t rows;
    const row all = first_row(call, &rows);
#pragma omp parallel for schedule(static) if (rows * all.n > MG_SERIAL_BELOW / 4)
    for (int64_t i = 0; i < rows; i++) {
        row r = all;
        float dy;
        r.at = i, r.copy = mg_own_copy(call->scratch, r.t, 3 * r.n);
        float *dx = r.copy ? r.copy + 2 * r.n : NULL;
        each(&r, mg_read_elements(call->in[2], r.t, i, 1, &dy),
             mg_target_elements(call->out[0], r.t, i * r.n, dx));
        mg_round_elements(call->out[0], r.t, i * r.n, r.n, dx);
    }
    return MG_OK;
}

/* The run function and the kernel of an op. */
#define KERNEL(id, run_rows, each)                                                                 \
    static mg_status run_##each(const mg_call *call) {                                             \
        return run_rows(call, each);                                                               \
    }                                                                                              \
    const mg_kernel mg_cpu_##id = {.op = #id,                                                      \
                                   .name = "cross_entropy",                                        \
                                   .accepts = cross_entropy_accepts,                               \
                                   .prepare = cross_entropy_prepare,                               \
                                   .run = run_##each}
KERNEL(softmax_cross_entropy, run_losses, loss_row);
KERNEL(softmax_cross_entropy_grad, run_gradients, grad_row);
KERNEL(sparse_softmax_cross_entropy, run_losses, label_loss_row);
KERNEL(sparse_softmax_cross_entropy_grad, run_gradients, label_grad_row);

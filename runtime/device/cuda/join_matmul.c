/* Joining a product with the sums of its second operand's columns.
 *
 * This is the backward pass of a dense layer, dW = x' dz and db = the sums of dz, of which cuBLASLt
 * makes both in one pass over dz. Not where somebody wants the sums before the product. */
#include "device/cuda/join.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"

/* A product whose second operand has the columns that `sum` adds up. */
static bool has_columns(const mg_joiner *j, const mg_step *s, const mg_step *sum) {
    if (!mg_join_is_op(s, "matmul") || s->n_in != 2 || s->n_out != 1) return false;
    const mg_matmul_attrs *attrs = s->attrs;
    const mg_shape *a = &mg_join_value(j, s->in[0])->shape, *b = &mg_join_value(j, s->in[1])->shape;
    const mg_shape *x = &mg_join_value(j, sum->in[0])->shape;
    return !attrs->relu && !attrs->transpose_b && a->rank == 2 && b->rank == 2 &&
           j->origin[s->in[1]] == j->origin[sum->in[0]] && b->dim[1] == x->dim[x->rank - 1] &&
           mg_join_value(j, s->out[0])->dtype == mg_join_value(j, sum->out[0])->dtype;
}

bool mg_join_matmul(mg_joiner *j, int sum) {
    const mg_step *s = &j->steps[sum];
    for (int i = 0; i < j->graph->n_compute; i++) {
        if (i > sum && mg_join_reads(&j->steps[i], s->out[0])) return false;
        if (has_columns(j, &j->steps[i], s)) return mg_join_sum(j, i, sum, 0, &mg_cuda_blas_matmul);
    }
    return false;
}

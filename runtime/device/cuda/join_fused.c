/* Joining a fused group with the sums of the columns of what it makes: see fused_sums.c.
 *
 * Whoever reads the sums comes after the group, because their step did; a group of a multi-tensor
 * update stays what it is. */
#include "device/cuda/join.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"

static int64_t columns_of(const mg_joiner *j, int value) {
    const mg_shape *s = &mg_join_value(j, value)->shape;
    return s->rank > 0 ? s->dim[s->rank - 1] : 0;
}

/* A gradient of windows that do not overlap: each number goes to a cell of its own, the others are
 * 0, so the columns' sums stay. */
static bool spreads(const mg_step *s) {
    if (!mg_join_is_op(s, "max_pool2d_grad")) return false;
    const mg_pool_attrs *a = s->attrs;
    return a->strides.v[0] >= a->size.v[0] && a->strides.v[1] >= a->size.v[1];
}

/* What has the sums of the columns of `value`, as far up as there is something before `step`. */
static int source_of(const mg_joiner *j, int step, int value) {
    const int64_t columns = columns_of(j, value);
    value = j->origin[value];
    for (int i = step - 1; i >= 0 && columns_of(j, value) == columns; i--)
        if (spreads(&j->steps[i]) && j->steps[i].out[0] == value)
            value = j->origin[j->steps[i].in[2]];
    return columns_of(j, value) == columns ? value : -1;
}

/* The result of a group that is this value, or -1. */
static int result_for(const mg_step *s, int value) {
    if (!s->fused || s->batch_count != 1 || s->n_out != s->fused->n_outputs) return -1;
    for (int o = 0; o < s->n_out; o++)
        if (s->out[o] == value) return o;
    return -1;
}

bool mg_join_fused(mg_joiner *j, int sum) {
    const int source = source_of(j, sum, j->steps[sum].in[0]);
    for (int i = 0; i < sum; i++) {
        const int result = result_for(&j->steps[i], source);
        if (result >= 0) return mg_join_sum(j, i, sum, result, &mg_cuda_fused_sums);
    }
    return false;
}

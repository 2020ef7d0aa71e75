/* Joining a fused group with the sums of the columns of what it makes: see fused_sums.c.
 *
 * Whoever reads the sums comes after the group, because their step did; a group of a multi-tensor
 * update stays what it is. */
#include "device/cuda/join.h"
#include "device/cuda/kernels.h"

/* The result of the group `s` whose columns `sum` adds up, or -1. */
static int result_for(const mg_joiner *j, const mg_step *s, const mg_step *sum) {
    const mg_shape *x = &mg_join_value(j, sum->in[0])->shape;
    if (!s->fused || s->alike != 1 || s->n_out != s->fused->n_outputs) return -1;
    for (int o = 0; o < s->n_out; o++) {
        const mg_shape *made = &mg_join_value(j, s->out[o])->shape;
        if (s->out[o] == j->origin[sum->in[0]] && made->rank > 0 &&
            made->dim[made->rank - 1] == x->dim[x->rank - 1])
            return o;
    }
    return -1;
}

bool mg_join_fused(mg_joiner *j, int sum) {
    for (int i = 0; i < sum; i++) {
        const int result = result_for(j, &j->steps[i], &j->steps[sum]);
        if (result >= 0) return mg_join_sum(j, i, sum, result, &mg_cuda_fused_sums);
    }
    return false;
}

/* Bodies of loops: life, and the lists they hold. */
#include "core/loop.h"
#include "core/alloc.h"

mg_loop *mg_loop_new(int64_t steps, bool reverse, mg_tensor *const *params, int n_carries,
                     int n_rows) {
    mg_loop *l = mg_alloc_zero(sizeof *l);
    if (!l) return NULL;
    atomic_init(&l->refs, 1);
    l->steps = steps;
    l->reverse = reverse;
    l->n_carries = n_carries;
    l->n_rows = n_rows;
    l->params = mg_alloc((size_t)(n_carries + n_rows + 1) * sizeof(mg_tensor *));
    if (!l->params) {
        mg_free(l);
        return NULL;
    }
    for (int i = 0; i < n_carries + n_rows; i++) l->params[i] = mg_tensor_retain(params[i]);
    return l;
}

/* From any thread. */
mg_loop *mg_loop_retain(mg_loop *l) {
    atomic_fetch_add(&l->refs, 1);
    return l;
}

static void release_list(mg_tensor **list, int n) {
    for (int i = 0; i < n; i++) mg_tensor_release(list[i]);
    mg_free(list);
}

void mg_loop_release(mg_loop *l) {
    if (!l || atomic_fetch_sub(&l->refs, 1) != 1) return;
    release_list(l->params, l->n_carries + l->n_rows);
    release_list(l->given, l->n_given);
    release_list(l->results, l->n_results);
    mg_free(l);
}

mg_status mg_loop_add_given(mg_loop *l, mg_tensor *t) {
    MG_TRY(mg_reserve((void **)&l->given, l->n_given, &l->given_capacity, sizeof(mg_tensor *)));
    l->given[l->n_given++] = mg_tensor_retain(t);
    return MG_OK;
}

mg_status mg_loop_add_result(mg_loop *l, mg_tensor *t) {
    MG_TRY(
        mg_reserve((void **)&l->results, l->n_results, &l->results_capacity, sizeof(mg_tensor *)));
    l->results[l->n_results++] = mg_tensor_retain(t);
    return MG_OK;
}

int mg_loop_tap(mg_loop *l, mg_tensor *t) {
    for (int k = l->n_carries; k < l->n_results; k++)
        if (l->results[k] == t) return k;
    return mg_loop_add_result(l, t) == MG_OK ? l->n_results - 1 : -1;
}

mg_status mg_loop_result_shape(const mg_loop *l, int k, mg_shape *shape) {
    const mg_shape *own = &l->results[k]->shape;
    if (k < l->n_carries) {
        *shape = *own;
        return MG_OK;
    }
    if (own->rank == MG_MAX_RANK)
        return mg_fail(MG_UNSUPPORTED,
                       "scan: a result of shape %s has %d axes, the most a tensor "
                       "can have: its steps cannot be stacked",
                       MG_SHAPE_TEXT(own), MG_MAX_RANK);
    *shape = (mg_shape){.rank = own->rank + 1};
    shape->dim[0] = l->steps;
    for (int i = 0; i < own->rank; i++) shape->dim[i + 1] = own->dim[i];
    return MG_OK;
}

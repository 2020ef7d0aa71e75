/* Loops: the body of a scan, which is what it computes in each step.
 *
 * A body is a graph of tensors over parameters, which stand for the values of one step: the carries
 * before it, and the entries of the arrays that the loop runs along. The graph also reads tensors
 * from outside, the same in each step. graph/loop.c traces bodies; the scan op (ops/loop.c) holds
 * one. A body is never evaluated: graph/ir.c makes an IR of it, which a device runs once per
 * step.
 *
 * The gradient of a loop needs values of its steps: mg_loop_tap adds them to the results, so the
 * list may grow while tensors that hold the loop exist. Loops are reference counted. */
#ifndef MG_CORE_LOOP_H
#define MG_CORE_LOOP_H

#include "core/tensor.h"

typedef struct mg_loop {
    atomic_int refs;
    int64_t steps;
    bool reverse;    /* the last entries come first */
    bool checkpoint; /* the gradient keeps nothing but the carries, and computes the rest again */
    int n_carries, n_rows;
    mg_tensor **params; /* owned: n_carries carries, then n_rows entries of arrays. Any tensors may
                           be parameters: the body's graph ends at them */
    int n_given, given_capacity;
    mg_tensor **given; /* owned: tensors from outside that the results depend on */
    int n_results, results_capacity;
    mg_tensor **results; /* owned: the next carries, then what is stacked over the steps */
} mg_loop;

/* Without given tensors and results. `params` are retained. Owned; NULL: MG_OOM. */
mg_loop *mg_loop_new(int64_t steps, bool reverse, mg_tensor *const *params, int n_carries,
                     int n_rows);
mg_loop *mg_loop_retain(mg_loop *l);
/* Accepts NULL. */
void mg_loop_release(mg_loop *l);
mg_status mg_loop_add_given(mg_loop *l, mg_tensor *t);
mg_status mg_loop_add_result(mg_loop *l, mg_tensor *t);
/* The number of the result that stacks t, a tensor of the body, over the steps; added if there is
 * none. -1: MG_OOM. */
int mg_loop_tap(mg_loop *l, mg_tensor *t);
/* The shape of result k of the whole loop: a carry's own, or {steps, ...}. The dtype is that of
 * results[k]. */
mg_status mg_loop_result_shape(const mg_loop *l, int k, mg_shape *shape);

#endif

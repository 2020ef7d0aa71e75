/* Tracing loops: the body of a scan is built from tensors over parameters, like the steps of
 * mgpu.jit, and outside of these too.
 *
 * While a body is open on a thread, its parameters and what depends on them have no values; random
 * draws are made for all steps at once, outside of the body; guards become results, which are
 * checked outside; and variables cannot be assigned. Bodies nest. */
#ifndef MG_GRAPH_LOOP_H
#define MG_GRAPH_LOOP_H

#include "core/loop.h"
#include "graph/tensor_set.h"

typedef struct mg_loop_trace mg_loop_trace;

/* Opens a body of `steps` > 0 steps; reverse and checkpoint as in mg_loop. Owned, by one of the two
 * functions that close it; NULL on failure. */
mg_loop_trace *mg_loop_begin(int64_t steps, bool reverse, bool checkpoint);
/* The innermost open body of this thread, or NULL. */
mg_loop_trace *mg_loop_current(void);
/* Adds a carry, which is `init` before the first step, or an array to run along, {steps, ...}.
 * Returns the parameter that stands for it in a step; borrowed, NULL on failure. */
mg_tensor *mg_loop_carry(mg_loop_trace *t, mg_tensor *init);
mg_tensor *mg_loop_rows(mg_loop_trace *t, mg_tensor *rows);
/* The same with a tensor of another body as the parameter. */
mg_status mg_loop_rows_as(mg_loop_trace *t, mg_tensor *param, mg_tensor *rows);
/* In an open body: what mg_guard_add does. */
mg_status mg_loop_guard(mg_loop_trace *t, mg_tensor *ok, mg_status code, const char *message);
/* Closes the body, whose results are the next carries and what is to be stacked. The scan, whose
 * results mg_result (ops/build.h) makes. Owned; NULL on failure. */
mg_tensor *mg_loop_end(mg_loop_trace *t, mg_tensor *const *results, int n);
void mg_loop_abandon(mg_loop_trace *t);

/* Collects the tensors of a loop's body that depend on its parameters. The set may be freed in any
 * case. */
mg_status mg_loop_collect_body(const mg_loop *l, mg_tensor_set *body);

#endif

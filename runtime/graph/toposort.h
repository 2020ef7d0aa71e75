/* Topological order: the history of tensors, inputs before their users, without recursion. */
#ifndef MG_GRAPH_TOPOSORT_H
#define MG_GRAPH_TOPOSORT_H

#include "core/tensor.h"

typedef struct mg_toposort {
    mg_tensor **items; /* borrowed: the roots hold them */
    int n, capacity;
    uint32_t number; /* items have visit == number and position == their index here */
} mg_toposort;

/* Lists every tensor that is reachable from the roots through inputs. `descend` says whether a
 * tensor's inputs are followed. Only one walk per thread may be in use at a time, and positions are
 * valid until the next walk. */
mg_status mg_toposort_collect(mg_toposort *w, mg_tensor *const *roots, int n_roots,
                              bool (*descend)(const mg_tensor *t, void *context), void *context);
/* A number that no tensor's `visit` has yet, for a walk that only needs to meet each tensor once.
 */
uint32_t mg_toposort_new_visit(void);
/* Makes the positions and visits of the listed tensors those of this walk again, after other walks
 * have met some of them. */
void mg_toposort_resume(mg_toposort *w);
void mg_toposort_free(mg_toposort *w);

#endif

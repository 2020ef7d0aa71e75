/* Guards on new values: whether the values that a step's commit phase has written to variables are
 * finite.
 *
 * Updates are written over the old values, so these guards are checked after the commit phase,
 * while all others are checked before it: the step has happened, and its error names the variable
 * that is lost. The variable is marked (mg_variable.nonfinite) until it gets another value, and
 * steps that would update it are refused. The check is an all_finite at the end of the commit
 * phase; it replaces a check of the values that a step begins with, so weights are read no more
 * often than before. */
#ifndef MG_GRAPH_NEW_VALUES_H
#define MG_GRAPH_NEW_VALUES_H

#include "graph/graph.h"

/* In the open trace: *guard holds if the traced values of the variables, which lie on one device,
 * are finite; n is at most 255. guard owns ok, a copy of `message`, and references on the
 * variables. */
mg_status mg_new_values_guard(mg_variable *const *variables, int n, const char *message,
                              mg_guard *guard);
/* A copy without `ok`. What it owns is released by mg_guard_clear, also after a failure. */
mg_status mg_guard_copy(const mg_guard *guard, mg_guard *copy);
void mg_guard_clear(mg_guard *guard);
/* Marks the variables of a guard that has failed, and raises its error, which names the first. */
mg_status mg_new_values_raise(const mg_guard *guard);
/* Before a step: an error if one of the guard's variables is marked. */
mg_status mg_new_values_usable(const mg_guard *guard);

#endif

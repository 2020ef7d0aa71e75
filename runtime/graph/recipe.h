/* Results of recorded runs, and their histories: see core/recipe.h. */
#ifndef MG_GRAPH_RECIPE_H
#define MG_GRAPH_RECIPE_H

#include "core/recipe.h"

/* Recorded calls in a row, each given the result of the one before, whose histories are kept: the
 * results of earlier ones become plain values. */
enum { MG_MOST_RECORDED = 64 };

/* *r (owned) computes the outputs of an open trace with n_args arguments; NULL if they cannot be
 * recorded: loops, whose bodies name the trace's own tensors. */
mg_status mg_recipe_make(int n_args, mg_variable *const *variables, int n_variables,
                         mg_tensor *const *outputs, int n_outputs, mg_recipe **r);
/* Whether all that a run would be given has values. */
bool mg_recipe_is_ready(const mg_recipe *r, mg_tensor *const *args);
/* Result number k of a run that was given args and the variables' present values, with the value
 * that the run has made. Owned; NULL: MG_OOM. */
mg_tensor *mg_recipe_result(mg_recipe *r, int k, const mg_tensor *value, mg_tensor *const *args);
/* Gives such a result its history in place of the recipe. */
mg_status mg_recipe_expand(mg_tensor *result);

#endif

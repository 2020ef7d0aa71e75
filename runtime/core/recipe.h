/* Recipes: how the results of a plan are computed, as tensors.
 *
 * A run of a plan gives values without a history, from which no gradient could flow. Where one may
 * be wanted later, the run is recorded: its results (ops/recorded.c) keep what it was given and the
 * recipe of the plan, the graph that was traced for it. graph/recipe.c makes recipes and, when a
 * gradient is taken, the history of a result. Recipes are reference counted. */
#ifndef MG_CORE_RECIPE_H
#define MG_CORE_RECIPE_H

#include "core/tensor.h"

typedef struct mg_recipe {
    atomic_int refs;
    int n_args; /* what a run is given: the values of its arguments, then those of variables */
    int n_variables;
    mg_variable **variables; /* owned */
    int n_outputs;
    mg_tensor **outputs; /* owned: over placeholders of the arguments and variables */
    int n_internal;      /* tensors of that graph, which users do not see: they are not counted */
} mg_recipe;

/* Without outputs and variables; room for these. Owned; NULL: MG_OOM. */
mg_recipe *mg_recipe_new(int n_args, int most_variables, int most_outputs);
mg_recipe *mg_recipe_retain(mg_recipe *r);
/* Accepts NULL. */
void mg_recipe_release(mg_recipe *r);

#endif

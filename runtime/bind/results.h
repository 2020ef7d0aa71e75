/* What a traced function returned, and how later runs return the same with their own tensors.
 *
 * The results are kept as a template: a table of the returned values, nested tables included, with
 * a light userdata i in the place of the i-th tensor. */
#ifndef MG_BIND_RESULTS_H
#define MG_BIND_RESULTS_H

#include "bind/signature.h"

/* The tensors among the results of a trace: the outputs of the plan. */
typedef struct bind_outputs {
    mg_tensor *list[BIND_MAX_TENSORS]; /* borrowed from the anchors on the stack */
    int n, n_results;                  /* tensors; values that the function returned */
} bind_outputs;

/* The stack holds the n_results returned values and nothing else. Leaves in their place the
 * anchors, a table that keeps the tensors alive, and the template. Raises for a value that cannot
 * be a result. */
void bind_outputs_take(lua_State *L, bind_outputs *o, int n_results);

/* The tensors of one run, in a userdata whose collection releases them. */
typedef struct bind_results {
    int room, n; /* n: how many the run has filled in */
    mg_tensor *list[];
} bind_results;

/* Pushes one with room for n tensors. */
bind_results *bind_new_results(lua_State *L, int n);
/* Pushes what the function would have returned: n_results values by the template (a registry
 * reference), with the tensors of r, all filled in, in their places. Returns n_results. */
int bind_push_results(lua_State *L, bind_results *r, int template, int n_results);

/* Makes the metatable of bind_results. */
void bind_open_results(lua_State *L);

#endif

/* What a traced function returned, and the results of later runs put in its place.
 *
 * It is kept as a template: the same tables, with a light userdata in each tensor's place. */
#ifndef MG_BIND_RESULTS_H
#define MG_BIND_RESULTS_H

#include "bind/signature.h"

typedef struct bind_outputs {
    mg_tensor *list[BIND_MAX_TENSORS]; /* borrowed: the anchors on the stack hold them */
    int n, n_results;
} bind_outputs;

/* The stack holds n_results values and nothing else: leaves in their place a table of anchors,
 * which keeps what is read, and the template, a table of n_results. Raises what cannot be a result.
 */
void bind_outputs_take(lua_State *L, bind_outputs *o, int n_results);

/* A userdata whose collection releases them. */
typedef struct bind_results {
    int room, n; /* n: of those that a run has filled */
    mg_tensor *list[];
} bind_results;

/* Pushes one with room for n. */
bind_results *bind_new_results(lua_State *L, int n);
/* Pushes what the function returned, n_results values by its template (a reference in the
 * registry), with the tensors of r, which is full, in their places. Returns n_results. */
int bind_push_results(lua_State *L, bind_results *r, int template, int n_results);

void bind_open_results(lua_State *L);

#endif

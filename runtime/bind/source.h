/* Sources and transforms in Lua: userdata that hold one each. */
#ifndef MG_BIND_SOURCE_H
#define MG_BIND_SOURCE_H

#include "data/source.h"
#include "data/transform.h"
#include <lua.h>
#include <stdbool.h>

/* Pushes an empty userdata and returns the place for its source; fill it at once:
 *     mg_source **place = bind_new_source(L);
 *     if (!(*place = mg_tfrecord_source(...))) return bind_raise(L); */
mg_source **bind_new_source(lua_State *L);
mg_transform **bind_new_transform(lua_State *L);
/* The source or transform at index, borrowed. Raises for anything else. */
mg_source *bind_to_source(lua_State *L, int index, const char *who);
mg_transform *bind_to_transform(lua_State *L, int index, const char *who);

/* Defines the metatables; called once for a state. */
void bind_open_source(lua_State *L);

/* ---- source_files.c: helpers for the bindings of file sources ---- */

/* The strings of the array at index (an absolute one), which must stay on the stack; their number
 * in *n. Pushes the block that holds them. Raises for anything else and for zero bytes. */
const char **bind_take_texts(lua_State *L, int index, const char *who, int *n);
/* Whether the field of the table at `at` is true. */
bool bind_true_field(lua_State *L, int at, const char *name);

/* Moves the values on the stack above the table at `at` into the table, which keeps them alive. */
void bind_keep(lua_State *L, int at);

#endif

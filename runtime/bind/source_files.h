/* What the bindings of sources of files share. */
#ifndef MG_BIND_SOURCE_FILES_H
#define MG_BIND_SOURCE_FILES_H

#include <lua.h>
#include <stdbool.h>

/* The strings of the array at index (an absolute one), which must stay on the stack; their number
 * in *n. Pushes the block that holds them. Raises for anything else and for zero bytes. */
const char **bind_take_texts(lua_State *L, int index, const char *who, int *n);
/* Whether the field of the table at `at` is true. */
bool bind_true_field(lua_State *L, int at, const char *name);

/* Moves what is on the stack above the table at `at` into the table, which keeps it alive. */
void bind_keep(lua_State *L, int at);

#endif

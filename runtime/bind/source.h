/* Sources and transforms in Lua: userdata that hold one each. */
#ifndef MG_BIND_SOURCE_H
#define MG_BIND_SOURCE_H

#include "data/source.h"
#include "data/transform.h"
#include <lua.h>

/* Pushes an empty userdata and returns where its source goes; fill it at once:
 *     mg_source **place = bind_new_source(L);
 *     if (!(*place = mg_tfrecord_source(...))) return bind_raise(L); */
mg_source **bind_new_source(lua_State *L);
mg_transform **bind_new_transform(lua_State *L);
/* The source or transform at index, borrowed. Raises for anything else. */
mg_source *bind_to_source(lua_State *L, int index, const char *who);
mg_transform *bind_to_transform(lua_State *L, int index, const char *who);

/* Defines the metatables; called once for a state. */
void bind_open_source(lua_State *L);

#endif

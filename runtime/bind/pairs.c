/* pairs and next as ordinary C functions, which LuaJIT's compiler calls but does not compile.
 *
 * With LuaJIT's own, released versions run some loops wrongly. A loop with another one inside ends
 * after its first entry once LuaJIT gives up compiling it (issue 827, in Debian 12's version). An
 * entry may be skipped (issue 1510, before August 2026). A compiled loop over an empty table may
 * see an entry: with Debian 12's version, in some processes only. */
#include "bind/bind.h"

/* next(table [, key]) -> the key and value after `key`, or nil. */
static int next_pair(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    if (lua_next(L, 1)) return 2;
    lua_pushnil(L);
    return 1;
}

/* pairs(table) -> next, table, nil. */
static int all_pairs(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

/* Sets the global to the function on top of the stack, and pops it. A function in Lua is the user's
 * own, and stays. */
static void replace_global(lua_State *L, const char *name) {
    lua_getglobal(L, name);
    const bool is_own = !lua_iscfunction(L, -1);
    lua_pop(L, 1);
    if (is_own)
        lua_pop(L, 1);
    else
        lua_setglobal(L, name);
}

void bind_replace_pairs(lua_State *L) {
    lua_pushcfunction(L, next_pair);
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, all_pairs, 1);
    replace_global(L, "pairs");
    replace_global(L, "next");
}

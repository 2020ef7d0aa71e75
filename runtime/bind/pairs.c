/* pairs and next as ordinary C functions, which LuaJIT's compiler calls but does not compile.
 *
 * With LuaJIT's own, some loops run wrongly. A loop with another one inside ends after its first
 * entry once LuaJIT gives up compiling it (issue 827). An entry may be skipped when a loop over
 * `next` meets another iterator (issue 1510, mended in August 2026). A compiled loop over an empty
 * table may see an entry: with Debian 12's version, in some processes only.
 *
 * Tried with LuaJIT's own functions: the loop of tests/lua/pairs_spec.lua, for issue 827, and
 * 28,000 or more random loops over arrays that meet another iterator, for issue 1510.
 *
 *   system        LuaJIT                     issue 827                    issue 1510
 *   Debian 12     2.1.0-beta3 (April 2022)   ends early in round 42,996   not seen
 *   Ubuntu 24.04  2.1.1703358377 (Dec 2023)  right                        not seen
 *   Debian 13     2.1.1737090214 (Jan 2025)  right                        not seen
 *
 * All three are older than the correction of issue 1510, for which no test is known. So the
 * replacements stay on for every version: they are right with each of them. */
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

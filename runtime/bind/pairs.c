/* pairs and next as ordinary C functions, which LuaJIT's compiler calls but does not compile.
 *
 * Compiled loops over LuaJIT's own pairs are wrong in released versions: they end after the first
 * entry (LuaJIT issue 827, the version of Debian 12), skip an entry (issue 1510, before August
 * 2026), or hand out a pair that the table does not contain. Which loops are compiled depends on
 * addresses, so the same program is right in most processes. */
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

void bind_replace_pairs(lua_State *L) {
    lua_pushcfunction(L, next_pair);
    lua_pushvalue(L, -1);
    lua_setglobal(L, "next");
    lua_pushcclosure(L, all_pairs, 1);
    lua_setglobal(L, "pairs");
}

/* Fuzz targets whose reader is Lua: a script RETURNS a function of the bytes, which RETURNS a
 * complaint or nothing. Memory that stays allocated is a defect, too. Runs Lua in the process, from
 * the repository's root. To be included once. */
#ifndef MG_TESTS_FUZZ_LUA_TARGET_H
#define MG_TESTS_FUZZ_LUA_TARGET_H

#include "bind/bind.h"
#include "core/alloc.h"
#include <lauxlib.h>
#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* On top of malloc, so that the leak checker sees what Lua's objects hold. */
static void *plain_allocator(void *data, void *block, size_t old_size, size_t size) {
    (void)data, (void)old_size;
    if (size > 0) return realloc(block, size);
    free(block);
    return NULL;
}

/* The Lua state with the function of the script on its stack; made once. */
static lua_State *ready(const char *script) {
    static lua_State *L;
    if (L) return L;
    L = lua_newstate(plain_allocator, NULL);
    luaL_openlibs(L);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, luaopen_mgpu_core);
    lua_setfield(L, -2, "mgpu.core");
    lua_settop(L, 0);
    if (luaL_dofile(L, script)) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        abort();
    }
    return L;
}

static int run_lua_target(const char *script, const uint8_t *bytes, size_t n) {
    static int64_t blocks = -1;
    static int runs;
    if (n > 1 << 16) return 0;
    lua_State *L = ready(script);
    lua_pushvalue(L, 1);
    lua_pushlstring(L, (const char *)bytes, n);
    if (lua_pcall(L, 1, 1, 0) || !lua_isnil(L, -1)) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        abort();
    }
    lua_settop(L, 1);
    if (runs++ % 64) return 0; /* collecting takes longer than most inputs */
    for (int i = 0; i < 3; i++) lua_gc(L, LUA_GCCOLLECT, 0);
    const int64_t now = mg_alloc_get_stats().live_blocks;
    if (runs > 65 && now > blocks + 64) abort(); /* interned names and caches grow a little */
    if (blocks < 0 || now < blocks || runs <= 65) blocks = now;
    return 0;
}

#endif

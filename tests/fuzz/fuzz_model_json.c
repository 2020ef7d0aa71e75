/* Fuzzer of model configurations: any text must make a model, whose own text makes an equal one, or
 * be refused with a message about the text. A message that Lua itself makes, such as "attempt to
 * index a nil value", is a defect of the reader. Runs Lua in the process, from the repository's
 * root. Run by `make fuzz`. */
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

/* The Lua state with the function of model_json.lua on its stack; made once. */
static lua_State *ready(void) {
    static lua_State *L;
    if (L) return L;
    L = lua_newstate(plain_allocator, NULL);
    luaL_openlibs(L);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, luaopen_mgpu_core);
    lua_setfield(L, -2, "mgpu.core");
    lua_settop(L, 0);
    if (luaL_dofile(L, "tests/fuzz/model_json.lua")) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        abort();
    }
    return L;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static int64_t blocks = -1;
    static int runs;
    if (n > 1 << 16) return 0;
    lua_State *L = ready();
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

/* Loading pieces of Lua and running them, with errors reported. */
#include "program/program.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

int mg_main_run(lua_State *L, int status, const char *argument) {
    int n = 0;
    if (status == 0 && argument) lua_pushstring(L, argument), n = 1;
    if (status == 0) status = mg_main_call(L, n, 0);
    return mg_main_report(L, status);
}

int mg_main_run_text(lua_State *L, const char *text, const char *name, const char *argument) {
    return mg_main_run(L, luaL_loadbuffer(L, text, strlen(text), name), argument);
}

int mg_main_run_variable(lua_State *L, const char *variable) {
    const char *text = getenv(variable);
    if (!text) return EXIT_SUCCESS;
    if (text[0] == '@') return mg_main_run(L, mg_main_load(L, text + 1, false), NULL);
    lua_pushfstring(L, "=%s", variable);
    const int status = mg_main_run_text(L, text, lua_tostring(L, -1), NULL);
    lua_pop(L, 1);
    return status;
}

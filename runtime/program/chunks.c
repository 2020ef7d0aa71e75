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

/* Bytecode is not checked when it is loaded, and wrong bytecode can do anything to the process: it
 * is loaded only where the user asks for it. */
int mg_main_load(lua_State *L, const char *name, bool trusted) {
    const int status = luaL_loadfilex(L, name, trusted ? NULL : "t");
    if (status && strstr(lua_tostring(L, -1), "wrong mode")) {
        lua_pop(L, 1);
        lua_pushfstring(L,
                        "%s is bytecode, which is not checked and can do anything: give --bytecode "
                        "before the script if you trust it",
                        name ? name : "standard input");
    }
    return status;
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

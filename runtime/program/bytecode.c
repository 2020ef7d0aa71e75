/* Bytecode is not checked when it is loaded, and wrong bytecode can do anything to the process: it
 * is loaded only where the user asks for it with --bytecode. Lua's functions that load chunks are
 * replaced by functions that pass on the mode "t" (text only). */
#include "core/limits.h"
#include "program/program.h"

#include <errno.h>
#include <lauxlib.h>
#include <string.h>

#define REFUSAL                                                                                    \
    "%s is bytecode, which is not checked and can do anything: give --bytecode before the script " \
    "if you trust it"

/* If the message on top of the stack says that a chunk is bytecode, replaces it by one that names
 * the chunk and the remedy. */
static void explain(lua_State *L, const char *name) {
    const char *message = lua_tostring(L, -1);
    if (!message || !strstr(message, "wrong mode")) return;
    lua_pop(L, 1);
    lua_pushfstring(L, REFUSAL, name);
}

int mg_main_load(lua_State *L, const char *name, bool trusted) {
    errno = 0;
    const int status = luaL_loadfilex(L, name, trusted ? NULL : "t"), error = errno;
    if (status == LUA_ERRFILE) { /* which limit may be why the file cannot be opened */
        lua_pushstring(L, mg_reason_limits(error));
        lua_concat(L, 2);
    }
    if (status) explain(L, name ? name : "standard input");
    return status;
}

/* Calls the original, upvalue 1, with its n_args arguments, of which number `mode` is the mode,
 * reduced to text. */
static int load_text(lua_State *L, int n_args, int mode, const char *name) {
    const char *wanted = luaL_optstring(L, mode, "t");
    lua_settop(L, n_args);
    if (!strchr(wanted, 't')) {
        lua_pushnil(L);
        return lua_pushfstring(L, REFUSAL, name), 2;
    }
    lua_pushliteral(L, "t");
    lua_replace(L, mode);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n_args, 2);
    if (lua_isnil(L, -2)) return explain(L, name), 2;
    return lua_pop(L, 1), 1;
}

/* load(text or function, name, mode, env) and loadstring. */
static int guarded_load(lua_State *L) {
    if (!lua_isstring(L, 1)) luaL_checktype(L, 1, LUA_TFUNCTION);
    return load_text(L, 4, 3, luaL_optstring(L, 2, "the chunk"));
}

/* loadfile(name, mode, env) */
static int guarded_loadfile(lua_State *L) {
    return load_text(L, 3, 2, luaL_optstring(L, 1, "standard input"));
}

/* dofile(name) */
static int guarded_dofile(lua_State *L) {
    const char *name = luaL_optstring(L, 1, NULL);
    lua_settop(L, 1);
    if (mg_main_load(L, name, false)) return lua_error(L);
    lua_call(L, 0, LUA_MULTRET);
    return lua_gettop(L) - 1;
}

/* The searcher of require for Lua files: upvalue 1 is the table `package`. */
static int guarded_searcher(lua_State *L) {
    const char *module = luaL_checkstring(L, 1);
    lua_getfield(L, lua_upvalueindex(1), "path");
    if (!lua_isstring(L, -1)) return luaL_error(L, "'package.path' must be a string");
    lua_getfield(L, lua_upvalueindex(1), "searchpath");
    lua_pushvalue(L, 1);
    lua_pushvalue(L, -3);
    lua_call(L, 2, 2);
    if (lua_isnil(L, -2)) return 1; /* the list of paths that were tried */
    lua_pop(L, 1);
    const char *file = lua_tostring(L, -1);
    if (mg_main_load(L, file, false) == 0) return 1;
    return luaL_error(L, "error loading module '%s' from file '%s':\n\t%s", module, file,
                      lua_tostring(L, -1));
}

/* The global function `name` becomes `guard`, which has the original as its upvalue. */
static void replace_global(lua_State *L, const char *name, lua_CFunction guard) {
    lua_getglobal(L, name);
    lua_pushcclosure(L, guard, 1);
    lua_setglobal(L, name);
}

void mg_main_refuse_bytecode(lua_State *L) {
    enum { LUA_FILES = 2 }; /* the searcher for Lua files in package.loaders */
    replace_global(L, "load", guarded_load);
    replace_global(L, "loadstring", guarded_load);
    replace_global(L, "loadfile", guarded_loadfile);
    replace_global(L, "dofile", guarded_dofile);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "loaders");
    lua_pushvalue(L, -2);
    lua_pushcclosure(L, guarded_searcher, 1);
    lua_rawseti(L, -2, LUA_FILES);
    lua_pop(L, 2);
}

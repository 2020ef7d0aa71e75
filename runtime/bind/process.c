/* Processes in Lua: process_start, and the methods of what it returns. */
#include "bind/bind.h"
#include "core/process.h"
#include <lauxlib.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define BIND_PROCESS "mgpu.process"

/* The field of the table at index 1 as an array of texts, NULL at the end. The array and the texts
 * stay on the stack, below a new top. */
static const char **check_texts(lua_State *L, const char *field) {
    lua_getfield(L, 1, field);
    luaL_checktype(L, -1, LUA_TTABLE);
    const int table = lua_gettop(L);
    const size_t n = lua_objlen(L, table);
    const char **texts = lua_newuserdata(L, (n + 1) * sizeof *texts);
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, table, (int)i + 1);
        if (lua_type(L, -1) != LUA_TSTRING || strlen(lua_tostring(L, -1)) != lua_objlen(L, -1))
            bind_fail(L, MG_USAGE, "process_start: %s: entry %d is not a text without zero bytes",
                      field, (int)i + 1);
        texts[i] = lua_tostring(L, -1);
        lua_pop(L, 1); /* the table keeps it */
    }
    texts[n] = NULL;
    return texts;
}

/* process_start{program =, arguments = {name, ...}, variables = {"NAME=value", ...}, output = path}
 * -> a process; see core/process.h. */
static int core_process_start(lua_State *L) {
    mg_process_plan plan;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    plan.arguments = (char *const *)check_texts(L, "arguments");
    plan.variables = check_texts(L, "variables");
    lua_getfield(L, 1, "program");
    plan.program = bind_path(L, -1, "process_start");
    lua_getfield(L, 1, "output");
    plan.output = bind_path(L, -1, "process_start");
    mg_process *p = lua_newuserdata(L, sizeof *p);
    *p = (mg_process){0};
    luaL_getmetatable(L, BIND_PROCESS);
    lua_setmetatable(L, -2);
    bind_check(L, mg_process_start(&plan, p));
    return 1;
}

static mg_process *to_process(lua_State *L) {
    return luaL_checkudata(L, 1, BIND_PROCESS);
}

/* process:ended() -> nil while it runs; then its exit status, or 128 and the number of the signal
 * that ended it, and in that case this number. */
static int process_ended(lua_State *L) {
    mg_process *p = to_process(L);
    if (!mg_process_ended(p)) return 0;
    const bool killed = WIFSIGNALED(p->status);
    lua_pushinteger(L, killed ? 128 + WTERMSIG(p->status) : WEXITSTATUS(p->status));
    if (killed) lua_pushinteger(L, WTERMSIG(p->status));
    return killed ? 2 : 1;
}

/* process:signal(name): "TERM" or "KILL". */
static int process_signal(lua_State *L) {
    static const char *const names[] = {"TERM", "KILL", NULL};
    static const int numbers[] = {SIGTERM, SIGKILL};
    mg_process_signal(to_process(L), numbers[luaL_checkoption(L, 2, NULL, names)]);
    return 0;
}

static int process_gc(lua_State *L) {
    mg_process *p = to_process(L);
    if (p->pid) mg_process_kill(p);
    return 0;
}

void bind_open_process(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"ended", process_ended}, {"signal", process_signal}, {"__gc", process_gc}, {NULL, NULL}};
    luaL_newmetatable(L, BIND_PROCESS);
    bind_register(L, methods);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

const luaL_Reg mg_bind_process[] = {{"process_start", core_process_start}, {NULL, NULL}};

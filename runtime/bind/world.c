/* The processes of the world in Lua. */
#include "bind/bind.h"
#include "core/plugin.h"
#include "world/launch.h"
#include "world/transport.h"

static void set_text(lua_State *L, const char *field, const char *value) {
    lua_pushstring(L, value);
    lua_setfield(L, -2, field);
}

static void set_number(lua_State *L, const char *field, int value) {
    lua_pushinteger(L, value);
    lua_setfield(L, -2, field);
}

/* launch() -> {by, seen, rank, size, local_rank, local_size, role, transport, address, port}: which
 * launcher started this process, and its place; see world/launch.h.
 *
 * The token is left out, since it is a secret. local_rank is -1 and local_size 0 if the launcher
 * does not tell. Raises if the launcher's variables cannot be read. */
static int core_launch(lua_State *L) {
    mg_launch launch;
    bind_check(L, mg_launch_find(&launch));
    lua_newtable(L);
    set_text(L, "by", launch.by);
    set_text(L, "seen", launch.seen);
    set_text(L, "role", launch.role);
    set_text(L, "transport", launch.transport);
    set_text(L, "address", launch.address);
    set_number(L, "port", launch.port);
    set_number(L, "rank", launch.rank);
    set_number(L, "size", launch.size);
    set_number(L, "local_rank", launch.local_rank);
    set_number(L, "local_size", launch.local_size);
    return 1;
}

/* Appends {name =, problem =} to the table on top of the stack; problem: why it does not load. */
static void add_transport(void *context, const char *name) {
    lua_State *L = context;
    const char *problem = NULL;
    lua_newtable(L);
    set_text(L, "name", name);
    if (!mg_plugin_symbol(name, "mg_transport_plugin", &problem)) set_text(L, "problem", problem);
    lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
}

/* transports() -> the plug-ins that carry messages between processes, as {{name = "ucx"}, ...};
 * one that does not load has a field `problem`. Loads them all. */
static int core_transports(lua_State *L) {
    lua_newtable(L);
    mg_plugin_each("mg_transport_plugin", add_transport, L);
    return 1;
}

const luaL_Reg mg_bind_world[] = {
    {"launch", core_launch}, {"transports", core_transports}, {NULL, NULL}};

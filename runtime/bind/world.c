/* The world in Lua: who is there, what rank 0 tells the others, and computing alone. */
#include "bind/bind.h"
#include "core/plugin.h"
#include "graph/joint.h"
#include "world/transport.h"
#include "world/world.h"
#include <stdlib.h>
#include <string.h>

/* ---- the world ---- */

/* world_start(): joins the processes that a launcher started. Later calls do nothing. */
static int core_world_start(lua_State *L) {
    bind_check(L, mg_world_start());
    return 0;
}

static void set_number(lua_State *L, const char *name, double value) {
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

static void set_string(lua_State *L, const char *name, const char *value) {
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

/* world() -> {rank, size, local_rank, local_size, launcher, transport, hosts = {name by rank, from
 * 1}}. */
static int core_world(lua_State *L) {
    const mg_launch *launch = mg_world_launch();
    const int size = mg_world_size();
    lua_newtable(L);
    set_number(L, "rank", mg_world_rank());
    set_number(L, "size", size);
    set_number(L, "local_rank", size > 1 ? launch->local_rank : 0);
    set_number(L, "local_size", size > 1 ? launch->local_size : 1);
    set_string(L, "launcher", size > 1 ? launch->by : "none");
    set_string(L, "transport", mg_world_transport());
    lua_createtable(L, size, 0);
    for (int r = 0; r < size && size > 1; r++) {
        lua_pushstring(L, mg_world_member(r)->host);
        lua_rawseti(L, -2, r + 1);
    }
    lua_setfield(L, -2, "hosts");
    return 1;
}

/* world_is_joint() -> whether a step of a spread model is shared by several ranks now. */
static int core_world_is_joint(lua_State *L) {
    lua_pushboolean(L, mg_world_is_joint());
    return 1;
}

/* world_alone(fn, ...) -> what pcall(fn, ...) returns, while this rank computes by itself. */
static int core_world_alone(lua_State *L) {
    luaL_checktype(L, 1, LUA_TFUNCTION);
    mg_world_alone_begin();
    const int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    mg_world_alone_end();
    lua_pushboolean(L, status == 0);
    lua_insert(L, 1);
    return lua_gettop(L);
}

/* world_barrier(): returns when all ranks have called it. */
static int core_world_barrier(lua_State *L) {
    bool differs;
    bind_check(L, mg_world_meet(MG_AT_END, 0, 0, &differs));
    return 0;
}

/* world_begin(): the same at the beginning of a call of fit, evaluate or predict. */
static int core_world_begin(lua_State *L) {
    bool differs;
    bind_check(L, mg_world_meet(MG_AT_CALL, 0, 0, &differs));
    return 0;
}

/* world_fail(why): this rank cannot go on with what all do together; the others learn why. */
static int core_world_fail(lua_State *L) {
    mg_world_fail(luaL_checkstring(L, 1));
    return 0;
}

/* world_gather(number) -> the numbers of all ranks, rank 0's first; whole numbers up to 2^53. */
static int core_world_gather(lua_State *L) {
    const int size = mg_world_size();
    const int64_t own = (int64_t)luaL_checknumber(L, 1);
    int64_t *all = lua_newuserdata(L, (size_t)size * sizeof *all);
    bind_check(L, mg_world_gather(own, all));
    lua_createtable(L, size, 0);
    for (int r = 0; r < size; r++) {
        lua_pushnumber(L, (double)all[r]);
        lua_rawseti(L, -2, r + 1);
    }
    return 1;
}

/* world_devices(n, weights) -> {first, n, total, weights}: the devices of all ranks that share the
 * rows of a step. n: those of this rank, with their weights, or nil; all ranks call it. first
 * counts from 0; weights: of all devices, absent if no rank has given any. */
static int core_world_devices(lua_State *L) {
    const int n = (int)luaL_checkinteger(L, 1);
    const bool weighted = lua_istable(L, 2);
    double own[MG_MAX_DEVICES];
    if (n < 1 || n > MG_MAX_DEVICES)
        return bind_fail(L, MG_USAGE, "world_devices: expected 1 to %d devices, got %d",
                         MG_MAX_DEVICES, n);
    for (int i = 0; i < n && weighted; i++) {
        lua_rawgeti(L, 2, i + 1);
        own[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    mg_joint_devices all;
    double weights[MG_MAX_SHARDS]; /* copied, because Lua's errors would leak those of `all` */
    const mg_status status = mg_joint_find_devices(n, weighted ? own : NULL, &all);
    const bool any = status == MG_OK && all.weights;
    if (any) memcpy(weights, all.weights, (size_t)all.total * sizeof weights[0]);
    mg_joint_free_devices(&all);
    bind_check(L, status);
    lua_createtable(L, 0, 4);
    set_number(L, "first", (double)all.first);
    set_number(L, "n", n);
    set_number(L, "total", (double)all.total);
    if (!any) return 1;
    lua_createtable(L, (int)all.total, 0);
    for (int i = 0; i < all.total; i++) {
        lua_pushnumber(L, weights[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "weights");
    return 1;
}

/* world_send(text, at_epoch) -> the text of rank 0, on all ranks. The others' own text is ignored.
 * at_epoch: the ranks have come to the end of an epoch, not to a callback or the like.
 *
 * Rank 0 waits until all have the text: it may be why the script ends there, and once a rank has
 * left, exchanges that begin on the others fail. */
static int core_world_send(lua_State *L) {
    const bool root = mg_world_rank() == 0;
    size_t n = 0;
    const char *text = root ? luaL_checklstring(L, 1, &n) : NULL;
    const enum mg_world_place place = lua_toboolean(L, 2) ? MG_AT_EPOCH : MG_AT_SEND;
    uint64_t bytes = n;
    bool differs;
    bind_check(L, mg_world_meet(place, 0, 0, &differs));
    bind_check(L, mg_world_broadcast(0, &bytes, sizeof bytes));
    if (root) {
        bind_check(L, mg_world_broadcast(0, (void *)(uintptr_t)text, n));
        bind_check(L, mg_world_agree(0));
        lua_settop(L, 1);
        return 1;
    }
    char *got = lua_newuserdata(L, (size_t)bytes + 1);
    bind_check(L, mg_world_broadcast(0, got, (size_t)bytes));
    bind_check(L, mg_world_agree(0));
    lua_pushlstring(L, got, (size_t)bytes);
    return 1;
}

/* world_link(a, b, bytes, rounds) -> the seconds of a message from rank a to rank b. All ranks call
 * it. */
static int core_world_link(lua_State *L) {
    const int a = (int)luaL_checkinteger(L, 1), b = (int)luaL_checkinteger(L, 2);
    const size_t bytes = (size_t)luaL_checknumber(L, 3);
    const int rounds = (int)luaL_checkinteger(L, 4);
    if (a < 0 || b < 0 || a >= mg_world_size() || b >= mg_world_size() || a == b || rounds < 1)
        return bind_fail(L, MG_USAGE,
                         "world_link: expected two ranks below %d and a number of rounds",
                         mg_world_size());
    double seconds = 0;
    bind_check(L, mg_world_measure_link(a, b, bytes, rounds, &seconds));
    lua_pushnumber(L, seconds);
    return 1;
}

/* world_sum_time(count, rounds) -> the seconds in which all ranks add up so many float32 numbers.
 * All ranks call it. */
static int core_world_sum_time(lua_State *L) {
    const int64_t count = (int64_t)luaL_checknumber(L, 1);
    const int rounds = (int)luaL_checkinteger(L, 2);
    if (count < 1 || rounds < 1)
        return bind_fail(L, MG_USAGE, "world_sum_time: expected numbers of at least 1");
    double seconds = 0;
    if (mg_world_size() > 1) bind_check(L, mg_world_measure_sum(count, rounds, &seconds));
    lua_pushnumber(L, seconds);
    return 1;
}

/* ---- launchers and transports ---- */

/* launch() -> {by, seen, rank, size, local_rank, local_size, role, transport, address, port}: which
 * launcher started this process, and its place; see world/launch.h.
 *
 * The token is left out, since it is a secret. local_rank is -1 and local_size 0 if the launcher
 * does not tell. Raises if the launcher's variables cannot be read. */
static int core_launch(lua_State *L) {
    mg_launch launch;
    bind_check(L, mg_launch_find(&launch));
    lua_newtable(L);
    set_string(L, "by", launch.by);
    set_string(L, "seen", launch.seen);
    set_string(L, "role", launch.role);
    set_string(L, "transport", launch.transport);
    set_string(L, "address", launch.address);
    set_number(L, "port", launch.port);
    set_number(L, "rank", launch.rank);
    set_number(L, "size", launch.size);
    set_number(L, "local_rank", launch.local_rank);
    set_number(L, "local_size", launch.local_size);
    return 1;
}

/* launch_none(): from here on this process counts as started without a launcher. */
static int core_launch_none(lua_State *L) {
    (void)L;
    setenv("MGPU_LAUNCH", "none", 1);
    return 0;
}

/* Appends {name =, problem =} to the table on top of the stack; problem: why it does not load. */
static void add_transport(void *context, const char *name) {
    lua_State *L = context;
    const char *problem = NULL;
    lua_newtable(L);
    set_string(L, "name", name);
    if (!mg_plugin_symbol(name, "mg_transport_plugin", &problem)) set_string(L, "problem", problem);
    lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
}

/* transports() -> the plug-ins that carry messages between processes, as {{name = "ucx"}, ...};
 * one that does not load has a field `problem`. Loads them all. */
static int core_transports(lua_State *L) {
    lua_newtable(L);
    mg_plugin_each("mg_transport_plugin", add_transport, L);
    return 1;
}

const luaL_Reg mg_bind_world[] = {{"launch", core_launch},
                                  {"launch_none", core_launch_none},
                                  {"transports", core_transports},
                                  {"world_start", core_world_start},
                                  {"world", core_world},
                                  {"world_is_joint", core_world_is_joint},
                                  {"world_alone", core_world_alone},
                                  {"world_barrier", core_world_barrier},
                                  {"world_begin", core_world_begin},
                                  {"world_fail", core_world_fail},
                                  {"world_gather", core_world_gather},
                                  {"world_devices", core_world_devices},
                                  {"world_send", core_world_send},
                                  {"world_link", core_world_link},
                                  {"world_sum_time", core_world_sum_time},
                                  {NULL, NULL}};

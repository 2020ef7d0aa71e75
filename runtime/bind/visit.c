/* Where visits take place (core/visit.h): commands of an attached prompt, between two steps.
 *
 * The program puts the function that carries them out into the registry as "mgpu.visit"; without
 * it, as in a stock luajit, nobody visits. fit, evaluate and predict say when they are between two
 * steps, and where (core.visit). Everywhere else the calls of jitted functions and evaluations do
 * (bind_visit), unless something is half done: a function is traced, or a gradient recorded. */
#include "bind/bind.h"
#include "core/context.h"
#include "core/visit.h"
#include "device/device.h"
#include "graph/graph.h"
#include "graph/loop.h"
#include <math.h>

static _Thread_local int scope;     /* fits and the like that are running */
static _Thread_local bool visiting; /* visits do not nest */

static bool is_open(lua_State *L) {
    return !visiting && !mg_trace_current() && !mg_loop_current() && !mg_recording() &&
           lua_checkstack(L, 8);
}

/* Calls the program's function with the value at the index, or nil for 0. It raises nothing, but
 * Ctrl-C may have come meanwhile. */
static void visit(lua_State *L, int place) {
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.visit");
    if (!lua_isfunction(L, -1)) {
        lua_pop(L, 1);
        return;
    }
    if (place)
        lua_pushvalue(L, place);
    else
        lua_pushnil(L);
    visiting = true;
    const int tidy = bind_tidy_suspend();
    const mg_origin origin = mg_context_get()->origin;
    const int own_scope = scope;
    mg_context_get()->origin = (mg_origin){0};
    const int status = lua_pcall(L, 1, 0, 0);
    if (status) lua_pop(L, 1);
    mg_context_get()->origin = origin;
    scope = own_scope;
    bind_tidy_resume(tidy);
    visiting = false;
    bind_poll(L);
}

void bind_visit(lua_State *L) {
    if (mg_visit_wanted() && !scope && is_open(L)) visit(L, 0);
}

/* visit(place): a point between two steps. place: a table that says where (mgpu.attach.job). */
static int core_visit(lua_State *L) {
    if (mg_visit_wanted() && is_open(L)) visit(L, 1);
    return 0;
}

/* visit_scope([n]) -> how many fits, evaluations and predictions are running, before it is set to
 * n. Inside them visits take place at core.visit only. */
static int core_visit_scope(lua_State *L) {
    const int before = scope;
    if (!lua_isnoneornil(L, 1)) scope = (int)luaL_checkinteger(L, 1);
    lua_pushinteger(L, before);
    return 1;
}

/* visit_note{loss =, epochs =, steps =, device =}: what --ps tells of the training. Fields that are
 * nil stay as they are; epochs = 0: it is over. */
static int core_visit_note(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "loss");
    if (lua_isnumber(L, -1)) atomic_store(&mg_visit_noted.loss, lua_tonumber(L, -1));
    lua_getfield(L, 1, "epochs");
    if (lua_isnumber(L, -1)) atomic_store(&mg_visit_noted.epochs, (int64_t)lua_tonumber(L, -1));
    lua_getfield(L, 1, "device");
    if (lua_isstring(L, -1)) {
        const char *device = bind_intern(L);
        atomic_store(&mg_visit_noted.device, device);
    }
    lua_getfield(L, 1, "steps");
    if (lua_isnumber(L, -1)) atomic_store(&mg_visit_noted.steps, (int64_t)lua_tonumber(L, -1));
    return 0;
}

/* visit_wanted() -> whether core.visit would do anything. */
static int core_visit_wanted(lua_State *L) {
    lua_pushboolean(L, mg_visit_wanted());
    return 1;
}

const luaL_Reg mg_bind_visit[] = {{"visit", core_visit},
                                  {"visit_wanted", core_visit_wanted},
                                  {"visit_scope", core_visit_scope},
                                  {"visit_note", core_visit_note},
                                  {NULL, NULL}};

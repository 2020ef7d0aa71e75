/* Devices and settings in Lua. */
#include "device/device.h"
#include "device/fault.h"
#include "bind/bind.h"
#include "core/precision.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char LIST[] = "mgpu.devices"; /* registry: what --devices chose, or nil */

/* All ordinals of a physical kind; logical kinds show their first. */
static void add_kind(lua_State *L, const char *kind) {
    const mg_device_api *api = mg_device_kind(kind);
    if (!api) {
        mg_error_clear();
        return;
    }
    const int n = strcmp(kind, "cuda") == 0 ? api->count() : 1;
    for (int i = 0; i < n; i++) {
        lua_pushfstring(L, "%s:%d", kind, i);
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    }
}

/* The kind at index 1; NULL: any. */
static const char *wanted_kind(lua_State *L) {
    static const char *const kinds[] = {"cuda", "cpu", "gpu", "ref", "null"};
    enum { N = sizeof kinds / sizeof kinds[0] };
    if (lua_isnoneornil(L, 1)) return NULL;
    bind_want(L, 1, LUA_TSTRING, "devices");
    const char *kind = lua_tostring(L, 1);
    for (int i = 0; i < N; i++)
        if (strcmp(kind, kinds[i]) == 0) return strcmp(kind, "gpu") == 0 ? "cuda" : kind;
    const char *near = mg_nearest_name(kind, kinds, N);
    bind_fail(L, MG_USAGE,
              "devices: unknown kind \"%s\"%s%s%s; there are cuda (or gpu), cpu, ref and null",
              kind, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

/* devices([kind]) -> names, CUDA first */
static int core_devices(lua_State *L) {
    const char *kind = wanted_kind(L);
    lua_newtable(L);
    lua_getfield(L, LUA_REGISTRYINDEX, LIST);
    if (!lua_isnil(L, -1)) {
        for (int i = 1; i <= (int)lua_objlen(L, -1); i++) {
            lua_rawgeti(L, -1, i);
            const size_t n = kind ? strlen(kind) : 0;
            if (!kind || strncmp(lua_tostring(L, -1), kind, n) == 0)
                lua_rawseti(L, -3, (int)lua_objlen(L, -3) + 1);
            else
                lua_pop(L, 1);
        }
        lua_pop(L, 1);
        return 1;
    }
    lua_pop(L, 1);
    if (!kind || strcmp(kind, "cuda") == 0) add_kind(L, "cuda");
    if (!kind || strcmp(kind, "cpu") == 0) add_kind(L, "cpu");
    if (kind && (strcmp(kind, "ref") == 0 || strcmp(kind, "null") == 0)) add_kind(L, kind);
    return 1;
}

/* set_devices(list): what devices() returns from here on; the first becomes the default. */
static int core_set_devices(lua_State *L) {
    bind_want(L, 1, LUA_TTABLE, "set_devices");
    const int n = (int)lua_objlen(L, 1);
    if (n == 0) return bind_fail(L, MG_USAGE, "set_devices: the list is empty");
    lua_createtable(L, n, 0);
    mg_device *first = NULL;
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        mg_device *d = mg_device_find(luaL_checkstring(L, -1));
        lua_pop(L, 1);
        if (!d) return bind_raise(L);
        if (!first) first = d;
        lua_pushstring(L, d->name);
        lua_rawseti(L, -2, i);
    }
    lua_setfield(L, LUA_REGISTRYINDEX, LIST);
    mg_device_set_default(first);
    return 0;
}

static int core_device_info(lua_State *L) {
    bind_want(L, 1, LUA_TSTRING, "device_info");
    mg_device_info info = {0};
    bind_check(L, mg_device_describe(lua_tostring(L, 1), &info));
    lua_newtable(L);
    lua_pushstring(L, info.name), lua_setfield(L, -2, "name");
    lua_pushstring(L, info.kind), lua_setfield(L, -2, "kind");
    lua_pushstring(L, info.text), lua_setfield(L, -2, "text");
    lua_pushnumber(L, (double)info.memory_bytes), lua_setfield(L, -2, "memory");
    return 1;
}

static int core_default_device(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) {
        bind_want(L, 1, LUA_TSTRING, "default_device");
        mg_device *d = mg_device_find(lua_tostring(L, 1));
        if (!d) return bind_raise(L);
        mg_device_set_default(d);
    }
    mg_device *d = mg_device_default();
    if (!d) return bind_raise(L);
    lua_pushstring(L, d->name);
    return 1;
}

/* precision(["fast" | "highest"]) */
static int core_precision(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) {
        bind_want(L, 1, LUA_TSTRING, "precision");
        const char *p = lua_tostring(L, 1);
        if (strcmp(p, "fast") != 0 && strcmp(p, "highest") != 0)
            return bind_fail(L, MG_USAGE,
                             "precision: unknown value \"%s\": it is \"fast\" or "
                             "\"highest\"",
                             p);
        mg_precision_set_fast(strcmp(p, "fast") == 0);
    }
    lua_pushstring(L, mg_precision_fast() ? "fast" : "highest");
    return 1;
}

static int core_deterministic(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) mg_deterministic_set(lua_toboolean(L, 1));
    lua_pushboolean(L, mg_deterministic());
    return 1;
}

/* fault{device =, op =, phase = "compute" | "commit", at = n, stuck =, lost =}: a planned failure,
 * for tests; fault() takes it back. */
static int core_fault(lua_State *L) {
    mg_fault fault = {.at = 1};
    if (lua_isnoneornil(L, 1)) {
        mg_fault_plan(NULL);
        return 0;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "device");
    snprintf(fault.device, sizeof fault.device, "%s", luaL_checkstring(L, -1));
    lua_getfield(L, 1, "op");
    snprintf(fault.op, sizeof fault.op, "%s", luaL_optstring(L, -1, ""));
    lua_getfield(L, 1, "phase");
    fault.commit = strcmp(luaL_optstring(L, -1, "compute"), "commit") == 0;
    lua_getfield(L, 1, "at");
    fault.at = (int)luaL_optinteger(L, -1, 1);
    lua_getfield(L, 1, "stuck");
    fault.stuck = lua_toboolean(L, -1);
    lua_getfield(L, 1, "lost");
    fault.lost = lua_toboolean(L, -1);
    mg_fault_plan(&fault);
    return 0;
}

static int core_close_devices(lua_State *L) {
    (void)L;
    mg_devices_close();
    return 0;
}

const luaL_Reg mg_bind_device[] = {{"devices", core_devices},
                                   {"set_devices", core_set_devices},
                                   {"device_info", core_device_info},
                                   {"default_device", core_default_device},
                                   {"precision", core_precision},
                                   {"deterministic", core_deterministic},
                                   {"fault", core_fault},
                                   {"close_devices", core_close_devices},
                                   {NULL, NULL}};

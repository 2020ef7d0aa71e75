/* Devices and numeric settings in Lua: listing devices, the default device, precision and
 * determinism, and injected faults for tests. */
#include "bind/bind.h"
#include "device/fault.h"
#include "device/kinds.h"
#include "core/precision.h"
#include <stdio.h>
#include <string.h>

static int core_devices(lua_State *L);

static const char DEVICE_LIST[] =
    "mgpu.devices"; /* registry: the names that set_devices chose, or nil */

/* Appends "kind:0", "kind:1", ... to the table on top of the stack: every card of a physical kind.
 * Of other kinds any number of devices can be opened, and only the first is listed. */
static void add_devices_of_kind(lua_State *L, const mg_device_api *api) {
    const int n = api->physical ? api->count() : 1;
    for (int i = 0; i < n; i++) {
        lua_pushfstring(L, "%s:%d", api->kind, i);
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    }
}

/* Resolves the kind or alias named by argument 1; false if it is nil, which means all kinds. Raises
 * for an unknown kind; for an alias without an available kind, `kind` becomes empty. */
static bool wanted_kind(lua_State *L, char kind[MG_KIND_NAME]) {
    kind[0] = 0;
    if (lua_isnoneornil(L, 1)) return false;
    bind_want(L, 1, LUA_TSTRING, "devices");
    const mg_status status =
        mg_device_kind_resolve(lua_tostring(L, 1), "devices: unknown kind", kind);
    if (status != MG_OK && status != MG_UNSUPPORTED) bind_raise(L);
    mg_error_clear();
    return true;
}

/* Whether a device's name, "cuda:0/1", is of this kind. */
static bool is_of_kind(const char *name, const char *kind) {
    const size_t n = strlen(kind);
    return strncmp(name, kind, n) == 0 && name[n] == ':';
}

/* Appends the names in the list at index `list` that are of the kind; NULL: all names. */
static void add_chosen_devices(lua_State *L, int list, const char *kind) {
    for (int i = 1; i <= (int)lua_objlen(L, list); i++) {
        lua_rawgeti(L, list, i);
        if (!kind || is_of_kind(lua_tostring(L, -1), kind))
            lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
        else
            lua_pop(L, 1);
    }
}

/* Pushes the names that devices() would return, in one text. */
static const char *push_visible(lua_State *L) {
    lua_pushcfunction(L, core_devices);
    lua_call(L, 0, 1);
    const int list = lua_gettop(L), n = (int)lua_objlen(L, list);
    lua_pushliteral(L, "");
    for (int i = 1; i <= n; i++) {
        lua_pushstring(L, i > 1 ? ", " : "");
        lua_rawgeti(L, list, i);
        lua_concat(L, 3);
    }
    return lua_tostring(L, -1);
}

/* The host's first CPU, where data come from and strategy "central" keeps weights, and the kinds
 * that only tests and comparisons use. */
static bool is_host(const char *name) {
    mg_device_name parsed;
    if (strcmp(name, "cpu:0") == 0) return true;
    const mg_device_api *api =
        mg_device_name_parse(name, &parsed) == MG_OK ? mg_device_kind(parsed.kind) : NULL;
    return api && api->test_only;
}

/* Whether set_devices left this device visible; host: the host always is. */
static bool is_visible(lua_State *L, const char *name, bool host) {
    lua_getfield(L, LUA_REGISTRYINDEX, DEVICE_LIST);
    bool found = lua_isnil(L, -1) || (host && is_host(name));
    for (int i = 1; !found && i <= (int)lua_objlen(L, -1); i++) {
        lua_rawgeti(L, -1, i);
        found = strcmp(lua_tostring(L, -1), name) == 0;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return found;
}

/* Raises the stored error of a device that could not be described or opened. If the device does not
 * exist, the message lists the visible devices. */
static void fail_missing(lua_State *L, const char *text) {
    char why[MG_ERROR_BYTES];
    const mg_status code = mg_error_code();
    snprintf(why, sizeof why, "%s", mg_error_message());
    if (code == MG_UNSUPPORTED)
        bind_fail(L, code, "device \"%s\" is not there; visible: %s (%s)", text, push_visible(L),
                  why);
    if (strstr(why, "does not exist")) bind_fail(L, code, "%s; visible: %s", why, push_visible(L));
    bind_fail(L, code, "%s", why);
}

static void check_visible(lua_State *L, const char *name, bool host) {
    if (is_visible(L, name, host)) return;
    bind_fail(L, MG_USAGE, "device \"%s\" is not visible: --devices names %s", name,
              push_visible(L));
}

mg_device *bind_device(lua_State *L, const char *name) {
    mg_device *d = mg_device_find(name);
    if (!d) fail_missing(L, name);
    check_visible(L, d->name, true);
    return d;
}

/* device_name(text, host) -> the canonical name of a visible device; it is not opened. Raises for a
 * device that does not exist or that --devices does not list; host: the first CPU is always
 * accepted. */
static int core_device_name(lua_State *L) {
    bind_want(L, 1, LUA_TSTRING, "device");
    mg_device_info info = {0};
    if (mg_device_describe(lua_tostring(L, 1), &info) != MG_OK) fail_missing(L, lua_tostring(L, 1));
    check_visible(L, info.name, lua_toboolean(L, 2));
    lua_pushstring(L, info.name);
    return 1;
}

/* devices([kind]) -> names, kinds of higher rank first.
 *
 * After set_devices, the names of its list instead of the machine's devices. */
static int core_devices(lua_State *L) {
    char kind[MG_KIND_NAME];
    const bool by_kind = wanted_kind(L, kind);
    lua_getfield(L, LUA_REGISTRYINDEX, DEVICE_LIST);
    const int list = lua_gettop(L);
    lua_newtable(L);
    if (!lua_isnil(L, list)) {
        add_chosen_devices(L, list, by_kind ? kind : NULL);
    } else if (by_kind) {
        const mg_device_api *api = kind[0] ? mg_device_kind(kind) : NULL;
        if (api) add_devices_of_kind(L, api);
    } else {
        mg_device_kind_entry kinds[MG_MAX_KINDS];
        const int n = mg_device_kinds(kinds);
        for (int i = 0; i < n; i++)
            if (kinds[i].api && !kinds[i].api->test_only) add_devices_of_kind(L, kinds[i].api);
    }
    mg_error_clear();
    return 1;
}

/* device_kinds() -> the kinds that --list-devices shows: first those that are known but not
 * available, then the others by rank. */
static int core_device_kinds(lua_State *L) {
    mg_device_kind_entry kinds[MG_MAX_KINDS];
    const int n = mg_device_kinds(kinds);
    lua_newtable(L);
    for (int i = 0; i < n; i++) {
        if (kinds[i].api && kinds[i].api->rank == 0) continue;
        lua_pushstring(L, kinds[i].name);
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    }
    return 1;
}

/* is_device_kind(name) -> whether a kind or an alias has this name. */
static int core_is_device_kind(lua_State *L) {
    lua_pushboolean(L, mg_device_is_kind(luaL_checkstring(L, 1)));
    return 1;
}

/* set_devices(list): makes the list what devices() returns, and its first entry the default device.
 *
 * All of them are opened first, so a name that does not exist changes nothing. */
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
    lua_setfield(L, LUA_REGISTRYINDEX, DEVICE_LIST);
    mg_device_set_default(first);
    return 0;
}

/* device_info(name) -> {name, kind, text, memory, host_visible}; the device is not opened. */
static int core_device_info(lua_State *L) {
    bind_want(L, 1, LUA_TSTRING, "device_info");
    mg_device_info info = {0};
    bind_check(L, mg_device_describe(lua_tostring(L, 1), &info));
    lua_newtable(L);
    lua_pushstring(L, info.name), lua_setfield(L, -2, "name");
    lua_pushstring(L, info.kind), lua_setfield(L, -2, "kind");
    lua_pushstring(L, info.text), lua_setfield(L, -2, "text");
    lua_pushnumber(L, (double)info.memory_bytes), lua_setfield(L, -2, "memory");
    lua_pushboolean(L, mg_device_kind_is_host_visible(mg_device_kind(info.kind)));
    lua_setfield(L, -2, "host_visible");
    return 1;
}

/* is_lost(name) -> whether the device of this name did not come back from an earlier step. */
static int core_is_lost(lua_State *L) {
    bind_want(L, 1, LUA_TSTRING, "is_lost");
    const mg_device *d = mg_device_first();
    while (d && strcmp(d->name, lua_tostring(L, 1)) != 0) d = d->next;
    lua_pushboolean(L, d && mg_device_is_lost(d));
    return 1;
}

/* default_device([name]) -> the default device's name, after setting it if a name is given. */
static int core_default_device(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) {
        bind_want(L, 1, LUA_TSTRING, "default_device");
        mg_device_set_default(bind_device(L, lua_tostring(L, 1)));
    }
    mg_device *d = mg_device_default();
    if (!d) return bind_raise(L);
    lua_pushstring(L, d->name);
    return 1;
}

/* precision(["fast" | "highest"]) -> the current value.
 *
 * "fast" allows TF32, Winograd and the like. */
static int core_precision(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) {
        bind_want(L, 1, LUA_TSTRING, "precision");
        const char *p = lua_tostring(L, 1);
        if (strcmp(p, "fast") != 0 && strcmp(p, "highest") != 0)
            return bind_fail(L, MG_USAGE,
                             "precision: unknown value \"%s\": give \"fast\" or "
                             "\"highest\"",
                             p);
        mg_precision_set_fast(strcmp(p, "fast") == 0);
    }
    lua_pushstring(L, mg_precision_fast() ? "fast" : "highest");
    return 1;
}

/* deterministic([boolean]) -> the current value: whether kernels are chosen by rule instead of by
 * timing. */
static int core_deterministic(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) mg_deterministic_set(lua_toboolean(L, 1));
    lua_pushboolean(L, mg_deterministic());
    return 1;
}

/* fault{device=, op=, phase = "compute" | "commit", at = n, again=, stuck=, lost=}: plans a failure
 * of a device, for tests; see device/fault.h.
 *
 * fault() removes it. */
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
    lua_getfield(L, 1, "again");
    fault.again = lua_toboolean(L, -1);
    lua_getfield(L, 1, "lost");
    fault.lost = lua_toboolean(L, -1);
    mg_fault_plan(&fault);
    return 0;
}

const luaL_Reg mg_bind_device[] = {{"devices", core_devices},
                                   {"set_devices", core_set_devices},
                                   {"device_kinds", core_device_kinds},
                                   {"is_device_kind", core_is_device_kind},
                                   {"device_info", core_device_info},
                                   {"device_name", core_device_name},
                                   {"is_lost", core_is_lost},
                                   {"default_device", core_default_device},
                                   {"precision", core_precision},
                                   {"deterministic", core_deterministic},
                                   {"fault", core_fault},
                                   {NULL, NULL}};

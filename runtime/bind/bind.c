/* luaopen_mgpu_core, and how errors reach Lua: strings that begin with the user's line. */
#define _GNU_SOURCE /* dladdr */
#include "bind/bind.h"
#include "core/io.h"
#include "core/threads.h"
#include "graph/graph.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VERSION "0.1.0"

/* ---- the user's line ---- */

/* Frames of our own Lua files are not the user's: the front end, and the zoo where it calls it. */
static bool is_ours(lua_State *L, const char *source) {
    if (source[0] != '@') return false;
    if (strstr(source, "lua/mgpu/")) return true;
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.root");
    const char *root = lua_tostring(L, -1);
    const size_t n = root ? strlen(root) : 0;
    const bool zoo =
        n && strncmp(source + 1, root, n) == 0 && strncmp(source + 1 + n, "/models/", 8) == 0;
    lua_pop(L, 1);
    return zoo;
}

/* Pushes "file:line: " of the first Lua frame that is the user's, or "". */
static void push_user_line(lua_State *L) {
    lua_Debug frame;
    for (int level = 0; lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "Sl", &frame);
        if (frame.currentline < 0 || is_ours(L, frame.source)) continue;
        lua_pushfstring(L, "%s:%d: ", frame.short_src, frame.currentline);
        return;
    }
    lua_pushliteral(L, "");
}

int bind_raise(lua_State *L) {
    mg_user_line_set(NULL);
    push_user_line(L);
    lua_pushstring(L, mg_error_message());
    lua_concat(L, 2);
    lua_error(L);
    __builtin_unreachable();
}

int bind_fail(lua_State *L, mg_status code, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mg_fail(code, "%s", text);
    bind_raise(L);
}

void bind_check(lua_State *L, mg_status status) {
    if (status != MG_OK) bind_raise(L);
}

void bind_want(lua_State *L, int index, int type, const char *who) {
    if (lua_type(L, index) == type) return;
    if (type == LUA_TFUNCTION && luaL_getmetafield(L, index, "__call")) { /* a jitted one, say */
        lua_pop(L, 1);
        return;
    }
    bind_fail(L, MG_USAGE, "%s: argument %d must be a %s, got %s", who, index,
              lua_typename(L, type), lua_isnone(L, index) ? "nothing" : luaL_typename(L, index));
}

const char *bind_did_you_mean(lua_State *L, const char *given, const char *const *names, int n) {
    const char *near = mg_nearest_name(given, names, n);
    return near ? lua_pushfstring(L, " (did you mean \"%s\"?)", near) : "";
}

void bind_check_options(lua_State *L, int index, const char *who, const char *const *known, int n) {
    if (!lua_istable(L, index))
        bind_fail(L, MG_USAGE, "%s: the options must be a table such as {%s = ...}, got %s", who,
                  known[0], luaL_typename(L, index));
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        bool found = false;
        if (lua_type(L, -2) != LUA_TSTRING)
            bind_fail(L, MG_USAGE,
                      "%s: the options have names; a value stands among them without one", who);
        const char *key = lua_tostring(L, -2);
        for (int i = 0; i < n; i++) found |= strcmp(key, known[i]) == 0;
        if (!found)
            bind_fail(L, MG_USAGE, "%s: unknown option \"%s\"%s", who, key,
                      bind_did_you_mean(L, key, known, n));
    }
}

void bind_poll(lua_State *L) {
    if (mg_interrupt_pending() && mg_interrupt_take()) bind_fail(L, MG_INTERRUPTED, "interrupted");
}

static bool lines_wanted(void) {
    static int wanted = -1;
    if (wanted < 0) wanted = getenv("MGPU_CHECK") || getenv("MGPU_LOG");
    return wanted;
}

/* Lua interns the string, and a table in the registry keeps it for as long as the state lives. */
void bind_note_line(lua_State *L) {
    if (!mg_trace_current() || !lines_wanted()) return;
    push_user_line(L);
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.lines");
    lua_pushvalue(L, -2);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    lua_pop(L, 1);
    mg_user_line_set(lua_tostring(L, -1));
    lua_pop(L, 1);
}

void bind_register(lua_State *L, const luaL_Reg *functions) {
    for (; functions->name; functions++) {
        lua_pushcfunction(L, functions->func);
        lua_setfield(L, -2, functions->name);
    }
}

/* ---- functions ---- */

static mg_status code_of(const char *name) {
    for (int i = 0; i < MG_N_STATUS; i++)
        if (strcmp(mg_status_name((mg_status)i), name) == 0) return (mg_status)i;
    return MG_USAGE;
}

static int core_fail(lua_State *L) {
    const char *code = luaL_checkstring(L, 1), *message = luaL_checkstring(L, 2);
    return bind_fail(L, code_of(code), "%s", message);
}

static int core_error_code(lua_State *L) {
    lua_pushstring(L, mg_status_name(mg_error_code()));
    return 1;
}

static int core_guard(lua_State *L) {
    mg_tensor *ok = bind_take_tensor(L, 1, NULL, "guard");
    const char *code = luaL_checkstring(L, 2), *message = luaL_checkstring(L, 3);
    bind_check(L, mg_guard_add(ok, code_of(code), message));
    return 0;
}

/* guard_finite({t, ...}, message) */
static int core_guard_finite(lua_State *L) {
    mg_tensor *list[255];
    int n = 0;
    const char *message = luaL_checkstring(L, 2);
    luaL_checktype(L, 1, LUA_TTABLE);
    const int count = (int)lua_objlen(L, 1);
    luaL_checkstack(L, count + 4, "guard_finite");
    for (int i = 1; i <= count && n < 255; i++) {
        lua_rawgeti(L, 1, i);
        if (lua_toboolean(L, -1))
            list[n++] = bind_take_tensor(L, lua_gettop(L), NULL, "guard_finite");
    }
    if (n == 0) return 0;
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_apply(mg_op_find("all_finite"), list, n, NULL));
    bind_check(L, mg_guard_add(*place, MG_NONFINITE, message));
    return 0;
}

static int core_nearest(lua_State *L) {
    const char *given = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    const int n = (int)lua_objlen(L, 2);
    const char **names = lua_newuserdata(L, ((size_t)n + 1) * sizeof *names);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        names[i] = lua_isstring(L, -1) ? lua_tostring(L, -1) : "";
        lua_pop(L, 1); /* the table keeps it */
    }
    lua_pushstring(L, mg_nearest_name(given, names, n));
    return 1;
}

/* sleep(seconds): for waits that poll */
static int core_sleep(lua_State *L) {
    const double seconds = luaL_checknumber(L, 1);
    const struct timespec nap = {.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    bind_poll(L);
    nanosleep(&nap, NULL);
    return 0;
}

static int core_clock(lua_State *L) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lua_pushnumber(L, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    return 1;
}

static int core_isatty(lua_State *L) {
    lua_pushboolean(L, isatty(STDOUT_FILENO));
    return 1;
}

static const luaL_Reg functions[] = {{"fail", core_fail},       {"error_code", core_error_code},
                                     {"guard", core_guard},     {"guard_finite", core_guard_finite},
                                     {"nearest", core_nearest}, {"clock", core_clock},
                                     {"sleep", core_sleep},     {"isatty", core_isatty},
                                     {"op_rows", bind_op_rows}, {NULL, NULL}};

/* Pushes the folder with lua/ and models/, seen from where this library lies (a build tree or an
 * installed prefix), or nil. */
static void push_root_of_library(lua_State *L) {
    static const char *const places[] = {"..", "../..", "../../share/mgpulua",
                                         "../../../share/mgpulua"};
    Dl_info self;
    if (dladdr((const void *)(uintptr_t)&push_root_of_library, &self) && self.dli_fname) {
        const char *slash = strrchr(self.dli_fname, '/');
        const int n = slash ? (int)(slash - self.dli_fname) : 1;
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            char root[1024], index[1100];
            snprintf(root, sizeof root, "%.*s/%s", n, slash ? self.dli_fname : ".", places[i]);
            snprintf(index, sizeof index, "%s/lua/mgpu/init.lua", root);
            if (!mg_io_exists(index)) continue;
            lua_pushstring(L, root);
            return;
        }
    }
    lua_pushnil(L);
}

/* core.root: told by the program or by MGPU_ROOT, else found. */
static void set_root(lua_State *L) {
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.root");
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        if (getenv("MGPU_ROOT"))
            lua_pushstring(L, getenv("MGPU_ROOT"));
        else
            push_root_of_library(L);
        lua_pushvalue(L, -1);
        lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.root");
    }
    lua_setfield(L, -2, "root");
}

int luaopen_mgpu_core(lua_State *L);
int luaopen_mgpu_core(lua_State *L) {
    const luaL_Reg *lists[] = {functions,        mg_bind_tensor, mg_bind_tensor_methods,
                               mg_bind_variable, mg_bind_grad,   mg_bind_jit,
                               mg_bind_device,   mg_bind_memory, mg_bind_random,
                               mg_bind_data,     mg_bind_io,     mg_bind_nested};
    lua_newtable(L);
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.lines");
    lua_newtable(L); /* core */
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) bind_register(L, lists[i]);
    set_root(L);
    lua_pushliteral(L, VERSION);
    lua_setfield(L, -2, "version");
    lua_newtable(L); /* the methods of tensors: ops, then what lua/mgpu/tensor/ adds */
    bind_open_ops(L, false);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "methods");
    bind_open_tensor(L);
    bind_open_variable(L);
    lua_pop(L, 1);
    lua_newtable(L);
    bind_open_ops(L, true); /* tests reach all of them */
    lua_setfield(L, -2, "ops");
    bind_open_jit(L);
    bind_open_data(L);
    bind_open_io(L);
    return 1;
}

/* luaopen_mgpu_core, functions of mgpu.core that belong to no other file, and raising errors in
 * Lua: as strings that begin with the user's file and line. */
#include "bind/bind.h"
#include "bind/source.h"
#include "core/version.h"
#include "core/context.h"
#include "core/io.h"
#include "core/profile.h"
#include "core/threads.h"
#include "graph/graph.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- the user's line ---- */

/* Errors are reported at the first caller outside these files, which is the user's line. */
bool bind_is_ours(lua_State *L, const char *source) {
    if (strcmp(source, "=mgpulua") == 0) return true;
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

static bool is_line(const bind_line *l, const lua_Debug *frame) {
    return l->text && l->line == frame->currentline && strcmp(l->file, frame->short_src) == 0;
}

/* Finds the innermost Lua frame that is the user's, as that of the line `known` is, or NULL. False:
 * there is none. */
static bool find_user_line(lua_State *L, const bind_line *known, lua_Debug *frame) {
    for (int level = 0; lua_getstack(L, level, frame); level++) {
        lua_getinfo(L, "Sl", frame);
        if (frame->currentline < 0) continue;
        if ((known && is_line(known, frame)) || !bind_is_ours(L, frame->source)) return true;
    }
    return false;
}

/* Pushes its "file:line: ", or "" if there is none. */
static void push_user_line(lua_State *L) {
    lua_Debug frame;
    if (find_user_line(L, NULL, &frame))
        lua_pushfstring(L, "%s:%d: ", frame.short_src, frame.currentline);
    else
        lua_pushliteral(L, "");
}

/* The message is an argument of lua_pushstring, never a format.
 *
 * lua_error jumps: C frames above the last pcall are left without any clean-up. */
int bind_raise(lua_State *L) {
    if (mg_error_code() == MG_INTERRUPTED) mg_interrupt_take(); /* this error answers it */
    mg_context_get()->origin.where = NULL;
    push_user_line(L);
    lua_pushstring(L, mg_error_message());
    lua_concat(L, 2);
    lua_error(L);
    __builtin_unreachable();
}

int bind_fail(lua_State *L, mg_status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    mg_fail_v(code, format, args);
    va_end(args);
    bind_raise(L);
}

void bind_check(lua_State *L, mg_status status) {
    if (status != MG_OK) bind_raise(L);
}

/* Any callable value is accepted as a function: jitted functions are userdata. */
void bind_want(lua_State *L, int index, int type, const char *who) {
    if (lua_type(L, index) == type) return;
    if (type == LUA_TFUNCTION && luaL_getmetafield(L, index, "__call")) {
        lua_pop(L, 1);
        return;
    }
    bind_fail(L, MG_USAGE, "%s: argument %d must be a %s, got %s", who, index,
              lua_typename(L, type), lua_isnone(L, index) ? "nothing" : luaL_typename(L, index));
}

/* Unknown names are errors, because a misspelt option would otherwise be ignored. */
void bind_check_options(lua_State *L, int index, const char *who, const char *const *known, int n) {
    if (!lua_istable(L, index))
        bind_fail(L, MG_USAGE, "%s: the options must be a table such as {%s = ...}, got %s", who,
                  known[0], luaL_typename(L, index));
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        bool found = false;
        if (lua_type(L, -2) != LUA_TSTRING)
            bind_fail(L, MG_USAGE,
                      "%s: the options have names, but one value has none: write NAME = value",
                      who);
        const char *key = lua_tostring(L, -2);
        for (int i = 0; i < n; i++) found |= strcmp(key, known[i]) == 0;
        if (!found)
            bind_fail(L, MG_USAGE, "%s: unknown option \"%s\"%s", who, key,
                      mg_name_hint(key, known, n, "option"));
    }
}

void bind_poll(lua_State *L) {
    if (mg_interrupt_pending() && mg_interrupt_take()) bind_fail(L, MG_INTERRUPTED, "interrupted");
}

/* A table in the registry keeps the string. Lua interns strings, so equal ones are kept once. */
const char *bind_intern(lua_State *L) {
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.lines");
    lua_pushvalue(L, -2);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    lua_pop(L, 1);
    const char *text = lua_tostring(L, -1);
    lua_pop(L, 1);
    return text;
}

/* Making a string costs as much as a small step. */
void bind_note_caller(lua_State *L, bind_line *last) {
    lua_Debug frame;
    const char **where = &mg_context_get()->origin.where;
    if (!find_user_line(L, last, &frame)) {
        *where = NULL;
        return;
    }
    if (!is_line(last, &frame)) {
        lua_pushfstring(L, "%s:%d", frame.short_src, frame.currentline);
        last->text = bind_intern(L);
        last->line = frame.currentline;
        memcpy(last->file, frame.short_src, sizeof last->file);
    }
    *where = last->text;
}

void bind_note_line(lua_State *L) {
    bind_line none = {.text = NULL};
    if (mg_trace_current() || mg_profile_is_on()) bind_note_caller(L, &none);
}

/* luaL_register would look for a table in package.loaded. */
void bind_register(lua_State *L, const luaL_Reg *core_functions) {
    for (; core_functions->name; core_functions++) {
        lua_pushcfunction(L, core_functions->func);
        lua_setfield(L, -2, core_functions->name);
    }
}

/* ---- functions of mgpu.core ---- */

/* The status of a name: "usage", "data", ... */
static mg_status status_of_name(const char *name) {
    for (int i = 0; i < MG_N_STATUS; i++)
        if (strcmp(mg_status_name((mg_status)i), name) == 0) return (mg_status)i;
    return MG_USAGE;
}

/* fail(code, message): raises an error at the user's line. lua/mgpu raises all its errors with
 * it. */
static int core_fail(lua_State *L) {
    const char *code = luaL_checkstring(L, 1), *message = luaL_checkstring(L, 2);
    return bind_fail(L, status_of_name(code), "%s", message);
}

/* error_code() -> the code of the last error, "usage" and so on. */
static int core_error_code(lua_State *L) {
    lua_pushstring(L, mg_status_name(mg_error_code()));
    return 1;
}

/* last_error([code, message]) -> the code and the message of the last error, after setting them if
 * they are given: for work after an error that must not hide it from the program's exit status. */
static int core_last_error(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) {
        const mg_status code = status_of_name(luaL_checkstring(L, 1));
        if (code == MG_OK)
            mg_error_clear();
        else
            mg_fail(code, "%s", luaL_checkstring(L, 2));
    }
    lua_pushstring(L, mg_status_name(mg_error_code()));
    lua_pushstring(L, mg_error_message());
    return 2;
}

/* guard(ok, code, message): fails the evaluation, or the step of a plan, in which ok is false.
 * Kernels cannot raise errors, so labels out of range and losses that are not finite are detected
 * by guards. */
static int core_guard(lua_State *L) {
    mg_tensor *ok = bind_take_tensor(L, 1, NULL, "guard");
    const char *code = luaL_checkstring(L, 2), *message = luaL_checkstring(L, 3);
    bind_check(L, mg_guard_add(ok, status_of_name(code), message));
    return 0;
}

/* Guards the n tensors on top of the stack, and pops them. */
static void guard_finite(lua_State *L, mg_tensor *const *list, int n, const char *message) {
    if (n == 0) return;
    mg_tensor **place = bind_new_tensor(L);
    bind_fill(L, place, mg_apply(mg_op_find("all_finite"), list, n, NULL));
    bind_check(L, mg_guard_add(*place, MG_NONFINITE, message));
    lua_pop(L, n + 1);
}

/* guard_finite({t, ...}, message): one guard for the tensors, or one for each 255 tensors, the
 * maximum number of inputs of an op. Entries that are false are skipped. */
static int core_guard_finite(lua_State *L) {
    enum { MOST = 255 };
    mg_tensor *list[MOST];
    int n = 0;
    const char *message = luaL_checkstring(L, 2);
    luaL_checktype(L, 1, LUA_TTABLE);
    const int count = (int)lua_objlen(L, 1);
    lua_settop(L, 2);
    luaL_checkstack(L, MOST + 4, "guard_finite");
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, 1, i);
        if (!lua_toboolean(L, -1)) {
            lua_pop(L, 1);
            continue;
        }
        list[n++] = bind_take_tensor(L, lua_gettop(L), NULL, "guard_finite");
        if (n == MOST) guard_finite(L, list, n, message), n = 0;
    }
    guard_finite(L, list, n, message);
    return 0;
}

/* Calls fn for the variables in the array at index 1, with the text at index 2. */
static int each_variable(lua_State *L, const char *who,
                         mg_status (*fn)(mg_variable *const *v, int n, const char *text)) {
    const char *text = luaL_checkstring(L, 2);
    luaL_checktype(L, 1, LUA_TTABLE);
    const int count = (int)lua_objlen(L, 1);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, 1, i);
        mg_variable *v = bind_to_variable(L, -1);
        if (!v) return bind_fail(L, MG_USAGE, "%s: element %d must be a variable", who, i);
        bind_check(L, fn(&v, 1, text));
        lua_pop(L, 1); /* the array keeps it */
    }
    return 0;
}

/* guard_variables({v, ...}, message): a jitted step that makes one of them NaN or infinite fails
 * with "NAME message"; without jit they are checked now. */
static int core_guard_variables(lua_State *L) {
    return each_variable(L, "guard_variables", mg_guard_variables);
}

/* Fails if a step has made one of the variables NaN or infinite. */
static mg_status check_usable(mg_variable *const *v, int n, const char *text) {
    for (int i = 0; i < n; i++)
        if (v[i]->nonfinite) return mg_fail(MG_NONFINITE, "%s %s", v[i]->name, text);
    return MG_OK;
}

/* check_usable({v, ...}, text): raises "NAME text" if a step has made one NaN or infinite. */
static int core_check_usable(lua_State *L) {
    return each_variable(L, "check_usable", check_usable);
}

/* did_you_mean(given, {name, ...}, noun) -> ' (did you mean "NAME"?)' with the nearest name, or ""
 * if none is near or `given` is not a string: for error messages. With a noun such as "option", the
 * list of all names follows: "; the options are axis, keepdims". */
static int core_did_you_mean(lua_State *L) {
    luaL_checktype(L, 2, LUA_TTABLE);
    const char *noun = luaL_optstring(L, 3, NULL);
    const int n = (int)lua_objlen(L, 2);
    const char **names = lua_newuserdata(L, ((size_t)n + 1) * sizeof *names);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        names[i] = lua_isstring(L, -1) ? lua_tostring(L, -1) : "";
        lua_pop(L, 1); /* the table keeps it */
    }
    const char *given = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
    lua_pushstring(L,
                   noun ? mg_name_hint(given, names, n, noun) : mg_did_you_mean(given, names, n));
    return 1;
}

/* sleep(seconds): for loops that poll. */
static int core_sleep(lua_State *L) {
    const double seconds = luaL_checknumber(L, 1);
    struct timespec nap = {.tv_sec = (time_t)seconds,
                           .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    bind_poll(L);
    bind_visit(L);
    while (nanosleep(&nap, &nap) != 0 && errno == EINTR && !mg_interrupt_pending()) continue;
    return 0;
}

/* clock() -> seconds of a monotonic clock. */
static int core_clock(lua_State *L) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lua_pushnumber(L, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    return 1;
}

const char *bind_signal_name(int number) {
    switch (number) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGUSR1: return "SIGUSR1";
    case SIGXCPU: return "SIGXCPU";
    default: return NULL;
    }
}

/* interrupted() -> the name of the signal that caused the last "interrupted" error or will cause
 * the next one: "SIGINT", "SIGTERM", "SIGXCPU"; nil if there was none, or a host program called
 * mg_interrupt(). */
static int core_interrupted(lua_State *L) {
    lua_pushstring(L, bind_signal_name(mg_interrupt_signal()));
    return 1;
}

static const luaL_Reg core_functions[] = {{"fail", core_fail},
                                          {"error_code", core_error_code},
                                          {"last_error", core_last_error},
                                          {"guard", core_guard},
                                          {"guard_finite", core_guard_finite},
                                          {"guard_variables", core_guard_variables},
                                          {"check_usable", core_check_usable},
                                          {"did_you_mean", core_did_you_mean},
                                          {"clock", core_clock},
                                          {"sleep", core_sleep},
                                          {"op_rows", bind_op_rows},
                                          {"interrupted", core_interrupted},
                                          {NULL, NULL}};

/* Builds the table mgpu.core: flat functions, `methods` (the methods of tensors, which are the
 * visible ops and what lua/mgpu/tensor/init.lua adds) and `ops` (all of them, for tests). */
int luaopen_mgpu_core(lua_State *L) {
    const luaL_Reg *lists[] = {
        core_functions,       mg_bind_tensor,       mg_bind_tensor_methods,
        mg_bind_variable,     mg_bind_grad,         mg_bind_jit,
        mg_bind_device,       mg_bind_memory,       mg_bind_random,
        mg_bind_data,         mg_bind_io,           mg_bind_json,
        mg_bind_store,        mg_bind_zip,          mg_bind_h5,
        mg_bind_checkpoint,   mg_bind_nested,       mg_bind_image,
        mg_bind_source,       mg_bind_terminal,     mg_bind_source_csv,
        mg_bind_elements,     mg_bind_transform,    mg_bind_datasets,
        mg_bind_source_files, mg_bind_tfrecord,     mg_bind_library,
        mg_bind_world,        mg_bind_world_values, mg_bind_world_messages,
        mg_bind_loop,         mg_bind_pattern,      mg_bind_profile,
        mg_bind_server,       mg_bind_tensor_bytes, mg_bind_visit,
        mg_bind_process,
    };
    bind_replace_pairs(L);
    lua_newtable(L);
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.lines");
    lua_newtable(L); /* core */
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) bind_register(L, lists[i]);
    bind_set_root(L);
    lua_pushliteral(L, MG_VERSION);
    lua_setfield(L, -2, "version");
    lua_newtable(L); /* methods */
    bind_open_ops(L, false);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "methods");
    bind_open_tensor(L);
    bind_open_variable(L);
    lua_pop(L, 1);
    lua_newtable(L);
    bind_open_ops(L, true);
    lua_setfield(L, -2, "ops");
    bind_open_jit(L);
    bind_open_data(L);
    bind_open_source(L);
    bind_open_checkpoint(L);
    bind_open_process(L);
    bind_open_tfrecord(L);
    bind_open_server(L);
    bind_open_json(L);
    return 1;
}

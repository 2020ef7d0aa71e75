/* Checkpoints in Lua: writers with their thread, reading, and requests to stop after a save. */
#include "bind/bind.h"
#include "io/checkpoint.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "world/world.h"

#define BIND_WRITER "mgpu.checkpoint_writer"

/* ---- writers ---- */

/* The writer at index 1, borrowed; raises after close. */
static mg_checkpoint_writer *to_writer(lua_State *L) {
    mg_checkpoint_writer **box = luaL_checkudata(L, 1, BIND_WRITER);
    if (!*box) bind_fail(L, MG_USAGE, "checkpoint_writer: it is closed");
    return *box;
}

/* checkpoint_writer(folder, keep, who) -> a writer. An error begins with `who`, if it is given. The
 * userdata is created closed, so that an error cannot leak the writer. */
static int core_checkpoint_writer(lua_State *L) {
    const char *folder = bind_path(L, 1, "checkpoint_writer");
    const int keep = (int)luaL_checkinteger(L, 2);
    mg_checkpoint_writer **box = lua_newuserdata(L, sizeof *box);
    *box = NULL;
    luaL_getmetatable(L, BIND_WRITER);
    lua_setmetatable(L, -2);
    *box = mg_checkpoint_writer_new(folder, keep);
    if (!*box && lua_isstring(L, 3)) mg_error_prefix(lua_tostring(L, 3));
    return *box ? 1 : bind_raise(L);
}

/* writer:start({name = tensor, ...}, {key = text, ...}): begins to save them. The tensors must lie
 * in host memory. */
static int writer_start(lua_State *L) {
    mg_checkpoint_writer *w = to_writer(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 3);
    bind_owner *o = bind_push_store(L);
    mg_store *store = o->held;
    o->held = NULL;
    bind_check(L, mg_checkpoint_writer_start(w, store));
    return 0;
}

/* writer:busy() -> whether a save is in progress. */
static int writer_busy(lua_State *L) {
    lua_pushboolean(L, mg_checkpoint_writer_busy(to_writer(L)));
    return 1;
}

/* writer:wait() -> {number, saved, message}, the result of the last save, once for each save; else
 * nil. message: the error, if there was one. */
static int writer_wait(lua_State *L) {
    mg_checkpoint_result result;
    if (!mg_checkpoint_writer_wait(to_writer(L), &result)) return 0;
    lua_newtable(L);
    lua_pushnumber(L, (double)result.number), lua_setfield(L, -2, "number");
    lua_pushboolean(L, result.saved), lua_setfield(L, -2, "saved");
    if (result.status != MG_OK) lua_pushstring(L, result.message), lua_setfield(L, -2, "message");
    return 1;
}

/* writer:close(): waits for the save in progress; also __gc, and harmless when closed. */
static int writer_close(lua_State *L) {
    mg_checkpoint_writer **box = luaL_checkudata(L, 1, BIND_WRITER);
    mg_checkpoint_writer_free(*box);
    *box = NULL;
    return 0;
}

void bind_open_checkpoint(lua_State *L) {
    static const luaL_Reg methods[] = {{"start", writer_start}, {"busy", writer_busy},
                                       {"wait", writer_wait},   {"close", writer_close},
                                       {"__gc", writer_close},  {NULL, NULL}};
    luaL_newmetatable(L, BIND_WRITER);
    bind_register(L, methods);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

/* ---- reading ---- */

/* checkpoint_list(folder) -> the numbers of its checkpoints, the newest first. */
static int core_checkpoint_list(lua_State *L) {
    size_t n;
    const char *folder = bind_path(L, 1, "checkpoint_list");
    int64_t *numbers = mg_checkpoint_list(folder, &n);
    if (!numbers) return bind_raise(L);
    /* Copied into a userdata: the pushes below may raise. */
    int64_t *copy = lua_newuserdata(L, (n + 1) * sizeof *copy);
    for (size_t i = 0; i < n; i++) copy[i] = numbers[i];
    mg_free(numbers);
    lua_newtable(L);
    for (size_t i = 0; i < n; i++) {
        lua_pushnumber(L, (double)copy[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

static int64_t check_number(lua_State *L) {
    return (int64_t)luaL_checknumber(L, 2);
}

/* checkpoint_verify(folder, number): raises if the checkpoint is damaged. */
static int core_checkpoint_verify(lua_State *L) {
    bind_check(L, mg_checkpoint_verify(bind_path(L, 1, "checkpoint_verify"), check_number(L)));
    return 0;
}

/* checkpoint_load(folder, number) -> {name = tensor, ...}, {key = text, ...}, verified. */
static int core_checkpoint_load(lua_State *L) {
    mg_store *store = mg_checkpoint_load(bind_path(L, 1, "checkpoint_load"), check_number(L));
    if (!store) return bind_raise(L);
    bind_push_store_tables(L, store);
    return 2;
}

/* checkpoint_latest(folder) -> the number that the file `latest` names, nil without that file;
 * raises if it is damaged. */
static int core_checkpoint_latest(lua_State *L) {
    int64_t number;
    bind_check(L, mg_checkpoint_latest(bind_path(L, 1, "checkpoint_latest"), &number));
    if (number < 0) return 0;
    lua_pushnumber(L, (double)number);
    return 1;
}

/* checkpoint_remove(folder, number): removes one checkpoint. */
static int core_checkpoint_remove(lua_State *L) {
    bind_check(L, mg_checkpoint_remove(bind_path(L, 1, "checkpoint_remove"), check_number(L)));
    return 0;
}

/* checkpoint_remove_all(folder): removes the checkpoints, and the folder if it is empty then. */
static int core_checkpoint_remove_all(lua_State *L) {
    bind_check(L, mg_checkpoint_remove_all(bind_path(L, 1, "checkpoint_remove_all")));
    return 0;
}

/* ---- stopping after a save ---- */

/* stop_listen(on, [interrupts]): whether the program's SIGTERM, SIGUSR1 and SIGXCPU (with
 * interrupts = true also Ctrl-C) are stop requests, which stop_requested returns. */
static int core_stop_listen(lua_State *L) {
    mg_stop_take_interrupts(lua_toboolean(L, 1) && lua_toboolean(L, 2));
    mg_stop_listen(lua_toboolean(L, 1));
    return 0;
}

/* stop_requested() -> the name of the signal if one came since stop_listen(true), else nil. With
 * several ranks it is what they have agreed on in the last step, so that all stop after the same
 * one. */
static int core_stop_requested(lua_State *L) {
    const int reason = mg_stop_requested();
    const char *name = bind_signal_name(reason);
    if (mg_world_size() > 1 ? !(mg_world_flags() & MG_FLAG_STOP) : !reason) return 0;
    lua_pushstring(L, name ? name : "a signal");
    return 1;
}

/* stop_saved(): notes that a stop request was fulfilled by a save: the error that ends the script
 * then gives the exit status 75. */
static int core_stop_saved(lua_State *L) {
    (void)L;
    mg_stop_set_saved();
    return 0;
}

const luaL_Reg mg_bind_checkpoint[] = {{"checkpoint_writer", core_checkpoint_writer},
                                       {"checkpoint_list", core_checkpoint_list},
                                       {"checkpoint_verify", core_checkpoint_verify},
                                       {"checkpoint_load", core_checkpoint_load},
                                       {"checkpoint_latest", core_checkpoint_latest},
                                       {"checkpoint_remove", core_checkpoint_remove},
                                       {"checkpoint_remove_all", core_checkpoint_remove_all},
                                       {"stop_listen", core_stop_listen},
                                       {"stop_requested", core_stop_requested},
                                       {"stop_saved", core_stop_saved},
                                       {NULL, NULL}};

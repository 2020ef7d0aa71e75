/* The script's side of an attached prompt: commands, run between two steps.
 *
 * A command must leave the run as it would be without it, apart from what it is meant to change. So
 * the random numbers of the script are put back, those of Lua's math.random, too; a hook that the
 * script has set is not called; errors end at the command; and with several processes it computes
 * by itself. bind/visit.c has left the scopes that are open in the library. */
#include "bind/bind.h"
#include "core/activity.h"
#include "core/rng.h"
#include "core/threads.h"
#include "program/attach/attach.h"
#include "program/attach/visitors.h"
#include "program/program.h"
#include "world/world.h"

#include <lauxlib.h>
#include <string.h>
#include <unistd.h>

enum { DRAWS = 64 }; /* bytes of the state of math.random, at most */

static pid_t process;
static mg_command running; /* body: NULL: none is */
static bool is_running;

/* The random numbers of each connection: it goes on with its own. */
static struct own_draws {
    unsigned id;
    mg_rng_state state;
} draws[MG_VISITORS];

bool mg_attach_is_running(void) {
    return is_running;
}

static void write_output(int to, const char *bytes, size_t n) {
    mg_visitors_write(&running, to == 1 ? MG_ATTACH_OUTPUT : MG_ATTACH_ERRORS, bytes, n);
}

/* ---- what is put back ---- */

typedef struct state_before {
    lua_Hook hook;
    int mask, count, depth, top, interrupts;
    mg_rng_state rng;
    char lua_random[DRAWS];
} state_before;

/* The state behind math.random, an upvalue in C; NULL: there is none of this size. */
static void *lua_random(lua_State *L) {
    void *found = NULL;
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.attach.random");
    if (lua_iscfunction(L, -1) && lua_getupvalue(L, -1, 1)) {
        if (lua_isuserdata(L, -1) && lua_objlen(L, -1) <= DRAWS) found = lua_touserdata(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return found;
}

static size_t lua_random_bytes(lua_State *L) {
    size_t n = 0;
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.attach.random");
    if (lua_getupvalue(L, -1, 1)) {
        n = lua_objlen(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return n;
}

static void keep_state(lua_State *L, state_before *s) {
    const void *random = lua_random(L);
    *s = (state_before){.hook = lua_gethook(L),
                        .mask = lua_gethookmask(L),
                        .count = lua_gethookcount(L),
                        .depth = mg_activity_depth(),
                        .top = lua_gettop(L),
                        .interrupts = mg_main_interrupts(),
                        .rng = mg_rng_get()};
    if (random) memcpy(s->lua_random, random, lua_random_bytes(L));
    lua_sethook(L, NULL, 0, 0);
    struct own_draws *own = &draws[running.slot];
    if (own->id == running.id) mg_rng_set(own->state);
}

static void restore_state(lua_State *L, const state_before *s) {
    void *random = lua_random(L);
    draws[running.slot] = (struct own_draws){running.id, mg_rng_get()};
    mg_rng_set(s->rng);
    if (random) memcpy(random, s->lua_random, lua_random_bytes(L));
    lua_settop(L, s->top);
    mg_activity_leave(s->depth);
    lua_sethook(L, s->hook, s->mask, s->count);
    mg_error_clear();
    /* Ctrl-C was meant for the script, though the command may have been stopped by it. */
    if (mg_main_interrupts() != s->interrupts) mg_interrupt_by(mg_interrupt_signal());
}

/* ---- a command ---- */

/* Calls a function of mgpu.attach.job with the arguments on the stack. */
static void call_job(lua_State *L, const char *name, int n_args, int n_results) {
    lua_getfield(L, LUA_REGISTRYINDEX, "mgpu.attach.require");
    lua_pushliteral(L, "mgpu.attach.job");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    lua_insert(L, -n_args - 1);
    lua_call(L, n_args, n_results);
}

/* run(place) -> whether it went well, and the text of the answer. The command is `running`. */
static int run_command(lua_State *L) {
    const uint8_t *body = running.body;
    lua_settop(L, 1);
    lua_pushnumber(L, running.id);
    lua_insert(L, 1);
    const uint32_t columns = mg_attach_number(body + 1, 2);
    if (columns)
        lua_pushinteger(L, (lua_Integer)columns);
    else
        lua_pushnil(L);
    if (running.kind == MG_ATTACH_COMPLETE) {
        lua_pushinteger(L, (lua_Integer)mg_attach_number(body + MG_ATTACH_AT_CODE, 4));
        lua_pushlstring(L, (const char *)body + MG_ATTACH_AT_TEXT,
                        running.bytes - MG_ATTACH_AT_TEXT);
        call_job(L, "complete", 5, 2);
        return 2;
    }
    lua_pushboolean(L, body[0] & MG_ATTACH_SCRIPT);
    lua_pushlstring(L, (const char *)body + MG_ATTACH_AT_CODE, running.bytes - MG_ATTACH_AT_CODE);
    call_job(L, "run", 5, 1);
    return 1;
}

static int forget_gone(lua_State *L) {
    for (unsigned id; (id = mg_visitors_take_gone()) != 0;) {
        lua_pushnumber(L, id);
        call_job(L, "forget", 1, 0);
    }
    return 0;
}

/* The function at the top of the stack is called with the value at index 1, the place. */
static int call_protected(lua_State *L, lua_CFunction fn, int n_results) {
    lua_pushcfunction(L, mg_main_traceback);
    const int handler = lua_gettop(L);
    lua_pushcfunction(L, fn);
    lua_pushvalue(L, 1);
    mg_world_alone_begin();
    const int status = lua_pcall(L, 1, n_results, handler);
    mg_world_alone_end();
    lua_remove(L, handler);
    return status;
}

static void serve_command(lua_State *L) {
    state_before before;
    keep_state(L, &before);
    is_running = true;
    mg_activity_begin(MG_SPAN_CALLBACK, "attached command");
    bind_terminal_pretend((int)mg_attach_number(running.body + 1, 2));
    mg_attach_output_begin(L, write_output);
    const int status = call_protected(L, run_command, 2);
    mg_attach_output_end(L);
    bind_terminal_pretend(-1);
    is_running = false;
    size_t n = 0;
    const char *text = NULL;
    mg_attach_result result = status ? MG_ATTACH_FAILED : MG_ATTACH_FINE;
    if (status) { /* not of the user's code: job.lua catches that */
        text = lua_tolstring(L, -1, &n);
        if (text) mg_visitors_write(&running, MG_ATTACH_ERRORS, text, n);
        mg_visitors_write(&running, MG_ATTACH_ERRORS, "\n", 1);
        text = NULL;
    } else {
        if (!lua_toboolean(L, -2)) result = MG_ATTACH_FAILED;
        text = lua_tolstring(L, -1, &n);
    }
    mg_visitors_done(&running, result, text ? text : "", text ? n : 0);
    restore_state(L, &before);
}

/* ---- between two steps ---- */

static bool is_wanted(void) {
    return !mg_interrupt_pending() && !mg_stop_requested();
}

/* Waits as long as somebody wants the job to stand still, and serves commands meanwhile. */
static void stand_still(lua_State *L, void (*serve)(lua_State *)) {
    const int depth = mg_activity_begin(MG_SPAN_WAIT, "paused by an attached prompt");
    while (is_wanted() && mg_visitors_paused()) {
        serve(L);
        mg_visitors_wait(0.2);
    }
    mg_activity_leave(depth);
}

static void serve_all(lua_State *L) {
    call_protected(L, forget_gone, 0);
    lua_settop(L, 1);
    while (is_wanted() && mg_visitors_take(&running)) serve_command(L);
}

/* The function of core.visit: visit(place). */
static int visit(lua_State *L) {
    lua_settop(L, 1);
    if (getpid() != process || !lua_checkstack(L, LUA_MINSTACK)) return 0;
    serve_all(L);
    if (mg_visitors_paused()) stand_still(L, serve_all);
    return 0;
}

/* call(fn, ...) -> true and the results; or false and the message with its traceback. */
static int protected_call(lua_State *L) {
    lua_pushcfunction(L, mg_main_traceback);
    lua_insert(L, 1);
    const int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 1);
    lua_pushboolean(L, status == 0);
    lua_replace(L, 1);
    return lua_gettop(L);
}

void mg_attach_visit_open(lua_State *L) {
    process = getpid();
    lua_getglobal(L, "require");
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.attach.require");
    lua_getglobal(L, "math");
    lua_getfield(L, -1, "random");
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.attach.random");
    lua_pop(L, 1);
    lua_pushcfunction(L, protected_call);
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.attach.call");
    lua_pushcfunction(L, visit);
    lua_setfield(L, LUA_REGISTRYINDEX, "mgpu.visit");
    mg_attach_output_open(L);
}

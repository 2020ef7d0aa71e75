/* Background runs of jitted functions: submit(...) begins a run on the device's thread and returns
 * a handle with done(), wait() and cancel(). */
#include "bind/jit.h"
#include "graph/graph.h"

/* The userdata of a run. Its environment table holds the jitted function, which keeps the plan. */
typedef struct jit_run {
    bind_jit_entry
        e;        /* a copy, because another plan may replace the entry once the run has ended */
    bool running; /* the result has not been taken */
    int n;
    mg_tensor *args[]; /* retained: the run reads them even if the caller releases them */
} jit_run;

/* The handle is complete before the run begins, so that pending_gc can end it whatever happens. */
int bind_jit_submit(lua_State *L) {
    bind_signature s;
    const int last = lua_gettop(L);
    bind_poll(L);
    bind_jit_entry *e = bind_jit_entry_for(L, bind_check_jitted(L), &s, last, false);
    jit_run *h = lua_newuserdata(L, sizeof *h + (size_t)s.n_tensors * sizeof *h->args);
    h->e = *e;
    h->running = false;
    h->n = 0;
    luaL_getmetatable(L, BIND_JIT ".pending");
    lua_setmetatable(L, -2);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    for (int i = 0; i < s.n_tensors; i++) h->args[h->n++] = mg_tensor_retain(s.tensors[i]);
    bind_check(L, mg_plan_begin(e->plan, h->args));
    h->running = true;
    return 1;
}

/* The handle at index 1; raises if it is something else. */
static jit_run *check_pending(lua_State *L) {
    return luaL_checkudata(L, 1, BIND_JIT ".pending");
}

/* done() -> whether wait() would return at once. */
static int pending_done(lua_State *L) {
    const jit_run *h = check_pending(L);
    lua_pushboolean(L, !h->running || mg_plan_done(h->e.plan));
    return 1;
}

/* wait() -> the results of fn, once. Raises the error of the run. */
static int pending_wait(lua_State *L) {
    jit_run *h = check_pending(L);
    if (!h->running) return bind_fail(L, MG_USAGE, "wait: the result was taken already");
    bind_results *r = bind_new_results(L, h->e.n_outputs);
    h->running = false; /* the run is over even if mg_plan_end fails */
    bind_check(L, mg_plan_end(h->e.plan, h->args, r->list));
    return bind_push_results(L, r, h->e.template, h->e.n_results);
}

/* cancel(): stops the run, unless it was waited for; nothing is committed. */
static int pending_cancel(lua_State *L) {
    jit_run *h = check_pending(L);
    if (h->running) mg_plan_cancel(h->e.plan, h->args);
    h->running = false;
    return 0;
}

/* Cancels the run: nobody can wait for it any more. */
static int pending_gc(lua_State *L) {
    jit_run *h = check_pending(L);
    pending_cancel(L);
    for (int i = 0; i < h->n; i++) mg_tensor_release(h->args[i]);
    h->n = 0;
    return 0;
}

void bind_open_pending(lua_State *L) {
    luaL_newmetatable(L, BIND_JIT ".pending");
    lua_pushcfunction(L, pending_gc), lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, pending_done), lua_setfield(L, -2, "done");
    lua_pushcfunction(L, pending_wait), lua_setfield(L, -2, "wait");
    lua_pushcfunction(L, pending_cancel), lua_setfield(L, -2, "cancel");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

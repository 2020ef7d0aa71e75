/* mgpu.jit: a function traced once per signature; afterwards the plan alone runs.
 *
 * Calls compare their signature (signature.h) with those of the plans made so far. */
#include "bind/jit.h"
#include "core/alloc.h"
#include "core/log.h"
#include "device/device.h"
#include "graph/graph.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bind_jit_entry *find_entry(bind_jitted *j, const bind_signature *s, uint64_t hash) {
    for (int i = 0; i < j->n_entries; i++) {
        bind_jit_entry *e = &j->entries[i];
        if (e->hash == hash && e->key_size == s->n && memcmp(e->key, s->key, s->n) == 0) return e;
    }
    return NULL;
}

static const bind_jit_entry *last_entry(const bind_jitted *j) {
    const bind_jit_entry *last = NULL;
    for (int i = 0; i < j->n_entries; i++)
        if (!last || j->entries[i].last_used > last->last_used) last = &j->entries[i];
    return last;
}

/* ---- entries ---- */

static void free_entry(lua_State *L, bind_jit_entry *e) {
    mg_plan_free(e->plan);
    mg_free(e->key);
    mg_free(e->dump);
    luaL_unref(L, LUA_REGISTRYINDEX, e->template);
    *e = (bind_jit_entry){.template = LUA_NOREF};
}

static bind_jit_entry *room_for_entry(lua_State *L, bind_jitted *j) {
    bind_jit_entry *oldest = NULL;
    if (j->n_entries < MAX_PLANS) return &j->entries[j->n_entries++];
    for (int i = 0; i < MAX_PLANS; i++) {
        if (mg_plan_begun(j->entries[i].plan)) continue;
        if (!oldest || j->entries[i].last_used < oldest->last_used) oldest = &j->entries[i];
    }
    if (!oldest) bind_fail(L, MG_USAGE, "mgpu.jit: %d runs at once are too many", MAX_PLANS);
    free_entry(L, oldest);
    return oldest;
}

/* Which argument or upvalue made this signature differ from the one before. */
static void what_changed(const bind_jitted *j, const bind_signature *s, char *to, size_t size) {
    const bind_jit_entry *last = last_entry(j);
    size_t at = 0;
    while (at < s->n && at < last->key_size && s->key[at] == last->key[at]) at++;
    for (int i = 0; i < s->n_labels; i++)
        if (at < s->labels[i].end) {
            bind_label_text(to, size, &s->labels[i]);
            return;
        }
    snprintf(to, size, "the number of arguments");
}

static void warn_about_retraces(bind_jitted *j, const bind_signature *s) {
    char what[80];
    if (++j->n_traces <= WARN_AFTER || j->warned || j->n_entries == 0) return;
    j->warned = true;
    what_changed(j, s, what, sizeof what);
    mg_log("warning",
           "mgpu.jit: traced %d times because %s keeps changing: pass it as a tensor "
           "argument, or keep it in a variable",
           j->n_traces, what);
}

/* The function of the jitted object at index 1. */
void bind_jit_push_function(lua_State *L) {
    lua_getfenv(L, 1);
    lua_rawgeti(L, -1, 1);
    lua_remove(L, -2);
}

/* In the environment of the jitted object at index 1, for as long as e stands. */
static void keep_upvalues(lua_State *L, const bind_jitted *j, const bind_jit_entry *e) {
    lua_getfenv(L, 1);
    bind_jit_push_function(L);
    bind_push_upvalues(L, lua_gettop(L));
    lua_rawseti(L, -3, (int)(e - j->entries) + 2);
    lua_pop(L, 2);
}

static bind_jit_entry *make_entry(lua_State *L, bind_jitted *j, const bind_signature *s,
                                  uint64_t hash, int first, int last) {
    bind_outputs *o = lua_newuserdata(L, sizeof *o);
    o->n = 0;
    warn_about_retraces(j, s);
    mg_plan *plan = bind_jit_trace(L, j, first, last, o);
    bind_jit_entry *e = room_for_entry(L, j);
    *e = (bind_jit_entry){.hash = hash, .plan = plan, .n_outputs = o->n, .template = LUA_NOREF};
    e->n_results = o->n_results;
    e->template = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 2); /* anchors, outputs */
    e->key = mg_alloc(s->n + 1);
    if (!e->key) bind_raise(L);
    memcpy(e->key, s->key, s->n);
    e->key_size = s->n;
    keep_upvalues(L, j, e);
    return e;
}

/* ---- running ---- */

/* The entry for the arguments 2..last, traced if it is new; `check`: traced again if it is not. */
bind_jit_entry *bind_jit_entry_for(lua_State *L, bind_jitted *j, bind_signature *s, int last,
                                   bool check) {
    s->L = L, s->n = 0, s->n_tensors = s->n_labels = 0;
    bind_sign_settings(s);
    bind_sign_arguments(s, 2, last);
    bind_jit_push_function(L);
    bind_sign_upvalues(s, lua_gettop(L));
    lua_pop(L, 1);
    const uint64_t hash = bind_signature_hash(s);
    bind_jit_entry *e = find_entry(j, s, hash);
    if (e && check) bind_jit_check_retrace(L, j, e, 2, last);
    if (!e) e = make_entry(L, j, s, hash, 2, last);
    e->last_used = ++j->clock;
    return e;
}

static int run_entry(lua_State *L, bind_jit_entry *e, bind_signature *s) {
    bind_results *r = bind_new_results(L, e->n_outputs);
    mg_status status = mg_plan_run(e->plan, s->tensors, r->list);
    if (status == MG_OOM) { /* nothing was committed: collect and try once more */
        lua_gc(L, LUA_GCCOLLECT, 0);
        status = mg_plan_run(e->plan, s->tensors, r->list);
    }
    bind_check(L, status);
    return bind_push_results(L, r, e->template, e->n_results);
}

bind_jitted *bind_check_jitted(lua_State *L) {
    return luaL_checkudata(L, 1, BIND_JIT);
}

static int jit_call(lua_State *L) {
    bind_jitted *j = bind_check_jitted(L);
    const int last = lua_gettop(L);
    bind_poll(L);
    /* Inside another trace it simply runs, and while a gradient is taken: a plan has no history. */
    if (mg_trace_current() || mg_recording()) {
        bind_jit_push_function(L);
        lua_replace(L, 1);
        lua_call(L, last - 1, LUA_MULTRET);
        return lua_gettop(L);
    }
    bind_signature s;
    bind_jit_entry *e = bind_jit_entry_for(L, j, &s, last, bind_jit_checks_retraces());
    return run_entry(L, e, &s);
}

/* ---- the object ---- */

static int jit_plans(lua_State *L) {
    lua_pushinteger(L, bind_check_jitted(L)->n_entries);
    return 1;
}

/* The plan used last as text. */
static int jit_dump(lua_State *L) {
    const bind_jit_entry *last = last_entry(bind_check_jitted(L));
    char *text = last ? mg_plan_dump(last->plan, false) : NULL;
    lua_pushstring(L, text ? text : "");
    mg_free(text);
    return 1;
}

/* prepare(...): the plan for these arguments, made now and not run. */
static int jit_prepare(lua_State *L) {
    bind_signature s;
    bind_jit_entry_for(L, bind_check_jitted(L), &s, lua_gettop(L), false);
    return 0;
}

static void set_count(lua_State *L, const char *name, int64_t value) {
    lua_pushnumber(L, (double)value);
    lua_setfield(L, -2, name);
}

/* report() -> what each device does in a run of the plan used last: an array of tables. */
static int jit_report(lua_State *L) {
    const bind_jit_entry *last = last_entry(bind_check_jitted(L));
    const int n = last ? mg_plan_devices(last->plan) : 0;
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const mg_plan_report r = mg_plan_describe(last->plan, i);
        lua_createtable(L, 0, 10);
        lua_pushstring(L, r.device->name);
        lua_setfield(L, -2, "device");
        set_count(L, "first_row", r.first_row);
        set_count(L, "rows", r.rows);
        set_count(L, "steps", r.steps);
        set_count(L, "collectives", r.collectives);
        set_count(L, "collective_bytes", r.collective_bytes);
        set_count(L, "variable_bytes", r.variable_bytes);
        set_count(L, "argument_bytes", r.argument_bytes);
        set_count(L, "result_bytes", r.result_bytes);
        set_count(L, "arena_bytes", r.arena_bytes);
        set_count(L, "bytes_moved", r.bytes_moved);
        lua_pushnumber(L, r.seconds), lua_setfield(L, -2, "seconds");
        lua_pushnumber(L, r.reduce_seconds), lua_setfield(L, -2, "reduce_seconds");
        lua_pushnumber(L, r.wait_seconds), lua_setfield(L, -2, "wait_seconds");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int jit_gc(lua_State *L) {
    bind_jitted *j = lua_touserdata(L, 1);
    for (int i = 0; i < j->n_entries; i++) free_entry(L, &j->entries[i]);
    j->n_entries = 0;
    return 0;
}

/* {devices = names, weights = numbers, local_norm = boolean} at index 2 */
static void take_devices(lua_State *L, bind_jitted *j) {
    lua_getfield(L, 2, "devices");
    const int n = lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0;
    if (n > MG_MAX_DEVICES)
        bind_fail(L, MG_USAGE, "mgpu.jit: at most %d devices can share a step, got %d",
                  MG_MAX_DEVICES, n);
    lua_getfield(L, 2, "weights");
    j->weighted = lua_istable(L, -1);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, -2, i);
        j->devices[i - 1] = mg_device_find(luaL_checkstring(L, -1));
        if (!j->devices[i - 1]) bind_raise(L);
        lua_pop(L, 1);
        for (int k = 0; k < i - 1; k++)
            if (j->devices[k] == j->devices[i - 1])
                bind_fail(L, MG_USAGE, "mgpu.jit: the device %s is given twice",
                          j->devices[k]->name);
        if (!j->weighted) continue;
        lua_rawgeti(L, -1, i);
        j->weights[i - 1] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
    lua_getfield(L, 2, "local_norm");
    j->local_norm = lua_toboolean(L, -1);
    lua_getfield(L, 2, "stages");
    j->n_stages = (int)luaL_optinteger(L, -1, 1);
    if (j->n_stages < 1 || n % j->n_stages != 0)
        bind_fail(L, MG_USAGE, "mgpu.jit: %d devices are not %d equal groups", n, j->n_stages);
    lua_pop(L, 1);
    lua_getfield(L, 2, "keeper");
    if (lua_isstring(L, -1) && !(j->keeper = mg_device_find(lua_tostring(L, -1)))) bind_raise(L);
    lua_pop(L, 2);
    j->n_devices = n;
}

static int core_jit(lua_State *L) {
    if (!lua_isfunction(L, 1))
        return bind_fail(L, MG_USAGE, "mgpu.jit: expected a function, got %s", luaL_typename(L, 1));
    bind_jitted *j = lua_newuserdata(L, sizeof *j);
    memset(j, 0, sizeof *j);
    if (lua_istable(L, 2)) take_devices(L, j);
    luaL_getmetatable(L, BIND_JIT);
    lua_setmetatable(L, -2);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    return 1;
}

static int core_tracing(lua_State *L) {
    lua_pushboolean(L, mg_trace_current() != NULL);
    return 1;
}

void bind_open_jit(lua_State *L) {
    luaL_newmetatable(L, BIND_JIT);
    lua_pushcfunction(L, jit_call), lua_setfield(L, -2, "__call");
    lua_pushcfunction(L, jit_gc), lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, jit_plans), lua_setfield(L, -2, "plans");
    lua_pushcfunction(L, jit_dump), lua_setfield(L, -2, "dump");
    lua_pushcfunction(L, jit_prepare), lua_setfield(L, -2, "prepare");
    lua_pushcfunction(L, jit_report), lua_setfield(L, -2, "report");
    lua_pushcfunction(L, bind_jit_submit), lua_setfield(L, -2, "submit");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    bind_open_pending(L);
    bind_open_results(L);
}

const luaL_Reg mg_bind_jit[] = {{"jit", core_jit}, {"tracing", core_tracing}, {NULL, NULL}};

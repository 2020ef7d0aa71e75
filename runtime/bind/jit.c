/* mgpu.jit: a function traced once per signature; afterwards the plan alone runs.
 *
 * Calls compare their signature (signature.h) with those of the plans made so far. */
#include "bind/bind.h"
#include "bind/results.h"
#include "bind/signature.h"
#include "core/alloc.h"
#include "core/log.h"
#include "device/device.h"
#include "graph/graph.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIND_JIT "mgpu.jit"
enum { MAX_PLANS = 64, WARN_AFTER = 8 };

typedef struct entry {
    uint64_t hash, last_used;
    size_t key_size;
    char *key;     /* owned */
    mg_plan *plan; /* owned */
    int n_outputs, n_results;
    int template; /* registry reference: a table of the results, [1..n_results] */
    char *dump;   /* owned: under MGPU_CHECK=retrace */
} entry;

typedef struct jitted { /* its environment table holds the function at 1, so that cycles are
                           collected; and after it the upvalues that each entry was signed with */
    entry entries[MAX_PLANS];
    mg_device *devices[MG_MAX_DEVICES]; /* of plans on several */
    double weights[MG_MAX_DEVICES];
    int n_devices, n_stages;
    bool weighted, local_norm;
    mg_device *keeper;
    int n_entries, n_traces;
    uint64_t clock;
    bool warned;
} jitted;

static entry *find_entry(jitted *j, const bind_signature *s, uint64_t hash) {
    for (int i = 0; i < j->n_entries; i++) {
        entry *e = &j->entries[i];
        if (e->hash == hash && e->key_size == s->n && memcmp(e->key, s->key, s->n) == 0) return e;
    }
    return NULL;
}

static const entry *last_entry(const jitted *j) {
    const entry *last = NULL;
    for (int i = 0; i < j->n_entries; i++)
        if (!last || j->entries[i].last_used > last->last_used) last = &j->entries[i];
    return last;
}

/* ---- entries ---- */

static void free_entry(lua_State *L, entry *e) {
    mg_plan_free(e->plan);
    mg_free(e->key);
    mg_free(e->dump);
    luaL_unref(L, LUA_REGISTRYINDEX, e->template);
    *e = (entry){.template = LUA_NOREF};
}

static entry *room_for_entry(lua_State *L, jitted *j) {
    entry *oldest = NULL;
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
static void what_changed(const jitted *j, const bind_signature *s, char *to, size_t size) {
    const entry *last = last_entry(j);
    size_t at = 0;
    while (at < s->n && at < last->key_size && s->key[at] == last->key[at]) at++;
    for (int i = 0; i < s->n_labels; i++)
        if (at < s->labels[i].end) {
            bind_label_text(to, size, &s->labels[i]);
            return;
        }
    snprintf(to, size, "the number of arguments");
}

static void warn_about_retraces(jitted *j, const bind_signature *s) {
    char what[80];
    if (++j->n_traces <= WARN_AFTER || j->warned || j->n_entries == 0) return;
    j->warned = true;
    what_changed(j, s, what, sizeof what);
    mg_log("warning",
           "mgpu.jit: traced %d times because %s keeps changing: pass it as a tensor "
           "argument, or keep it in a variable",
           j->n_traces, what);
}

/* ---- tracing ---- */

/* Replaces the value on top of the stack by a copy with placeholders for tensors. */
static void push_traced(lua_State *L, mg_trace *trace) {
    mg_tensor *t = bind_to_tensor(L, -1);
    if (t) {
        mg_tensor *p = mg_trace_argument(trace, t);
        if (!p) bind_raise(L);
        lua_pop(L, 1);
        *bind_new_tensor(L) = mg_tensor_retain(p);
        return;
    }
    if (!lua_istable(L, -1)) return;
    const char *names[64] = {
        NULL}; /* in the order of put_table, so that placeholders are numbered alike */
    int n_names = 0;
    const int from = lua_gettop(L), n = (int)lua_objlen(L, from);
    luaL_checkstack(L, 8, "jit");
    lua_newtable(L);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, from, i);
        push_traced(L, trace);
        lua_rawseti(L, from + 1, i);
    }
    for (lua_pushnil(L); lua_next(L, from); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING && n_names < 64) names[n_names++] = lua_tostring(L, -2);
    qsort(names, (size_t)n_names, sizeof *names, bind_compare_names);
    for (int i = 0; i < n_names; i++) {
        lua_getfield(L, from, names[i]);
        push_traced(L, trace);
        lua_setfield(L, from + 1, names[i]);
    }
    lua_remove(L, from);
}

/* Runs inside pcall with the trace open. Stack: fn, arguments -> template, anchors.
 * The outputs struct lies in the userdata at upvalue 1, the trace at 2. */
static int trace_body(lua_State *L) {
    bind_outputs *o = lua_touserdata(L, lua_upvalueindex(1));
    mg_trace *trace = lua_touserdata(L, lua_upvalueindex(2));
    const int n_args = lua_gettop(L) - 1;
    for (int i = 2; i <= n_args + 1; i++) {
        lua_pushvalue(L, i);
        push_traced(L, trace);
        lua_replace(L, i);
    }
    lua_call(L, n_args, LUA_MULTRET);
    bind_outputs_take(L, o, lua_gettop(L));
    return 2;
}

/* The function of the jitted object at index 1. */
static void push_function(lua_State *L) {
    lua_getfenv(L, 1);
    lua_rawgeti(L, -1, 1);
    lua_remove(L, -2);
}

/* In the environment of the jitted object at index 1, for as long as e stands. */
static void keep_upvalues(lua_State *L, const jitted *j, const entry *e) {
    lua_getfenv(L, 1);
    push_function(L);
    bind_push_upvalues(L, lua_gettop(L));
    lua_rawseti(L, -3, (int)(e - j->entries) + 2);
    lua_pop(L, 2);
}

/* Traces fn with the arguments first..last; pushes anchors and template; fills e. */
static mg_plan *trace_call(lua_State *L, const jitted *j, int first, int last, bind_outputs *o) {
    mg_trace *trace = mg_trace_begin(j->n_devices ? j->devices[0] : mg_device_default());
    if (!trace) bind_raise(L);
    if (j->n_devices > 0 &&
        mg_trace_spread(trace, j->devices, j->n_devices, j->n_stages,
                        j->weighted ? j->weights : NULL, j->local_norm, j->keeper) != MG_OK) {
        mg_trace_abandon(trace);
        bind_raise(L);
    }
    lua_pushlightuserdata(L, o);
    lua_pushlightuserdata(L, trace);
    lua_pushcclosure(L, trace_body, 2);
    push_function(L);
    for (int i = first; i <= last; i++) lua_pushvalue(L, i);
    if (lua_pcall(L, last - first + 2, 2, 0) != 0) {
        mg_trace_abandon(trace);
        mg_user_line_set(NULL);
        lua_error(L); /* unchanged */
    }
    mg_user_line_set(NULL);
    mg_plan *plan = mg_trace_end(trace, o->list, o->n);
    if (!plan) bind_raise(L);
    return plan;
}

static entry *make_entry(lua_State *L, jitted *j, const bind_signature *s, uint64_t hash, int first,
                         int last) {
    bind_outputs *o = lua_newuserdata(L, sizeof *o);
    o->n = 0;
    warn_about_retraces(j, s);
    mg_plan *plan = trace_call(L, j, first, last, o);
    entry *e = room_for_entry(L, j);
    *e = (entry){.hash = hash, .plan = plan, .n_outputs = o->n, .template = LUA_NOREF};
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

/* ---- MGPU_CHECK=retrace ---- */

static bool checks_retraces(void) {
    const char *check = getenv("MGPU_CHECK");
    return check && strcmp(check, "retrace") == 0;
}

/* Which line differs first, from 1; 0: none. */
static int first_difference(const char *now, const char *then) {
    int line = 1;
    for (; *now && *now == *then; now++, then++)
        if (*now == '\n') line++;
    return *now == *then ? 0 : line;
}

/* Line number n of the text, cut short. */
static void copy_line(char *to, size_t size, const char *text, int n) {
    for (int i = 1; i < n && text; i++) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    snprintf(to, size, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ? text : "");
}

/* Raises if the plans, whose dumps are equal, have other tensors or variables from outside. */
static void check_given(lua_State *L, mg_plan *again, const mg_plan *plan) {
    const mg_shape *differs;
    char shape[128] = "";
    const mg_status status = mg_plan_compare_given(again, plan, &differs);
    if (status == MG_OK && differs) snprintf(shape, sizeof shape, "%s", MG_SHAPE_TEXT(differs));
    mg_plan_free(again);
    bind_check(L, status);
    if (shape[0])
        bind_fail(
            L, MG_USAGE,
            "mgpu.jit: tracing again met another tensor or variable of shape %s: what a field "
            "or a function called held was baked in; pass it as an argument",
            shape);
}

/* The user's lines are no part of the comparison: a plan may be called from several places. */
static void check_retrace(lua_State *L, const jitted *j, entry *e, int first, int last) {
    char step[500] = "";
    bind_outputs *o = lua_newuserdata(L, sizeof *o);
    o->n = 0;
    if (!e->dump) e->dump = mg_plan_dump(e->plan, false);
    mg_plan *again = trace_call(L, j, first, last, o);
    char *dump = mg_plan_dump(again, false), *lines = mg_plan_dump(again, true);
    const bool made = dump && lines && e->dump;
    const int differs = made ? first_difference(dump, e->dump) : 0;
    if (differs) copy_line(step, sizeof step, lines, differs);
    mg_free(dump);
    mg_free(lines);
    lua_settop(L, last);
    if (made && !differs) {
        check_given(L, again, e->plan);
        return;
    }
    mg_plan_free(again);
    if (!made) bind_raise(L);
    bind_fail(L, MG_USAGE,
              "mgpu.jit: tracing again gave another plan at step %d: %s: something that "
              "changes from call to call was baked in; pass it as an argument",
              differs, step);
}

/* ---- running ---- */

/* The entry for the arguments 2..last, traced if it is new; `check`: traced again if it is not. */
static entry *entry_for(lua_State *L, jitted *j, bind_signature *s, int last, bool check) {
    s->L = L, s->n = 0, s->n_tensors = s->n_labels = 0;
    bind_sign_settings(s);
    bind_sign_arguments(s, 2, last);
    push_function(L);
    bind_sign_upvalues(s, lua_gettop(L));
    lua_pop(L, 1);
    const uint64_t hash = bind_signature_hash(s);
    entry *e = find_entry(j, s, hash);
    if (e && check) check_retrace(L, j, e, 2, last);
    if (!e) e = make_entry(L, j, s, hash, 2, last);
    e->last_used = ++j->clock;
    return e;
}

static int run_entry(lua_State *L, entry *e, bind_signature *s) {
    bind_results *r = bind_new_results(L, e->n_outputs);
    mg_status status = mg_plan_run(e->plan, s->tensors, r->list);
    if (status == MG_OOM) { /* nothing was committed: collect and try once more */
        lua_gc(L, LUA_GCCOLLECT, 0);
        status = mg_plan_run(e->plan, s->tensors, r->list);
    }
    bind_check(L, status);
    return bind_push_results(L, r, e->template, e->n_results);
}

static jitted *check_jitted(lua_State *L) {
    return luaL_checkudata(L, 1, BIND_JIT);
}

static int jit_call(lua_State *L) {
    jitted *j = check_jitted(L);
    const int last = lua_gettop(L);
    bind_poll(L);
    /* Inside another trace it simply runs, and while a gradient is taken: a plan has no history. */
    if (mg_trace_current() || mg_recording()) {
        push_function(L);
        lua_replace(L, 1);
        lua_call(L, last - 1, LUA_MULTRET);
        return lua_gettop(L);
    }
    bind_signature s;
    entry *e = entry_for(L, j, &s, last, checks_retraces());
    return run_entry(L, e, &s);
}

/* ---- the object ---- */

static int jit_plans(lua_State *L) {
    lua_pushinteger(L, check_jitted(L)->n_entries);
    return 1;
}

/* The plan used last as text. */
static int jit_dump(lua_State *L) {
    const entry *last = last_entry(check_jitted(L));
    char *text = last ? mg_plan_dump(last->plan, false) : NULL;
    lua_pushstring(L, text ? text : "");
    mg_free(text);
    return 1;
}

/* prepare(...): the plan for these arguments, made now and not run. */
static int jit_prepare(lua_State *L) {
    bind_signature s;
    entry_for(L, check_jitted(L), &s, lua_gettop(L), false);
    return 0;
}

/* ---- runs beside the caller ---- */

typedef struct pending { /* its environment table holds the jitted object and the arguments */
    entry e;             /* as it was: the plan outlives the entry's place in the list */
    bool running;
    int n;
    mg_tensor *args[]; /* retained */
} pending;

/* submit(...) -> handle: the run has begun on the device's thread. */
static int jit_submit(lua_State *L) {
    bind_signature s;
    const int last = lua_gettop(L);
    bind_poll(L);
    entry *e = entry_for(L, check_jitted(L), &s, last, false);
    pending *h = lua_newuserdata(L, sizeof *h + (size_t)s.n_tensors * sizeof *h->args);
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

static pending *check_pending(lua_State *L) {
    return luaL_checkudata(L, 1, BIND_JIT ".pending");
}

static int pending_done(lua_State *L) {
    const pending *h = check_pending(L);
    lua_pushboolean(L, !h->running || mg_plan_done(h->e.plan));
    return 1;
}

/* wait() -> what the function returned; raises what went wrong. */
static int pending_wait(lua_State *L) {
    pending *h = check_pending(L);
    if (!h->running) return bind_fail(L, MG_USAGE, "wait: the result was taken already");
    bind_results *r = bind_new_results(L, h->e.n_outputs);
    h->running = false;
    bind_check(L, mg_plan_end(h->e.plan, h->args, r->list));
    return bind_push_results(L, r, h->e.template, h->e.n_results);
}

/* The outcome of a run that nobody waits for any more. */
static int pending_gc(lua_State *L) {
    pending *h = lua_touserdata(L, 1);
    if (h->running) {
        mg_tensor **list = mg_alloc((size_t)(h->e.n_outputs + 1) * sizeof *list);
        if (list && mg_plan_end(h->e.plan, h->args, list) == MG_OK)
            for (int i = 0; i < h->e.n_outputs; i++) mg_tensor_release(list[i]);
        mg_free(list);
        h->running = false;
    }
    for (int i = 0; i < h->n; i++) mg_tensor_release(h->args[i]);
    h->n = 0;
    return 0;
}

static void set_count(lua_State *L, const char *name, int64_t value) {
    lua_pushnumber(L, (double)value);
    lua_setfield(L, -2, name);
}

/* report() -> what each device does in a run of the plan used last: an array of tables. */
static int jit_report(lua_State *L) {
    const entry *last = last_entry(check_jitted(L));
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
    jitted *j = lua_touserdata(L, 1);
    for (int i = 0; i < j->n_entries; i++) free_entry(L, &j->entries[i]);
    j->n_entries = 0;
    return 0;
}

/* {devices = names, weights = numbers, local_norm = boolean} at index 2 */
static void take_devices(lua_State *L, jitted *j) {
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
    jitted *j = lua_newuserdata(L, sizeof *j);
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
    lua_pushcfunction(L, jit_submit), lua_setfield(L, -2, "submit");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newmetatable(L, BIND_JIT ".pending");
    lua_pushcfunction(L, pending_gc), lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, pending_done), lua_setfield(L, -2, "done");
    lua_pushcfunction(L, pending_wait), lua_setfield(L, -2, "wait");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    bind_open_results(L);
}

const luaL_Reg mg_bind_jit[] = {{"jit", core_jit}, {"tracing", core_tracing}, {NULL, NULL}};

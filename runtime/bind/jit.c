/* Calls of jitted functions and the list of their plans.
 *
 * A call makes the signature of its arguments (signature.c), finds the entry with the same bytes
 * and runs its plan; a new signature is traced first. Inside another trace, and while gradients are
 * recorded, fn is simply called. */
#include "bind/jit.h"
#include "core/alloc.h"
#include "core/context.h"
#include "core/log.h"
#include "device/device.h"
#include "graph/graph.h"
#include "graph/loop.h"
#include "graph/recipe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The entry with this signature, or NULL. */
static bind_jit_entry *find_jit_entry(bind_jitted *j, const bind_signature *s, uint64_t hash) {
    for (int i = 0; i < j->n_entries; i++) {
        bind_jit_entry *e = &j->entries[i];
        if (e->hash == hash && e->key_size == s->n && memcmp(e->key, s->key, s->n) == 0) return e;
    }
    return NULL;
}

/* The entry of the last call, or NULL before the first. */
static const bind_jit_entry *last_used_entry(const bind_jitted *j) {
    const bind_jit_entry *last = NULL;
    for (int i = 0; i < j->n_entries; i++)
        if (!last || j->entries[i].last_used > last->last_used) last = &j->entries[i];
    return last;
}

/* ---- entries ---- */

/* Frees what the entry owns and leaves it empty. */
static void free_jit_entry(lua_State *L, bind_jit_entry *e) {
    mg_plan_free(e->plan);
    mg_recipe_release(e->recipe);
    mg_free(e->key);
    mg_free(e->dump);
    luaL_unref(L, LUA_REGISTRYINDEX, e->template);
    *e = (bind_jit_entry){.template = LUA_NOREF};
}

/* An empty entry in the list: a new one, or that of the least recently used plan without a run in
 * progress. NULL if all plans have one. */
static bind_jit_entry *reserve_jit_entry(lua_State *L, bind_jitted *j) {
    bind_jit_entry *oldest = NULL;
    if (j->n_entries < MAX_PLANS) return &j->entries[j->n_entries++];
    for (int i = 0; i < MAX_PLANS; i++) {
        if (mg_plan_begun(j->entries[i].plan)) continue;
        if (!oldest || j->entries[i].last_used < oldest->last_used) oldest = &j->entries[i];
    }
    if (oldest) free_jit_entry(L, oldest);
    return oldest;
}

/* Writes which argument, upvalue or setting differs first from the signature of the last call.
 *
 * Each label contains the end of its bytes in the key. Returns what to do about it. */
static const char *describe_change(const bind_jitted *j, const bind_signature *s, char *to,
                                   size_t size) {
    const bind_jit_entry *last = last_used_entry(j);
    size_t at = 0, start = 0;
    char what[80] = "the number of arguments";
    while (at < s->n && at < last->key_size && s->key[at] == last->key[at]) at++;
    for (int i = 0; i < s->n_labels; start = s->labels[i++].end)
        if (at < s->labels[i].end) {
            bind_label_text(what, sizeof what, &s->labels[i]);
            break;
        }
    const bool is_tensor = at > start && at < s->n && s->key[start] == BIND_TENSOR_TAG;
    snprintf(to, size, "%s%s", is_tensor ? "the shape, dtype or device of " : "", what);
    return is_tensor ? "each is compiled by itself, so few are best"
                     : "pass it as a tensor argument, or keep it in a variable";
}

/* Warns once, after WARN_AFTER traces: a function that is traced at every call is slow. */
static void warn_about_retraces(lua_State *L, bind_jitted *j, const bind_signature *s) {
    char what[120];
    if (++j->n_traces <= WARN_AFTER || j->warned || j->n_entries == 0) return;
    j->warned = true;
    lua_getfenv(L, 1);
    lua_getfield(L, -1, "many_traces");
    if (lua_isstring(L, -1)) {
        mg_log("warning", "%s", lua_tostring(L, -1));
    } else if (lua_toboolean(L, -1)) {
        const char *advice = describe_change(j, s, what, sizeof what);
        mg_log("warning", "mgpu.jit: traced %d times because %s keeps changing: %s", j->n_traces,
               what, advice);
    }
    lua_pop(L, 2);
}

void bind_jit_push_function(lua_State *L) {
    lua_getfenv(L, 1);
    lua_rawgeti(L, -1, 1);
    lua_remove(L, -2);
}

/* Keeps the upvalues that e was signed with by address alive in the environment of the jitted
 * function, for as long as e is in the list: otherwise a new object at the same address could be
 * mistaken for the old one. */
static void keep_signed_upvalues(lua_State *L, const bind_jitted *j, const bind_jit_entry *e) {
    lua_getfenv(L, 1);
    bind_jit_push_function(L);
    bind_push_upvalues(L, lua_gettop(L));
    lua_rawseti(L, -3, (int)(e - j->entries) + 2);
    lua_pop(L, 2);
}

/* Calls the function `reminder`, if there is one, once: several devices compute all of the step. */
static void remind_of_shards(lua_State *L, bind_jitted *j, const mg_plan *plan) {
    const int n = mg_plan_repeats(plan);
    if (n == 1 || j->reminded) return;
    j->reminded = true;
    lua_getfenv(L, 1);
    lua_getfield(L, -1, "reminder");
    if (lua_isfunction(L, -1)) {
        lua_pushinteger(L, n);
        lua_call(L, 1, 0);
        lua_pop(L, 1);
        return;
    }
    lua_pop(L, 2);
}

/* Traces fn with the arguments first..last and puts the plan into the list. */
static bind_jit_entry *make_jit_entry(lua_State *L, bind_jitted *j, const bind_signature *s,
                                      uint64_t hash, int first, int last) {
    bind_outputs *o = lua_newuserdata(L, sizeof *o);
    o->n = 0;
    warn_about_retraces(L, j, s);
    mg_recipe *recipe = NULL;
    mg_plan *plan = bind_jit_trace(L, j, first, last, o, j->recorded ? &recipe : NULL);
    bind_jit_entry *e = reserve_jit_entry(L, j);
    if (!e) {
        mg_plan_free(plan);
        mg_recipe_release(recipe);
        bind_fail(L, MG_USAGE, "mgpu.jit: %d submitted runs are under way: wait for one first",
                  MAX_PLANS);
    }
    *e = (bind_jit_entry){.hash = hash, .plan = plan, .n_outputs = o->n, .template = LUA_NOREF};
    e->n_results = o->n_results;
    e->recipe = recipe;
    e->template = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 2); /* the anchors and o: the plan has its own references */
    e->key = mg_alloc(s->n + 1);
    if (!e->key) bind_raise(L);
    memcpy(e->key, s->key, s->n);
    e->key_size = s->n;
    keep_signed_upvalues(L, j, e);
    remind_of_shards(L, j, plan);
    return e;
}

/* ---- running ---- */

/* Signs the call with the arguments 2..last and returns the hash. */
static uint64_t sign_call(lua_State *L, bind_signature *s, int last) {
    s->L = L, s->n = 0, s->n_tensors = s->n_labels = s->depth = 0;
    /* the order of the bytes; every call takes this path, so it must be cheap */
    bind_sign_settings(s);
    bind_sign_arguments(s, 2, last);
    bind_jit_push_function(L);
    bind_sign_upvalues(s, lua_gettop(L));
    lua_pop(L, 1);
    return bind_signature_hash(s);
}

bind_jit_entry *bind_jit_entry_for(lua_State *L, bind_jitted *j, bind_signature *s, int last,
                                   bool check) {
    const uint64_t hash = sign_call(L, s, last);
    bind_jit_entry *e = find_jit_entry(j, s, hash);
    if (e && check) bind_jit_check_retrace(L, j, e, 2, last);
    if (!e) e = make_jit_entry(L, j, s, hash, 2, last);
    e->last_used = ++j->clock;
    return e;
}

/* Gives the values that a run has made the histories of recorded results. */
static mg_status record_results(const bind_jit_entry *e, const bind_signature *s, bind_results *r) {
    for (int i = 0; i < e->n_outputs; i++) {
        mg_tensor *value = r->list[i];
        mg_tensor *recorded = mg_recipe_result(e->recipe, i, value, s->tensors);
        if (!recorded) {
            r->n = r->room; /* the collector releases them */
            return MG_OOM;
        }
        r->list[i] = recorded;
        mg_tensor_release(value);
    }
    return MG_OK;
}

/* Runs the plan on the call's tensors and pushes what fn would have returned.
 *
 * A run that fails with MG_OOM has committed nothing, so it may be repeated after a collection. */
static int run_jit_entry(lua_State *L, bind_jit_entry *e, bind_signature *s, bool recorded) {
    bind_results *r = bind_new_results(L, e->n_outputs);
    bind_note_caller(L, &e->caller);
    mg_status status = mg_plan_run(e->plan, s->tensors, r->list);
    if (status == MG_OOM) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        status = mg_plan_run(e->plan, s->tensors, r->list);
        if (status == MG_OOM) mg_plan_give_up(e->plan);
    }
    mg_context_get()->origin.where = NULL;
    bind_check(L, status);
    if (recorded) bind_check(L, record_results(e, s, r));
    return bind_push_results(L, r, e->template, e->n_results);
}

bind_jitted *bind_check_jitted(lua_State *L) {
    return luaL_checkudata(L, 1, BIND_JIT);
}

/* Calls the plan for the arguments on the stack. Not inlined: a signature takes 10 KB of the C
 * stack, and jit_call may be nested. */
static __attribute__((noinline)) int call_plan(lua_State *L, bind_jitted *j) {
    bind_signature s;
    bind_jit_entry *e = bind_jit_entry_for(L, j, &s, lua_gettop(L), bind_jit_checks_retraces());
    for (int i = 0; i < s.n_tensors; i++) bind_check(L, mg_recorded_end(s.tensors[i]));
    return run_jit_entry(L, e, &s, false);
}

/* The same, recorded, if there is such a plan and all that it reads has a value. */
static __attribute__((noinline)) int call_recorded_plan(lua_State *L, bind_jitted *j) {
    bind_signature s;
    const uint64_t hash = sign_call(L, &s, lua_gettop(L));
    bind_jit_entry *e = find_jit_entry(j, &s, hash);
    if (!e || !e->recipe || !mg_recipe_is_ready(e->recipe, s.tensors)) return 0;
    if (bind_jit_checks_retraces()) bind_jit_check_retrace(L, j, e, 2, lua_gettop(L));
    e->last_used = ++j->clock;
    return run_jit_entry(L, e, &s, true);
}

static int jit_call(lua_State *L);

/* Raises if MAX_NESTED calls of jitted functions are on the stack: unbounded recursion would
 * overflow the C stack. */
static void check_nesting(lua_State *L) {
    lua_Debug frame;
    int n = 0;
    for (int level = 0; lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "f", &frame);
        n += lua_tocfunction(L, -1) == jit_call;
        lua_pop(L, 1);
    }
    if (n > MAX_NESTED)
        bind_fail(L, MG_USAGE,
                  "mgpu.jit: more than %d calls of jitted functions inside one another: does the "
                  "function call itself without end?",
                  MAX_NESTED);
}

/* The metamethod __call: returns what fn would have returned.
 *
 * Inside another trace, or the function of a scan, fn's ops become part of that; while a gradient
 * is recorded, the history of the ops is needed, which a plan does not have. In both cases fn is
 * simply called. */
static int jit_call(lua_State *L) {
    bind_jitted *j = bind_check_jitted(L);
    bind_poll(L);
    bind_visit(L);
    if (!mg_trace_current() && !mg_loop_current() && !mg_recording()) return call_plan(L, j);
    check_nesting(L);
    bind_jit_push_function(L);
    lua_replace(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* ---- methods ---- */

/* call_recorded(...) -> what fn would have returned, with a history, so that gradients can be taken
 * later: of a function that was made with the option recorded = true. Nothing if there is no plan
 * for these arguments (`prepare` makes one), if a result would depend on something without a value,
 * or inside a trace, a scan or a gradient: then fn itself is to be called. */
static int jit_call_recorded(lua_State *L) {
    bind_jitted *j = bind_check_jitted(L);
    bind_poll(L);
    if (mg_trace_current() || mg_loop_current() || mg_recording()) return 0;
    return call_recorded_plan(L, j);
}

/* plans() -> how many plans there are. */
static int jit_plans(lua_State *L) {
    lua_pushinteger(L, bind_check_jitted(L)->n_entries);
    return 1;
}

/* dump() -> the plan used last as text, "" before the first call. */
static int jit_dump(lua_State *L) {
    const bind_jit_entry *last = last_used_entry(bind_check_jitted(L));
    char *text = last ? mg_plan_dump(last->plan, false) : NULL;
    bind_push_printable(L, text ? text : "", text ? strlen(text) : 0, false);
    mg_free(text);
    return 1;
}

/* prepare(...) -> whether call_recorded can run it: makes the plan for these arguments without
 * running it. */
static int jit_prepare(lua_State *L) {
    bind_signature s;
    const bind_jit_entry *e = bind_jit_entry_for(L, bind_check_jitted(L), &s, lua_gettop(L), false);
    lua_pushboolean(L, e->recipe != NULL);
    return 1;
}

/* Field `name` of the table on top of the stack. */
static void set_field(lua_State *L, const char *name, int64_t value) {
    lua_pushnumber(L, (double)value);
    lua_setfield(L, -2, name);
}

/* effects() -> the random draws and the number of variables assigned in each run of the plan used
 * last, and how often the function was traced so far; nothing before the first call. */
static int jit_effects(lua_State *L) {
    const bind_jitted *j = bind_check_jitted(L);
    const bind_jit_entry *last = last_used_entry(j);
    int64_t draws;
    int assigns;
    if (!last) return 0;
    mg_plan_effects(last->plan, &draws, &assigns);
    lua_pushnumber(L, (double)draws);
    lua_pushinteger(L, assigns);
    lua_pushinteger(L, j->n_traces);
    return 3;
}

/* report() -> for each device, a table of what it does in a run of the plan used last
 * (mg_plan_report). */
static int jit_report(lua_State *L) {
    const bind_jit_entry *last = last_used_entry(bind_check_jitted(L));
    const int n = last ? mg_plan_devices(last->plan) : 0;
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const mg_plan_report r = mg_plan_describe(last->plan, i);
        lua_createtable(L, 0, 10);
        lua_pushstring(L, r.device->name);
        lua_setfield(L, -2, "device");
        set_field(L, "first_row", r.first_row);
        set_field(L, "rows", r.rows);
        set_field(L, "steps", r.steps);
        set_field(L, "collectives", r.collectives);
        set_field(L, "collective_bytes", r.collective_bytes);
        set_field(L, "variable_bytes", r.variable_bytes);
        set_field(L, "argument_bytes", r.argument_bytes);
        set_field(L, "result_bytes", r.result_bytes);
        set_field(L, "arena_bytes", r.arena_bytes);
        set_field(L, "kept_bytes", r.kept_bytes);
        set_field(L, "bytes_moved", r.bytes_moved);
        lua_pushnumber(L, r.products), lua_setfield(L, -2, "products");
        lua_pushnumber(L, r.elements), lua_setfield(L, -2, "elements");
        lua_pushnumber(L, r.seconds), lua_setfield(L, -2, "seconds");
        lua_pushnumber(L, r.reduce_seconds), lua_setfield(L, -2, "reduce_seconds");
        lua_pushnumber(L, r.wait_seconds), lua_setfield(L, -2, "wait_seconds");
        lua_pushnumber(L, r.beside_seconds), lua_setfield(L, -2, "beside_seconds");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* work() -> for each step of the plan used last, on its first device, {op, layer, where, backward,
 * flops, bytes, collective, sent, awaits}: estimates of its arithmetic and of the memory of its
 * operands; the rest as in mg_step_report. */
static int jit_work(lua_State *L) {
    const bind_jit_entry *last = last_used_entry(bind_check_jitted(L));
    mg_step_report r;
    lua_newtable(L);
    for (int i = 0; last && mg_plan_describe_step(last->plan, 0, i, &r); i++) {
        lua_createtable(L, 0, 9);
        lua_pushstring(L, r.op), lua_setfield(L, -2, "op");
        lua_pushstring(L, r.origin.layer), lua_setfield(L, -2, "layer");
        lua_pushstring(L, r.origin.where), lua_setfield(L, -2, "where");
        lua_pushboolean(L, r.origin.backward), lua_setfield(L, -2, "backward");
        lua_pushnumber(L, r.flops), lua_setfield(L, -2, "flops");
        lua_pushnumber(L, r.bytes), lua_setfield(L, -2, "bytes");
        lua_pushinteger(L, r.collective), lua_setfield(L, -2, "collective");
        lua_pushnumber(L, r.sent), lua_setfield(L, -2, "sent");
        lua_pushinteger(L, r.awaits), lua_setfield(L, -2, "awaits");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* No plan has a run in progress here, because the handle of a run keeps the jitted function
 * alive. */
static int jit_gc(lua_State *L) {
    bind_jitted *j = bind_check_jitted(L);
    for (int i = 0; i < j->n_entries; i++) free_jit_entry(L, &j->entries[i]);
    j->n_entries = 0;
    return 0;
}

/* Reads the options at index 2: {devices = names, weights = shares, stages = number of groups,
 * local_norm = boolean, central = name, joint = whether all ranks of the world share the step,
 * absent = number of further devices, which are not there: the step is only reported on,
 * frozen = whether variables change rarely (mg_plan_spec.frozen), threads = of a frozen plan,
 * recorded = whether call_recorded is to be possible,
 * reminder = a function that gets the number of devices if each computes the whole step,
 * many_traces = true to warn of many traces, or the text of that warning}. */
static void read_device_options(lua_State *L, bind_jitted *j) {
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
        /* a device that is listed twice would wait for itself */
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
    lua_getfield(L, 2, "joint");
    j->joint = lua_toboolean(L, -1);
    lua_pop(L, 1);
    lua_getfield(L, 2, "absent");
    j->n_absent = (int)luaL_optinteger(L, -1, 0);
    if (j->n_absent < 0 || n + j->n_absent > MG_MAX_SHARDS)
        bind_fail(L, MG_USAGE, "mgpu.jit: at most %d devices can share a step, got %d",
                  MG_MAX_SHARDS, n + j->n_absent);
    lua_pop(L, 1);
    lua_getfield(L, 2, "frozen");
    j->frozen = lua_toboolean(L, -1);
    lua_getfield(L, 2, "threads");
    j->threads = (int)luaL_optinteger(L, -1, 0);
    lua_getfield(L, 2, "recorded");
    j->recorded = lua_toboolean(L, -1);
    lua_pop(L, 3);
    lua_getfield(L, 2, "local_norm");
    j->local_norm = lua_toboolean(L, -1);
    lua_getfield(L, 2, "stages");
    j->n_stages = (int)luaL_optinteger(L, -1, 1);
    if (j->n_stages < 1 || n % j->n_stages != 0)
        bind_fail(L, MG_USAGE, "mgpu.jit: %d devices cannot be divided into %d equal groups", n,
                  j->n_stages);
    lua_pop(L, 1);
    lua_getfield(L, 2, "central");
    if (lua_isstring(L, -1) && !(j->central = mg_device_find(lua_tostring(L, -1)))) bind_raise(L);
    lua_pop(L, 2);
    j->n_devices = n;
}

/* jit(fn, [options]) -> the jitted function.
 *
 * fn is kept in the environment table, not in the registry: the collector then frees a jitted
 * function that only its own upvalues refer to. */
static int core_jit(lua_State *L) {
    if (!lua_isfunction(L, 1))
        return bind_fail(L, MG_USAGE, "mgpu.jit: expected a function, got %s", luaL_typename(L, 1));
    bind_jitted *j = lua_newuserdata(L, sizeof *j);
    memset(j, 0, sizeof *j);
    if (lua_istable(L, 2)) read_device_options(L, j);
    luaL_getmetatable(L, BIND_JIT);
    lua_setmetatable(L, -2);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    if (lua_istable(L, 2)) {
        lua_getfield(L, 2, "reminder");
        lua_setfield(L, -2, "reminder");
        lua_getfield(L, 2, "many_traces");
        lua_setfield(L, -2, "many_traces");
    }
    lua_setfenv(L, -2);
    return 1;
}

/* tracing() -> whether a trace is open: then tensors have no values. */
static int core_tracing(lua_State *L) {
    lua_pushboolean(L, mg_trace_current() || mg_loop_current());
    return 1;
}

/* outside_trace(fn, ...) -> fn's results. Its tensors have values, even while a function is traced:
 * for what depends on nothing but numbers, as the shapes that a model computes. They count as
 * constants in the trace. */
static int core_outside_trace(lua_State *L) {
    bind_want(L, 1, LUA_TFUNCTION, "outside_trace");
    mg_trace *trace = mg_trace_suspend();
    const int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    mg_trace_resume(trace);
    return status == 0 ? lua_gettop(L) : lua_error(L);
}

void bind_open_jit(lua_State *L) {
    luaL_newmetatable(L, BIND_JIT);
    lua_pushcfunction(L, jit_call), lua_setfield(L, -2, "__call");
    lua_pushcfunction(L, jit_gc), lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, jit_plans), lua_setfield(L, -2, "plans");
    lua_pushcfunction(L, jit_dump), lua_setfield(L, -2, "dump");
    lua_pushcfunction(L, jit_prepare), lua_setfield(L, -2, "prepare");
    lua_pushcfunction(L, jit_call_recorded), lua_setfield(L, -2, "call_recorded");
    lua_pushcfunction(L, jit_report), lua_setfield(L, -2, "report");
    lua_pushcfunction(L, jit_work), lua_setfield(L, -2, "work");
    lua_pushcfunction(L, jit_effects), lua_setfield(L, -2, "effects");
    lua_pushcfunction(L, bind_jit_submit), lua_setfield(L, -2, "submit");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    bind_open_pending(L);
    bind_open_results(L);
}

const luaL_Reg mg_bind_jit[] = {{"jit", core_jit},
                                {"tracing", core_tracing},
                                {"outside_trace", core_outside_trace},
                                {NULL, NULL}};

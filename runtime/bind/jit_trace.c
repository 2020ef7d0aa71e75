/* Tracing a function for mgpu.jit: its tensors are replaced by placeholders, it is called once, and
 * a plan is made from its results.
 *
 * MGPU_CHECK=retrace: every later call traces again and compares the plans, to find values that fn
 * reads from elsewhere (fields, globals), which are therefore baked into the plan. */
#include "bind/jit.h"
#include "core/activity.h"
#include "core/alloc.h"
#include "core/context.h"
#include "core/recipe.h"
#include "graph/graph.h"
#include "world/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tracing ---- */

/* Replaces the value on top of the stack, through nested tables, by a copy with placeholders for
 * tensors. Fields are visited in the order of put_table in signature.c, so that placeholder i
 * stands for tensor i of the signature. */
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
    const char *names[64] = {NULL}; /* signing refuses more than 64 */
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
    /* lua_next visits fields in no particular order */
    qsort(names, (size_t)n_names, sizeof *names, bind_compare_names);
    for (int i = 0; i < n_names; i++) {
        lua_getfield(L, from, names[i]);
        push_traced(L, trace);
        lua_setfield(L, from + 1, names[i]);
    }
    lua_remove(L, from);
}

/* Runs inside pcall while the trace is open. Stack: fn, arguments; returns anchors and template.
 * Upvalues: the bind_outputs to fill, the trace. */
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

/* A trace that fails is abandoned before anything is raised. */
mg_plan *bind_jit_trace(lua_State *L, const bind_jitted *j, int first, int last, bind_outputs *o,
                        mg_recipe **recipe) {
    mg_trace *trace = mg_trace_begin(j->n_devices ? j->devices[0] : mg_device_default());
    if (!trace) bind_raise(L);
    if (j->n_devices > 0 &&
        mg_trace_set_devices(trace, j->devices, j->n_devices, j->n_stages,
                             j->weighted ? j->weights : NULL, j->local_norm, j->central,
                             j->joint && mg_world_is_joint()) != MG_OK) {
        mg_trace_abandon(trace);
        bind_raise(L);
    }
    mg_trace_set_absent(trace, j->n_absent);
    mg_trace_freeze(trace, j->frozen, j->recorded, j->threads);
    /* trace_body runs in pcall, so that an error of fn cannot leave the trace open */
    lua_pushlightuserdata(L, o);
    lua_pushlightuserdata(L, trace);
    lua_pushcclosure(L, trace_body, 2);
    bind_jit_push_function(L);
    for (int i = first; i <= last; i++) lua_pushvalue(L, i);
    const int depth = mg_activity_begin(MG_SPAN_TRACE, "traces a function");
    const mg_origin before = mg_context_get()->origin;
    const int failed = lua_pcall(L, last - first + 2, 2, 0);
    mg_context_get()->origin = before; /* an error may have come from inside a layer */
    mg_activity_leave(depth);
    if (failed) {
        mg_trace_abandon(trace);
        mg_context_get()->origin.where = NULL;
        lua_error(L); /* fn's own error, unchanged */
    }
    mg_context_get()->origin.where = NULL;
    if (recipe && mg_trace_recipe(trace, o->list, o->n, recipe) != MG_OK) {
        mg_trace_abandon(trace);
        bind_raise(L);
    }
    mg_plan *plan = mg_trace_end(trace, o->list, o->n);
    if (plan) return plan;
    if (recipe) mg_recipe_release(*recipe);
    bind_raise(L);
    return plan;
}

/* ---- MGPU_CHECK=retrace ---- */

bool bind_jit_checks_retraces(void) {
    const char *check = getenv("MGPU_CHECK");
    return check && strcmp(check, "retrace") == 0;
}

/* The number, from 1, of the first line in which the texts differ; 0: none. */
static int first_difference(const char *now, const char *then) {
    int line = 1;
    for (; *now && *now == *then; now++, then++)
        if (*now == '\n') line++;
    return *now == *then ? 0 : line;
}

/* Copies line n of the text, as much as fits. */
static void copy_line(char *to, size_t size, const char *text, int n) {
    for (int i = 1; i < n && text; i++) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    snprintf(to, size, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ? text : "");
}

/* Frees `again`, and raises if the two plans, whose texts are equal, read other tensors or
 * variables from outside: the texts do not show identities. */
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
            "mgpu.jit: tracing again met another tensor or variable of shape %s: one held by a "
            "field or by a called function was baked in; pass it as an argument",
            shape);
}

/* The user's lines are left out of the comparison, because a plan may be called from several
 * places; the message shows the step with its line. */
void bind_jit_check_retrace(lua_State *L, const bind_jitted *j, bind_jit_entry *e, int first,
                            int last) {
    char step[500] = "";
    bind_outputs *o = lua_newuserdata(L, sizeof *o);
    o->n = 0;
    /* the first plan's text is made once */
    if (!e->dump) e->dump = mg_plan_dump(e->plan, false);
    mg_plan *again = bind_jit_trace(L, j, first, last, o, NULL);
    char *dump = mg_plan_dump(again, false), *lines = mg_plan_dump(again, true);
    const bool made = dump && lines && e->dump;
    const int differs = made ? first_difference(dump, e->dump) : 0;
    if (differs) copy_line(step, sizeof step, lines, differs);
    mg_free(dump);
    mg_free(lines);
    lua_settop(L, last); /* o, anchors and template */
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

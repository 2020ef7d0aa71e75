/* Traces: the user's function runs once with placeholders, and a plan is made of what it did.
 *
 * One trace per thread at a time. It owns placeholders and the list of variables it has touched;
 * closing it, by end or abandon, puts every variable back as it was. mg_context (core/context.h)
 * tells the lower layers that a trace is open. */
#include "graph/graph.h"
#include "graph/async_guards.h"
#include "graph/loop.h"
#include "graph/new_values.h"
#include "graph/recipe.h"
#include "core/alloc.h"
#include "core/context.h"
#include "device/device.h"
#include "graph/toposort.h"
#include "ops/op.h"
#include <string.h>

typedef struct watched {   /* a variable of mg_guard_variables */
    mg_variable *variable; /* retained */
    char *message;         /* owned */
    int guard;             /* the number of its guard when the trace ends, or -1: it needs none */
} watched;

/* What the traced function has done so far. */
struct mg_trace {
    mg_device *device;
    mg_tensor **args; /* owned placeholders */
    int n_args, args_capacity;
    mg_variable **variables; /* retained */
    int n_variables, variables_capacity;
    mg_guard *guards; /* those of new values are added when the trace ends */
    int n_guards, guards_capacity;
    watched *watched; /* variables whose new values are to be finite */
    int n_watched, watched_capacity;
    mg_device **devices; /* of a plan on several, or NULL */
    double *weights;     /* or NULL */
    int n_devices, n_stages;
    bool local_norm, joint;
    int absent;
    bool frozen, recorded;
    int threads;
    mg_device *central;
};

/* This thread's open trace, or NULL. */
static _Thread_local mg_trace *current;
/* It is suspended: no other may begin, since tensors are numbered by their trace. */
static _Thread_local bool suspended;
/* Of the last trace of this thread. Tensors carry it, so one that outlives its trace is recognised.
 */
static _Thread_local uint16_t serial;

/* The open trace of this thread, or NULL. */
mg_trace *mg_trace_current(void) {
    return current;
}

/* Tensors that are made meanwhile belong to no trace. */
mg_trace *mg_trace_suspend(void) {
    mg_trace *t = current;
    if (t) suspended = true;
    current = NULL;
    mg_context_get()->trace = 0;
    return t;
}

void mg_trace_resume(mg_trace *t) {
    if (!t) return;
    current = t;
    suspended = false;
    mg_context_get()->trace = serial;
}

/* Pending variables are evaluated first: inside the trace their histories would become part of the
 * step. */
mg_trace *mg_trace_begin(mg_device *device) {
    if (current || suspended) {
        mg_fail(MG_INTERNAL, "a trace is already open");
        return NULL;
    }
    if (!device || mg_eval_variables() != MG_OK)
        return NULL; /* without a device, finding one has failed with a message */
    mg_trace *t = mg_alloc_zero(sizeof *t);
    if (!t) return NULL;
    t->device = device;
    if (++serial == 0) serial = 1; /* 0 means "outside a trace" */
    mg_context_get()->trace = serial;
    mg_context_get()->n_draws = 0;
    return current = t;
}

/* Lists are copied: the caller may free them. */
mg_status mg_trace_set_devices(mg_trace *t, mg_device *const *devices, int n, int n_stages,
                               const double *weights, bool local_norm, mg_device *central,
                               bool joint) {
    if (n > MG_MAX_DEVICES)
        return mg_fail(MG_USAGE, "at most %d devices can share a step, got %d", MG_MAX_DEVICES, n);
    t->devices = mg_alloc((size_t)n * sizeof *t->devices);
    if (weights) t->weights = mg_alloc((size_t)n * sizeof *t->weights);
    if (!t->devices || (weights && !t->weights)) return MG_OOM;
    for (int i = 0; i < n; i++) t->devices[i] = devices[i];
    for (int i = 0; i < n / n_stages && weights; i++) t->weights[i] = weights[i];
    t->n_stages = n_stages;
    t->n_devices = n;
    t->local_norm = local_norm;
    t->central = central;
    t->joint = joint;
    return MG_OK;
}

void mg_trace_set_absent(mg_trace *t, int n) {
    t->absent = n;
}

void mg_trace_freeze(mg_trace *t, bool frozen, bool recorded, int threads) {
    t->frozen = frozen;
    t->recorded = recorded;
    t->threads = threads;
}

/* A plan on several devices takes arguments from wherever they lie, so their placeholders lie on
 * the trace's device. */
mg_tensor *mg_trace_argument(mg_trace *t, mg_tensor *actual) {
    if (mg_reserve((void **)&t->args, t->n_args, &t->args_capacity, sizeof *t->args) != MG_OK)
        return NULL;
    mg_device *device = t->n_devices ? t->device : actual->device;
    mg_tensor *p = mg_tensor_argument(t->n_args, (mg_dtype)actual->dtype, &actual->shape, device);
    if (p) t->args[t->n_args++] = p;
    return p;
}

/* The first device of the stage that d belongs to, which stands for all of them in the trace. */
static mg_device *stage_device(const mg_trace *t, const mg_device *d) {
    const int n = t->n_devices / t->n_stages;
    for (int i = 0; i < t->n_devices; i++)
        if (t->devices[i] == d) return t->devices[i / n * n];
    return t->device;
}

/* In the trace, one device stands for all devices of a stage; plan.c distributes its work over
 * them. */
mg_device *mg_trace_device(mg_device *d) {
    return current && current->n_devices ? stage_device(current, d) : d;
}

/* `entry` stays the placeholder of the value at entry; `traced` follows the assignments. */
mg_status mg_trace_enter_variable(mg_variable *v) {
    mg_trace *t = current;
    if (v->trace == serial && v->entry) return MG_OK; /* it has its placeholder */
    MG_TRY(mg_reserve((void **)&t->variables, t->n_variables, &t->variables_capacity,
                      sizeof *t->variables));
    v->entry = mg_tensor_varread(v);
    if (!v->entry) return MG_OOM;
    if (t->n_devices) v->entry->device = stage_device(t, v->value->device);
    v->traced = mg_tensor_retain(v->entry);
    v->trace = serial;
    t->variables[t->n_variables++] = mg_variable_retain(v);
    return MG_OK;
}

/* ---- variables, inside a trace and outside ---- */

/* Reading inside a trace enters the variable into it. */
mg_tensor *mg_variable_read(mg_variable *v) {
    if (!current) return mg_tensor_retain(v->value);
    if (mg_trace_enter_variable(v) != MG_OK) return NULL;
    return mg_tensor_retain(v->traced);
}

/* `value` in the variable's dtype. Owned; NULL if the shapes differ. */
static mg_tensor *fit_value(const mg_variable *v, mg_tensor *value) {
    if (!mg_shape_equal(&v->value->shape, &value->shape)) {
        mg_fail(MG_USAGE, "variable \"%s\": cannot assign shape %s to shape %s", v->name,
                MG_SHAPE_TEXT(&value->shape), MG_SHAPE_TEXT(&v->value->shape));
        return NULL;
    }
    if (value->dtype == v->value->dtype) return mg_tensor_retain(value);
    const int64_t dtype = v->value->dtype;
    return mg_apply(mg_op_find("cast"), &value, 1, &dtype);
}

/* Inside a trace only `traced` changes, which close_trace puts back. */
mg_status mg_variable_assign(mg_variable *v, mg_tensor *value) {
    if (mg_loop_current())
        return mg_fail(MG_USAGE,
                       "variable \"%s\": the function of mgpu.scan cannot assign it, because all "
                       "steps are traced as one: make it a part of the carry",
                       v->name);
    if (value->in_loop)
        return mg_fail(MG_USAGE,
                       "variable \"%s\": the value was made inside the function of mgpu.scan and "
                       "cannot be used after it: return it from the function",
                       v->name);
    mg_tensor *fitted = fit_value(v, value);
    if (!fitted) return mg_error_code();
    if (current) {
        const mg_status status = mg_trace_enter_variable(v);
        if (status != MG_OK) {
            mg_tensor_release(fitted);
            return status;
        }
        mg_tensor_release(v->traced);
        v->traced = fitted;
        return MG_OK;
    }
    if (fitted->trace) {
        mg_tensor_release(fitted);
        return mg_fail(MG_USAGE,
                       "variable \"%s\": the value was made inside mgpu.jit and cannot be "
                       "used after it: return it from the function",
                       v->name);
    }
    MG_TRY(mg_recorded_end(fitted)); /* v would keep its history */
    return mg_variable_set(v, fitted);
}

/* ---- guards ---- */

/* In a trace the condition is retained, and the plan will compute it. */
mg_status mg_guard_add(mg_tensor *ok, mg_status code, const char *message) {
    if (ok->dtype != MG_BOOL || mg_tensor_count(ok) != 1)
        return mg_fail(MG_USAGE, "guard: the condition must be one bool, got %s %s",
                       mg_dtype_name((mg_dtype)ok->dtype), MG_SHAPE_TEXT(&ok->shape));
    if (ok->in_loop && mg_loop_current())
        return mg_loop_guard(mg_loop_current(), ok, code, message);
    if (!current) {
        uint8_t value = 0;
        MG_TRY(mg_tensor_read(ok, &value));
        return value ? MG_OK : mg_fail(code, "%s", message);
    }
    MG_TRY(mg_reserve((void **)&current->guards, current->n_guards, &current->guards_capacity,
                      sizeof *current->guards));
    char *copy = mg_strdup(message);
    if (!copy) return MG_OOM;
    current->guards[current->n_guards++] = (mg_guard){mg_tensor_retain(ok), code, copy, NULL, 0};
    return MG_OK;
}

/* Inside a trace: the check is added when the trace ends, because only then the final new values
 * are known. Several steps in one trace share it. */
static mg_status watch(mg_trace *t, mg_variable *v, const char *message) {
    if (v->watched) return MG_OK;
    MG_TRY(
        mg_reserve((void **)&t->watched, t->n_watched, &t->watched_capacity, sizeof *t->watched));
    char *copy = mg_strdup(message);
    if (!copy) return MG_OOM;
    t->watched[t->n_watched++] = (watched){mg_variable_retain(v), copy, -1};
    v->watched = true;
    return MG_OK;
}

/* Outside a trace: checks the current value of a variable. */
static mg_status check_value(mg_variable *v, const char *message) {
    uint8_t finite = 0;
    mg_tensor *ok = mg_apply(mg_op_find("all_finite"), &v->value, 1, NULL);
    const mg_status status = ok ? mg_tensor_read(ok, &finite) : mg_error_code();
    mg_tensor_release(ok);
    if (status != MG_OK) return status;
    v->nonfinite = !finite;
    return finite ? MG_OK : mg_fail(MG_NONFINITE, "%s %s", v->name, message);
}

mg_status mg_guard_variables(mg_variable *const *variables, int n, const char *message) {
    for (int i = 0; i < n; i++) {
        mg_variable *v = variables[i];
        if (!mg_dtype_is_float((mg_dtype)v->value->dtype)) continue;
        MG_TRY(current ? watch(current, v, message) : check_value(v, message));
    }
    return MG_OK;
}

/* Whether the trace gives the watched variable a value that may be infinite. */
static bool needs_check(const watched *w) {
    const mg_variable *v = w->variable;
    return v->traced && v->traced != v->entry && !v->traced->any_device;
}

/* Numbers the guards that the watched variables need, from 0: variables of one device with the same
 * message share a guard, up to the maximum number of inputs of an op. Returns how many. */
static int number_checks(mg_trace *t) {
    int n = 0;
    for (int i = 0; i < t->n_watched; i++) {
        watched *first = &t->watched[i];
        if (first->guard >= 0 || !needs_check(first)) continue;
        first->guard = n;
        for (int k = i + 1, members = 1; k < t->n_watched && members < MG_MOST_NEW_VALUES; k++) {
            watched *w = &t->watched[k];
            if (w->guard >= 0 || !needs_check(w) || strcmp(w->message, first->message) != 0 ||
                w->variable->traced->device != first->variable->traced->device)
                continue;
            w->guard = n;
            members++;
        }
        n++;
    }
    return n;
}

/* Adds n numbered guards to those of the trace. */
static mg_status add_checks(mg_trace *t, int n) {
    for (int g = 0; g < n; g++) {
        mg_variable *members[MG_MOST_NEW_VALUES];
        const char *message = NULL;
        int n_members = 0;
        for (int i = 0; i < t->n_watched; i++) {
            if (t->watched[i].guard != g) continue;
            members[n_members++] = t->watched[i].variable;
            message = t->watched[i].message;
        }
        MG_TRY(
            mg_reserve((void **)&t->guards, t->n_guards, &t->guards_capacity, sizeof *t->guards));
        MG_TRY(mg_new_values_guard(members, n_members, message, &t->guards[t->n_guards++]));
    }
    return MG_OK;
}

/* ---- closing ---- */

/* Puts every variable back as it was, then frees the trace. */
static void close_trace(mg_trace *t) {
    current = NULL;
    mg_context_get()->trace = 0;
    for (int i = 0; i < t->n_variables; i++) {
        mg_variable *v = t->variables[i];
        mg_tensor_release(v->traced);
        mg_tensor_release(v->entry);
        v->traced = v->entry = NULL;
        v->trace = 0;
        mg_variable_release(v);
    }
    for (int i = 0; i < t->n_args; i++) mg_tensor_release(t->args[i]);
    for (int i = 0; i < t->n_guards; i++) mg_guard_clear(&t->guards[i]);
    for (int i = 0; i < t->n_watched; i++) {
        t->watched[i].variable->watched = false;
        mg_variable_release(t->watched[i].variable);
        mg_free(t->watched[i].message);
    }
    mg_free(t->watched);
    mg_free(t->args);
    mg_free(t->variables);
    mg_free(t->guards);
    mg_free(t->devices);
    mg_free(t->weights);
    mg_free(t);
}

/* After an error in the traced function. */
void mg_trace_abandon(mg_trace *t) {
    close_trace(t);
}

/* For mg_toposort_collect: follows the inputs of tensors that a trace has made. */
static bool inside_trace(const mg_tensor *t, void *context) {
    (void)context;
    return t->trace != 0;
}

/* Lazy tensors from before the trace are constants of the plan: they are computed once, now. */
static mg_status eval_constants(mg_tensor *const *roots, int n) {
    mg_toposort walk;
    mg_status status = mg_toposort_collect(&walk, roots, n, inside_trace, NULL);
    int n_early = 0;
    for (int i = 0; i < walk.n && status == MG_OK; i++) {
        mg_tensor *t = walk.items[i];
        if (t->trace) continue;
        if (!t->buffer) walk.items[n_early++] = t; /* made before, and still lazy */
        status = mg_recorded_end(t);               /* the plan would keep its history */
    }
    if (n_early && status == MG_OK) status = mg_eval(walk.items, n_early);
    mg_toposort_free(&walk);
    return status;
}

/* Whether a run of the plan changes any variable. */
static bool assigns_variables(const mg_trace *t) {
    for (int i = 0; i < t->n_variables; i++)
        if (t->variables[i]->traced != t->variables[i]->entry) return true;
    return false;
}

/* Whether guards can be answered later: the devices are asynchronous, of one kind and one stage. */
static bool may_judge_later(const mg_trace *t) {
    if (t->central || t->joint || t->absent || t->n_stages > 1 || !assigns_variables(t))
        return false;
    for (int i = 0; i < t->n_devices; i++)
        if (!t->devices[i]->api->readback_wait || t->devices[i]->api != t->devices[0]->api)
            return false;
    return true;
}

/* The guards that were added first, as a verdict: see async_guards.h. *flag (borrowed) and *verdict
 * (owned) stay NULL where all guards, `n_checks` further ones too, are checked before the step
 * ends, or where there are none on one device. */
static mg_status use_async_guards(mg_trace *t, int n_checks, mg_variable **flag,
                                  mg_tensor **verdict) {
    mg_device *d = t->n_devices ? t->devices[0] : t->device;
    const int n = t->n_guards + n_checks;
    const bool several = t->n_devices > 1;
    mg_async_state state;
    *flag = NULL;
    *verdict = NULL;
    if ((!n && !several) || !may_judge_later(t)) return MG_OK;
    MG_TRY(mg_async_guards_prepare(d, several, n, &state));
    if (!state.flag) return MG_OK;
    *flag = state.flag;
    MG_TRY(mg_trace_enter_variable(state.flag));
    if (state.ticket) MG_TRY(mg_trace_enter_variable(state.ticket));
    return mg_async_guards_hold_values(&state, t->guards, t->n_guards, t->variables, t->n_variables,
                                       verdict);
}

/* Completes the guards of the plan. Checks of new values come last: they check the values that the
 * other guards have selected. */
static mg_status finish_guards(mg_trace *t, mg_tensor **verdict) {
    mg_variable *flag;
    const int n_checks = number_checks(t), n_before = t->n_guards;
    MG_TRY(use_async_guards(t, n_checks, &flag, verdict));
    MG_TRY(add_checks(t, n_checks));
    if (!flag || !n_checks) return MG_OK;
    return mg_async_guards_add_checks(flag, t->guards + n_before, n_checks, n_before, verdict);
}

/* The specification of what the trace did, and its plan. Owned; NULL on failure. */
static mg_plan *make_plan(mg_trace *t, mg_tensor *const *outputs, int n_outputs) {
    mg_tensor *verdict;
    mg_origin *origin = &mg_context_get()->origin;
    const mg_origin outer = *origin;
    origin->layer = "guards";
    const mg_status status = finish_guards(t, &verdict);
    *origin = outer;
    if (status != MG_OK) {
        mg_tensor_release(verdict);
        return NULL;
    }
    /* finish_guards may have entered more variables: flag and ticket. */
    const int n_all = n_outputs + t->n_variables + t->n_guards + 2;
    mg_tensor **roots = mg_alloc((size_t)n_all * sizeof *roots);
    mg_variable **targets = mg_alloc((size_t)(t->n_variables + 1) * sizeof *targets);
    mg_plan *plan = NULL;
    int n = 0, n_assigns = 0;
    if (roots && targets) { /* roots: outputs, then new values, then guards and verdict */
        for (int i = 0; i < n_outputs; i++) roots[n++] = outputs[i];
        for (int i = 0; i < t->n_variables; i++) {
            mg_variable *v = t->variables[i];
            if (v->traced == v->entry) continue; /* read, but never assigned */
            targets[n_assigns++] = v;
            roots[n++] = v->traced;
        }
        for (int i = 0; i < t->n_guards; i++) roots[n++] = t->guards[i].ok;
        if (verdict) roots[n++] = verdict;
        const mg_plan_spec spec = {.device = t->device,
                                   .devices = t->devices,
                                   .n_devices = t->n_devices,
                                   .n_stages = t->n_stages,
                                   .weights = t->weights,
                                   .local_norm = t->local_norm,
                                   .joint = t->joint,
                                   .absent = t->absent,
                                   .central = t->central,
                                   .n_outputs = n_outputs,
                                   .n_assigns = n_assigns,
                                   .n_guards = t->n_guards,
                                   .n_args = t->n_args,
                                   .outputs = roots,
                                   .targets = targets,
                                   .values = roots + n_outputs,
                                   .guards = t->guards,
                                   .verdict = verdict,
                                   .n_draws = mg_context_get()->n_draws,
                                   .frozen = t->frozen,
                                   .recorded = t->recorded,
                                   .threads = t->threads,
                                   .trace = serial};
        if (eval_constants(roots, n) == MG_OK) plan = mg_plan_new(&spec);
    }
    mg_tensor_release(verdict);
    mg_free(roots);
    mg_free(targets);
    return plan;
}

/* Its own recipe would have to draw again, or to assign again. */
mg_status mg_trace_recipe(const mg_trace *t, mg_tensor *const *outputs, int n_outputs,
                          mg_recipe **r) {
    *r = NULL;
    if (t->n_devices || mg_context_get()->n_draws || assigns_variables(t)) return MG_OK;
    if (t->n_args + t->n_variables == 0) return MG_OK; /* nothing that a gradient could reach */
    return mg_recipe_make(t->n_args, t->variables, t->n_variables, outputs, n_outputs, r);
}

/* The trace closes whether or not a plan could be made. */
mg_plan *mg_trace_end(mg_trace *t, mg_tensor *const *outputs, int n_outputs) {
    mg_plan *plan = make_plan(t, outputs, n_outputs);
    close_trace(t);
    return plan;
}

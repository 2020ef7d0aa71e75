/* Plans: what a step became, and how it runs.
 *
 * Run = compute, then guards, then commit. Until the commit phase begins nothing outside the arena
 * and the fresh result buffers has changed, so any failure leaves every variable as it was; what
 * the commit phase needs (fresh buffers for variables that are not the sole holder of their value)
 * is allocated before it begins. */
#include "graph/ir.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/threads.h"
#include <string.h>

typedef struct assignment {
    mg_variable *variable; /* retained */
    int external;
    bool in_place; /* safe where the variable is the sole holder */
} assignment;

struct mg_plan {
    mg_device *device;
    mg_program *program;
    mg_ir ir; /* the memory of everything lowered */
    mg_lowered lowered;
    mg_tensor **held; /* retained: constants and variable reads the externals refer to */
    int n_held;
    int n_outputs, n_assigns, n_guards, n_args;
    int *outputs; /* externals */
    assignment *assigns;
    mg_guard *guards; /* their tensors are dropped: guard_external replaces them */
    int *guard_external;
    uint64_t n_draws;
    /* one run at a time: */
    void **address;     /* per external */
    mg_buffer **buffer; /* per external: owned, what this run made */
    mg_tensor **fresh;  /* per assignment: owned, the value to bind */
};

/* ---- making ---- */

static mg_status hold_externals(mg_plan *p) {
    const mg_work *work = &p->lowered.work;
    p->held = mg_ir_alloc(&p->ir, (size_t)work->n_external * sizeof *p->held);
    p->address = mg_ir_alloc(&p->ir, (size_t)work->n_external * sizeof *p->address);
    p->buffer = mg_ir_alloc(&p->ir, (size_t)work->n_external * sizeof *p->buffer);
    if (!p->held || !p->address || !p->buffer) return MG_OOM;
    for (int i = 0; i < work->n_external; i++) {
        const mg_external *e = &p->lowered.externals[i];
        if (e->kind == MG_EXTERNAL_VALUE || e->kind == MG_EXTERNAL_VARIABLE)
            p->held[p->n_held++] = mg_tensor_retain(e->tensor);
    }
    return MG_OK;
}

static int variable_external(const mg_plan *p, const mg_variable *v) {
    for (int i = 0; i < p->lowered.work.n_external; i++) {
        const mg_external *e = &p->lowered.externals[i];
        if (e->kind == MG_EXTERNAL_VARIABLE && e->variable == v) return i;
    }
    return -1;
}

static void plan_assignment(mg_plan *p, int i, mg_variable *v) {
    const int external = p->lowered.root_external[p->n_outputs + i],
              entry = variable_external(p, v);
    const bool update = p->lowered.externals[external].kind == MG_EXTERNAL_UPDATE;
    const bool read = entry >= 0 && mg_lowered_read_elsewhere(&p->lowered, entry, external);
    bool shared = false; /* two variables given one value */
    for (int k = 0; k < i; k++) shared |= p->assigns[k].external == external;
    p->assigns[i] = (assignment){mg_variable_retain(v), external, update && !read && !shared};
}

static mg_status take_spec(mg_plan *p, const mg_plan_spec *spec) {
    p->n_outputs = spec->n_outputs;
    p->n_args = spec->n_args;
    p->n_draws = spec->n_draws;
    p->outputs = p->lowered.root_external;
    p->guard_external = p->outputs + spec->n_outputs + spec->n_assigns;
    p->assigns = mg_ir_alloc(&p->ir, (size_t)spec->n_assigns * sizeof *p->assigns);
    p->fresh = mg_ir_alloc(&p->ir, (size_t)spec->n_assigns * sizeof *p->fresh);
    p->guards = mg_ir_alloc(&p->ir, (size_t)spec->n_guards * sizeof *p->guards);
    if (!p->assigns || !p->fresh || !p->guards) return MG_OOM;
    for (int i = 0; i < spec->n_assigns; i++) {
        plan_assignment(p, i, spec->targets[i]);
        p->n_assigns = i + 1;
    }
    for (int i = 0; i < spec->n_guards; i++) {
        p->guards[i] = (mg_guard){NULL, spec->guards[i].code, mg_strdup(spec->guards[i].message)};
        if (!p->guards[i].message) return MG_OOM;
        p->n_guards = i + 1;
    }
    return MG_OK;
}

static mg_status collect_roots(mg_plan *p, const mg_plan_spec *spec) {
    const int n = spec->n_outputs + spec->n_assigns + spec->n_guards;
    mg_tensor **roots = mg_alloc((size_t)(n + 1) * sizeof *roots);
    if (!roots) return MG_OOM;
    int k = 0;
    for (int i = 0; i < spec->n_outputs; i++) roots[k++] = spec->outputs[i];
    for (int i = 0; i < spec->n_assigns; i++) roots[k++] = spec->values[i];
    for (int i = 0; i < spec->n_guards; i++) roots[k++] = spec->guards[i].ok;
    mg_status status = mg_ir_collect(&p->ir, roots, n, spec->trace);
    mg_free(roots);
    for (int i = 0; i < spec->n_assigns && status == MG_OK; i++)
        p->ir.roots[spec->n_outputs + i].commit = true;
    return status;
}

static mg_status build(mg_plan *p, const mg_plan_spec *spec) {
    mg_groups groups;
    mg_schedule order;
    MG_TRY(collect_roots(p, spec));
    MG_TRY(mg_simplify(&p->ir));
    MG_TRY(mg_fuse(&p->ir, p->device->api->fuses, &groups));
    MG_TRY(mg_schedule_order(&p->ir, &groups, &order));
    MG_TRY(mg_lower(&p->ir, &groups, &order, &p->lowered));
    MG_TRY(hold_externals(p));
    MG_TRY(take_spec(p, spec));
    return p->device->api->compile(p->device, &p->lowered.work, &p->program);
}

static void log_plan(const mg_plan *p) {
    if (!mg_log_on("plan")) return;
    char *text = mg_lowered_dump(&p->lowered, true);
    if (text) mg_log("plan", "%s: %d steps\n%s", p->device->name, p->lowered.work.n_steps, text);
    mg_free(text);
}

mg_plan *mg_plan_new(const mg_plan_spec *spec) {
    mg_plan *p = mg_alloc_zero(sizeof *p);
    if (!p) return NULL;
    p->device = spec->device;
    if (build(p, spec) != MG_OK) {
        mg_plan_free(p);
        return NULL;
    }
    log_plan(p);
    return p;
}

void mg_plan_free(mg_plan *p) {
    if (!p) return;
    if (p->program) p->device->api->release(p->program);
    for (int i = 0; i < p->n_held; i++) mg_tensor_release(p->held[i]);
    for (int i = 0; i < p->n_assigns; i++) mg_variable_release(p->assigns[i].variable);
    for (int i = 0; i < p->n_guards; i++) mg_free(p->guards[i].message);
    mg_ir_free(&p->ir);
    mg_free(p);
}

char *mg_plan_dump(const mg_plan *p, bool where) {
    return mg_lowered_dump(&p->lowered, where);
}

/* ---- running ---- */

static mg_status make_buffer(mg_plan *p, int external) {
    const mg_external *e = &p->lowered.externals[external];
    const size_t bytes = (size_t)mg_shape_count(&e->shape) * mg_dtype_size(e->dtype);
    p->buffer[external] = mg_buffer_new(p->device, bytes);
    if (!p->buffer[external]) return MG_OOM;
    p->address[external] = p->buffer[external]->data;
    return MG_OK;
}

/* The value tensor behind an external that the plan was given. */
static mg_tensor *given(const mg_plan *p, int external, mg_tensor *const *args) {
    const mg_external *e = &p->lowered.externals[external];
    if (e->kind == MG_EXTERNAL_ARGUMENT) return args[e->index];
    return e->kind == MG_EXTERNAL_VARIABLE ? e->variable->value : e->tensor;
}

static mg_status bind_given(mg_plan *p, mg_tensor *const *args) {
    for (int i = 0; i < p->lowered.work.n_external; i++) {
        const mg_external_kind kind = p->lowered.externals[i].kind;
        if (kind == MG_EXTERNAL_RESULT || kind == MG_EXTERNAL_UPDATE) continue;
        mg_tensor *t = given(p, i, args);
        if (!t->buffer) MG_TRY(mg_eval(&t, 1));
        p->address[i] = t->buffer->data;
    }
    for (int i = 0; i < p->n_assigns; i++) { /* now: later the arena is in use */
        mg_variable *v = p->assigns[i].variable;
        if (!v->value->buffer) MG_TRY(mg_eval(&v->value, 1));
    }
    return MG_OK;
}

static mg_status compute(mg_plan *p, mg_run *run) {
    MG_TRY(mg_device_arena(p->device, p->device->api->arena_bytes(p->program), &run->arena));
    for (int i = 0; i < p->lowered.work.n_external; i++)
        if (p->lowered.externals[i].kind == MG_EXTERNAL_RESULT) MG_TRY(make_buffer(p, i));
    run->external = p->address;
    return p->device->api->run(p->program, run);
}

static mg_status check_guards(mg_plan *p) {
    for (int i = 0; i < p->n_guards; i++) {
        uint8_t ok = 1;
        MG_TRY(p->device->api->copy_out(p->device, &ok, p->address[p->guard_external[i]], 1));
        if (!ok) return mg_fail(p->guards[i].code, "%s", p->guards[i].message);
    }
    return MG_OK;
}

/* An owned value tensor of an external that has an address; NULL on failure. */
static mg_tensor *value_of(mg_plan *p, int external, mg_tensor *const *args) {
    const mg_external *e = &p->lowered.externals[external];
    if (p->buffer[external]) return mg_tensor_from_buffer(p->buffer[external], e->dtype, &e->shape);
    return mg_tensor_retain(given(p, external, args));
}

static bool sole_holder(const mg_variable *v) {
    return atomic_load(&v->value->refs) == 1 && atomic_load(&v->value->buffer->refs) == 1;
}

/* Everything the commit phase needs: afterwards it cannot fail for want of memory. */
static mg_status prepare_commit(mg_plan *p, mg_tensor *const *args) {
    for (int i = 0; i < p->n_assigns; i++) { /* first the values that are other variables' */
        const int external = p->assigns[i].external;
        if (p->lowered.externals[external].kind == MG_EXTERNAL_UPDATE) continue;
        p->fresh[i] = value_of(p, external, args);
        if (!p->fresh[i]) return MG_OOM;
    }
    for (int i = 0; i < p->n_assigns; i++) {
        const int external = p->assigns[i].external;
        mg_variable *v = p->assigns[i].variable;
        if (p->lowered.externals[external].kind != MG_EXTERNAL_UPDATE) continue;
        if (p->assigns[i].in_place && sole_holder(v)) {
            p->address[external] = v->value->buffer->data;
            continue;
        }
        if (!p->buffer[external]) MG_TRY(make_buffer(p, external));
        p->fresh[i] = value_of(p, external, args);
        if (!p->fresh[i]) return MG_OOM;
    }
    return MG_OK;
}

static mg_status commit(mg_plan *p, mg_run *run) {
    mg_status status = MG_OK;
    run->commit = true;
    if (p->lowered.work.n_steps > p->lowered.work.n_compute)
        status = p->device->api->run(p->program, run);
    for (int i = 0; i < p->n_assigns && status == MG_OK; i++) {
        if (!p->fresh[i]) continue;
        mg_variable *v = p->assigns[i].variable;
        mg_tensor_release(v->value);
        v->value = p->fresh[i];
        p->fresh[i] = NULL;
    }
    if (status == MG_OK && p->n_draws) mg_rng_take(p->n_draws);
    return status;
}

static void drop_run(mg_plan *p) {
    for (int i = 0; i < p->n_assigns; i++) {
        mg_tensor_release(p->fresh[i]);
        p->fresh[i] = NULL;
    }
    for (int i = 0; i < p->lowered.work.n_external; i++) {
        mg_buffer_release(p->buffer[i]);
        p->buffer[i] = NULL;
    }
}

static mg_status run_phases(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    mg_run run = {.rng = mg_rng_get()};
    if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
    MG_TRY(bind_given(p, args));
    MG_TRY(compute(p, &run));
    MG_TRY(check_guards(p));
    for (int i = 0; i < p->n_outputs; i++) {
        results[i] = value_of(p, p->outputs[i], args);
        if (!results[i]) return MG_OOM;
    }
    MG_TRY(prepare_commit(p, args));
    return commit(p, &run);
}

mg_status mg_plan_run(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    for (int i = 0; i < p->n_outputs; i++) results[i] = NULL;
    mg_status status = run_phases(p, args, results);
    if (status != MG_OK)
        for (int i = 0; i < p->n_outputs; i++) {
            mg_tensor_release(results[i]);
            results[i] = NULL;
        }
    drop_run(p);
    return status;
}

/* Abandoned plans: see abandoned_plan.h. */
#include "graph/abandoned_plan.h"
#include "core/alloc.h"
#include "device/worker.h"

typedef struct kept_arena { /* taken from its device, which allocates a new one at its next run */
    mg_device *device;
    void *data;
    size_t bytes;
} kept_arena;

/* What is kept for one plan. */
struct mg_abandoned_plan {
    mg_plan *plan; /* NULL: not abandoned */
    mg_abandoned_plan *next;
    bool disowned; /* the plan's owner is done with it */
    kept_arena arenas[MG_MAX_DEVICES + 1];
    int n_arenas;
    mg_tensor **tensors; /* retained */
    int n_tensors, capacity;
};

/* All abandoned plans of the process. */
static mg_abandoned_plan *first;

mg_abandoned_plan *mg_abandoned_plan_new(void) {
    return mg_alloc_zero(sizeof(mg_abandoned_plan));
}

/* If there is no memory for the list, t is leaked: a leak is better than a write to freed memory.
 */
static void keep_tensor(mg_abandoned_plan *a, mg_tensor *t) {
    if (!t) return;
    mg_tensor_retain(t);
    if (mg_reserve((void **)&a->tensors, a->n_tensors, &a->capacity, sizeof *a->tensors) == MG_OK)
        a->tensors[a->n_tensors++] = t;
}

/* Keeps the variable's values on all devices. If another device has the value, the copy on a lost
 * device is dropped from the variable. */
static void keep_variable(mg_abandoned_plan *a, mg_variable *v) {
    keep_tensor(a, v->value);
    for (int r = 0; r < v->n_replicas; r++) keep_tensor(a, v->replicas[r].value);
    for (int i = 0; i < a->plan->n_parts; i++) {
        mg_device *d = a->plan->parts[i].device;
        if (mg_device_is_lost(d)) mg_variable_remove_from(v, d);
    }
}

/* The variables that the parts read, and those that they assign. */
static void keep_variables(mg_abandoned_plan *a) {
    const mg_plan *p = a->plan;
    for (int k = 0; k < p->n_parts && p->parts[k].held;
         k++) /* `held` is NULL if it was being compiled */
        for (int i = 0; i < p->parts[k].lowered.graph.n_external; i++) {
            const mg_external *e = &p->parts[k].lowered.externals[i];
            if (e->kind == MG_EXTERNAL_VARIABLE) keep_variable(a, e->variable);
        }
    for (int i = 0; i < p->n_assigns; i++) keep_variable(a, p->variables[i]);
}

/* Takes the arenas of the devices that have returned, because lost devices may still write to them.
 * The arena of a lost device stays with it. */
static void take_arenas(mg_abandoned_plan *a) {
    for (int i = 0; i < a->plan->n_parts; i++) {
        mg_device *d = a->plan->parts[i].device;
        if (mg_worker_has_abandoned(d) || !d->arena) continue;
        a->arenas[a->n_arenas++] = (kept_arena){d, d->arena, d->arena_bytes};
        d->arena = NULL;
        d->arena_bytes = 0;
    }
}

/* p->abandoned was allocated with the plan: nothing here can fail. */
void mg_abandoned_plan_add(mg_plan *p, mg_tensor *const *args) {
    mg_abandoned_plan *a = p->abandoned;
    a->plan = p;
    a->next = first;
    first = a;
    for (int i = 0; args && i < p->n_args; i++) keep_tensor(a, args[i]);
    keep_variables(a);
    take_arenas(a);
}

/* False for plans on one device, which have no record. */
bool mg_abandoned_plan_is(const mg_plan *p) {
    return p->abandoned && p->abandoned->plan;
}

/* For tensors that only the maker of the plan knows. */
void mg_abandoned_plan_keep(mg_plan *p, mg_tensor *t) {
    keep_tensor(p->abandoned, t);
}

/* The plan cannot be run any more; it is freed when its devices have returned. */
bool mg_abandoned_plan_disown(mg_plan *p) {
    if (!mg_abandoned_plan_is(p)) return false;
    p->abandoned->disowned = true;
    return true;
}

/* Whether no device of the plan is still in an abandoned job. */
static bool has_returned(const mg_plan *p) {
    for (int i = 0; i < p->n_parts; i++)
        if (mg_worker_has_abandoned(p->parts[i].device)) return false;
    return true;
}

/* Frees the kept memory, and drops the status of the jobs that returned late. */
static void free_kept(mg_abandoned_plan *a) {
    const mg_plan *p = a->plan;
    for (int i = 0; i < p->n_parts; i++) mg_worker_forget(p->parts[i].device);
    for (int i = 0; i < a->n_arenas; i++)
        mg_device_free(a->arenas[i].device, a->arenas[i].data, a->arenas[i].bytes);
    for (int i = 0; i < a->n_tensors; i++) mg_tensor_release(a->tensors[i]);
    mg_free(a->tensors);
}

/* One plan per call, so that the caller can free it before the next. */
mg_plan *mg_abandoned_plan_returned(bool *disowned) {
    for (mg_abandoned_plan **at = &first; *at; at = &(*at)->next) {
        mg_abandoned_plan *a = *at;
        mg_plan *p = a->plan;
        if (!has_returned(p)) continue;
        *at = a->next; /* removed from the list: the plan is no longer abandoned */
        *disowned = a->disowned;
        free_kept(a);
        *a = (mg_abandoned_plan){0};
        return p;
    }
    return NULL;
}

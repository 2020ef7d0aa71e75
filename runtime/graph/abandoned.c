/* Abandoned executions: see abandoned.h. */
#include "graph/abandoned.h"
#include "core/alloc.h"
#include "device/worker.h"

typedef struct kept_arena { /* taken from its device, which allocates a new one at its next run */
    mg_device *device;
    void *data;
    size_t bytes;
} kept_arena;

/* What is kept for one execution. */
typedef struct mg_abandoned {
    mg_execution *execution; /* NULL: not abandoned */
    struct mg_abandoned *next;
    kept_arena arenas[MG_MAX_DEVICES + 1];
    int n_arenas;
    mg_tensor **tensors; /* retained */
    int n_tensors, capacity;
} mg_abandoned;

/* All abandoned executions of the process. */
static mg_abandoned *first;

mg_status mg_abandoned_allow(mg_execution *e) {
    if (!e->abandoned) e->abandoned = mg_alloc_zero(sizeof *e->abandoned);
    return e->abandoned ? MG_OK : MG_OOM;
}

/* If there is no memory for the list, t is leaked: a leak is better than a write to freed memory.
 */
static void keep_tensor(mg_abandoned *a, mg_tensor *t) {
    if (!t) return;
    mg_tensor_retain(t);
    if (mg_reserve((void **)&a->tensors, a->n_tensors, &a->capacity, sizeof *a->tensors) == MG_OK)
        a->tensors[a->n_tensors++] = t;
}

/* Keeps the variable's values on all devices. If another device has the value, the copy on a lost
 * device is dropped from the variable. */
static void keep_variable(mg_abandoned *a, mg_variable *v) {
    const mg_plan *p = a->execution->plan;
    keep_tensor(a, v->value);
    for (int r = 0; r < v->n_replicas; r++) keep_tensor(a, v->replicas[r].value);
    for (int i = 0; i < p->n_parts; i++) {
        mg_device *d = p->parts[i].device;
        if (mg_device_is_lost(d)) mg_variable_remove_from(v, d);
    }
}

/* The variables that the parts read, and those that they assign. */
static void keep_variables(mg_abandoned *a) {
    const mg_plan *p = a->execution->plan;
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
static void take_arenas(mg_abandoned *a) {
    const mg_plan *p = a->execution->plan;
    for (int i = 0; i < p->n_parts; i++) {
        mg_device *d = p->parts[i].device;
        if (mg_worker_has_abandoned(d) || !d->arena) continue;
        a->arenas[a->n_arenas++] = (kept_arena){d, d->arena, d->arena_bytes};
        d->arena = NULL;
        d->arena_bytes = 0;
    }
}

/* Nothing here can fail: see mg_abandoned_allow. */
void mg_abandoned_add(mg_execution *e) {
    mg_abandoned *a = e->abandoned;
    a->execution = e;
    a->next = first;
    first = a;
    e->plan->refs++;
    for (int i = 0; e->args && i < e->plan->n_args; i++) keep_tensor(a, e->args[i]);
    keep_variables(a);
    take_arenas(a);
}

bool mg_abandoned_is(const mg_execution *e) {
    return e && e->abandoned && e->abandoned->execution;
}

/* For tensors that only the maker of the plan knows. */
void mg_abandoned_keep(mg_execution *e, mg_tensor *t) {
    keep_tensor(e->abandoned, t);
}

/* Whether no device of the plan is still in an abandoned job. */
static bool has_returned(const mg_plan *p) {
    for (int i = 0; i < p->n_parts; i++)
        if (mg_worker_has_abandoned(p->parts[i].device)) return false;
    return true;
}

/* Frees the kept memory, and drops the status of the jobs that returned late. */
static void free_kept(mg_abandoned *a) {
    const mg_plan *p = a->execution->plan;
    for (int i = 0; i < p->n_parts; i++) mg_worker_forget(p->parts[i].device);
    for (int i = 0; i < a->n_arenas; i++)
        mg_device_free(a->arenas[i].device, a->arenas[i].data, a->arenas[i].bytes);
    for (int i = 0; i < a->n_tensors; i++) mg_tensor_release(a->tensors[i]);
    mg_free(a->tensors);
}

/* One execution per call, so that the caller can free its plan before the next. */
mg_execution *mg_abandoned_returned(void) {
    for (mg_abandoned **at = &first; *at; at = &(*at)->next) {
        mg_abandoned *a = *at;
        mg_execution *e = a->execution;
        if (!has_returned(e->plan)) continue;
        *at = a->next; /* removed from the list: it is no longer abandoned */
        free_kept(a);
        *a = (mg_abandoned){0};
        return e;
    }
    return NULL;
}

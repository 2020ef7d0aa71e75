/* Wrecks: see wreck.h. */
#include "graph/abandoned_plan.h"
#include "core/alloc.h"
#include "device/worker.h"

typedef struct stray { /* an arena that was its device's */
    mg_device *device;
    void *data;
    size_t bytes;
} stray;

struct mg_abandoned_plan {
    mg_plan *plan; /* NULL: only room */
    mg_abandoned_plan *next;
    bool orphan; /* the plan's owner is done with it */
    stray arenas[MG_MAX_DEVICES + 1];
    int n_arenas;
    mg_tensor **tensors; /* retained */
    int n_tensors, capacity;
};

static mg_abandoned_plan *wrecks;

mg_abandoned_plan *mg_abandoned_plan_room(void) {
    return mg_alloc_zero(sizeof(mg_abandoned_plan));
}

/* Without memory for the list t is kept for good. */
static void keep(mg_abandoned_plan *w, mg_tensor *t) {
    if (!t) return;
    mg_tensor_retain(t);
    if (w->n_tensors == w->capacity) {
        const int wider = w->capacity ? 2 * w->capacity : 64;
        mg_tensor **tensors = mg_realloc(w->tensors, (size_t)wider * sizeof(mg_tensor *));
        if (!tensors) return;
        w->tensors = tensors;
        w->capacity = wider;
    }
    w->tensors[w->n_tensors++] = t;
}

/* Its values on all devices; and no device that is lost has it any more, if another does. */
static void save_variable(mg_abandoned_plan *w, mg_variable *v) {
    keep(w, v->value);
    for (int r = 0; r < v->n_replicas; r++) keep(w, v->replicas[r].value);
    for (int i = 0; i < w->plan->n_parts; i++) {
        mg_device *d = w->plan->parts[i].device;
        if (mg_device_is_lost(d)) mg_variable_leave(v, d);
    }
}

static void save_variables(mg_abandoned_plan *w) {
    const mg_plan *p = w->plan;
    for (int k = 0; k < p->n_parts && p->parts[k].held; k++) /* else it was being compiled */
        for (int i = 0; i < p->parts[k].lowered.graph.n_external; i++) {
            const mg_external *e = &p->parts[k].lowered.externals[i];
            if (e->kind == MG_EXTERNAL_VARIABLE) save_variable(w, e->variable);
        }
    for (int i = 0; i < p->n_assigns; i++) save_variable(w, p->variables[i]);
}

/* The lost device's own arena stays with it. */
static void take_arenas(mg_abandoned_plan *w) {
    for (int i = 0; i < w->plan->n_parts; i++) {
        mg_device *d = w->plan->parts[i].device;
        if (mg_device_is_lost(d) || !d->arena) continue;
        w->arenas[w->n_arenas++] = (stray){d, d->arena, d->arena_bytes};
        d->arena = NULL;
        d->arena_bytes = 0;
    }
}

void mg_abandoned_plan_make(mg_plan *p, mg_tensor *const *args) {
    mg_abandoned_plan *w = p->wreck;
    w->plan = p;
    w->next = wrecks;
    wrecks = w;
    for (int i = 0; args && i < p->n_args; i++) keep(w, args[i]);
    save_variables(w);
    take_arenas(w);
}

bool mg_abandoned_plan_is(const mg_plan *p) {
    return p->wreck && p->wreck->plan;
}

void mg_abandoned_plan_keep(mg_plan *p, mg_tensor *t) {
    keep(p->wreck, t);
}

bool mg_abandoned_plan_take(mg_plan *p) {
    if (!mg_abandoned_plan_is(p)) return false;
    p->wreck->orphan = true;
    return true;
}

static bool has_returned(const mg_plan *p) {
    for (int i = 0; i < p->n_parts; i++)
        if (mg_device_is_lost(p->parts[i].device) && !mg_worker_done(p->parts[i].device))
            return false;
    return true;
}

static void reclaim(mg_abandoned_plan *w) {
    mg_plan *p = w->plan;
    for (int i = 0; i < p->n_parts; i++) {
        char *message = NULL;
        if (mg_device_is_lost(p->parts[i].device)) mg_worker_end(p->parts[i].device, &message);
        mg_free(message);
    }
    mg_plan_drop_run(p);
    for (int i = 0; i < w->n_arenas; i++)
        mg_device_free(w->arenas[i].device, w->arenas[i].data, w->arenas[i].bytes);
    for (int i = 0; i < w->n_tensors; i++) mg_tensor_release(w->tensors[i]);
    mg_free(w->tensors);
    const bool orphan = w->orphan;
    *w = (mg_abandoned_plan){0};
    if (orphan) mg_plan_free(p);
}

void mg_abandoned_plan_reclaim(void) {
    for (mg_abandoned_plan **at = &wrecks; *at;) {
        mg_abandoned_plan *w = *at;
        if (!has_returned(w->plan)) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        reclaim(w);
    }
}

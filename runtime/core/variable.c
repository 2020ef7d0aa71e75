/* Variables: life, copies, and the lists they are in. See variable.h.
 *
 * The pending list holds this thread's variables whose value is still lazy, so that evaluating
 * anything can evaluate them too and histories stay short. It retains them. */
#include "core/variable.h"
#include "core/alloc.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list of all variables */
static mg_variable *first;

/* Owned; NULL while the list is empty, so that a thread that has evaluated everything holds no
 * memory. */
static _Thread_local mg_variable **pending_list; /* owned; NULL while it is empty */
static _Thread_local int n_pending, pending_capacity;

static atomic_ullong n_changes; /* of all variables */

/* ---- changes ---- */

void mg_variable_note_change(mg_variable *v) {
    v->n_changes++;
    atomic_fetch_add_explicit(&n_changes, 1, memory_order_relaxed);
}

uint64_t mg_variables_changes(void) {
    return atomic_load_explicit(&n_changes, memory_order_relaxed);
}

/* ---- the list of all variables ---- */

/* At the front: the order does not matter. */
static void list_variable(mg_variable *v) {
    pthread_mutex_lock(&lock);
    v->next = first;
    if (first) first->previous = v;
    first = v;
    pthread_mutex_unlock(&lock);
}

/* Does nothing for a variable that was never listed. */
static void unlist_variable(mg_variable *v) {
    pthread_mutex_lock(&lock);
    if (v->next) v->next->previous = v->previous;
    if (v->previous) v->previous->next = v->next;
    if (first == v) first = v->next;
    pthread_mutex_unlock(&lock);
}

/* The callback must not make or release variables: the lock is held. */
void mg_variables_visit(void (*visit)(const mg_variable *v, void *context), void *context) {
    pthread_mutex_lock(&lock);
    for (const mg_variable *v = first; v; v = v->next) visit(v, context);
    pthread_mutex_unlock(&lock);
}

/* ---- pending values ---- */

/* Lazy: there is no buffer yet. */
static bool is_pending(const mg_variable *v) {
    return v->value && !v->value->buffer;
}

/* The number of entries, including evaluated ones. */
int mg_variables_n_pending(void) {
    return n_pending;
}

/* Evaluating any tensor may have given this one its value too. */
mg_variable *mg_variables_pending(int i) {
    return is_pending(pending_list[i]) ? pending_list[i] : NULL;
}

/* An entry that only this list holds belongs to a variable that the user has dropped. */
void mg_variables_prune(void) {
    int kept = 0;
    for (int i = 0; i < n_pending; i++) {
        mg_variable *v = pending_list[i];
        if (is_pending(v) && atomic_load(&v->refs) > 1)
            pending_list[kept++] = v;
        else
            mg_variable_release(v);
    }
    n_pending = kept;
    if (kept) return; /* the list stays */
    mg_free(pending_list);
    pending_list = NULL;
    pending_capacity = 0;
}

/* Searched from the end: the same variable is usually assigned again soon. */
static mg_status add_pending(mg_variable *v) {
    for (int i = n_pending - 1; i >= 0; i--)
        if (pending_list[i] == v) return MG_OK;
    MG_TRY(mg_reserve((void **)&pending_list, n_pending, &pending_capacity, sizeof *pending_list));
    pending_list[n_pending++] = mg_variable_retain(v);
    return MG_OK;
}

/* ---- copies on several devices ---- */

/* The last replica takes the place of replica i. */
void mg_variable_drop_replica(mg_variable *v, int i) {
    if (v->internal) mg_tensor_count_internal(-1);
    mg_tensor_release(v->replicas[i].value);
    v->replicas[i] = v->replicas[--v->n_replicas];
}

/* The value on v->value's own device stays. */
static void drop_replicas(mg_variable *v) {
    while (v->n_replicas) mg_variable_drop_replica(v, v->n_replicas - 1);
    mg_free(v->replicas);
    v->replicas = NULL;
}

/* The number of the replica on d, or -1. */
static int replica_on(const mg_variable *v, const mg_device *d) {
    for (int i = 0; i < v->n_replicas; i++)
        if (v->replicas[i].device == d) return i;
    return -1;
}

/* v->value first: nearly all variables have no replica. */
mg_tensor *mg_variable_find_on(const mg_variable *v, const mg_device *d) {
    if (v->value->device == d) return v->value;
    const int i = replica_on(v, d);
    return i >= 0 ? v->replicas[i].value : NULL;
}

/* There are as many replicas as devices of a plan, so the array grows by one. */
mg_status mg_variable_add_replica(mg_variable *v, mg_device *d, mg_tensor *copy) {
    mg_replica *more = mg_realloc(v->replicas, (size_t)(v->n_replicas + 1) * sizeof *v->replicas);
    if (!more) {
        mg_tensor_release(copy);
        return MG_OOM;
    }
    v->replicas = more;
    if (v->internal) mg_tensor_count_internal(1);
    v->replicas[v->n_replicas++] = (mg_replica){d, copy};
    return MG_OK;
}

/* A replica if d has one, else the value itself. */
void mg_variable_replace_on(mg_variable *v, mg_device *d, mg_tensor *value) {
    const int i = replica_on(v, d);
    mg_tensor **place = i >= 0 ? &v->replicas[i].value : &v->value;
    mg_tensor_release(*place);
    *place = value;
}

/* The two change places, so nothing is copied or freed. */
void mg_variable_promote(mg_variable *v, mg_device *d) {
    const int i = replica_on(v, d);
    if (i < 0) return;
    mg_tensor *value = v->replicas[i].value;
    v->replicas[i] = (mg_replica){v->value->device, v->value};
    v->value = value;
}

/* Used when a device is lost or its commit failed: another copy is still right. */
void mg_variable_remove_from(mg_variable *v, mg_device *d) {
    if (v->value->device == d) {
        if (!v->n_replicas) return;
        mg_variable_promote(v, v->replicas[0].device);
    }
    const int i = replica_on(v, d);
    if (i >= 0) mg_variable_drop_replica(v, i);
}

/* ---- life ---- */

/* The name is copied; the value is retained. */
mg_variable *mg_variable_new(mg_tensor *value, const char *name, bool trainable) {
    if (value->in_loop) {
        mg_fail(MG_USAGE, "variable: its value depends on a step of mgpu.scan, whose function is "
                          "only being traced: make variables before");
        return NULL;
    }
    mg_variable *v = mg_alloc_zero(sizeof *v);
    if (!v) return NULL;
    atomic_init(&v->refs, 1);
    v->name = mg_strdup(name ? name : "variable");
    v->trainable = trainable;
    v->autocast = true;
    v->value = mg_tensor_retain(value);
    if (!v->name || (is_pending(v) && add_pending(v) != MG_OK)) {
        mg_variable_release(v);
        return NULL;
    }
    list_variable(v);
    return v;
}

/* From any thread. */
mg_variable *mg_variable_retain(mg_variable *v) {
    atomic_fetch_add(&v->refs, 1);
    return v;
}

/* Variables in a pending list are held by it: they cannot be freed from here. */
void mg_variable_release(mg_variable *v) {
    if (!v || atomic_fetch_sub(&v->refs, 1) != 1) return;
    unlist_variable(v);
    mg_tensor_release(v->traced);
    mg_tensor_release(v->entry);
    mg_tensor_release(v->value);
    drop_replicas(v);
    mg_free(v->name);
    mg_free(v);
}

/* Replicas are copies of the old value, so they go. */
mg_status mg_variable_set(mg_variable *v, mg_tensor *value) {
    mg_tensor_release(v->value);
    drop_replicas(v);
    v->value = value;
    mg_variable_note_change(v);
    v->nonfinite = false;
    return is_pending(v) ? add_pending(v) : MG_OK;
}

/* Variables: see variable.h for the meaning of reading and assigning.
 *
 * The pending list holds this thread's variables whose value is still lazy, so that evaluating
 * anything can settle them too and histories stay short. */
#include "core/variable.h"
#include "core/alloc.h"
#include "core/memory_report.h"
#include "graph/graph.h"
#include "ops/op.h"
#include <string.h>

#define MG_MAX_PENDING 4096

static _Thread_local mg_variable *pending_list[MG_MAX_PENDING];
static _Thread_local int n_pending;

static bool is_pending(const mg_variable *v) {
    return v->value && !v->value->buffer;
}

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
}

int mg_variables_pending(mg_variable **pending, int max) {
    int n = 0;
    for (int i = 0; i < n_pending && n < max; i++)
        if (is_pending(pending_list[i])) pending[n++] = pending_list[i];
    return n;
}

static mg_status note_pending(mg_variable *v) {
    for (int i = n_pending - 1; i >= 0; i--)
        if (pending_list[i] == v) return MG_OK;
    if (n_pending == MG_MAX_PENDING) MG_TRY(mg_variables_settle());
    pending_list[n_pending++] = mg_variable_retain(v);
    return MG_OK;
}

/* ---- on several devices ---- */

void mg_variable_drop_replica(mg_variable *v, int i) {
    mg_tensor_release(v->replicas[i].value);
    v->replicas[i] = v->replicas[--v->n_replicas];
}

static void drop_replicas(mg_variable *v) {
    while (v->n_replicas) mg_variable_drop_replica(v, v->n_replicas - 1);
    mg_free(v->replicas);
    v->replicas = NULL;
}

static int replica_on(const mg_variable *v, const mg_device *d) {
    for (int i = 0; i < v->n_replicas; i++)
        if (v->replicas[i].device == d) return i;
    return -1;
}

mg_tensor *mg_variable_on(mg_variable *v, mg_device *d) {
    const int found = v->value->device == d ? -1 : replica_on(v, d);
    if (v->value->device == d) return v->value;
    if (found >= 0) return v->replicas[found].value;
    mg_replica *more = mg_realloc(v->replicas, (size_t)(v->n_replicas + 1) * sizeof *v->replicas);
    if (!more) return NULL;
    v->replicas = more;
    mg_tensor *copy = mg_tensor_copy(v->value, d);
    if (copy) v->replicas[v->n_replicas++] = (mg_replica){d, copy};
    return copy;
}

void mg_variable_bind(mg_variable *v, mg_device *d, mg_tensor *value) {
    const int i = replica_on(v, d);
    mg_tensor **place = i >= 0 ? &v->replicas[i].value : &v->value;
    mg_tensor_release(*place);
    *place = value;
}

void mg_variable_lead(mg_variable *v, mg_device *d) {
    const int i = replica_on(v, d);
    if (i < 0) return;
    mg_tensor *value = v->replicas[i].value;
    v->replicas[i] = (mg_replica){v->value->device, v->value};
    v->value = value;
}

void mg_variable_leave(mg_variable *v, mg_device *d) {
    if (v->value->device == d) {
        if (!v->n_replicas) return;
        mg_variable_lead(v, v->replicas[0].device);
    }
    const int i = replica_on(v, d);
    if (i >= 0) mg_variable_drop_replica(v, i);
}

/* ---- life, reading and assigning ---- */

mg_variable *mg_variable_new(mg_tensor *value, const char *name, bool trainable) {
    mg_variable *v = mg_alloc_zero(sizeof *v);
    if (!v) return NULL;
    atomic_init(&v->refs, 1);
    v->name = mg_strdup(name ? name : "variable");
    v->trainable = trainable;
    v->autocast = true;
    v->value = mg_tensor_retain(value);
    if (!v->name || (is_pending(v) && note_pending(v) != MG_OK)) {
        mg_variable_release(v);
        return NULL;
    }
    mg_memory_report_add(v);
    return v;
}

mg_variable *mg_variable_retain(mg_variable *v) {
    atomic_fetch_add(&v->refs, 1);
    return v;
}

void mg_variable_release(mg_variable *v) {
    if (!v || atomic_fetch_sub(&v->refs, 1) != 1) return;
    mg_memory_report_remove(v);
    mg_tensor_release(v->traced);
    mg_tensor_release(v->entry);
    mg_tensor_release(v->value);
    drop_replicas(v);
    mg_free(v->name);
    mg_free(v);
}

mg_tensor *mg_variable_read(mg_variable *v) {
    if (!mg_trace_current()) return mg_tensor_retain(v->value);
    if (mg_trace_enter_variable(v) != MG_OK) return NULL;
    return mg_tensor_retain(v->traced);
}

static mg_tensor *fit_value(mg_variable *v, mg_tensor *value) {
    if (!mg_shape_equal(&v->value->shape, &value->shape)) {
        mg_fail(MG_USAGE, "variable \"%s\": cannot assign shape %s to shape %s", v->name,
                MG_SHAPE_TEXT(&value->shape), MG_SHAPE_TEXT(&v->value->shape));
        return NULL;
    }
    if (value->dtype == v->value->dtype) return mg_tensor_retain(value);
    const int64_t dtype = v->value->dtype;
    return mg_apply(mg_op_find("cast"), &value, 1, &dtype);
}

mg_status mg_variable_assign(mg_variable *v, mg_tensor *value) {
    mg_tensor *fitted = fit_value(v, value);
    if (!fitted) return mg_error_code();
    if (mg_trace_current()) {
        mg_status status = mg_trace_enter_variable(v);
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
    mg_tensor_release(v->value);
    drop_replicas(v);
    v->value = fitted;
    return is_pending(v) ? note_pending(v) : MG_OK;
}

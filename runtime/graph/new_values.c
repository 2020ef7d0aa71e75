/* Guards on the new values of variables: see new_values.h. */
#include "graph/new_values.h"
#include "core/alloc.h"
#include "device/device.h"
#include "ops/op.h"
#include <math.h>

/* ---- life ---- */

/* Allocates before it counts, so that mg_guard_clear is correct after a failure. */
static mg_status retain_variables(mg_guard *guard, mg_variable *const *variables, int n) {
    if (n == 0) return MG_OK;
    guard->variables = mg_alloc((size_t)n * sizeof(mg_variable *));
    if (!guard->variables) return MG_OOM;
    for (int i = 0; i < n; i++) guard->variables[i] = mg_variable_retain(variables[i]);
    guard->n_variables = n;
    return MG_OK;
}

mg_status mg_new_values_guard(mg_variable *const *variables, int n, const char *message,
                              mg_guard *guard) {
    mg_tensor *values[MG_MOST_NEW_VALUES];
    for (int i = 0; i < n; i++) values[i] = variables[i]->traced;
    *guard = (mg_guard){.code = MG_NONFINITE};
    guard->ok = mg_apply(mg_op_find("all_finite"), values, n, NULL);
    if (!guard->ok) return mg_error_code();
    guard->message = mg_strdup(message);
    return guard->message ? retain_variables(guard, variables, n) : MG_OOM;
}

mg_status mg_guard_copy(const mg_guard *guard, mg_guard *copy) {
    *copy = (mg_guard){.code = guard->code, .message = mg_strdup(guard->message)};
    return copy->message ? retain_variables(copy, guard->variables, guard->n_variables) : MG_OOM;
}

void mg_guard_clear(mg_guard *guard) {
    mg_tensor_release(guard->ok);
    for (int i = 0; i < guard->n_variables; i++) mg_variable_release(guard->variables[i]);
    mg_free(guard->variables);
    mg_free(guard->message);
}

/* ---- a guard that has failed ---- */

/* Whether the elements of an evaluated tensor are finite, read in pieces. Memory that cannot be
 * read any more counts as finite: its device has an error of its own. */
static bool is_finite(const mg_tensor *t) {
    enum { PIECE = 4096 };
    uint64_t typed[PIECE];
    double piece[PIECE];
    mg_device *d = t->buffer->device;
    const size_t size = mg_dtype_size((mg_dtype)t->dtype);
    const int64_t count = mg_tensor_count(t);
    for (int64_t done = 0; done < count; done += PIECE) {
        const int64_t n = count - done < PIECE ? count - done : PIECE;
        const char *at = (const char *)t->buffer->data + (size_t)done * size;
        if (mg_device_read_through(d, typed, at, (size_t)n * size) != MG_OK) return true;
        mg_to_double(piece, typed, (mg_dtype)t->dtype, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(piece[i])) return false;
    }
    return true;
}

/* A variable may have got another value since, while an asynchronous device still ran the step:
 * then it is not lost. */
mg_status mg_new_values_raise(const mg_guard *guard) {
    const mg_variable *found = NULL;
    for (int i = 0; i < guard->n_variables; i++) {
        mg_variable *v = guard->variables[i];
        v->nonfinite = v->value->buffer && !is_finite(v->value);
        if (v->nonfinite && !found) found = v;
    }
    return mg_fail(guard->code, "%s %s", (found ? found : guard->variables[0])->name,
                   guard->message);
}

mg_status mg_new_values_usable(const mg_guard *guard) {
    for (int i = 0; i < guard->n_variables; i++)
        if (guard->variables[i]->nonfinite)
            return mg_fail(guard->code, "%s %s", guard->variables[i]->name, guard->message);
    return MG_OK;
}

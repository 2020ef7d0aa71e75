/* Before and after the commit phase of a run: allocating its memory, binding the new values to
 * variables, and explaining whether the step counts if a device failed in it. */
#include "graph/execution.h"
#include <stdio.h>

/* Whether the variable is the only holder of its value, so that it may be updated in place. */
static bool is_sole_holder(const mg_tensor *value) {
    return atomic_load(&value->refs) == 1 && atomic_load(&value->buffer->refs) == 1;
}

/* Allocates everything that the commit phase of part k needs: afterwards it cannot fail for lack of
 * memory. Values that come from another variable are retained first, so that this variable is not
 * the sole holder of its value and is not updated in place. */
mg_status mg_commit_prepare(mg_execution *e, int k) {
    const mg_plan *p = e->plan;
    const mg_part *part = &p->parts[k];
    mg_part_run *run = &e->parts[k];
    for (int i = 0; i < p->n_assigns; i++) { /* values that are not made by a commit step */
        if (!mg_plan_part_assigns(p, k, i)) continue;
        const int external = part->updates[i].external;
        if (part->lowered.externals[external].kind == MG_EXTERNAL_UPDATE) continue;
        run->fresh[i] = mg_run_value(e, k, external);
        if (!run->fresh[i]) return MG_OOM;
    }
    for (int i = 0; i < p->n_assigns; i++) { /* values of commit steps: in place if possible */
        if (!mg_plan_part_assigns(p, k, i)) continue;
        const int external = part->updates[i].external;
        if (part->lowered.externals[external].kind != MG_EXTERNAL_UPDATE) continue;
        mg_tensor *value =
            p->n_parts > 1 ? mg_variable_on(p->variables[i], part->device) : p->variables[i]->value;
        if (!value) return mg_error_code();
        if (part->updates[i].in_place && is_sole_holder(value)) {
            run->address[external] = value->buffer->data;
            continue;
        }
        if (!run->buffer[external]) MG_TRY(mg_run_new_buffer(e, k, external));
        run->fresh[i] = mg_run_value(e, k, external);
        if (!run->fresh[i]) return MG_OOM;
    }
    return MG_OK;
}

/* Whether some part of the plan keeps assigned variable i on d. */
static bool variable_lies_on(const mg_plan *p, int i, const mg_device *d) {
    for (int k = 0; k < p->n_parts; k++)
        if (p->parts[k].device == d && mg_plan_part_assigns(p, k, i)) return true;
    return false;
}

/* Binds the new values of the parts that finished their commit phase. A device that did not finish
 * loses its copy of the variable if another device has one. Copies on devices outside the plan are
 * out of date and are dropped. */
void mg_commit_bind(mg_execution *e) {
    const mg_plan *p = e->plan;
    for (int i = 0; i < p->n_assigns; i++) {
        mg_variable *v = p->variables[i];
        v->nonfinite = false;
        mg_variable_note_change(v);
        /* The value must lie on a device of the plan before the copies elsewhere are dropped. */
        if (p->inputs_anywhere && !variable_lies_on(p, i, v->value->device))
            mg_variable_promote(v, p->parts[p->root_part[p->n_outputs + i]].device);
        for (int r = v->n_replicas - 1; r >= 0; r--)
            if (p->n_parts == 1 || !variable_lies_on(p, i, v->replicas[r].device))
                mg_variable_drop_replica(v, r);
        for (int k = 0; k < p->n_parts; k++) {
            mg_device *d = p->parts[k].device;
            mg_part_run *run = &e->parts[k];
            if (!mg_plan_part_assigns(p, k, i)) continue;
            if (run->unfinished) {
                mg_variable_remove_from(v, d);
                continue;
            }
            if (!run->fresh[i]) continue; /* it was updated in place */
            mg_variable_replace_on(v, d, run->fresh[i]);
            run->fresh[i] = NULL;
        }
    }
}

/* Whether some device has finished the update of assigned variable i. */
static bool is_assigned(const mg_execution *e, int i) {
    for (int k = 0; k < e->plan->n_parts; k++)
        if (mg_plan_part_assigns(e->plan, k, i) && !e->parts[k].unfinished) return true;
    return false;
}

/* Adds to the message of a failure in the commit phase whether the step counts: it does if each
 * variable has its new value on some device. */
mg_status mg_commit_explain(const mg_execution *e, mg_status status) {
    const mg_plan *p = e->plan;
    char message[MG_ERROR_BYTES];
    const char *outcome = "the update was finished all the same: the step counts";
    for (int k = 0; k < p->n_parts; k++)
        if (e->parts[k].unfinished)
            outcome = "the other devices have finished the update: the step counts; go on without "
                      "this device";
    for (int i = 0; i < p->n_assigns; i++)
        if (!is_assigned(e, i))
            outcome = "the update is unfinished and no other device has all weights: load saved "
                      "ones";
    snprintf(message, sizeof message, "%s", mg_error_message());
    return mg_fail(status, "%s; %s", message, outcome);
}

/* The values of a run: what its parts are given, and what it returns.
 *
 * Every external value of a part has an address. Arguments, constants and variables are used where
 * they lie if the device can address that memory, and copied otherwise; results get buffers that
 * the execution owns until they are handed out. */
#include "device/buffer.h"
#include "graph/async_guards.h"
#include "graph/execution.h"

/* Rows of an argument may begin at any address; GPU libraries need multiples of this. */
enum { ALIGNED = 64 };

/* ---- values on several devices ---- */

/* Memory of a lost device is out of reach: a copy from it could wait for ever. */
mg_status mg_value_wait(const mg_tensor *t) {
    mg_device *d = t->buffer->device;
    return mg_device_out_of_reach(d) ? mg_device_check(d) : mg_async_guards_wait(d);
}

/* The devices copy directly where they can, otherwise through the host. */
mg_tensor *mg_value_copy(const mg_tensor *t, mg_device *device) {
    if (mg_value_wait(t) != MG_OK) return NULL;
    const size_t bytes = mg_tensor_bytes(t);
    mg_buffer *b = mg_buffer_new(device, bytes);
    if (!b) return NULL;
    mg_tensor *copy = NULL;
    if (mg_device_copy(device, b->data, t->buffer->device, t->buffer->data, bytes) == MG_OK)
        copy = mg_tensor_from_buffer(b, (mg_dtype)t->dtype, &t->shape);
    mg_buffer_release(b);
    return copy;
}

/* The new replica is owned by the variable. */
mg_tensor *mg_variable_on(mg_variable *v, mg_device *d) {
    mg_tensor *found = mg_variable_find_on(v, d);
    if (found) return found;
    mg_tensor *copy = mg_value_copy(v->value, d);
    return copy && mg_variable_add_replica(v, d, copy) == MG_OK ? copy : NULL;
}

/* ---- what a part is given ---- */

/* Bytes of an external value, in any layout. */
static size_t external_bytes(const mg_external *e) {
    return (size_t)mg_shape_count(&e->shape) * mg_dtype_size(e->dtype);
}

/* Whether d can use memory of `owner` where it lies. */
static bool can_address(const mg_device *d, const mg_device *owner) {
    return d == owner || (d->api->host_memory && owner->api->host_memory);
}

mg_status mg_run_new_buffer(mg_execution *e, int k, int external) {
    const mg_part *part = &e->plan->parts[k];
    mg_part_run *run = &e->parts[k];
    const size_t bytes = external_bytes(&part->lowered.externals[external]);
    run->buffer[external] = mg_buffer_new(part->device, bytes);
    if (!run->buffer[external]) return mg_error_code();
    run->address[external] = run->buffer[external]->data;
    return MG_OK;
}

/* The part's rows, from `offset` of t on, in a buffer of this run on its own device: they may have
 * been copied there ahead of the run. */
static mg_status copy_rows_to_part(mg_execution *e, int k, int external, const mg_tensor *t,
                                   size_t offset) {
    const mg_part *part = &e->plan->parts[k];
    mg_part_run *run = &e->parts[k];
    const size_t bytes = external_bytes(&part->lowered.externals[external]);
    mg_buffer *ahead;
    MG_TRY(mg_buffer_find_rows(t->buffer, part->device, offset, bytes, &ahead));
    if (ahead) {
        run->buffer[external] = ahead;
        run->address[external] = ahead->data;
        return MG_OK;
    }
    MG_TRY(mg_run_new_buffer(e, k, external));
    return mg_device_copy(part->device, run->address[external], t->device,
                          (const char *)t->buffer->data + offset, run->buffer[external]->bytes);
}

/* The tensor that an external value of the part is given: an argument, a constant or a variable's
 * value. NULL on failure. */
static mg_tensor *given_tensor(const mg_execution *e, const mg_part *part, const mg_external *x) {
    if (x->kind == MG_EXTERNAL_ARGUMENT) return e->args[x->index];
    if (x->kind != MG_EXTERNAL_VARIABLE) return x->tensor;
    return e->plan->inputs_anywhere ? mg_variable_on(x->variable, part->device)
                                    : x->variable->value;
}

/* Sets the address of external value i of part k, if it is given to the part. Rows are addressed
 * inside the whole tensor, if the device can use it there. */
static mg_status bind_external(mg_execution *e, int k, int i) {
    const mg_plan *p = e->plan;
    const mg_part *part = &p->parts[k];
    const mg_external *x = &part->lowered.externals[i];
    if (x->kind == MG_EXTERNAL_RESULT || x->kind == MG_EXTERNAL_UPDATE) return MG_OK;
    mg_tensor *t = given_tensor(e, part, x);
    if (!t) return mg_error_code();
    const size_t bytes = external_bytes(x);
    size_t offset = 0; /* of the part's rows inside the whole tensor */
    if (x->part && x->shape.dim[0] > 0)
        offset = (size_t)x->first * (bytes / (size_t)x->shape.dim[0]);
    if ((p->inputs_anywhere && !can_address(part->device, t->device)) ||
        (offset % ALIGNED && !part->device->api->host_memory))
        return copy_rows_to_part(e, k, i, t, offset);
    e->parts[k].address[i] = (char *)t->buffer->data + offset;
    /* Between mg_plan_begin and mg_plan_end the caller may release it. */
    if (e->begun) e->parts[k].bound[i] = mg_tensor_retain(t);
    return MG_OK;
}

/* Copies are made now: later the arenas are in use. */
mg_status mg_run_bind_inputs(mg_execution *e) {
    const mg_plan *p = e->plan;
    for (int i = 0; i < p->n_assigns; i++) {
        for (int k = 0; k < p->n_parts && p->inputs_anywhere; k++)
            if (mg_plan_part_assigns(p, k, i) &&
                !mg_variable_on(p->variables[i], p->parts[k].device))
                return mg_error_code();
    }
    for (int k = 0; k < p->n_parts; k++)
        for (int i = 0; i < p->parts[k].lowered.graph.n_external; i++)
            MG_TRY(bind_external(e, k, i));
    return MG_OK;
}

/* ---- results ---- */

/* Whether each device of the output's stage holds only its rows of it. */
static bool is_sharded_output(const mg_plan *p, int output) {
    return p->n_parts > 1 && p->parts[p->root_part[output]].split_roots[output];
}

/* The number of the first part of the stage that `part` belongs to. */
static int first_of_stage(const mg_plan *p, int part) {
    return part / p->shards.n * p->shards.n;
}

/* Where the rows of device k of the stage begin in the buffer of a sharded output. The sharded axis
 * may be longer than the batch: then each row of the batch stands for `unit` entries of it. */
static char *rows_of_device(const mg_execution *e, int output, int k, size_t entry_bytes) {
    const mg_plan *p = e->plan;
    const int64_t unit = p->output_shapes[output].dim[0] / p->shards.rows;
    return (char *)e->whole[output]->data + (size_t)(p->shards.first[k] * unit) * entry_bytes;
}

mg_status mg_run_allocate_outputs(mg_execution *e) {
    const mg_plan *p = e->plan;
    for (int i = 0; i < p->n_outputs; i++) {
        if (!is_sharded_output(p, i)) continue;
        const mg_shape *shape = &p->output_shapes[i];
        const int lead = p->root_part[i];
        const mg_dtype t =
            p->parts[lead].lowered.externals[mg_part_external(&p->parts[lead], i)].dtype;
        const size_t bytes = (size_t)mg_shape_count(shape) * mg_dtype_size(t);
        const size_t row = shape->dim[0] ? bytes / (size_t)shape->dim[0] : 0;
        e->whole[i] = mg_buffer_new(p->parts[lead].device, bytes);
        if (!e->whole[i]) return mg_error_code();
        for (int k = 0; k < p->shards.n; k++) {
            const int number = first_of_stage(p, lead) + k;
            const mg_part *part = &p->parts[number];
            void **address = &e->parts[number].address[mg_part_external(part, i)];
            const mg_external *x = &part->lowered.externals[mg_part_external(part, i)];
            if (x->kind == MG_EXTERNAL_RESULT && !*address &&
                can_address(part->device, p->parts[lead].device))
                *address = rows_of_device(e, i, k, row);
        }
    }
    return MG_OK;
}

mg_status mg_run_allocate_results(mg_execution *e, int k) {
    const mg_lowered *lowered = &e->plan->parts[k].lowered;
    for (int i = 0; i < lowered->graph.n_external; i++)
        if (lowered->externals[i].kind == MG_EXTERNAL_RESULT && !e->parts[k].address[i])
            MG_TRY(mg_run_new_buffer(e, k, i));
    return MG_OK;
}

/* Copies the rows that were not written in place. */
static mg_status gather_output(mg_execution *e, int output) {
    const mg_plan *p = e->plan;
    const int lead = p->root_part[output];
    mg_device *to = p->parts[lead].device;
    for (int k = 0; k < p->shards.n; k++) {
        const int number = first_of_stage(p, lead) + k;
        const mg_part *part = &p->parts[number];
        const int external = mg_part_external(part, output);
        const mg_external *x = &part->lowered.externals[external];
        const size_t bytes = external_bytes(x);
        const size_t row = x->shape.dim[0] ? bytes / (size_t)x->shape.dim[0] : 0;
        const void *made = e->parts[number].address[external];
        char *home = rows_of_device(e, output, k, row);
        if (bytes && made != (void *)home)
            MG_TRY(mg_device_copy(to, home, part->device, made, bytes));
    }
    return MG_OK;
}

mg_tensor *mg_run_value(mg_execution *e, int k, int external) {
    const mg_part *part = &e->plan->parts[k];
    const mg_external *x = &part->lowered.externals[external];
    mg_buffer *made = e->parts[k].buffer[external];
    if (made) return mg_tensor_from_buffer(made, x->dtype, &x->shape);
    if (x->kind == MG_EXTERNAL_ARGUMENT) return mg_tensor_retain(e->args[x->index]);
    if (x->kind == MG_EXTERNAL_VARIABLE)
        return mg_tensor_retain(mg_variable_on(x->variable, part->device));
    return mg_tensor_retain(x->tensor);
}

mg_status mg_run_collect_results(mg_execution *e, mg_tensor **results) {
    const mg_plan *p = e->plan;
    for (int i = 0; i < p->n_outputs; i++) {
        const int k = p->root_part[i], external = mg_part_external(&p->parts[k], i);
        if (is_sharded_output(p, i)) {
            results[i] = mg_tensor_from_buffer(
                e->whole[i], p->parts[k].lowered.externals[external].dtype, &p->output_shapes[i]);
        } else {
            results[i] = mg_run_value(e, k, external);
        }
        if (!results[i]) return MG_OOM;
    }
    return MG_OK;
}

mg_status mg_run_gather_results(mg_execution *e) {
    for (int i = 0; i < e->plan->n_outputs; i++)
        if (is_sharded_output(e->plan, i)) MG_TRY(gather_output(e, i));
    return MG_OK;
}

/* Running a plan: compute, then guards, then commit.
 *
 * Until the commit phase begins, nothing outside the arenas and new result buffers has changed, so
 * any failure leaves every variable as it was. The memory of the commit phase (new buffers for
 * variables whose value is also held elsewhere) is allocated before it begins. With several parts,
 * a phase starts on a device when all devices have finished the one before.
 *
 * Asynchronous devices are an exception (run_at_once): both phases are enqueued together, and
 * guards are answered later. See async_guards.h. */
#include "core/alloc.h"
#include "core/log.h"
#include "core/threads.h"
#include "device/fault.h"
#include "device/worker.h"
#include "graph/plan.h"
#include "graph/abandoned_plan.h"
#include "graph/async_guards.h"
#include "graph/new_values.h"
#include "device/buffer.h"

/* Rows of an argument may begin at any address; GPU libraries need multiples of this. */
enum { ALIGNED = 64 };

/* A run on one device is long if it has more than LONG_WORK operations (work.c), or if its last run
 * took more than LONG_SECONDS. Runs with more than TIMED_WORK operations are timed. */
static const double LONG_WORK = 4e9, LONG_SECONDS = 0.05, TIMED_WORK = 4e6;

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

mg_status mg_part_new_buffer(mg_part *part, int external) {
    const mg_external *e = &part->lowered.externals[external];
    const size_t bytes = external_bytes(e);
    part->buffer[external] = mg_buffer_new(part->device, bytes);
    if (!part->buffer[external]) return mg_error_code();
    part->address[external] = part->buffer[external]->data;
    return MG_OK;
}

/* The part's rows, from `offset` of t on, in a buffer of this run on its own device: they may have
 * been copied there ahead of the run. */
static mg_status copy_rows_to_part(mg_part *part, int external, const mg_tensor *t, size_t offset) {
    const size_t bytes = external_bytes(&part->lowered.externals[external]);
    mg_buffer *ahead;
    MG_TRY(mg_buffer_find_rows(t->buffer, part->device, offset, bytes, &ahead));
    if (ahead) {
        part->buffer[external] = ahead;
        part->address[external] = ahead->data;
        return MG_OK;
    }
    MG_TRY(mg_part_new_buffer(part, external));
    return mg_device_copy(part->device, part->address[external], t->device,
                          (const char *)t->buffer->data + offset, part->buffer[external]->bytes);
}

/* Sets the address of an external value that is given to the part: an argument, a constant or a
 * variable. Rows are addressed inside the whole tensor, if the device can use it there. */
static mg_status bind_external(mg_plan *p, mg_part *part, int i, mg_tensor *const *args) {
    const mg_external *e = &part->lowered.externals[i];
    if (e->kind == MG_EXTERNAL_RESULT || e->kind == MG_EXTERNAL_UPDATE) return MG_OK;
    mg_tensor *t = e->kind == MG_EXTERNAL_ARGUMENT ? args[e->index] : e->tensor;
    if (e->kind == MG_EXTERNAL_VARIABLE) {
        t = p->inputs_anywhere ? mg_variable_on(e->variable, part->device) : e->variable->value;
        if (!t) return mg_error_code();
    }
    const size_t bytes = external_bytes(e);
    size_t offset = 0; /* of the part's rows inside the whole tensor */
    if (e->part && e->shape.dim[0] > 0)
        offset = (size_t)e->first * (bytes / (size_t)e->shape.dim[0]);
    if ((p->inputs_anywhere && !can_address(part->device, t->device)) ||
        (offset % ALIGNED && !part->device->api->host_memory))
        return copy_rows_to_part(part, i, t, offset);
    part->address[i] = (char *)t->buffer->data + offset;
    /* Between mg_plan_begin and mg_plan_end the caller may release it. */
    if (p->begun) part->bound[i] = mg_tensor_retain(t);
    return MG_OK;
}

/* Copies variables to devices that do not have them yet, then binds every external of every part.
 * Copies are made now: later the arenas are in use. */
static mg_status bind_inputs(mg_plan *p, mg_tensor *const *args) {
    for (int i = 0; i < p->n_assigns; i++) {
        for (int k = 0; k < p->n_parts && p->inputs_anywhere; k++)
            if (mg_plan_part_assigns(p, k, i) &&
                !mg_variable_on(p->variables[i], p->parts[k].device))
                return mg_error_code();
    }
    for (int k = 0; k < p->n_parts; k++)
        for (int i = 0; i < p->parts[k].lowered.graph.n_external; i++)
            MG_TRY(bind_external(p, &p->parts[k], i, args));
    return MG_OK;
}

/* ---- compute ---- */

/* Wakes the devices that wait in a collective for one whose run has failed. */
static void abort_all(mg_plan *p) {
    for (int s = 0; p->comms && s < p->n_stages; s++) p->comms[s]->api->abort(p->comms[s]);
    if (p->world) p->world->api->abort(p->world);
}

/* One phase of the part's program, on the calling thread. */
static mg_status run_part(mg_plan *p, int i, mg_phase phase) {
    mg_part *part = &p->parts[i];
    mg_run run = {.device = part->device,
                  .first = part->step_first,
                  .rng = p->rng,
                  .draws = p->n_draws,
                  .phase = phase,
                  .external = part->address,
                  .arena = part->arena,
                  .comm = p->comms ? p->comms[i / p->shards.n] : NULL,
                  .shards = &p->shards,
                  .rank = p->comms ? i % p->shards.n : 0,
                  .world = p->world,
                  .world_rank = i,
                  .threads = part->threads,
                  .stop = mg_worker_is_own() ? &p->stop : NULL,
                  .finished = &part->finished};
    const double start = p->comms ? mg_seconds() : 0; /* timed on several devices only */
    const mg_status status = part->device->api->run(part->program, &run);
    if (p->comms) part->seconds += mg_seconds() - start;
    if (status != MG_OK) abort_all(p);
    return status;
}

/* The device's arena, which all plans share, because one runs at a time. A run beside the caller
 * uses an arena that the plan owns. So does a plan on a device whose thread is still in an
 * abandoned job, which may use the device's arena. */
static mg_status find_arena(const mg_plan *p, mg_part *part) {
    const size_t bytes = part->device->api->arena_bytes(part->program);
    const bool own = p->begun || mg_worker_has_abandoned(part->device);
    if (!own) return mg_device_arena(part->device, bytes, &part->arena);
    if (!part->own_arena && bytes) {
        MG_TRY(mg_device_alloc(part->device, bytes, &part->own_arena));
        part->own_bytes = bytes;
    }
    part->arena = part->own_arena;
    return MG_OK;
}

/* The arena and the result buffers of a run. */
static mg_status prepare_part(const mg_plan *p, int i) {
    mg_part *part = &p->parts[i];
    mg_status status = find_arena(p, part);
    for (int k = 0; k < part->lowered.graph.n_external && status == MG_OK; k++)
        if (part->lowered.externals[k].kind == MG_EXTERNAL_RESULT && !part->address[k])
            status = mg_part_new_buffer(part, k);
    return status;
}

/* The compute phase: a job of the device's worker. The job may start so late that its caller has
 * already given it up. */
static mg_status compute_part(void *plan, int i) {
    mg_plan *p = plan;
    const bool late = mg_worker_is_own() && atomic_load(&p->stop);
    const mg_status status = late ? mg_fail(MG_INTERRUPTED, "interrupted") : prepare_part(plan, i);
    if (status == MG_OK) return run_part(plan, i, MG_COMPUTE);
    abort_all(plan);
    return status;
}

/* The commit phase, likewise. Many parts have none. */
static mg_status commit_part(void *plan, int i) {
    const mg_kernel_graph *graph = &((mg_plan *)plan)->parts[i].lowered.graph;
    return graph->n_steps > graph->n_compute ? run_part(plan, i, MG_COMMIT) : MG_OK;
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
static char *rows_of_device(const mg_plan *p, int output, int k, size_t entry_bytes) {
    const int64_t unit = p->output_shapes[output].dim[0] / p->shards.rows;
    return (char *)p->whole[output]->data + (size_t)(p->shards.first[k] * unit) * entry_bytes;
}

/* A sharded output gets one buffer on the first device of its stage. A device that can address it
 * writes its rows there itself. */
static mg_status allocate_sharded_outputs(mg_plan *p) {
    for (int i = 0; i < p->n_outputs; i++) {
        if (!is_sharded_output(p, i)) continue;
        const mg_shape *shape = &p->output_shapes[i];
        const int lead = p->root_part[i];
        const mg_dtype t =
            p->parts[lead].lowered.externals[mg_part_external(&p->parts[lead], i)].dtype;
        const size_t bytes = (size_t)mg_shape_count(shape) * mg_dtype_size(t);
        const size_t row = shape->dim[0] ? bytes / (size_t)shape->dim[0] : 0;
        p->whole[i] = mg_buffer_new(p->parts[lead].device, bytes);
        if (!p->whole[i]) return mg_error_code();
        for (int k = 0; k < p->shards.n; k++) {
            mg_part *part = &p->parts[first_of_stage(p, lead) + k];
            const int e = mg_part_external(part, i);
            if (part->lowered.externals[e].kind == MG_EXTERNAL_RESULT && !part->address[e] &&
                can_address(part->device, p->parts[lead].device))
                part->address[e] = rows_of_device(p, i, k, row);
        }
    }
    return MG_OK;
}

/* Copies the rows that were not written in place. */
static mg_status gather_output(mg_plan *p, int output) {
    const int lead = p->root_part[output];
    mg_device *to = p->parts[lead].device;
    for (int k = 0; k < p->shards.n; k++) {
        const mg_part *part = &p->parts[first_of_stage(p, lead) + k];
        const int e = mg_part_external(part, output);
        const mg_shape *own = &part->lowered.externals[e].shape;
        const size_t bytes = external_bytes(&part->lowered.externals[e]);
        const size_t row = own->dim[0] ? bytes / (size_t)own->dim[0] : 0;
        char *home = rows_of_device(p, output, k, row);
        if (!bytes || part->address[e] == (void *)home) continue;
        MG_TRY(mg_device_copy(to, home, part->device, part->address[e], bytes));
    }
    return MG_OK;
}

mg_tensor *mg_part_value(mg_part *part, int external, mg_tensor *const *args) {
    const mg_external *e = &part->lowered.externals[external];
    if (part->buffer[external])
        return mg_tensor_from_buffer(part->buffer[external], e->dtype, &e->shape);
    if (e->kind == MG_EXTERNAL_ARGUMENT) return mg_tensor_retain(args[e->index]);
    if (e->kind == MG_EXTERNAL_VARIABLE)
        return mg_tensor_retain(mg_variable_on(e->variable, part->device));
    return mg_tensor_retain(e->tensor);
}

/* results[i] become owned value tensors. */
static mg_status collect_results(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    for (int i = 0; i < p->n_outputs; i++) {
        mg_part *part = &p->parts[p->root_part[i]];
        const int e = mg_part_external(part, i);
        if (is_sharded_output(p, i)) {
            MG_TRY(gather_output(p, i));
            results[i] = mg_tensor_from_buffer(p->whole[i], part->lowered.externals[e].dtype,
                                               &p->output_shapes[i]);
        } else {
            results[i] = mg_part_value(part, e, args);
        }
        if (!results[i]) return MG_OOM;
    }
    return MG_OK;
}

/* The error of guard i. */
static mg_status raise_guard(const mg_plan *p, int i) {
    if (p->guards[i].variables) return mg_new_values_raise(&p->guards[i]);
    return mg_fail(p->guards[i].code, "%s", p->guards[i].message);
}

/* Reads the byte of guard i, or of the verdict. After the commit phase (`behind`) no interrupt ends
 * the wait, because the step has happened. */
static mg_status read_guard(mg_plan *p, int i, bool behind, uint8_t *byte) {
    const int root = p->n_outputs + p->n_assigns + i;
    const mg_part *part = &p->parts[p->root_part[root]];
    mg_device *d = part->device;
    const void *at = part->address[mg_part_external(part, root)];
    return behind ? mg_device_read_through(d, byte, at, 1) : d->api->copy_out(d, byte, at, 1);
}

/* Checks the guards that are known after the compute phase or, with `behind`, after the commit
 * phase. A verdict that covers new values is known only after commit; if it reports another guard,
 * the old values were kept. The guards of the previous step are checked first: if one of them
 * failed, this step's values are void. */
static mg_status check_guards(mg_plan *p, bool behind) {
    uint8_t byte = 0;
    if (!behind) MG_TRY(mg_async_guards_wait(p->parts[0].device));
    if (p->verdict) {
        if (behind != p->checks_new_values) return MG_OK;
        MG_TRY(read_guard(p, 0, behind, &byte));
        if (!byte) return MG_OK;
        if (behind) mg_async_guards_reported(p->parts[0].device);
        return raise_guard(p, byte - 1);
    }
    for (int i = 0; i < p->n_guards; i++) {
        if (behind != (p->guards[i].variables != NULL)) continue;
        MG_TRY(read_guard(p, i, behind, &byte));
        if (!byte) return raise_guard(p, i);
    }
    return MG_OK;
}

/* ---- commit ---- */

/* After a commit phase with this status: notes which parts did not finish theirs. A device that is
 * lost may still finish it, too late. */
static void note_unfinished(mg_plan *p, mg_status status) {
    for (int k = 0; k < p->n_parts; k++) {
        const mg_status own = p->n_parts > 1 ? p->statuses[k] : status;
        const bool lost =
            (p->n_parts > 1 || p->on_worker) && mg_worker_has_abandoned(p->parts[k].device);
        p->parts[k].unfinished = lost || (own != MG_OK && !p->parts[k].finished);
    }
}

/* New values are bound even if a part fails: memory has changed. */
static mg_status run_commit(mg_plan *p) {
    for (int k = 0; k < p->n_parts; k++) p->parts[k].finished = false;
    const mg_status status = mg_plan_each(p, commit_part, NULL);
    note_unfinished(p, status);
    const mg_status said = status == MG_OK ? MG_OK : mg_commit_explain(p, status);
    mg_commit_bind(p);
    if (p->n_draws && !p->begun)
        mg_rng_take(p->n_draws); /* if begun, mg_plan_start has taken them */
    return said == MG_OK && p->checks_new_values ? check_guards(p, true) : said;
}

/* ---- a run ---- */

/* An asynchronous collective may have failed after it was started. */
static mg_status check_comms(const mg_plan *p) {
    for (int s = 0; p->comms && s < p->n_stages; s++) MG_TRY(p->comms[s]->api->check(p->comms[s]));
    return p->world ? p->world->api->check(p->world) : MG_OK;
}

/* Enqueues compute and commit together, then waits for the guards of the previous step, while the
 * device is at work on this one. If one of them has failed, this step has changed nothing either,
 * provided that it has guards itself. A step without guards waits before it starts. */
static mg_status run_at_once(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    mg_device *d = p->parts[0].device;
    MG_TRY(p->verdict ? mg_async_guards_make_room(d) : mg_async_guards_wait(d));
    MG_TRY(prepare_part(p, 0));
    MG_TRY(collect_results(p, args, results));
    MG_TRY(mg_commit_prepare(p, 0, args));
    p->parts[0].finished = false;
    const mg_status status = run_part(p, 0, MG_BOTH_PHASES);
    if (status != MG_OK && !p->parts[0].finished) return status; /* nothing is bound */
    note_unfinished(p, status);
    mg_commit_bind(p);
    if (status != MG_OK) return mg_commit_explain(p, status);
    MG_TRY(mg_async_guards_wait_or_stop(d));
    if (p->n_draws) mg_rng_take(p->n_draws);
    if (!p->verdict) return MG_OK;
    const void *verdict =
        p->parts[0].address[mg_part_external(&p->parts[0], p->n_outputs + p->n_assigns)];
    return mg_async_guards_start(d, p->guards, verdict, p->rng, p->n_draws);
}

/* Whether the caller should only wait while the device's worker runs the plan: the cpu device
 * blocks signals meanwhile, and Ctrl-C must not wait for a long run. A short run stays in the
 * calling thread, since handing it over takes about 20 us. Asynchronous devices do not compute in
 * the calling thread anyway. An injected fault may hang, so a run with one counts as long. */
static bool is_long(const mg_plan *p) {
    const mg_device_api *api = p->parts[0].device->api;
    if (p->n_parts > 1 || api->readback_wait || api->discards_data) return false;
    if (mg_device_is_lost(p->parts[0].device)) return false;
    const double speed = api->fuses ? 1 : 0.01; /* relative speed of the device's kernels */
    return p->work > LONG_WORK * speed || p->compute_seconds > LONG_SECONDS || mg_fault_planned();
}

/* The compute phase, on the thread or threads that it belongs to. */
static mg_status compute_all(mg_plan *p) {
    const bool timed = p->n_parts == 1 && p->work > TIMED_WORK;
    const double start = timed ? mg_seconds() : 0;
    MG_TRY(mg_plan_each(p, compute_part, &p->stop));
    if (timed) p->compute_seconds = mg_seconds() - start;
    return MG_OK;
}

/* An abandoned job of the last run may still be running and use the plan's memory: wait for it. */
static mg_status await_last_run(mg_plan *p) {
    if (!mg_abandoned_plan_is(p)) return MG_OK;
    for (int k = 0; k < p->n_parts; k++)
        MG_TRY(mg_worker_await_return(p->parts[k].device, mg_deadline()));
    mg_plan_reclaim_abandoned();
    return MG_OK;
}

/* Whether the calling thread can run the plan although its device may be lost, so that data on a
 * lost device stay usable. */
static bool can_run_here(const mg_plan *p, const mg_device *d) {
    return p->n_parts == 1 && !p->begun && !mg_device_out_of_reach(d) && !mg_threads_forked();
}

/* Checks the conditions of a run. An interrupt or a lost device stops it here. */
static mg_status start_run(mg_plan *p) {
    if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
    for (int k = 0; k < p->n_parts; k++)
        if (!can_run_here(p, p->parts[k].device)) MG_TRY(mg_device_check(p->parts[k].device));
    MG_TRY(await_last_run(p));
    for (int i = 0; i < p->n_guards; i++) MG_TRY(mg_new_values_usable(&p->guards[i]));
    atomic_store(&p->stop, false);
    p->on_worker = is_long(p);
    /* Allocated now, so that abandoning a job cannot fail for lack of memory. */
    if ((p->on_worker || p->begun) && !p->abandoned) p->abandoned = mg_abandoned_plan_new();
    return (p->on_worker || p->begun) && !p->abandoned ? MG_OOM : MG_OK;
}

static mg_status run_phases(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    MG_TRY(start_run(p));
    p->rng = mg_rng_get(); /* advanced only after the run has succeeded */
    if (p->verdict) MG_TRY(mg_async_guards_reset(p->parts[0].device));
    MG_TRY(bind_inputs(p, args));
    if (p->at_once) return run_at_once(p, args, results);
    MG_TRY(allocate_sharded_outputs(p));
    MG_TRY(compute_all(p));
    MG_TRY(check_guards(p, false));
    MG_TRY(collect_results(p, args, results));
    MG_TRY(check_comms(p));
    for (int k = 0; k < p->n_parts; k++) MG_TRY(mg_commit_prepare(p, k, args));
    return run_commit(p);
}

/* A plan has memory for one run only: MG_USAGE while a run is in progress beside the caller. */
static mg_status check_not_begun(const mg_plan *p) {
    if (!p->begun) return MG_OK;
    return mg_fail(MG_USAGE,
                   "%s: a submitted run of this function has not been waited for yet: call wait() "
                   "on its handle first",
                   p->parts[0].device->name);
}

/* Releases the results of a failed run, so that the caller has all or none. */
static void drop_results(const mg_plan *p, mg_tensor **results) {
    for (int i = 0; i < p->n_outputs; i++) {
        mg_tensor_release(results[i]);
        results[i] = NULL;
    }
}

/* Of the plan's devices, the one with the lowest address above `after`; NULL: there is none. */
static mg_device *next_device(const mg_plan *p, const mg_device *after) {
    mg_device *next = NULL;
    for (int i = 0; i < p->n_parts; i++) {
        mg_device *d = p->parts[i].device;
        if ((uintptr_t)d > (uintptr_t)after && (!next || (uintptr_t)d < (uintptr_t)next)) next = d;
    }
    return next;
}

/* Locks the devices of a plan. All threads lock in the same order, which avoids deadlocks. */
static void take_turns(const mg_plan *p) {
    for (mg_device *d = next_device(p, NULL); d; d = next_device(p, d))
        pthread_mutex_lock(&d->turn);
}

static void end_turns(const mg_plan *p) {
    for (mg_device *d = next_device(p, NULL); d; d = next_device(p, d))
        pthread_mutex_unlock(&d->turn);
}

mg_status mg_plan_execute(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    for (int i = 0; i < p->n_outputs; i++) results[i] = NULL;
    MG_TRY(check_not_begun(p));
    take_turns(p);
    p->args = args; /* for mg_plan_each, if the plan must be abandoned */
    const mg_status status = run_phases(p, args, results);
    p->args = NULL;
    if (status != MG_OK) drop_results(p, results);
    if (!mg_abandoned_plan_is(p)) mg_plan_clear_run(p); /* else a lost thread may still use it */
    end_turns(p);
    return status;
}

/* ---- a run in two halves ---- */

/* The random numbers are taken here, because the caller may draw others before mg_plan_end; but
 * only when nothing can refuse the run any more. */
mg_status mg_plan_start(mg_plan *p, mg_tensor *const *args) {
    if (p->n_parts > 1)
        return mg_fail(MG_UNSUPPORTED,
                       "submit: this step computes on %d devices, but only a step on one device "
                       "can run beside others: call it instead",
                       p->n_parts);
    MG_TRY(check_not_begun(p));
    p->begun = true;
    mg_status status = start_run(p);
    p->rng = mg_rng_get();
    if (status == MG_OK && p->verdict) status = mg_async_guards_reset(p->parts[0].device);
    if (status == MG_OK) status = bind_inputs(p, args);
    if (status == MG_OK) status = mg_worker_begin(p->parts[0].device, compute_part, p, 0);
    if (status == MG_OK) {
        if (p->n_draws) mg_rng_take(p->n_draws);
        return MG_OK;
    }
    if (!mg_abandoned_plan_is(p)) mg_plan_clear_run(p);
    p->begun = false;
    return status;
}

/* Between mg_plan_begin and mg_plan_end. */
bool mg_plan_begun(const mg_plan *p) {
    return p->begun;
}

bool mg_plan_done(const mg_plan *p) {
    return mg_worker_done(p->parts[0].device, mg_deadline());
}

/* Waits for the job that was begun. If the wait ends early, or the device is lost, the plan is
 * abandoned. */
static mg_status end_job(mg_plan *p, mg_tensor *const *args) {
    mg_device *d = p->parts[0].device;
    char *message = NULL;
    const mg_status status = mg_worker_end(d, mg_deadline(), &p->stop, &message);
    if (status != MG_OK) mg_device_fail(d, status, message);
    mg_free(message);
    if (mg_worker_has_abandoned(d)) mg_abandoned_plan_add(p, args);
    return status;
}

/* The run is over; its buffers are released, unless a thread may still use them. */
static void finish_run(mg_plan *p) {
    p->args = NULL;
    if (!mg_abandoned_plan_is(p)) mg_plan_clear_run(p);
    p->begun = false;
}

/* As in mg_plan_execute from the guards on; draws were taken at the start. */
mg_status mg_plan_end(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    for (int i = 0; i < p->n_outputs; i++) results[i] = NULL;
    p->args = args;
    mg_status status = end_job(p, args);
    if (status == MG_OK) status = check_guards(p, false);
    if (status == MG_OK) status = collect_results(p, args, results);
    if (status == MG_OK) status = mg_commit_prepare(p, 0, args);
    if (status == MG_OK) status = run_commit(p);
    if (status != MG_OK) drop_results(p, results);
    finish_run(p);
    return status;
}

/* Raises nothing: it may be called after an error, whose message must stay. */
void mg_plan_cancel(mg_plan *p, mg_tensor *const *args) {
    mg_device *d = p->parts[0].device;
    char *message;
    atomic_store(&p->stop, true);
    mg_worker_end(d, mg_deadline(), &p->stop, &message);
    mg_free(message);
    if (mg_worker_has_abandoned(d)) mg_abandoned_plan_add(p, args);
    finish_run(p);
}

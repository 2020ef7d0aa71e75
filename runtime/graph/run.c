/* Running a plan: compute, then guards, then commit.
 *
 * Until the commit phase begins, nothing outside the arenas and new result buffers has changed, so
 * any failure leaves every variable as it was. The memory of the commit phase (new buffers for
 * variables whose value is also held elsewhere) is allocated before it begins. With several parts,
 * a phase starts on a device when all devices have finished the one before.
 *
 * Asynchronous devices are an exception (run_at_once): both phases are enqueued together, on all
 * devices at the same time, and guards are answered later. See async_guards.h. */
#include "core/activity.h"
#include "core/alloc.h"
#include "core/context.h"
#include "core/log.h"
#include "core/threads.h"
#include "device/fault.h"
#include "device/worker.h"
#include "graph/abandoned.h"
#include "graph/async_guards.h"
#include "graph/execution.h"
#include "graph/joint.h"
#include "graph/new_values.h"
#include "world/world.h"
#include <stdio.h>

/* A run on one device is long if it has more than LONG_WORK operations (device/work.h), or if its
 * last run took more than LONG_SECONDS. Runs with more than TIMED_WORK operations are timed. */
static const double LONG_WORK = 4e9, LONG_SECONDS = 0.05, TIMED_WORK = 4e6;

/* ---- compute ---- */

/* Wakes the devices that wait in a collective for one whose run has failed. */
static void abort_all(const mg_plan *p) {
    for (int s = 0; p->comms && s < p->n_stages; s++) p->comms[s]->api->abort(p->comms[s]);
    if (p->world) p->world->api->abort(p->world);
}

/* One phase of the part's program, on the calling thread. */
static mg_status run_part(mg_execution *e, int i, mg_phase phase) {
    const mg_plan *p = e->plan;
    const mg_part *part = &p->parts[i];
    mg_part_run *own = &e->parts[i];
    mg_run run = {.device = part->device,
                  .first = part->step_first,
                  .rng = e->rng,
                  .draws = p->n_draws,
                  .phase = phase,
                  .external = own->address,
                  .arena = own->arena,
                  .kept = own->kept,
                  .comm = p->comms ? p->comms[i / mg_plan_stage_width(p)] : NULL,
                  .shards = &p->shards,
                  .rank = mg_plan_rank(p, i),
                  .world = p->world,
                  .world_rank = i,
                  .n_stage = mg_plan_stage_width(p),
                  .threads = part->threads,
                  .stop = mg_worker_is_own() ? &e->stop : NULL,
                  .finished = &own->finished};
    const double start = p->comms ? mg_seconds() : 0; /* timed on several devices only */
    static const char *const names[] = {[MG_COMPUTE] = "compute",
                                        [MG_COMMIT] = "commit",
                                        [MG_BOTH_PHASES] = "compute and commit",
                                        [MG_PREPARE] = "prepare"};
    const int depth = mg_activity_enter(
        &(mg_span){.kind = MG_SPAN_STEP, .what = names[phase], .device = part->device->name});
    const mg_status status = part->device->api->run(part->program, &run);
    mg_activity_leave(depth);
    if (p->comms) own->seconds += mg_seconds() - start;
    if (status != MG_OK) abort_all(p);
    return status;
}

/* The device's arena, which all plans share, because one runs at a time. A run beside the caller
 * uses an arena of its execution. So does a plan on a device whose thread is still in an abandoned
 * job, which may use the device's arena. */
static mg_status find_arena(mg_execution *e, int i) {
    const mg_part *part = &e->plan->parts[i];
    mg_part_run *run = &e->parts[i];
    const size_t bytes = part->device->api->arena_bytes(part->program);
    const bool own = e->begun || mg_worker_has_abandoned(part->device);
    if (!own) return mg_device_arena(part->device, bytes, &run->arena);
    if (!run->own_arena && bytes) {
        MG_TRY(mg_device_alloc(part->device, bytes, &run->own_arena));
        run->own_bytes = bytes;
    }
    run->arena = run->own_arena;
    return MG_OK;
}

/* The arena and the result buffers of a run. */
static mg_status prepare_part(mg_execution *e, int i) {
    MG_TRY(find_arena(e, i));
    return mg_run_allocate_results(e, i);
}

/* The values of a frozen plan that depend on variables only, if a variable has changed since they
 * were made. Memory is taken at the first run. */
static mg_status make_kept_values(mg_execution *e, int i) {
    const mg_part *part = &e->plan->parts[i];
    mg_part_run *run = &e->parts[i];
    if (e->prepared || !part->device->api->kept_bytes) return MG_OK;
    const size_t bytes = part->device->api->kept_bytes(part->program);
    if (!run->kept && bytes) {
        MG_TRY(mg_device_alloc(part->device, bytes, &run->kept));
        run->kept_bytes = bytes;
    }
    MG_TRY(run_part(e, i, MG_PREPARE));
    e->prepared = true;
    return MG_OK;
}

/* The compute phase: a job of the device's worker. The job may start so late that its caller has
 * already given it up. */
static mg_status compute_part(void *execution, int i) {
    mg_execution *e = execution;
    const bool late = mg_worker_is_own() && atomic_load(&e->stop);
    const bool ready = e->plan->joint; /* prepare_run has done it */
    mg_status status = late    ? mg_fail(MG_INTERRUPTED, "interrupted")
                       : ready ? MG_OK
                               : prepare_part(e, i);
    if (status == MG_OK && e->plan->frozen) status = make_kept_values(e, i);
    if (status == MG_OK) return run_part(e, i, MG_COMPUTE);
    abort_all(e->plan);
    return status;
}

/* The commit phase, likewise. Many parts have none. */
static mg_status commit_part(void *execution, int i) {
    mg_execution *e = execution;
    const mg_kernel_graph *graph = &e->plan->parts[i].lowered.graph;
    return graph->n_steps > graph->n_compute ? run_part(e, i, MG_COMMIT) : MG_OK;
}

/* ---- guards ---- */

/* The error of guard i. */
static mg_status raise_guard(const mg_plan *p, int i) {
    p->execution->refused = true;
    if (p->guards[i].variables) return mg_new_values_raise(&p->guards[i]);
    return mg_fail(p->guards[i].code, "%s", p->guards[i].message);
}

/* Reads the byte of guard i, or of the verdict. After the commit phase (`behind`) no interrupt ends
 * the wait, because the step has happened. */
static mg_status read_guard(const mg_execution *e, int i, bool behind, uint8_t *byte) {
    const mg_plan *p = e->plan;
    const int root = p->n_outputs + p->n_assigns + i, k = p->root_part[root];
    mg_device *d = p->parts[k].device;
    const void *at = e->parts[k].address[mg_part_external(&p->parts[k], root)];
    return behind ? mg_device_read_through(d, byte, at, 1) : d->api->copy_out(d, byte, at, 1);
}

/* Checks the guards that are known after the compute phase or, with `behind`, after the commit
 * phase. A verdict that covers new values is known only after commit; if it reports another guard,
 * the old values were kept. The guards of the previous step are checked first: if one of them
 * failed, this step's values are void. */
static mg_status read_guards(const mg_execution *e, bool behind) {
    const mg_plan *p = e->plan;
    uint8_t byte = 0;
    mg_device *d = p->parts[0].device;
    if (!behind) MG_TRY(mg_async_guards_wait(d));
    if (p->verdict) {
        if (!behind && p->n_parts > 1) MG_TRY(d->api->sync(d)); /* an interrupt can end it here */
        if (behind != p->checks_new_values) return MG_OK;
        MG_TRY(read_guard(e, 0, behind, &byte));
        if (!byte) return MG_OK;
        if (behind) mg_async_guards_reported(d);
        if (byte == MG_NOT_AGREED) return mg_async_guards_disagree();
        return raise_guard(p, byte - 1);
    }
    for (int i = 0; i < p->n_guards; i++) {
        if (behind != (p->guards[i].variables != NULL)) continue;
        MG_TRY(read_guard(e, i, behind, &byte));
        if (!byte) return raise_guard(p, i);
    }
    return MG_OK;
}

static mg_status check_guards(const mg_execution *e, bool behind) {
    if (!e->plan->n_guards && !e->plan->parts[0].device->guards) return MG_OK;
    const int depth = mg_activity_begin(MG_SPAN_STEP, "guards");
    const mg_status status = read_guards(e, behind);
    mg_activity_leave(depth);
    return status;
}

/* ---- commit ---- */

/* After a commit phase with this status: notes which parts did not finish theirs. A device that is
 * lost may still finish it, too late. */
static void note_unfinished(mg_execution *e, mg_status status) {
    const mg_plan *p = e->plan;
    for (int k = 0; k < p->n_parts; k++) {
        const mg_status own = p->n_parts > 1 ? e->statuses[k] : status;
        const bool lost =
            (p->n_parts > 1 || e->on_worker) && mg_worker_has_abandoned(p->parts[k].device);
        e->parts[k].unfinished = lost || (own != MG_OK && !e->parts[k].finished);
    }
}

/* New values are bound even if a part fails: memory has changed. */
static mg_status run_commit(mg_execution *e) {
    const mg_plan *p = e->plan;
    for (int k = 0; k < p->n_parts; k++) e->parts[k].finished = false;
    const mg_status status = mg_execution_each(e, commit_part, NULL);
    note_unfinished(e, status);
    const mg_status said = status == MG_OK ? MG_OK : mg_commit_explain(e, status);
    mg_commit_bind(e);
    if (p->n_draws && !e->begun)
        mg_rng_take(p->n_draws); /* if begun, mg_plan_start has taken them */
    return said == MG_OK && p->checks_new_values ? check_guards(e, true) : said;
}

/* ---- a run ---- */

/* An asynchronous collective may have failed after it was started. */
static mg_status check_comms(const mg_plan *p) {
    for (int s = 0; p->comms && s < p->n_stages; s++) MG_TRY(p->comms[s]->api->check(p->comms[s]));
    return p->world ? p->world->api->check(p->world) : MG_OK;
}

/* A job of the device's worker, if there are several. */
static mg_status enqueue_part(void *execution, int i) {
    return run_part(execution, i, MG_BOTH_PHASES);
}

static const void *verdict_of(const mg_execution *e, int k) {
    const mg_plan *p = e->plan;
    return e->parts[k].address[mg_part_external(&p->parts[k], p->n_outputs + p->n_assigns)];
}

/* Whether the part has been enqueued to its end, and its device has then found all in agreement.
 * Waits for the device. */
static bool has_committed(const mg_execution *e, int k) {
    mg_device *d = e->plan->parts[k].device;
    uint8_t verdict = MG_NOT_AGREED;
    if (!e->plan->verdict || !e->parts[k].finished || mg_worker_has_abandoned(d) ||
        mg_device_out_of_reach(d))
        return false;
    return mg_device_read_through(d, &verdict, verdict_of(e, k), 1) == MG_OK && verdict == 0;
}

/* Several devices, of which one has failed to start its part, so that the communicator is aborted.
 * Usually the others then do not agree, and nothing has changed. But they may have agreed before:
 * then the step counts, and the devices that did not come so far are left out. Of failures, one of
 * an earlier step counts first. */
static mg_status end_failed(mg_execution *e, mg_status status) {
    const mg_plan *p = e->plan;
    mg_device *d = p->parts[0].device;
    char message[MG_ERROR_BYTES];
    bool committed = false;
    snprintf(message, sizeof message, "%s", mg_error_message());
    abort_all(p);
    for (int k = 0; k < p->n_parts; k++) {
        e->parts[k].unfinished = !has_committed(e, k);
        committed |= !e->parts[k].unfinished;
    }
    const mg_status before = mg_async_guards_wait_or_stop(d);
    if (p->verdict) mg_async_guards_reported(d);
    if (before != MG_OK && before != MG_DEVICE && before != MG_COMM) return before;
    mg_fail(status, "%s", message);
    if (!committed) return status;
    status = mg_commit_explain(e, status);
    mg_commit_bind(e);
    if (p->n_draws) mg_rng_take(p->n_draws);
    return status;
}

/* On all devices; waits for none of them. */
static mg_status enqueue_all(mg_execution *e) {
    const mg_plan *p = e->plan;
    for (int k = 0; k < p->n_parts; k++) e->parts[k].finished = false;
    if (p->n_parts == 1) return enqueue_part(e, 0);
    MG_TRY(mg_execution_each(e, enqueue_part, NULL));
    MG_TRY(check_comms(p));
    return mg_run_gather_results(e);
}

/* What the run needs on the host, before it is enqueued. */
static mg_status prepare_at_once(mg_execution *e, mg_tensor **results) {
    const mg_plan *p = e->plan;
    mg_device *d = p->parts[0].device;
    MG_TRY(p->verdict ? mg_async_guards_make_room(d) : mg_async_guards_wait(d));
    MG_TRY(mg_run_allocate_outputs(e));
    for (int k = 0; k < p->n_parts; k++) MG_TRY(prepare_part(e, k));
    MG_TRY(mg_run_collect_results(e, results));
    for (int k = 0; k < p->n_parts; k++) MG_TRY(mg_commit_prepare(e, k));
    return MG_OK;
}

/* Enqueues compute and commit together, then waits for the guards of the previous step, while the
 * devices are at work on this one. If one of them has failed, this step has changed nothing either,
 * provided that it has guards itself. A step without guards waits before it starts. */
static mg_status run_at_once(mg_execution *e, mg_tensor **results) {
    const mg_plan *p = e->plan;
    mg_device *d = p->parts[0].device;
    MG_TRY(prepare_at_once(e, results));
    const mg_status status = enqueue_all(e);
    if (status != MG_OK && p->n_parts > 1) return end_failed(e, status);
    if (status != MG_OK && !e->parts[0].finished) return status; /* nothing is bound */
    note_unfinished(e, status);
    mg_commit_bind(e);
    if (status != MG_OK) return mg_commit_explain(e, status);
    MG_TRY(mg_async_guards_wait_or_stop(d));
    if (p->n_draws) mg_rng_take(p->n_draws);
    if (!p->verdict) return MG_OK;
    for (int k = 0; k < p->n_parts; k++) p->parts[k].device->judge = k > 0 ? d : NULL;
    return mg_async_guards_start(d, p->guards, verdict_of(e, 0), e->rng, p->n_draws);
}

/* Waits for verdicts about earlier work of the devices, but not for those that this run waits for
 * itself. */
static mg_status enter_devices(const mg_plan *p) {
    const mg_device *judge = p->parts[0].device;
    for (int k = 0; k < p->n_parts; k++)
        MG_TRY(mg_async_guards_enter(p->parts[k].device, p->at_once || !k ? judge : NULL));
    return MG_OK;
}

/* Whether the caller should only wait while the device's worker runs the plan: the cpu device
 * blocks signals meanwhile, and Ctrl-C must not wait for a long run. A short run stays in the
 * calling thread, since handing it over takes about 20 us. Asynchronous devices do not compute in
 * the calling thread anyway. An injected fault may hang, so a run with one counts as long. */
static bool is_long(const mg_execution *e) {
    const mg_plan *p = e->plan;
    const mg_device_api *api = p->parts[0].device->api;
    if (p->n_parts > 1 || api->readback_wait || api->discards_data) return false;
    if (mg_device_is_lost(p->parts[0].device)) return false;
    const double speed = api->fuses ? 1 : 0.01; /* relative speed of the device's kernels */
    return p->work > LONG_WORK * speed || e->compute_seconds > LONG_SECONDS || mg_fault_planned();
}

/* The compute phase, on the thread or threads that it belongs to. */
static mg_status compute_all(mg_execution *e) {
    const bool timed = e->plan->n_parts == 1 && e->plan->work > TIMED_WORK;
    const double start = timed ? mg_seconds() : 0;
    MG_TRY(mg_execution_each(e, compute_part, &e->stop));
    if (timed) e->compute_seconds = mg_seconds() - start;
    return MG_OK;
}

/* An abandoned job of the last run may still be running and use the execution's memory: wait for
 * it. */
static mg_status await_last_run(const mg_execution *e) {
    const mg_plan *p = e->plan;
    if (!mg_abandoned_is(e)) return MG_OK;
    for (int k = 0; k < p->n_parts; k++)
        MG_TRY(mg_worker_await_return(p->parts[k].device, mg_deadline()));
    mg_plan_reclaim_abandoned();
    return MG_OK;
}

/* Whether the calling thread can run the plan although its device may be lost, so that data on a
 * lost device stay usable. */
static bool can_run_here(const mg_execution *e, const mg_device *d) {
    return e->plan->n_parts == 1 && !e->begun && !mg_device_out_of_reach(d) && !mg_threads_forked();
}

/* Forgets the kept values of a frozen plan if one of its variables has changed. One number tells
 * that none of the process has, as in most runs. */
static void check_kept_values(mg_execution *e) {
    const uint64_t changes = mg_variables_changes();
    if (e->prepared && e->changes == changes) return;
    const mg_lowered *l = &e->plan->parts[0].lowered;
    uint64_t sum = 0; /* each term only grows */
    for (int i = 0; i < l->graph.n_external; i++)
        if (l->externals[i].kind == MG_EXTERNAL_VARIABLE)
            sum += l->externals[i].variable->n_changes;
    e->prepared = e->prepared && sum == e->prepared_of;
    e->prepared_of = sum;
    e->changes = changes;
}

/* Checks the conditions of a run, and binds what it is given. An interrupt or a lost device stops
 * it here. */
static mg_status start_run(mg_execution *e) {
    const mg_plan *p = e->plan;
    if (p->absent) return mg_fail(MG_USAGE, "a step of devices that are not there cannot run");
    if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
    for (int k = 0; k < p->n_parts; k++)
        if (!can_run_here(e, p->parts[k].device)) MG_TRY(mg_device_check(p->parts[k].device));
    MG_TRY(await_last_run(e));
    e->refused = true;
    for (int i = 0; i < p->n_guards; i++) MG_TRY(mg_new_values_usable(&p->guards[i]));
    e->refused = false;
    if (p->joint) MG_TRY(mg_world_check());
    atomic_store(&e->stop, false);
    e->on_worker = is_long(e);
    if (e->on_worker || e->begun) MG_TRY(mg_abandoned_allow(e));
    if (p->frozen) check_kept_values(e);
    e->rng = mg_rng_get(); /* advanced only after the run has succeeded */
    MG_TRY(enter_devices(p));
    if (p->verdict) MG_TRY(mg_async_guards_reset(p->parts[0].device));
    return mg_run_bind_inputs(e);
}

/* From the end of the compute phase on. Nothing of this rank can keep it from committing once it
 * has agreed with the others. */
static mg_status finish_phases(mg_execution *e, mg_tensor **results) {
    MG_TRY(check_guards(e, false));
    MG_TRY(mg_run_gather_results(e));
    MG_TRY(mg_run_collect_results(e, results));
    MG_TRY(check_comms(e->plan));
    for (int k = 0; k < e->plan->n_parts; k++) MG_TRY(mg_commit_prepare(e, k));
    if (e->plan->joint) MG_TRY(mg_joint_agree());
    return run_commit(e);
}

/* The memory of the compute phase. In a joint plan all of it comes before the first message to the
 * other ranks: without enough, the run may be repeated, and they only wait meanwhile. */
static mg_status prepare_run(mg_execution *e) {
    const mg_plan *p = e->plan;
    mg_status status = mg_run_allocate_outputs(e);
    for (int k = 0; p->joint && k < p->n_parts && status == MG_OK; k++) status = prepare_part(e, k);
    e->refused = status == MG_OOM;
    if (status != MG_OK || !p->joint) return status;
    MG_TRY(mg_joint_meet(p, &e->refused));
    mg_world_at_step();
    return MG_OK;
}

static mg_status run_phases(mg_execution *e, mg_tensor **results) {
    MG_TRY(start_run(e));
    if (e->plan->at_once) return run_at_once(e, results);
    MG_TRY(prepare_run(e));
    MG_TRY(compute_all(e));
    return finish_phases(e, results);
}

/* A plan has memory for one run only: MG_USAGE while a run is in progress beside the caller. */
static mg_status check_not_begun(const mg_plan *p) {
    if (!p->execution->begun) return MG_OK;
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

/* The run is over; its buffers are released, unless a thread may still use them. */
static void end_run(mg_execution *e) {
    e->args = NULL;
    if (!mg_abandoned_is(e)) mg_execution_clear(e);
    e->begun = false;
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
    mg_execution *e = p->execution;
    take_turns(p);
    e->args = args;
    e->refused = false;
    const int depth = mg_activity_enter(
        &(mg_span){.kind = MG_SPAN_STEP, .what = "step", .origin = mg_context_get()->origin});
    const mg_status status = run_phases(e, results);
    mg_activity_leave(depth);
    if (status != MG_OK) drop_results(p, results);
    if (status != MG_OK && p->joint && !e->refused) mg_world_fail(mg_error_message());
    end_run(e);
    end_turns(p);
    return status;
}

void mg_plan_give_up(const mg_plan *p) {
    if (p->joint) mg_world_fail(mg_error_message());
}

/* ---- a run in two halves ---- */

/* The random numbers are taken here, because the caller may draw others before mg_plan_end; but
 * only when nothing can refuse the run any more. */
mg_status mg_plan_start(mg_plan *p, mg_tensor *const *args) {
    if (p->joint)
        return mg_fail(MG_UNSUPPORTED, "submit: a step that several processes share cannot run "
                                       "beside others: call it instead");
    if (p->n_parts > 1)
        return mg_fail(MG_UNSUPPORTED,
                       "submit: this step computes on %d devices, but only a step on one device "
                       "can run beside others: call it instead",
                       p->n_parts);
    MG_TRY(check_not_begun(p));
    mg_execution *e = p->execution;
    e->begun = true;
    e->args = args;
    mg_status status = start_run(e);
    if (status == MG_OK) status = mg_worker_begin(p->parts[0].device, compute_part, e, 0);
    e->args = NULL; /* the inputs are bound */
    if (status != MG_OK) end_run(e);
    if (status == MG_OK && p->n_draws) mg_rng_take(p->n_draws);
    return status;
}

/* Between mg_plan_begin and mg_plan_end. */
bool mg_plan_begun(const mg_plan *p) {
    return p->execution->begun;
}

bool mg_plan_done(const mg_plan *p) {
    return mg_worker_done(p->parts[0].device, mg_deadline());
}

/* Waits for the job that was begun. If the wait ends early, or the device is lost, the execution is
 * abandoned. *message is owned. */
static mg_status end_job(mg_execution *e, char **message) {
    mg_device *d = e->plan->parts[0].device;
    const mg_status status = mg_worker_end(d, mg_deadline(), &e->stop, message);
    if (mg_worker_has_abandoned(d)) mg_abandoned_add(e);
    return status;
}

/* As in mg_plan_execute from the guards on; draws were taken at the start. */
mg_status mg_plan_end(mg_plan *p, mg_tensor *const *args, mg_tensor **results) {
    mg_execution *e = p->execution;
    char *message = NULL;
    for (int i = 0; i < p->n_outputs; i++) results[i] = NULL;
    e->args = args;
    mg_status status = end_job(e, &message);
    if (status != MG_OK) mg_device_fail(p->parts[0].device, status, message);
    mg_free(message);
    if (status == MG_OK) status = finish_phases(e, results);
    if (status != MG_OK) drop_results(p, results);
    end_run(e);
    return status;
}

/* Raises nothing: it may be called after an error, whose message must stay. */
void mg_plan_cancel(mg_plan *p, mg_tensor *const *args) {
    mg_execution *e = p->execution;
    char *message = NULL;
    e->args = args;
    atomic_store(&e->stop, true);
    end_job(e, &message);
    mg_free(message);
    end_run(e);
}

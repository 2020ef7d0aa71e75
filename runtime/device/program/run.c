/* Running host programs: binding addresses, calling kernels and communicators in order, and queries
 * for devices that record calls. A run changes nothing in the program. */
#include "core/alloc.h"
#include "core/profile.h"
#include "core/threads.h"
#include "device/fault.h"
#include "device/program/program.h"
#include "device/program/host_program.h"
#include "world/world.h"
#include <stdio.h>

void mg_program_drop_call(mg_program_call *k) {
    if (k->plan.state && k->kernel && k->kernel->release) k->kernel->release(k->plan.state);
    mg_free(k->plan.in);
}

/* A program owns its calls and two arrays; slots are plain data. */
void mg_program_release(mg_program *p) {
    if (!p) return;
    for (int i = 0; i < p->n_calls; i++) mg_program_drop_call(&p->calls[i]);
    mg_free(p->calls);
    mg_free(p->slots);
    mg_free(p->merged);
    mg_free(p);
}

size_t mg_program_arena_bytes(const mg_program *p) {
    return p->arena_bytes;
}

size_t mg_program_kept_bytes(const mg_program *p) {
    return p->kept_bytes;
}

/* ---- binding a call to addresses ---- */

/* Where a slot lies in this run. */
static void *slot_address(const mg_program *p, int index, const mg_run *run) {
    const mg_slot *s = &p->slots[index];
    if (s->inside >= 0) return (char *)slot_address(p, s->inside, run) + s->offset;
    if (s->external >= 0) return run->external[s->external];
    return (char *)(s->kept ? run->kept : run->arena) + s->block.offset;
}

/* Key and ordinal of a random step's draw; for other steps the random state of the run. */
static mg_rng_state rng_of(const mg_step *s, const mg_run *run) {
    if (!s || !s->op || !(s->op->flags & MG_OP_RANDOM)) return run->rng;
    if (s->draw_relative) return (mg_rng_state){run->rng.seed, run->rng.base + s->draw};
    return (mg_rng_state){s->seed, s->draw};
}

/* The position of a draw's first element in the whole draw: devices that share the rows of one
 * batch start at different ones. */
static int64_t first_of(const mg_program *p, const mg_step *s, const mg_run *run) {
    if (!s) return 0;
    return run->first ? run->first[s - p->steps] : s->first;
}

/* The call of k with its addresses, which are written to `pointers`. */
static mg_call bound_call(const mg_program *p, const mg_program_call *k, const mg_run *run,
                          void **pointers) {
    for (int i = 0; i < k->n_in; i++) pointers[i] = slot_address(p, k->in[i], run);
    for (int i = 0; i < k->n_out; i++) pointers[k->n_in + i] = slot_address(p, k->out[i], run);
    return (mg_call){.plan = &k->plan,
                     .in = pointers,
                     .out = pointers + k->n_in,
                     .scratch = k->scratch >= 0 ? slot_address(p, k->scratch, run) : NULL,
                     .rng = rng_of(k->plan.step, run),
                     .first = first_of(p, k->plan.step, run),
                     .stoppable = k < p->calls + p->n_compute ? run : NULL};
}

/* ---- running ---- */

/* Before the launch: results of reductions that are still under way, as far as it reads them. Of a
 * collective's operands only the first is read. */
static mg_status settle_inputs(const mg_program *p, const mg_program_call *k, const mg_run *run) {
    mg_memory read[MG_MOST_POINTERS];
    int n = 0;
    const bool collective = k->kernel == &mg_collective_kernel;
    if (!run->comm || !run->comm->api->settle) return MG_OK;
    for (int c = 0; c < k->launch_count; c++)
        for (int i = 0; i < (collective ? 1 : k[c].n_in); i++)
            read[n++] =
                (mg_memory){slot_address(p, k[c].in[i], run), p->slots[k[c].in[i]].block.bytes};
    return n ? run->comm->api->settle(run->comm, run->rank, read, n) : MG_OK;
}

/* Runs the launch that starts at call k. The addresses are on the stack, because several threads
 * may run the program at once. */
static mg_status run_launch(const mg_program *p, const mg_program_call *k, const mg_run *run) {
    MG_TRY(settle_inputs(p, k, run));
    mg_call calls[MG_MAX_LAUNCH];
    void *pointers[MG_MOST_POINTERS], **next = pointers;
    const int n = k->launch_count;
    for (int i = 0; i < n; next += k[i].n_in + k[i].n_out, i++)
        calls[i] = bound_call(p, k + i, run, next);
    if (k->kernel == &mg_collective_kernel) return mg_collective_run(p->set, calls, n, run);
    if (k->kernel == &mg_loop_kernel) return mg_loop_run(calls, run);
    return n > 1 ? k->kernel->run_many(calls, n) : k->kernel->run(calls);
}

/* For injected faults: whether the other devices have stopped waiting for this one. */
static bool others_gave_up(void *comm) {
    mg_comm *c = comm;
    return !c || c->api->check(c) != MG_OK;
}

/* For messages and for choosing the step that a fault is injected at. */
static const char *step_name(const mg_step *s) {
    return !s ? "reorder" : s->op ? s->op->name : "fused";
}

/* Runs a launch, or fails as a test has planned it (device/fault.h). Stores the op's name in the
 * device, for messages about lost devices, and puts the name before messages of the device. */
static mg_status run_with_faults(const mg_program *p, const mg_program_call *k, const mg_run *run) {
    const char *name = step_name(k->plan.step);
    mg_status status = MG_OK;
    if (run->stop) { /* on the device's worker, which the watchdog observes */
        atomic_store_explicit(&run->device->at, name, memory_order_relaxed);
        atomic_fetch_add_explicit(&run->device->progress, 1, memory_order_relaxed);
    }
    if (run->comm) mg_world_at_op(name);
    if (mg_fault_planned())
        status = mg_fault_check(run->device, name, k >= p->calls + p->n_compute, others_gave_up,
                                run->comm);
    if (status == MG_OK) status = run_launch(p, k, run);
    if (status == MG_DEVICE) mg_error_prefix(name);
    return status;
}

/* A collective waits for the other devices' threads, unless its communicator only enqueues work. */
static bool call_waits(const mg_program_call *k, const mg_run *run) {
    if (k->kernel->waits) return true;
    if (k->kernel == &mg_loop_kernel) return mg_loop_waits(&k->plan);
    if (k->kernel != &mg_collective_kernel || !run->comm) return false;
    return !mg_collective_comm(k->plan.step, run)->api->recorded;
}

/* The launch as a span of the thread. Collectives are numbered in the order of the program, which
 * is the same on all devices. */
static mg_status run_as_span(const mg_program *p, const mg_program_call *k, const mg_run *run,
                             int64_t collective) {
    const mg_step *s = k->plan.step;
    const bool loop = k->kernel == &mg_loop_kernel; /* its launches are spans in it */
    mg_span span = {.kind = collective ? MG_SPAN_COLLECTIVE
                            : loop     ? MG_SPAN_STEP
                                       : MG_SPAN_LAUNCH,
                    .what = step_name(s),
                    .device = run->device->name,
                    .origin = s ? s->origin : (mg_origin){0},
                    .number = collective,
                    .flops = k->flops,
                    .bytes = k->bytes};
    const bool enqueues =
        p->set->stamp && mg_profile_is_on() && !loop && !call_waits(k, run) && !mg_fault_planned();
    const bool stamped = enqueues && p->set->stamp(run->device, &span);
    if (stamped) span.kind = MG_SPAN_STEP; /* here the launch is only begun */
    const int depth = mg_activity_enter(&span);
    const mg_status status = run_with_faults(p, k, run);
    if (stamped) p->set->stamp(run->device, NULL);
    mg_activity_leave(depth);
    return status;
}

/* The number of the collectives among the launches before `first`. */
static int64_t collectives_before(const mg_program *p, int first) {
    int64_t n = 0;
    for (int i = 0; i < first; i += p->calls[i].launch_count)
        n += p->calls[i].kernel == &mg_collective_kernel;
    return n;
}

/* Runs the launches [first, last) of the compute phase, or records launches of either phase. Stops
 * at the first failure, because nothing has been committed yet. */
static mg_status run_until_failure(mg_program *p, const mg_run *run, int first, int last) {
    int64_t collectives = run->comm ? collectives_before(p, first) : 0;
    for (int i = first; i < last; i += p->calls[i].launch_count) {
        const bool collective = run->comm && p->calls[i].kernel == &mg_collective_kernel;
        if (i < p->n_compute) MG_TRY(mg_program_check_stop(run));
        MG_TRY(run_as_span(p, &p->calls[i], run, collective ? ++collectives : 0));
    }
    return MG_OK;
}

/* Runs launches of the commit phase, which must not stop half-way, because some variables already
 * have their new values. So a launch that fails is tried again, and if that succeeds the phase
 * continues. Returns the first failure, with MG_OOM turned into MG_DEVICE, because a caller would
 * run the whole step again after MG_OOM. */
static mg_status run_to_the_end(mg_program *p, const mg_run *run, int first, int last) {
    char message[MG_ERROR_BYTES];
    mg_status failed = MG_OK;
    for (int i = first; i < last; i += p->calls[i].launch_count) {
        const mg_status status = run_as_span(p, &p->calls[i], run, 0);
        if (status == MG_OK) continue;
        if (failed == MG_OK) snprintf(message, sizeof message, "%s", mg_error_message());
        if (failed == MG_OK) failed = status == MG_OOM ? MG_DEVICE : status;
        if (run_as_span(p, &p->calls[i], run, 0) == MG_OK) continue;
        return mg_fail(failed, "%s", message);
    }
    if (last == p->n_calls) *run->finished = true;
    return failed == MG_OK ? MG_OK : mg_fail(failed, "%s", message);
}

mg_status mg_program_check_stop(const mg_run *run) {
    const bool stop = run->stop ? atomic_load_explicit(run->stop, memory_order_relaxed)
                                : mg_interrupt_pending() && mg_interrupt_take();
    return stop ? mg_fail(MG_INTERRUPTED, "interrupted") : MG_OK;
}

mg_status mg_program_run_calls(mg_program *p, const mg_run *run, int first, int last) {
    const int compute = last < p->n_compute ? last : p->n_compute;
    MG_TRY(run_until_failure(p, run, first, compute));
    if (run->comm && run->comm->api->settle)
        MG_TRY(run->comm->api->settle(run->comm, run->rank, NULL, 0));
    return run_to_the_end(p, run, first > compute ? first : compute, last);
}

mg_status mg_program_record_calls(mg_program *p, const mg_run *run, int first, int last) {
    return run_until_failure(p, run, first, last);
}

void mg_program_phase(const mg_program *p, mg_phase phase, int *first, int *last) {
    *first = phase == MG_PREPARE ? 0 : phase == MG_COMMIT ? p->n_compute : p->n_fixed;
    *last = phase == MG_PREPARE ? p->n_fixed : phase == MG_COMPUTE ? p->n_compute : p->n_calls;
}

mg_status mg_program_run(mg_program *p, const mg_run *run) {
    int first, last;
    mg_program_phase(p, run->phase, &first, &last);
    return mg_program_run_calls(p, run, first, last);
}

/* ---- queries for devices that record calls ---- */

int mg_program_next_wait(const mg_program *p, const mg_run *run, int first, int last, int *after) {
    for (int i = first; i < last; i = *after) {
        *after = i + p->calls[i].launch_count;
        if (call_waits(&p->calls[i], run)) return i;
    }
    return *after = last;
}

bool mg_program_is_collective(const mg_program *p, const mg_run *run, int i) {
    return run->comm && p->calls[i].kernel == &mg_collective_kernel;
}

/* Whether the call draws numbers that depend on mg_run.rng. */
static bool call_draws(const mg_program_call *k) {
    const mg_step *s = k->plan.step;
    return s && s->op && s->op->flags & MG_OP_RANDOM && s->draw_relative;
}

bool mg_program_draws(const mg_program *p, mg_phase phase) {
    int first, last;
    mg_program_phase(p, phase, &first, &last);
    for (int i = first; i < last; i++)
        if (call_draws(&p->calls[i])) return true;
    return false;
}

/* The memory of the whole slot, because calls do not say which part of an operand they touch. */
static mg_range slot_range(const mg_program *p, int index, const mg_run *run, bool written) {
    const char *begin = slot_address(p, index, run);
    return (mg_range){begin, begin + p->slots[index].block.bytes, written};
}

/* Collectives all write to this byte, so that their launches count as dependent: every rank must
 * call them in the same order. */
static const char collective_order;
const char mg_program_rng;

int mg_program_touches(const mg_program *p, const mg_run *run, int i, mg_range *ranges, int most,
                       int *after) {
    int n = 0;
    *after = i + p->calls[i].launch_count;
    for (; i < *after; i++) {
        const mg_program_call *k = &p->calls[i];
        if (n + k->n_in + k->n_out + 3 > most) return -1;
        for (int s = 0; s < k->n_in; s++) ranges[n++] = slot_range(p, k->in[s], run, false);
        for (int s = 0; s < k->n_out; s++) ranges[n++] = slot_range(p, k->out[s], run, true);
        if (k->scratch >= 0) ranges[n++] = slot_range(p, k->scratch, run, true);
        if (call_draws(k)) ranges[n++] = (mg_range){&mg_program_rng, &mg_program_rng + 1, false};
        if (k->kernel == &mg_collective_kernel)
            ranges[n++] = (mg_range){&collective_order, &collective_order + 1, true};
    }
    return n;
}

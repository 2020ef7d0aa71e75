/* The memory of a run, and its jobs on the devices: see execution.h. */
#include "graph/execution.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "device/worker.h"
#include "graph/abandoned.h"
#include <string.h>

/* ---- life ---- */

/* What was allocated is freed by mg_execution_free, also after a failure. */
mg_execution *mg_execution_new(mg_plan *p) {
    mg_execution *e = mg_alloc_zero(sizeof *e);
    if (!e) return NULL;
    const size_t n = (size_t)p->n_parts;
    e->plan = p;
    e->parts = mg_alloc_zero(n * sizeof *e->parts);
    e->whole = mg_alloc_zero((size_t)(p->n_outputs + 1) * sizeof *e->whole);
    e->statuses = mg_alloc_zero(n * sizeof *e->statuses);
    e->messages = mg_alloc_zero(n * sizeof *e->messages);
    if (e->parts && e->whole && e->statuses && e->messages) return e;
    mg_execution_free(e);
    return NULL;
}

/* One allocation holds the four arrays. */
mg_status mg_execution_prepare(mg_execution *e, int k) {
    mg_part_run *run = &e->parts[k];
    const size_t n = (size_t)e->plan->parts[k].lowered.graph.n_external + 1;
    run->address = mg_alloc_zero((3 * n + (size_t)e->plan->n_assigns) * sizeof(void *));
    if (!run->address) return MG_OOM;
    run->buffer = (mg_buffer **)(run->address + n);
    run->bound = (mg_tensor **)(run->address + 2 * n);
    run->fresh = (mg_tensor **)(run->address + 3 * n);
    return MG_OK;
}

void mg_execution_free(mg_execution *e) {
    if (!e) return;
    for (int k = 0; e->parts && k < e->plan->n_parts; k++) {
        mg_part_run *run = &e->parts[k];
        if (run->own_arena)
            mg_device_free(e->plan->parts[k].device, run->own_arena, run->own_bytes);
        if (run->kept) mg_device_free(e->plan->parts[k].device, run->kept, run->kept_bytes);
        mg_free(run->address);
    }
    mg_free(e->abandoned);
    mg_free(e->parts);
    mg_free(e->whole);
    mg_free(e->statuses);
    mg_free(e->messages);
    mg_free(e);
}

static void clear_part(const mg_plan *p, int k, mg_part_run *run) {
    if (!run->address) return; /* the part was never compiled */
    for (int i = 0; i < p->n_assigns; i++) {
        mg_tensor_release(run->fresh[i]);
        run->fresh[i] = NULL;
    }
    for (int i = 0; i < p->parts[k].lowered.graph.n_external; i++) {
        mg_tensor_release(run->bound[i]);
        run->bound[i] = NULL;
        mg_buffer_release(run->buffer[i]);
        run->buffer[i] = NULL;
        run->address[i] = NULL;
    }
}

/* Communicators are reset too: after a failure some devices may have met fewer collectives than
 * others. */
void mg_execution_clear(mg_execution *e) {
    const mg_plan *p = e->plan;
    for (int k = 0; k < p->n_parts; k++) clear_part(p, k, &e->parts[k]);
    for (int i = 0; i < p->n_outputs; i++) {
        mg_buffer_release(e->whole[i]);
        e->whole[i] = NULL;
    }
    for (int s = 0; p->comms && s < p->n_stages; s++) p->comms[s]->api->reset(p->comms[s]);
    if (p->world) p->world->api->reset(p->world);
}

/* ---- jobs ---- */

/* Raises the failure that caused the others: a part with status MG_COMM has only waited for a
 * device that failed. The message begins with the device's name. */
static mg_status raise_first_failure(const mg_execution *e) {
    int found = -1;
    for (int i = 0; i < e->plan->n_parts; i++) {
        if (e->statuses[i] == MG_OK) continue;
        const bool suffered = e->statuses[i] == MG_COMM;
        if (found < 0 || !suffered) found = i;
        if (!suffered) break;
    }
    if (found < 0) return MG_OK;
    return mg_device_fail(e->plan->parts[found].device, e->statuses[found], e->messages[found]);
}

/* Puts the device's name before the error that it raises in the calling thread, unless it is there
 * already. */
static mg_status name_device(const mg_plan *p, mg_status status) {
    const char *name = p->parts[0].device->name;
    if (status == MG_DEVICE && !strstr(mg_error_message(), name)) mg_error_prefix(name);
    return status;
}

/* mg_workers_run itself fails before a job has started; the jobs' failures are in statuses and
 * messages. */
mg_status mg_execution_each(mg_execution *e, mg_status (*fn)(void *execution, int i),
                            atomic_bool *stop) {
    const mg_plan *p = e->plan;
    if (p->n_parts == 1 && !e->on_worker) return name_device(p, fn(e, 0));
    /* The calling thread only waits. */
    mg_device *devices[MG_MAX_DEVICES];
    for (int i = 0; i < p->n_parts; i++) {
        devices[i] = p->parts[i].device;
        e->statuses[i] = MG_OK;
        e->messages[i] = NULL;
    }
    const mg_status run =
        mg_workers_run(devices, p->n_parts, fn, e, mg_deadline(), stop, e->statuses, e->messages);
    mg_status status = run == MG_OK ? raise_first_failure(e) : run;
    if (status == MG_OK && stop &&
        atomic_load(stop)) /* the interrupt came when all jobs had ended */
        status = mg_fail(MG_INTERRUPTED, "interrupted");
    /* Everything that a running job may still touch must be kept. */
    for (int i = 0; i < p->n_parts && run == MG_OK; i++)
        if (mg_worker_has_abandoned(devices[i]) && !mg_abandoned_is(e)) mg_abandoned_add(e);
    for (int i = 0; i < p->n_parts; i++) mg_free(e->messages[i]);
    return status;
}

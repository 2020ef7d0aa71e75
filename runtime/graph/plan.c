/* Making plans, the compiled form of steps. run.c runs them.
 *
 * A plan for one device has one part. With several, the global IR is partitioned, and each part
 * goes through the same passes for its device, on the device's own thread, because libraries keep
 * state per thread. */
#include "graph/plan.h"
#include "core/activity.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/threads.h"
#include "device/worker.h"
#include "graph/abandoned.h"
#include "graph/async_guards.h"
#include "graph/execution.h"
#include "graph/joint.h"
#include "graph/new_values.h"
#include "world/world.h"
#include <stdlib.h>
#include <string.h>

/* Operations (device/work.h) of a frozen plan that one thread does sooner than several. */
static const double ALONE_BELOW = 1e6;

/* ---- a part ---- */

/* A reference on each constant and variable that the part reads. */
static mg_status retain_externals(mg_part *part) {
    const mg_kernel_graph *graph = &part->lowered.graph;
    part->held = mg_ir_alloc(&part->ir, (size_t)(graph->n_external + 1) * sizeof *part->held);
    if (!part->held) return MG_OOM;
    for (int i = 0; i < graph->n_external; i++) {
        const mg_external *e = &part->lowered.externals[i];
        if (e->kind == MG_EXTERNAL_VALUE || e->kind == MG_EXTERNAL_VARIABLE)
            part->held[part->n_held++] = mg_tensor_retain(e->tensor);
    }
    return MG_OK;
}

/* Where a variable's value at entry is among the external values. */
typedef struct entry_value {
    const mg_variable *variable;
    int external;
} entry_value;

static int by_variable(const void *a, const void *b) {
    const entry_value *x = a, *y = b;
    if (x->variable != y->variable) return (uintptr_t)x->variable < (uintptr_t)y->variable ? -1 : 1;
    return 0;
}

/* Sorted, for find_entry. In the IR's memory; NULL: MG_OOM. */
static entry_value *sort_entries(mg_part *part, int *n) {
    const int n_external = part->lowered.graph.n_external;
    entry_value *entries = mg_ir_alloc(&part->ir, (size_t)n_external * sizeof *entries);
    *n = 0;
    for (int i = 0; entries && i < n_external; i++) {
        const mg_external *e = &part->lowered.externals[i];
        if (e->kind == MG_EXTERNAL_VARIABLE) entries[(*n)++] = (entry_value){e->variable, i};
    }
    if (entries && *n) qsort(entries, (size_t)*n, sizeof *entries, by_variable);
    return entries;
}

/* The external value that is v at entry, or -1 if the part does not read it. */
static int find_entry(const entry_value *entries, int n, const mg_variable *v) {
    const entry_value key = {.variable = v};
    const entry_value *found =
        n ? bsearch(&key, entries, (size_t)n, sizeof *entries, by_variable) : NULL;
    return found ? found->external : -1;
}

/* Whether a commit step other than the one that makes the external `update` reads a value whose
 * reader is `reader` (see mg_lowered_readers). Such a step might run later and must still find the
 * old value. */
static bool is_read_elsewhere(const mg_kernel_graph *graph, int reader, int update) {
    if (reader < 0) return reader == MG_SEVERAL_READERS;
    const mg_step *s = &graph->steps[reader];
    for (int k = 0; k < s->n_out; k++)
        if (s->out[k] == update) return false;
    return true;
}

/* An update may be written over the variable's old value if it is made by a commit step, no other
 * commit step reads the old value, and no second variable gets the same value. */
static mg_status choose_in_place_updates(const mg_plan *p, mg_part *part) {
    if (p->central >= 0 && part != &p->parts[p->central])
        return MG_OK; /* the part has no variables */
    part->updates = mg_ir_alloc(&part->ir, (size_t)(p->n_assigns + 1) * sizeof *part->updates);
    const int *readers = mg_lowered_readers(&part->ir, &part->lowered);
    int n_entries;
    const entry_value *entries = sort_entries(part, &n_entries);
    bool *given_away = mg_ir_alloc(&part->ir, (size_t)part->lowered.graph.n_external + 1);
    if (!part->updates || !readers || !entries || !given_away) return MG_OOM;
    for (int i = 0; i < p->n_assigns; i++) {
        if (!mg_plan_part_assigns(p, (int)(part - p->parts), i)) continue;
        const int external = mg_part_external(part, p->n_outputs + i),
                  entry = find_entry(entries, n_entries, p->variables[i]);
        const bool update = part->lowered.externals[external].kind == MG_EXTERNAL_UPDATE;
        const bool read =
            entry >= 0 && is_read_elsewhere(&part->lowered.graph, readers[entry], external);
        part->updates[i] = (mg_update){external, update && !read && !given_away[external]};
        given_away[external] = true; /* to this variable */
    }
    return MG_OK;
}

/* Of a frozen or recorded plan: starting a team in each of its launches takes longer than it saves
 * where there is little to compute, as with one small image. 0: all. */
static int threads_that_pay(const mg_kernel_graph *graph) {
    return mg_graph_work(graph) < ALONE_BELOW ? 1 : 0;
}

/* From the part's rewritten IR to its program: a job of the device's worker. Parts that share
 * another's program have nothing to do. */
static mg_status compile_part(void *execution, int i) {
    mg_plan *p = ((mg_execution *)execution)->plan;
    mg_part *part = &p->parts[i];
    if (mg_worker_is_own()) atomic_store(&part->device->at, "compile"); /* for the watchdog */
    if (part->owner != i) return MG_OK;
    MG_TRY(mg_passes_lower(&part->ir, part->device->api->fuses, &part->lowered));
    if ((p->frozen || p->recorded) && threads_that_pay(&part->lowered.graph) == 1)
        part->threads = 1;
    if (!mg_worker_is_own()) part->device->threads = part->threads;
    return part->device->api->compile(part->device, &part->lowered.graph, &part->program);
}

/* What a run of part i needs besides its program. */
static mg_status prepare_part_runs(mg_plan *p, int i) {
    mg_part *part = &p->parts[i];
    if (part->owner != i) MG_TRY(mg_program_dedup_take(p, i));
    MG_TRY(retain_externals(part));
    MG_TRY(choose_in_place_updates(p, part));
    return mg_execution_prepare(p->execution, i);
}

/* ---- all parts ---- */

/* The global IR of the step. Roots are numbered as mg_part_external says. */
static mg_status collect_roots(mg_ir *ir, const mg_plan_spec *spec) {
    const int n_guards = spec->verdict ? 1 : spec->n_guards; /* roots, not guards */
    const int n = spec->n_outputs + spec->n_assigns + n_guards;
    mg_tensor **roots = mg_alloc((size_t)(n + 1) * sizeof *roots);
    if (!roots) return MG_OOM;
    int k = 0;
    for (int i = 0; i < spec->n_outputs; i++) roots[k++] = spec->outputs[i];
    for (int i = 0; i < spec->n_assigns; i++) roots[k++] = spec->values[i];
    for (int i = 0; i < n_guards; i++)
        roots[k++] = spec->verdict ? spec->verdict : spec->guards[i].ok;
    mg_status status = mg_ir_collect(ir, roots, n, spec->trace);
    mg_free(roots);
    /* New values, and guards on them, may be computed in the commit phase; outputs and other guards
     * may not. */
    for (int i = 0; i < spec->n_assigns && status == MG_OK; i++)
        ir->roots[spec->n_outputs + i].commit = true;
    const int first = spec->n_outputs + spec->n_assigns;
    for (int i = 0; i < n_guards && status == MG_OK; i++) {
        const int last =
            spec->verdict ? spec->n_guards - 1 : i; /* -1: the devices' agreement only */
        ir->roots[first + i].commit = ir->roots[first + i].check =
            last >= 0 && spec->guards[last].variables != NULL;
    }
    return status;
}

/* Per root, the part that has it: the first of the stage it lies on, or the central device. */
static mg_status find_root_parts(mg_plan *p, const mg_partition_spec *partition) {
    const mg_ir *g = partition->global;
    const int n = mg_plan_stage_width(p);
    p->root_part = mg_alloc_zero((size_t)(g->n_roots + 1) * sizeof *p->root_part);
    if (!p->root_part) return MG_OOM;
    for (int r = 0; r < g->n_roots; r++) {
        const mg_tensor *t = g->nodes[g->roots[r].node].tensor;
        p->root_part[r] =
            p->central >= 0 ? p->central : mg_partition_stage(partition, t->device) * n;
    }
    return MG_OK;
}

/* Deals the rows of the batch out over the devices of a stage, then makes and rewrites the IR of
 * each part. A central device that is not one of the given devices has no rows. */
static mg_status partition_all(mg_plan *p, const mg_plan_spec *spec, const mg_ir *global) {
    int64_t rows;
    const mg_partition_spec partition = {.global = global,
                                         .shards = &p->shards,
                                         .local_norm = spec->local_norm,
                                         .central = p->central,
                                         .n_stages = p->n_stages,
                                         .stages = p->stages};
    const int n = mg_plan_stage_width(p);
    MG_TRY(mg_partition_rows(global, &rows));
    if (p->joint) {
        mg_shards_deal(&p->shards, p->comms[0]->n, rows, p->weights);
    } else {
        mg_shards_deal(&p->shards,
                       (spec->n_devices ? spec->n_devices / p->n_stages : n) + p->absent, rows,
                       spec->weights);
        if (n > p->shards.n) {
            p->shards.first[p->shards.n] = rows; /* a central device without rows */
            p->shards.n = n;
        }
    }
    MG_TRY(find_root_parts(p, &partition));
    for (int i = 0; i < p->n_parts; i++) {
        mg_part *part = &p->parts[i];
        bool *split = mg_alloc_zero((size_t)global->n_roots + 1);
        if (!split) return MG_OOM;
        /* Outputs may stay sharded, unless some of their rows are in other processes. */
        for (int r = 0; r < spec->n_outputs; r++) split[r] = !p->joint && !p->absent;
        mg_status status = mg_partition(&partition, i / n, mg_plan_rank(p, i), &part->ir, split);
        if (status == MG_OK) status = mg_passes_rewrite(&part->ir);
        if (status == MG_OK) status = mg_program_dedup_find(p, i);
        part->split_roots = mg_ir_alloc(&part->ir, (size_t)global->n_roots + 1);
        if (part->split_roots) memcpy(part->split_roots, split, (size_t)global->n_roots);
        mg_free(split);
        if (status != MG_OK || !part->split_roots) return status != MG_OK ? status : MG_OOM;
    }
    return MG_OK;
}

/* Devices of one kind share the host's threads evenly. A program allocates scratch memory for this
 * many threads and must never run on more, so the number is stored in the part: in later plans its
 * device may have another share. */
static void divide_threads(mg_plan *p) {
    const int threads = mg_thread_count();
    for (int i = 0; i < p->n_parts; i++) {
        int same_kind = 0; /* parts on devices of this kind, including this one */
        for (int k = 0; k < p->n_parts; k++)
            same_kind += p->parts[k].device->api == p->parts[i].device->api;
        p->parts[i].threads = threads > same_kind ? threads / same_kind : 1;
        p->parts[i].device->threads = p->parts[i].threads;
    }
}

/* ---- the plan ---- */

/* The number of the central device among the given ones; their count if it is none of them; -1 if
 * there is none. */
static int find_central(const mg_plan_spec *spec) {
    if (!spec->central || spec->n_devices == 0) return -1;
    for (int i = 0; i < spec->n_devices; i++)
        if (spec->devices[i] == spec->central) return i;
    return spec->n_devices;
}

/* The device that stands for each stage. A traced function may use several devices without
 * declaring them: then each device is a stage, in the order of first use. */
static mg_status find_stages(mg_plan *p, const mg_plan_spec *spec, const mg_ir *global) {
    p->stages = mg_alloc_zero(MG_MAX_DEVICES * sizeof *p->stages);
    if (!p->stages) return MG_OOM;
    p->n_stages = 1;
    p->stages[0] = spec->n_devices ? spec->devices[0] : spec->device;
    if (spec->n_devices) {
        p->n_stages = spec->n_stages > 0 ? spec->n_stages : 1;
        for (int s = 0; s < p->n_stages; s++)
            p->stages[s] = spec->devices[s * (spec->n_devices / p->n_stages)];
        return MG_OK;
    }
    for (int i = 0; i < global->n && spec->trace; i++) {
        const mg_tensor *t = global->nodes[i].tensor;
        /* Constants are copied to the devices that read them. */
        if (t->any_device || global->nodes[i].kind == MG_NODE_VALUE) continue;
        bool known = false;
        for (int s = 0; s < p->n_stages; s++) known |= p->stages[s] == t->device;
        if (known) continue;
        if (p->n_stages == MG_MAX_DEVICES)
            return mg_fail(MG_USAGE, "mgpu.jit: more than %d devices", MG_MAX_DEVICES);
        p->stages[p->n_stages++] = t->device;
    }
    return MG_OK;
}

/* Copies what a run needs of the specification. */
static mg_status take_spec(mg_plan *p, const mg_plan_spec *spec) {
    if (spec->joint && spec->central)
        return mg_fail(MG_UNSUPPORTED,
                       "strategy \"central\" works within one process only: leave it out, or start "
                       "one process");
    const int given = spec->n_devices ? spec->n_devices : p->n_stages;
    p->central = find_central(spec);
    p->joint = spec->joint;
    p->absent = spec->absent;
    p->inputs_anywhere = spec->n_devices > 0 || p->n_stages > 1;
    if (p->central >= 0 && p->n_stages > 1)
        return mg_fail(MG_UNSUPPORTED,
                       "strategy \"central\" cannot be combined with layers that name a "
                       "device: choose one");
    /* A central device outside the given ones has a part too, without rows. */
    const size_t n = (size_t)(given + (p->central == spec->n_devices && spec->n_devices > 0));
    p->n_outputs = spec->n_outputs;
    p->n_args = spec->n_args;
    p->n_draws = spec->n_draws;
    p->verdict = spec->verdict != NULL;
    p->recorded = spec->recorded && n == 1;
    p->frozen = spec->frozen && !spec->n_assigns && n == 1 && !spec->joint && !spec->absent;
    const mg_device *first = spec->n_devices ? spec->devices[0] : p->stages[0];
    /* Guards without a verdict must be read before the commit phase may start. */
    p->at_once = n == 1 && first->api->readback_wait && (p->verdict || !spec->n_guards) &&
                 !p->joint && !p->absent;
    p->parts = mg_alloc_zero(n * sizeof *p->parts);
    p->variables = mg_alloc_zero((size_t)(spec->n_assigns + 1) * sizeof *p->variables);
    p->guards = mg_alloc_zero((size_t)(spec->n_guards + 1) * sizeof *p->guards);
    p->output_shapes = mg_alloc_zero((size_t)(spec->n_outputs + 1) * sizeof *p->output_shapes);
    if (!p->parts || !p->variables || !p->guards || !p->output_shapes) return MG_OOM;
    p->n_parts = (int)n;
    for (int i = 0; i < p->n_parts; i++)
        p->parts[i].device = spec->n_devices == 0  ? p->stages[i]
                             : i < spec->n_devices ? spec->devices[i]
                                                   : spec->central;
    for (int i = 0; i < spec->n_outputs; i++) p->output_shapes[i] = spec->outputs[i]->shape;
    /* Counts follow the entries, so that a plan that fails half-way is freed correctly. */
    for (int i = 0; i < spec->n_assigns; i++) {
        p->variables[i] = mg_variable_retain(spec->targets[i]);
        p->n_assigns = i + 1;
    }
    for (int i = 0; i < spec->n_guards; i++) {
        p->n_guards = i + 1;
        MG_TRY(mg_guard_copy(&spec->guards[i], &p->guards[i]));
        p->checks_new_values |= p->guards[i].variables != NULL;
    }
    p->execution = mg_execution_new(p);
    return p->execution ? MG_OK : MG_OOM;
}

/* A communicator among parts [first, first + n). Owned; NULL on failure. */
static mg_comm *connect_parts(const mg_plan *p, int first, int n) {
    mg_device **devices = mg_alloc((size_t)n * sizeof(mg_device *));
    if (!devices) return NULL;
    for (int i = 0; i < n; i++) devices[i] = p->parts[first + i].device;
    mg_comm *comm = mg_device_connect(devices, n);
    mg_free(devices);
    return comm;
}

/* One communicator per stage, and one of all parts if there are several stages. */
static mg_status connect_all(mg_plan *p, const double *weights) {
    const int n = mg_plan_stage_width(p);
    p->comms = mg_alloc_zero((size_t)p->n_stages * sizeof *p->comms);
    if (!p->comms) return MG_OOM;
    if (p->joint) MG_TRY(mg_joint_connect(p, weights));
    for (int s = 0; s < p->n_stages && !p->joint; s++) {
        p->comms[s] = connect_parts(p, s * n, n);
        if (!p->comms[s]) return mg_error_code();
    }
    if (p->n_stages > 1) p->world = connect_parts(p, 0, p->n_parts);
    return p->n_stages == 1 || p->world ? MG_OK : mg_error_code();
}

/* Whether the devices of a stage enqueue a whole step, as their communicator does. */
static bool can_run_at_once(const mg_plan *p, const mg_plan_spec *spec) {
    for (int i = 0; i < p->n_parts; i++)
        if (!p->parts[i].device->api->readback_wait) return false;
    return p->n_stages == 1 && !p->joint && !p->absent && p->comms[0]->api->recorded &&
           (p->verdict || (!spec->n_guards && !spec->n_assigns));
}

/* If a device is lost while compiling, its thread may still read the attributes of the traced
 * tensors, so they are kept with the abandoned execution. */
static mg_status build_on_several(mg_plan *p, const mg_plan_spec *spec, const mg_ir *global) {
    for (int i = 0; i < p->n_parts; i++) MG_TRY(mg_device_check(p->parts[i].device));
    MG_TRY(mg_abandoned_allow(p->execution)); /* for this compilation and all runs */
    if (p->joint) MG_TRY(mg_joint_compare(p, spec, global));
    MG_TRY(connect_all(p, spec->weights));
    p->at_once = can_run_at_once(p, spec);
    MG_TRY(partition_all(p, spec, global));
    divide_threads(p);
    const mg_status status = mg_execution_each(p->execution, compile_part, &p->execution->stop);
    for (int i = 0; i < global->n && mg_abandoned_is(p->execution); i++)
        mg_abandoned_keep(p->execution, global->nodes[i].tensor);
    MG_TRY(status);
    if (p->n_parts == 1) p->work = mg_graph_work(&p->parts[0].lowered.graph);
    /* Owners come before the parts that share their programs. */
    for (int i = 0; i < p->n_parts; i++) MG_TRY(prepare_part_runs(p, i));
    return MG_OK;
}

/* One device needs no partition, no worker and no communicator. */
static mg_status build_on_one(mg_plan *p) {
    p->root_part = mg_alloc_zero((size_t)(p->parts[0].ir.n_roots + 1) * sizeof *p->root_part);
    if (!p->root_part) return MG_OOM;
    MG_TRY(mg_passes_rewrite(&p->parts[0].ir));
    MG_TRY(compile_part(p->execution, 0));
    p->work = mg_graph_work(&p->parts[0].lowered.graph);
    return prepare_part_runs(p, 0);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* On one device the global IR itself becomes the part's; otherwise it is freed when the parts have
 * theirs. */
static mg_status build_plan(mg_plan *p, const mg_plan_spec *spec) {
    mg_ir global = {0};
    mg_status status = collect_roots(&global, spec);
    if (status == MG_OK) status = find_stages(p, spec, &global);
    if (status == MG_OK) status = take_spec(p, spec);
    if (status == MG_OK && p->n_parts == 1 && !p->joint &&
        !p->absent) { /* what it owns is freed with the plan */
        p->parts[0].ir = global;
        p->parts[0].ir.frozen = p->frozen;
        p->parts[0].ir.recorded = p->recorded;
        p->parts[0].threads = least(spec->threads, mg_thread_count());
        return build_on_one(p);
    }
    if (status == MG_OK) status = build_on_several(p, spec, &global);
    mg_ir_free(&global);
    return status;
}

/* A shared program belongs to its owner. */
static void free_part(mg_plan *p, int i) {
    mg_part *part = &p->parts[i];
    if (part->program && part->owner == i) part->device->api->release(part->program);
    for (int h = 0; h < part->n_held; h++) mg_tensor_release(part->held[h]);
    mg_ir_free(&part->ir);
}

/* Also frees plans whose making failed half-way. */
static void free_plan(mg_plan *p) {
    for (int i = 0; i < p->n_parts; i++) mg_async_guards_forget(p->parts[i].device, p->guards);
    mg_execution_free(p->execution);
    for (int i = 0; i < p->n_parts; i++) free_part(p, i);
    for (int i = 0; i < p->n_assigns; i++) mg_variable_release(p->variables[i]);
    for (int i = 0; i < p->n_guards; i++) mg_guard_clear(&p->guards[i]);
    /* Of a plan that failed half-way, some of these are NULL. */
    for (int i = 0; p->comms && i < p->n_stages; i++)
        if (p->comms[i]) p->comms[i]->api->free(p->comms[i]);
    if (p->world) p->world->api->free(p->world);
    mg_free(p->comms);
    mg_free(p->stages);
    mg_free(p->root_part);
    mg_free(p->weights);
    mg_free(p->parts);
    mg_free(p->variables);
    mg_free(p->guards);
    mg_free(p->output_shapes);
    mg_free(p);
}

static void release_plan(mg_plan *p) {
    if (p && --p->refs == 0) free_plan(p);
}

/* The threads have returned, so nothing touches the executions any more. */
void mg_plan_reclaim_abandoned(void) {
    for (mg_execution *e; (e = mg_abandoned_returned());) {
        mg_execution_clear(e);
        release_plan(e->plan);
    }
}

/* While its execution is abandoned, the plan lives on. */
void mg_plan_free(mg_plan *p) {
    mg_plan_reclaim_abandoned();
    release_plan(p);
}

/* MGPU_LOG=plan: every part's steps. */
static void log_plan(const mg_plan *p) {
    if (!mg_log_on("plan")) return;
    for (int i = 0; i < p->n_parts; i++) {
        const mg_part *part = &p->parts[i];
        char *text = mg_lowered_dump(&part->lowered, true);
        if (text)
            mg_log("plan", "%s: %d steps\n%s", part->device->name, part->lowered.graph.n_steps,
                   text);
        mg_free(text);
    }
}

/* Every new or freed plan is an occasion to reclaim abandoned executions. */
mg_plan *mg_plan_new(const mg_plan_spec *spec) {
    mg_plan_reclaim_abandoned();
    mg_plan *p = mg_alloc_zero(sizeof *p);
    if (!p) return NULL;
    p->refs = 1;
    const int depth = mg_activity_begin(MG_SPAN_PLAN, "makes a plan");
    const mg_status status = build_plan(p, spec);
    mg_activity_leave(depth);
    if (status != MG_OK) {
        if (spec->joint && !p->refused) mg_world_fail(mg_error_message());
        mg_plan_free(p);
        return NULL;
    }
    log_plan(p);
    return p;
}

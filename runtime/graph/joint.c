/* What the ranks of the world agree on about a plan: see joint.h. */
#include "graph/joint.h"
#include "core/alloc.h"
#include "core/fnv.h"
#include "core/rng.h"
#include "core/threads.h"
#include "world/world.h"
#include <string.h>

/* ---- the same step everywhere ---- */

static uint64_t hash_int(uint64_t hash, int64_t value) {
    return mg_fnv(hash, &value, sizeof value);
}

/* Of the nodes: ops, dtypes, shapes and inputs, but no attributes, which may hold addresses. */
static uint64_t hash_of_step(const mg_ir *g) {
    uint64_t hash = MG_FNV_START;
    for (int i = 0; i < g->n; i++) {
        const mg_node *n = &g->nodes[i];
        hash = hash_int(hash, (int64_t)n->kind);
        if (n->op) hash = mg_fnv(hash, n->op->name, strlen(n->op->name));
        hash = hash_int(hash, (int64_t)n->dtype);
        hash = mg_fnv(hash, n->shape.dim, (size_t)n->shape.rank * sizeof n->shape.dim[0]);
        for (int k = 0; k < n->n_in; k++) hash = hash_int(hash, n->in[k]);
        if (n->loop) hash = hash_int(hash, n->loop->steps);
        if (n->loop) hash = hash_int(hash, (int64_t)hash_of_step(&n->loop->body));
    }
    return hash_int(hash, g->n_roots);
}

/* What is compared, in this order: the first difference is named. */
enum { ROWS, ARGUMENTS, VARIABLES, NODES, STEP, SEED, DRAWS, N_COMPARED };

static const struct compared {
    const char *what, *advice;
} compared[N_COMPARED] = {
    [ROWS] = {"the number of rows of the batch",
              "give all ranks the same data and batch size: the batch is the batch of all of them"},
    [ARGUMENTS] = {"the number of its arguments", "all ranks must run the same script"},
    [VARIABLES] = {"the number of variables that it changes",
                   "all ranks must make the same model and optimizer"},
    [NODES] = {"the number of its operations",
               "all ranks must run the same script with the same model and options"},
    [STEP] = {"its operations and shapes",
              "all ranks must run the same script with the same model, options and data shapes"},
    [SEED] = {"the random seed", "call mgpu.seed with the same number on all ranks"},
    [DRAWS] = {"the number of random numbers drawn so far",
               "all ranks must make the same random draws in the same order, so none of them may "
               "depend on mgpu.world()"},
};

/* Eight bytes at a time, as weights may be large. */
static mg_status hash_value(mg_tensor *value, uint64_t *hash) {
    const size_t words = (mg_tensor_bytes(value) + 7) / 8;
    uint64_t *data = mg_alloc_zero(words * sizeof *data);
    if (!data) return MG_OOM;
    const mg_status status = mg_tensor_read(value, data);
    *hash = MG_FNV_START;
    for (size_t i = 0; i < words; i++) *hash = (*hash ^ data[i]) * MG_FNV_PRIME;
    mg_free(data);
    return status;
}

mg_status mg_joint_find_differing(mg_variable *const *variables, int n, bool *differs) {
    const int size = mg_world_size();
    int64_t *all = mg_alloc((size_t)size * sizeof *all);
    mg_status status = all ? MG_OK : MG_OOM;
    for (int i = 0; i < n && status == MG_OK; i++) {
        uint64_t hash;
        differs[i] = false;
        status = hash_value(variables[i]->value, &hash);
        if (status == MG_OK) status = mg_world_gather((int64_t)hash, all);
        for (int r = 1; r < size && status == MG_OK; r++) differs[i] |= all[r] != all[0];
    }
    mg_free(all);
    return status;
}

/* The variables that the step reads must have equal values, or the ranks would train different
 * models. */
static mg_status compare_variables(mg_plan *p, const mg_ir *global) {
    for (int i = 0; i < global->n; i++) {
        const mg_node *n = &global->nodes[i];
        bool differs;
        if (n->kind != MG_NODE_VARIABLE) continue;
        mg_variable *v = n->tensor->variable;
        MG_TRY(mg_joint_find_differing(&v, 1, &differs));
        if (!differs) continue;
        p->refused = true;
        return mg_fail(
            MG_USAGE,
            "the ranks have different values of the variable %s: load or make weights on "
            "all ranks alike",
            v->name);
    }
    return MG_OK;
}

mg_status mg_joint_compare(mg_plan *p, const mg_plan_spec *spec, const mg_ir *global) {
    const int size = mg_world_size();
    MG_TRY(mg_world_meet(MG_AT_NEW_STEP, 0, 0, &p->refused));
    const mg_rng_state rng = mg_rng_get();
    int64_t rows = 0, *all = mg_alloc((size_t)size * sizeof *all);
    if (!all) return MG_OOM;
    mg_status status = mg_partition_rows(global, &rows);
    const int64_t own[N_COMPARED] = {[ROWS] = rows,
                                     [ARGUMENTS] = spec->n_args,
                                     [VARIABLES] = spec->n_assigns,
                                     [NODES] = global->n,
                                     [STEP] = (int64_t)hash_of_step(global),
                                     [SEED] = rng.seed,
                                     [DRAWS] = (int64_t)rng.base};
    for (int i = 0; i < N_COMPARED && status == MG_OK; i++) {
        status = mg_world_gather(own[i], all);
        for (int r = 1; r < size && status == MG_OK; r++) {
            if (all[r] == all[0]) continue;
            p->refused = true;
            status = mg_fail(MG_USAGE,
                             "the step that rank %d has made differs from that of rank 0 in %s: %s",
                             r, compared[i].what, compared[i].advice);
        }
    }
    mg_free(all);
    return status == MG_OK ? compare_variables(p, global) : status;
}

/* ---- the devices ---- */

/* A weight of 0 stands for none. */
static mg_status gather_weights(int n, const double *own, mg_joint_devices *d) {
    const int size = mg_world_size();
    size_t *bytes = mg_alloc((size_t)size * sizeof *bytes);
    d->weights = mg_alloc_zero((size_t)(d->total + 1) * sizeof *d->weights);
    mg_status status = bytes && d->weights ? MG_OK : MG_OOM;
    for (int r = 0; r < size && bytes; r++) bytes[r] = (size_t)d->here[r] * sizeof *d->weights;
    for (int i = 0; i < n && own && d->weights; i++) d->weights[d->first + i] = own[i];
    if (status == MG_OK) status = mg_world_gather_lists(d->weights, bytes);
    mg_free(bytes);
    return status;
}

/* NULL if no rank has given weights; else 1 where a rank has given none. */
static void complete_weights(mg_joint_devices *d) {
    bool weighted = false;
    for (int64_t i = 0; i < d->total; i++) weighted |= d->weights[i] != 0;
    for (int64_t i = 0; i < d->total; i++)
        if (d->weights[i] == 0) d->weights[i] = 1;
    if (weighted) return;
    mg_free(d->weights);
    d->weights = NULL;
}

mg_status mg_joint_find_devices(int n, const double *weights, mg_joint_devices *d) {
    const int size = mg_world_size();
    *d = (mg_joint_devices){.here = mg_alloc((size_t)size * sizeof *d->here)};
    if (!d->here) return MG_OOM;
    MG_TRY(mg_world_gather(n, d->here));
    for (int r = 0; r < size; r++) {
        if (r == mg_world_rank()) d->first = d->total;
        d->total += d->here[r];
    }
    if (d->total > MG_MAX_SHARDS)
        return mg_fail(MG_USAGE, "at most %d devices can share a step, the ranks have %lld",
                       MG_MAX_SHARDS, (long long)d->total);
    MG_TRY(gather_weights(n, weights, d));
    complete_weights(d);
    return MG_OK;
}

void mg_joint_free_devices(mg_joint_devices *d) {
    mg_free(d->here);
    mg_free(d->weights);
}

mg_status mg_joint_connect(mg_plan *p, const double *weights) {
    static int64_t n_plans; /* all ranks make the same */
    const int n = mg_plan_stage_width(p);
    mg_joint_devices all;
    p->number = ++n_plans;
    mg_status status = mg_joint_find_devices(n, weights, &all);
    p->refused = all.total > MG_MAX_SHARDS;
    p->first = (int)all.first;
    for (int s = 0; s < p->n_stages && status == MG_OK; s++) {
        mg_device *devices[MG_MAX_DEVICES];
        for (int i = 0; i < n; i++) devices[i] = p->parts[s * n + i].device;
        p->comms[s] = mg_device_connect_joint(devices, all.here);
        if (!p->comms[s]) status = mg_error_code();
    }
    p->weights = all.weights;
    all.weights = NULL;
    mg_joint_free_devices(&all);
    return status;
}

/* ---- a run ---- */

mg_status mg_joint_meet(const mg_plan *p, bool *differs) {
    const mg_rng_state rng = mg_rng_get();
    const int64_t random = (int64_t)(rng.base * 0x9e3779b97f4a7c15u + rng.seed);
    return mg_world_meet(MG_AT_STEP, p->number, random, differs);
}

mg_status mg_joint_agree(void) {
    mg_world_at_op("the end of the step");
    const uint32_t flags = mg_stop_requested() ? MG_FLAG_STOP : 0;
    return mg_world_agree(flags);
}

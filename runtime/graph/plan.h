/* What a plan is made of, for the files that make, run and report it.
 *
 * A plan is compiled once and does not change afterwards. Whatever belongs to one of its runs is in
 * an mg_execution (execution.h).
 *
 * Each of these files calls only those before it:
 *   new_values.c                guards after the commit phase
 *   async_guards.c              guards that are answered during the next step
 *   abandoned.c                 executions that a device did not come back from
 *   execution.c                 the memory of a run, and its jobs on the devices
 *   program_dedup.c             parts that share a program
 *   joint.c                     what the ranks of the world agree on
 *   plan.c                      life: builds and compiles a plan, frees it
 *   run_values.c                what a run is given, and what it returns
 *   run.c, commit.c             run a plan whose inputs are all evaluated
 *   eval.c                      evaluates tensors by plans; runs traced plans
 *   trace.c, plan_report.c      what the bindings call */
#ifndef MG_GRAPH_PLAN_H
#define MG_GRAPH_PLAN_H

#include "comm/comm.h"
#include "device/work.h"
#include "graph/ir.h"
#include "graph/partition.h"

struct mg_execution;

typedef struct mg_update { /* a variable's new value in one part */
    int external;
    bool in_place; /* may be written over the old value, if the variable is its sole holder */
} mg_update;

typedef struct mg_part { /* what one device does */
    mg_device *device;
    int threads; /* of the host's cores, as it was compiled for; 0: all */
    int owner;   /* the part whose program and lowered graph this one uses: itself unless deduped */
    mg_program *program;
    int64_t *node_first, *step_first; /* of a part that is not its own owner: where its rows begin,
                                         per node of its IR and per step; else NULL */
    mg_ir ir;                         /* the memory of everything lowered */
    mg_lowered lowered;
    bool *split_roots; /* per root: the part holds only its own rows of it */
    mg_tensor **held;  /* retained: constants and variable reads that the externals refer to */
    int n_held;
    mg_update *updates; /* per assigned variable */
} mg_part;

struct mg_plan {
    int refs;    /* its owner's, and one while its execution is abandoned */
    int central; /* the only part that has the variables, or -1 */
    int n_stages;
    bool joint;         /* the parts are those of this rank of the world: see joint.h */
    int64_t number;     /* joint: how many joint plans were made until this one */
    int absent;         /* further devices of a stage that are not there: it is only reported on */
    bool refused;       /* joint: all ranks alike have failed to make it */
    int first;          /* of the devices of a stage, in all ranks, the first one here */
    double *weights;    /* joint: of those devices, their shares of the rows; NULL: equal ones */
    int *root_part;     /* per root: the part that its whole value, or its first rows, come from */
    mg_device **stages; /* per stage: its first device, which stands for it in the trace */
    mg_comm *world;     /* of all parts here, if there are several stages; else NULL */
    bool verdict;       /* the guards are one root, the verdict: see async_guards.h */
    bool checks_new_values; /* some guards are checked after the commit phase: see new_values.h */
    bool frozen;            /* fixed values are made once: mg_execution.prepared */
    bool recorded;          /* mg_plan_spec.recorded */
    bool at_once;           /* both phases are enqueued together: asynchronous devices */
    double work;            /* estimated number of operations of a run (device/work.h) */
    bool inputs_anywhere;   /* compiled for given devices: inputs may lie on other ones */
    int n_parts, n_outputs, n_assigns, n_guards, n_args;
    mg_part *parts;
    mg_shards shards;        /* of the devices of a stage, in all ranks */
    mg_comm **comms;         /* per stage: of its devices, in all ranks; NULL with one device */
    mg_variable **variables; /* retained: the assigned ones */
    mg_guard *guards;        /* codes and messages; in place of `ok`, a root of the IR */
    mg_shape *output_shapes; /* global */
    uint64_t n_draws;
    struct mg_execution *execution; /* owned: a plan has memory for one run at a time */
};

/* Root numbers: outputs first, then new values of variables, then guards or the verdict. */
static inline int mg_part_external(const mg_part *part, int root) {
    return part->lowered.root_external[root];
}

/* The devices that a stage has in this process. */
static inline int mg_plan_stage_width(const mg_plan *p) {
    return p->n_parts / p->n_stages;
}

/* The number of a part's device among those of its stage, in all ranks. */
static inline int mg_plan_rank(const mg_plan *p, int part) {
    return p->first + part % mg_plan_stage_width(p);
}

/* Whether a part has the variable that assignment i changes. */
static inline bool mg_plan_part_assigns(const mg_plan *p, int part, int i) {
    const int n = p->n_parts / p->n_stages, owner = p->root_part[p->n_outputs + i];
    return p->central >= 0 ? part == p->central : part / n == owner / n;
}

/* ---- program_dedup.c ---- */

/* Finds the owner of part i among the parts before it, all of them simplified; if it is another
 * part, this one's IR is freed. */
mg_status mg_program_dedup_find(mg_plan *p, int i);
/* When the owner is compiled: part i takes from it what it needs. */
mg_status mg_program_dedup_take(mg_plan *p, int i);

/* ---- plan.c ---- */

/* Clears the abandoned executions whose devices have come back, and frees their plans if nobody
 * else holds them. */
void mg_plan_reclaim_abandoned(void);

/* ---- run.c: like mg_plan_run and mg_plan_begin, for inputs that are all evaluated ---- */

mg_status mg_plan_execute(mg_plan *p, mg_tensor *const *args, mg_tensor **results);
mg_status mg_plan_start(mg_plan *p, mg_tensor *const *args);

/* ---- run_values.c ---- */

/* Waits until no guard failure can take back the elements of t, a value; fails if a lost device has
 * them. */
mg_status mg_value_wait(const mg_tensor *t);
/* A copy of t, a value, in new memory on `device`. Owned. */
mg_tensor *mg_value_copy(const mg_tensor *t, mg_device *device);

#endif

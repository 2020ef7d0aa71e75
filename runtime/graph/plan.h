/* What a plan is made of, for the files that make, run and report it.
 *
 * Each of these files calls only those before it:
 *   new_values.c                       guards after the commit phase
 *   async_guards.c, abandoned_plan.c   depend on the structures below, not on each other
 *   program_dedup.c                    parts that share a program
 *   work.c                             estimates how much a step computes
 *   plan.c                             life: builds and compiles a plan, frees it
 *   run.c, commit.c                    run a plan whose inputs are all evaluated
 *   eval.c                             evaluates tensors by plans; runs traced plans
 *   trace.c, plan_report.c             what the bindings call */
#ifndef MG_GRAPH_PLAN_H
#define MG_GRAPH_PLAN_H

#include "comm/comm.h"
#include "graph/ir.h"
#include "graph/partition.h"

struct mg_abandoned_plan;

typedef struct mg_update { /* a variable's new value in one part */
    int external;
    bool in_place; /* may be written over the old value, if the variable is its sole holder */
} mg_update;

typedef struct mg_part { /* what one device does */
    mg_device *device;
    int threads; /* of the host's cores, as it was compiled for; on one device 0: all */
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
    double seconds;     /* in programs so far, on several devices */
    bool finished;      /* of a run: mg_run.finished */
    bool unfinished;    /* of a run: the commit phase has not made all its values */
    /* of a run: */
    void **address;     /* per external */
    mg_buffer **buffer; /* per external: owned, what this run made */
    mg_tensor **fresh;  /* per assigned variable: owned, the value to bind */
    void *arena;
    void *own_arena; /* of runs beside the caller, who may use the device's arena meanwhile */
    size_t own_bytes;
    mg_tensor **bound; /* per external: retained from mg_plan_begin to mg_plan_end */
} mg_part;

struct mg_plan {
    int central; /* the only part that has the variables, or -1 */
    int n_stages;
    int *root_part;     /* per root: the part that its whole value, or its first rows, come from */
    mg_device **stages; /* per stage: its first device, which stands for it in the trace */
    mg_comm *world;     /* of all parts, if there are several stages; else NULL */
    bool verdict;       /* the guards are one root, the verdict: see async_guards.h */
    bool checks_new_values; /* some guards are checked after the commit phase: see new_values.h */
    bool at_once;           /* both phases are enqueued together: asynchronous devices */
    bool begun;             /* a run is in progress beside the caller */
    bool on_worker;         /* of a run: on one device's worker, while the caller waits */
    atomic_bool stop;       /* of a run: its jobs are to end */
    double work;            /* of a run: estimated number of operations (work.c) */
    double compute_seconds; /* of the last run, if it was long enough to be timed */
    bool inputs_anywhere;   /* compiled for given devices: inputs may lie on other ones */
    int n_parts, n_outputs, n_assigns, n_guards, n_args;
    mg_part *parts;
    mg_shards shards;
    mg_comm **comms;         /* per stage: of its parts; NULL with one part */
    int collectives;         /* of a run */
    mg_variable **variables; /* retained: the assigned ones */
    mg_guard *guards;        /* codes and messages; in place of `ok`, a root of the IR */
    mg_shape *output_shapes; /* global */
    mg_buffer **whole;       /* of a run: per output that is sharded, owned */
    uint64_t n_draws;
    mg_rng_state rng;                    /* of a run: the random state it began with */
    mg_tensor *const *args;              /* of a run; borrowed */
    struct mg_abandoned_plan *abandoned; /* on several devices: owned; see abandoned_plan.h */
    mg_status *statuses;                 /* per part: room for mg_workers_run ... */
    char **messages;                     /* ... likewise */
};

/* Root numbers: outputs first, then new values of variables, then guards or the verdict. */
static inline int mg_part_external(const mg_part *part, int root) {
    return part->lowered.root_external[root];
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

/* ---- work.c ---- */

/* About how many operations a run of the graph takes. */
double mg_graph_work(const mg_kernel_graph *graph);

/* ---- plan.c ---- */

/* fn(plan, i) for each part: in the calling thread if there is one part and p->on_worker is not
 * set, else each on its device's worker. Returns the first failure that is no consequence of
 * another, with the device's name. With `stop`, an interrupt ends the wait (mg_workers_run). If a
 * job is still running then, or its device is lost, the plan is abandoned. */
mg_status mg_plan_each(mg_plan *p, mg_status (*fn)(void *plan, int i), atomic_bool *stop);
/* Releases the buffers and values of a run that were not handed out: the plan is as before the
 * run. */
void mg_plan_clear_run(mg_plan *p);
/* Frees abandoned plans whose devices have come back, or makes them ordinary plans again. */
void mg_plan_reclaim_abandoned(void);

/* ---- commit.c ---- */

/* Allocates everything that the commit phase of part k needs: afterwards it cannot fail for lack of
 * memory. */
mg_status mg_commit_prepare(mg_plan *p, int k, mg_tensor *const *args);
/* Gives the variables the values that the commit phase has made. */
void mg_commit_bind(mg_plan *p);
/* After a failure in the commit phase: adds to its message whether the step counts. */
mg_status mg_commit_explain(const mg_plan *p, mg_status status);

/* ---- run.c: for commit.c ---- */

/* Allocates a buffer of this run for an external value and sets the value's address. */
mg_status mg_part_new_buffer(mg_part *part, int external);
/* An external value as a tensor: made by this run, or given to it and handed on. Owned; NULL on
 * failure. */
mg_tensor *mg_part_value(mg_part *part, int external, mg_tensor *const *args);

/* ---- run.c: like mg_plan_run and mg_plan_begin, for inputs that are all evaluated ---- */

mg_status mg_plan_execute(mg_plan *p, mg_tensor *const *args, mg_tensor **results);
mg_status mg_plan_start(mg_plan *p, mg_tensor *const *args);
/* Waits until no guard failure can take back the elements of t, a value; fails if a lost device has
 * them. */
mg_status mg_value_wait(const mg_tensor *t);
/* A copy of t, a value, in new memory on `device`. Owned. */
mg_tensor *mg_value_copy(const mg_tensor *t, mg_device *device);

#endif

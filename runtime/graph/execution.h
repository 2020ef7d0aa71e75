/* A run of a plan: the addresses, buffers and values that belong to it, and its jobs on the
 * devices.
 *
 * The plan itself (plan.h) does not change while it runs. Its one execution is made with it and
 * used by each run in turn; between two runs it holds only memory to be used again, and measured
 * times.
 *
 * A run whose device does not come back is abandoned (abandoned.h): then the execution, and
 * through it the plan, stay as they are until the device's thread has returned. */
#ifndef MG_GRAPH_EXECUTION_H
#define MG_GRAPH_EXECUTION_H

#include "graph/plan.h"

struct mg_abandoned;

typedef struct mg_part_run { /* what one device has in a run */
    void **address;          /* per external; this array's memory holds the next three too */
    mg_buffer **buffer;      /* per external: owned, what this run made */
    mg_tensor **bound;       /* per external: retained from mg_plan_begin to mg_plan_end */
    mg_tensor **fresh;       /* per assigned variable: owned, the value to bind */
    void *arena;
    void *own_arena; /* of runs beside the caller, who may use the device's arena meanwhile */
    size_t own_bytes;
    void *kept; /* of a frozen plan, owned: the values that MG_PREPARE makes */
    size_t kept_bytes;
    bool finished;   /* mg_run.finished */
    bool unfinished; /* the commit phase has not made all its values */
    double seconds;  /* in programs, in all runs so far; on several devices */
} mg_part_run;

typedef struct mg_execution {
    mg_plan *plan; /* borrowed; retained while the execution is abandoned */
    mg_part_run *parts;
    mg_buffer **whole;      /* per output that is sharded: owned */
    mg_tensor *const *args; /* borrowed */
    mg_rng_state rng;       /* the random state that the run began with */
    bool begun;             /* it is in progress beside the caller */
    bool refused;           /* in a joint plan the world goes on: all ranks refuse alike,
                               or this one has not met them, for lack of memory */
    bool on_worker;         /* it is on one device's worker, while the caller waits */
    atomic_bool stop;       /* its jobs are to end */
    /* Of a frozen plan: whether the kept values are made, of which variables (the sum of their
     * n_changes), and mg_variables_changes() when that was last looked at. */
    bool prepared;
    uint64_t prepared_of, changes;
    double compute_seconds;         /* of the last run, if it was long enough to be timed */
    mg_status *statuses;            /* per part: room for mg_workers_run ... */
    char **messages;                /* ... likewise */
    struct mg_abandoned *abandoned; /* owned: mg_abandoned_allow; or NULL */
} mg_execution;

/* For the parts of p, whose number is known; p may still have to be compiled. Owned; NULL:
 * MG_OOM. */
mg_execution *mg_execution_new(mg_plan *p);
/* Allocates the arrays of part k, which has been compiled. */
mg_status mg_execution_prepare(mg_execution *e, int k);
/* Accepts NULL. Not while it is abandoned. */
void mg_execution_free(mg_execution *e);

/* fn(execution, i) for each part: in the calling thread if there is one part and on_worker is not
 * set, else each on its device's worker. Returns the first failure that is no consequence of
 * another, with the device's name. With `stop`, an interrupt ends the wait (mg_workers_run). If a
 * job is still running then, or its device is lost, the execution is abandoned. */
mg_status mg_execution_each(mg_execution *e, mg_status (*fn)(void *execution, int i),
                            atomic_bool *stop);
/* Releases the buffers and values of the run that were not handed out. */
void mg_execution_clear(mg_execution *e);

/* ---- run_values.c: what the run is given, and what it returns ---- */

/* Copies variables to devices that do not have them yet, then sets the address of every external
 * value that is given to a part: arguments, constants, variables. */
mg_status mg_run_bind_inputs(mg_execution *e);
/* Before the run: a sharded output gets one buffer on the first device of its stage, which the
 * devices that can address it write to. */
mg_status mg_run_allocate_outputs(mg_execution *e);
/* Before the program of part k starts: buffers for its results. */
mg_status mg_run_allocate_results(mg_execution *e, int k);
/* Allocates a buffer of this run for an external value and sets the value's address. */
mg_status mg_run_new_buffer(mg_execution *e, int k, int external);
/* An external value as a tensor: made by this run, or given to it and handed on. Owned; NULL on
 * failure. */
mg_tensor *mg_run_value(mg_execution *e, int k, int external);
/* results[i] become owned value tensors. */
mg_status mg_run_collect_results(mg_execution *e, mg_tensor **results);
/* When the devices have computed them, or their work is enqueued: copies the rows of sharded
 * outputs that were not written to where they belong. */
mg_status mg_run_gather_results(mg_execution *e);

/* ---- commit.c ---- */

/* Allocates everything that the commit phase of part k needs: afterwards it cannot fail for lack of
 * memory. */
mg_status mg_commit_prepare(mg_execution *e, int k);
/* Gives the variables the values that the commit phase has made. */
void mg_commit_bind(mg_execution *e);
/* After a failure in the commit phase: adds to its message whether the step counts. */
mg_status mg_commit_explain(const mg_execution *e, mg_status status);

#endif

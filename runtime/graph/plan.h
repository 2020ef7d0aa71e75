/* What a plan is made of; for plan.c and share.c, which make it, and run.c, which runs it. */
#ifndef MG_GRAPH_PLAN_H
#define MG_GRAPH_PLAN_H

#include "comm/comm.h"
#include "graph/ir.h"
#include "graph/partition.h"

struct mg_abandoned_plan;

typedef struct mg_update { /* a variable's new value in one part */
    int external;
    bool in_place; /* safe where the variable is the sole holder */
} mg_update;

typedef struct mg_part { /* one device's share */
    mg_device *device;
    int threads; /* of the host's cores, as it was compiled for; on one device 0: all */
    int owner;   /* the part whose program, and what is lowered, this one uses: often itself */
    mg_program *program;
    int64_t *node_first, *step_first; /* of a part that is not its own owner: where rows begin, per
                                         node of its IR and per step; else NULL */
    mg_ir ir;                         /* the memory of everything lowered */
    mg_lowered lowered;
    bool *split_roots; /* per root: the part holds its rows only */
    mg_tensor **held;  /* retained: constants and variable reads the externals refer to */
    int n_held;
    mg_update *updates; /* per assigned variable */
    /* of a run: */
    void **address;     /* per external */
    mg_buffer **buffer; /* per external: owned, what this run made */
    mg_tensor **fresh;  /* per assigned variable: owned, the value to bind */
    void *arena;
    double seconds;  /* in programs so far, on several devices */
    void *own_arena; /* of runs beside the caller, who may use the device's meanwhile */
    size_t own_bytes;
    mg_tensor **bound; /* per external: retained while a run that was begun goes on */
} mg_part;

struct mg_plan {
    int keeper; /* the only part that has the variables, or -1 */
    int n_stages;
    int *root_part;     /* per root: the part that its whole value, or its first rows, come from */
    mg_device **stages; /* per stage: the device that stands for it */
    mg_comm *world;     /* of all parts, where there are stages; else NULL */
    bool verdict;       /* its guards are one root: see mg_plan_spec */
    bool at_once;       /* the phases run as one; a verdict is answered later */
    bool begun;         /* a run goes on beside the caller */
    bool spread;        /* on devices of the caller's choice: variables may lie elsewhere */
    int n_parts, n_outputs, n_assigns, n_guards, n_args;
    mg_part *parts;
    mg_shards shards;
    mg_comm **comms;         /* per stage: of its parts; NULL with one part */
    int collectives;         /* of a run */
    mg_variable **variables; /* retained: the assigned ones */
    mg_guard *guards;        /* their tensors are dropped: a root of the IR replaces them */
    mg_shape *output_shapes; /* global */
    mg_buffer **whole;       /* of a run: per output that is dealt out, owned */
    uint64_t n_draws;
    mg_rng_state rng;                /* of a run */
    mg_tensor *const *args;          /* likewise; borrowed */
    struct mg_abandoned_plan *wreck; /* on several devices: owned room to become one; see wreck.h */
    mg_status *statuses;             /* room for mg_workers_run */
    char **messages;
};

/* ---- running ahead (ahead.c) ---- */

/* Whether a trace on d with so many guards can become such a plan; its d->sound is there then. */
mg_status mg_async_guards_find(mg_device *d, int n_guards, bool *can);
/* In the open trace, which `sound` has entered too: the new value of each variable becomes "that
 * one where all guards hold and it is sound, else the old one". *verdict is owned. */
mg_status mg_async_guards_hold(mg_variable *sound, const mg_guard *guards, int n_guards,
                               mg_variable *const *variables, int n, mg_tensor **verdict);
/* Before a run of such a plan: what was told is forgotten, steps count again. */
mg_status mg_async_guards_make_sound(mg_device *d);
/* After it: its guards will be answered. */
mg_status mg_async_guards_ask(mg_plan *p);
/* Before p goes: the error of a guard that failed is kept for the next who asks its device. */
void mg_async_guards_drop(const mg_plan *p);

/* Root numbers: outputs first, then new values of variables, then guards. */
static inline int mg_part_external(const mg_part *part, int root) {
    return part->lowered.root_external[root];
}

/* share.c: finds the owner of part i among the parts before it, all of them simplified; if it is
 * another, the part's IR goes. When the owner is compiled, the part takes from it what it needs. */
mg_status mg_program_dedup_find(mg_plan *p, int i);
mg_status mg_program_dedup_take(mg_plan *p, int i);

/* Drops what a run has made and not handed on; as before the run. */
void mg_plan_drop_run(mg_plan *p);

/* Whether a part has the variable that assignment i changes. */
static inline bool mg_plan_holds(const mg_plan *p, int part, int i) {
    const int n = p->n_parts / p->n_stages, owner = p->root_part[p->n_outputs + i];
    return p->keeper >= 0 ? part == p->keeper : part / n == owner / n;
}

/* fn(plan, i) for each part: in the calling thread if there is one, else each on its device's
 * worker. The first failure is raised, with the device's name. A device that does not come back is
 * lost, and the plan a wreck. */
mg_status mg_plan_each(mg_plan *p, mg_status (*fn)(void *plan, int i));

#endif

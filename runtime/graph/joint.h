/* Joint plans: steps that all ranks of the world share.
 *
 * Each rank traces the same step, so all decide alike about shardings and collectives; each makes
 * and runs only the parts of its own devices. Here they make sure that it is the same step, learn
 * how many devices the others have, and agree that all have computed before any commits. */
#ifndef MG_GRAPH_JOINT_H
#define MG_GRAPH_JOINT_H

#include "graph/plan.h"

/* MG_USAGE on all ranks if they have not traced the same step: a message that says what differs.
 * They can go on with other steps: p->refused. */
mg_status mg_joint_compare(mg_plan *p, const mg_plan_spec *spec, const mg_ir *global);
/* On all ranks: differs[i] becomes whether some rank has another value of variable i than rank 0.
 * All ranks give the same variables, which have values. */
mg_status mg_joint_find_differing(mg_variable *const *variables, int n, bool *differs);
/* The devices of all ranks that share the rows of a batch, rank after rank. */
typedef struct mg_joint_devices {
    int64_t *here;        /* of each rank: how many it has */
    int64_t first, total; /* the first one of this rank; all of them */
    double *weights;      /* relative shares of the rows of all; NULL: equal ones */
} mg_joint_devices;

/* Every rank calls it with the number of its own devices and their weights. A rank that gives NULL
 * has the weight 1 for each, if others give some. MG_USAGE on all ranks, and a total that is more
 * than MG_MAX_SHARDS: there are too many. */
mg_status mg_joint_find_devices(int n, const double *weights, mg_joint_devices *devices);
void mg_joint_free_devices(mg_joint_devices *devices);
/* Fills in p->comms, p->first, p->weights and p->number. weights: of this rank's devices, or NULL.
 */
mg_status mg_joint_connect(mg_plan *p, const double *weights);
/* Before a run: MG_USAGE on all ranks, and *differs set, if not all run this plan with the same
 * random numbers. */
mg_status mg_joint_meet(const mg_plan *p, bool *differs);
/* After the compute phase: MG_OK if all ranks have come here. */
mg_status mg_joint_agree(void);

#endif

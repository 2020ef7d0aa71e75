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
/* Fills in p->comms, p->first and p->number. */
mg_status mg_joint_connect(mg_plan *p);
/* Before a run: MG_USAGE on all ranks, and *differs set, if not all run this plan with the same
 * random numbers. */
mg_status mg_joint_meet(const mg_plan *p, bool *differs);
/* After the compute phase: MG_OK if all ranks have come here. */
mg_status mg_joint_agree(void);

#endif

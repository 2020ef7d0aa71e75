/* Abandoned plans: plans whose run a device did not come back from.
 *
 * The thread of such a *lost* device may go on at any time, so nothing that it may touch is freed:
 * the plan with all its parts, the communicators, the arenas of its devices (in a collective a
 * device writes to others'), and the tensors that its parts were given. All of it is kept until the
 * thread has come back.
 *
 * Called by plan.c and run.c; reads the plan's structure but calls neither. */
#ifndef MG_GRAPH_ABANDONED_PLAN_H
#define MG_GRAPH_ABANDONED_PLAN_H

#include "graph/plan.h"

typedef struct mg_abandoned_plan mg_abandoned_plan;

/* The record that a plan on several devices owns from its start, so that abandoning it cannot fail
 * for lack of memory. mg_free frees it. NULL: MG_OOM. */
mg_abandoned_plan *mg_abandoned_plan_new(void);
/* p's run was abandoned because some of its devices are lost: keeps everything they may access. A
 * variable with a copy on another device continues with that copy. args: the run's arguments, or
 * NULL. */
void mg_abandoned_plan_add(mg_plan *p, mg_tensor *const *args);
bool mg_abandoned_plan_is(const mg_plan *p);
/* Keeps t (or NULL) as long as p is abandoned. */
void mg_abandoned_plan_keep(mg_plan *p, mg_tensor *t);
/* p's owner wants to free it. True if p is abandoned: then it must not be freed now, and
 * mg_abandoned_plan_returned returns it when it may be. */
bool mg_abandoned_plan_disown(mg_plan *p);
/* A plan whose lost devices have all returned, or NULL. The memory that was kept for it is freed,
 * and it is an ordinary plan again whose last run has yet to be cleared. *disowned: its owner wants
 * to free it. */
mg_plan *mg_abandoned_plan_returned(bool *disowned);

#endif

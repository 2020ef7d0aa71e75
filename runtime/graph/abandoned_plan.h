/* Wrecks: plans whose run a device did not come back from.
 *
 * Its thread may go on at any time, so nothing that it may touch is freed: the plan with all its
 * parts, the communicators, the arenas of its devices (in a collective a device writes to others'),
 * and the tensors that its parts were given. All of it is kept until the thread has come back. */
#ifndef MG_GRAPH_ABANDONED_PLAN_H
#define MG_GRAPH_ABANDONED_PLAN_H

#include "graph/plan.h"

typedef struct mg_abandoned_plan mg_abandoned_plan;

/* Room for one, so that becoming a wreck cannot fail. NULL: out of memory. */
mg_abandoned_plan *mg_abandoned_plan_room(void);
/* p's run was given up, some of its devices are lost. Variables take the value of another device
 * that has one. */
void mg_abandoned_plan_make(mg_plan *p, mg_tensor *const *args);
bool mg_abandoned_plan_is(const mg_plan *p);
/* Keeps t (or NULL) as long as p is a wreck. */
void mg_abandoned_plan_keep(mg_plan *p, mg_tensor *t);
/* p's owner frees it: true if it is a wreck, which is freed when it is none any more. */
bool mg_abandoned_plan_take(mg_plan *p);
/* Frees the wrecks whose devices have come back; their plans are ordinary plans again. */
void mg_abandoned_plan_reclaim(void);

#endif

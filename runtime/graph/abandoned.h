/* Abandoned executions: runs that a device did not come back from.
 *
 * The thread of such a *lost* device, or of a job that an interrupt gave up, may go on at any time,
 * so nothing that it may touch is freed: the execution, its plan with all parts and communicators,
 * the arenas of its devices (in a collective a device writes to others'), and the tensors that its
 * parts were given. All of it is kept until the thread has come back. */
#ifndef MG_GRAPH_ABANDONED_H
#define MG_GRAPH_ABANDONED_H

#include "graph/execution.h"

/* To be called before a job that may be abandoned starts, so that abandoning it cannot fail for
 * lack of memory. MG_OOM. */
mg_status mg_abandoned_allow(mg_execution *e);
/* Some devices of e are lost, or still in a job that was given up: keeps everything that they may
 * access, and retains the plan. A variable with a copy on another device goes on with that copy. */
void mg_abandoned_add(mg_execution *e);
bool mg_abandoned_is(const mg_execution *e);
/* Keeps t (or NULL) as long as e is abandoned. */
void mg_abandoned_keep(mg_execution *e, mg_tensor *t);
/* An execution whose devices have all returned, or NULL. What was kept for it is released, but for
 * the reference on its plan, which is the caller's now; its last run has yet to be cleared. */
mg_execution *mg_abandoned_returned(void);

#endif

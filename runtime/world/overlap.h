/* Reductions between processes beside the computation: a thread carries out what was begun, while
 * the device goes on with the backward pass.
 *
 * The terms are copied when a reduction begins and the results when they are settled, so the device
 * may use the memory of both in between. */
#ifndef MG_WORLD_OVERLAP_H
#define MG_WORLD_OVERLAP_H

#include "comm/comm.h"

typedef struct mg_overlap mg_overlap;

/* The thread is started by the first reduction. NULL: MG_OOM. */
mg_overlap *mg_overlap_new(void);
/* Accepts NULL. Waits for the thread: the world is over, or nothing is under way. */
void mg_overlap_free(mg_overlap *o);
/* Begins an all-reduce of this rank. */
mg_status mg_overlap_begin(mg_overlap *o, uint32_t tag, const mg_collective_call *x);
/* Whether settling would have something to do. */
bool mg_overlap_concerns(const mg_overlap *o, const mg_memory *read, int n);
/* Waits for the reductions up to the last whose result lies in one of the memories (n = 0: for all)
 * and writes their results. Fails with the error of one that failed. */
mg_status mg_overlap_settle(mg_overlap *o, const mg_memory *read, int n);
/* The seconds that all reductions so far took on the thread. */
double mg_overlap_seconds(mg_overlap *o);
/* After a failure: waits for what is under way and forgets its results. */
void mg_overlap_drop(mg_overlap *o);

#endif

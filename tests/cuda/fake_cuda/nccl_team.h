/* The ranks of a fake NCCL communicator, in one process or in several: they share a mapped file. */
#ifndef FAKE_CUDA_NCCL_TEAM_H
#define FAKE_CUDA_NCCL_TEAM_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct team team;

enum { TEAM_MOST = 16, TEAM_ROOM = 16 << 10 }; /* ranks; bytes that a rank shows at once */

/* Makes the file of a new team and stores its path in *id; false if it cannot. */
bool team_make(ncclUniqueId *id);
/* Joins as rank `rank` of n, on GPU `gpu`. The mapping is never removed. NULL: there is no such
 * team. */
team *team_join(const ncclUniqueId *id, int n, int rank, int gpu);
int team_size(const team *t);

/* ncclInProgress until all have joined; an error if two ranks use one GPU, or if a rank has
 * aborted. */
ncclResult_t team_state(team *t, int rank);
/* The rank ends: in order, or with an abort, which wakes the thread that waits on behalf of this
 * rank. */
void team_leave(team *t, int rank);
void team_abort(team *t, int rank);

/* A barrier: waits until all ranks have called it; false if this rank aborts meanwhile. */
bool team_meet(team *t, int rank);
/* A second barrier, for captures; also false after `seconds`. */
bool team_register(team *t, int rank, double seconds);
/* The TEAM_ROOM bytes that rank k writes before a meeting and the others read before the next one.
 */
char *team_shown(team *t, int k);

/* One piece of a message, at most TEAM_ROOM bytes. team_send returns the bytes that it took, 0
 * while the last piece has not been received; team_take the bytes that it received, 0 if there are
 * none. */
size_t team_send(team *t, int from, int to, const char *data, size_t bytes);
size_t team_take(team *t, int from, int to, char *data, size_t bytes);
/* Whether all that was sent has been received. */
bool team_taken(team *t, int from, int to);
/* Waits until something has changed since *seen, and updates it; false if the rank aborts
 * meanwhile. */
bool team_wait(team *t, int rank, long *seen);

#endif

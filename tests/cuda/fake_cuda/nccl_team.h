/* Ranks of the fake CUDA for NCCL, in one process or several: they meet in a file that all map. */
#ifndef FAKE_CUDA_NCCL_TEAM_H
#define FAKE_CUDA_NCCL_TEAM_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct team team;

enum { TEAM_MOST = 16, TEAM_ROOM = 16 << 10 }; /* ranks; bytes that a rank shows at once */

/* A new one, named by the id; false: no file. */
bool team_make(ncclUniqueId *id);
/* Rank `rank` of `n`, on a GPU; the mapping is kept for good. NULL: there is none of that id. */
team *team_join(const ncclUniqueId *id, int n, int rank, int gpu);
int team_size(const team *t);

/* Whether all have joined, and whether something is wrong with it by now. */
ncclResult_t team_state(team *t, int rank);
/* The rank goes: in peace, or so that whoever waits for it in its own process wakes. */
void team_leave(team *t, int rank);
void team_abort(team *t, int rank);

/* These return false once the rank has aborted. Until all ranks have called it: */
bool team_meet(team *t, int rank);
/* What rank k shows: TEAM_ROOM bytes that he writes before a meeting, and others read before the
 * next. */
char *team_shown(team *t, int k);

/* From one rank to another, in order: up to TEAM_ROOM bytes, if the last have been taken (0: not
 * yet); and what is taken (0: nothing there). */
size_t team_send(team *t, int from, int to, const char *data, size_t bytes);
size_t team_take(team *t, int from, int to, char *data, size_t bytes);
/* Until all that was sent was taken. */
bool team_taken(team *t, int from, int to);
/* Until something has changed since *seen. */
bool team_wait(team *t, int rank, long *seen);

#endif

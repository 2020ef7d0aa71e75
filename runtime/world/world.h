/* The world: the processes that run one script together, each with some of the devices of a step.
 *
 * Every process, a *rank*, runs the same script and traces the same steps (SPMD). A step that is
 * *joint* computes on the devices of all ranks; each compiles and runs only the parts of its own.
 * Everything else a script does, each rank does for itself.
 *
 * A launcher started the processes (launch.h). The hub (hub.h) brings them together and watches
 * them; a transport (transport.h) carries the messages that collectives are made of (exchange.h,
 * communicator.c). If a rank dies or fails, the world is over: joint steps fail on all ranks with
 * MG_COMM and the same sentence, and change nothing.
 *
 * Without a launcher, or with a single process, there is one rank, nothing is loaded and nothing
 * started. */
#ifndef MG_WORLD_WORLD_H
#define MG_WORLD_WORLD_H

#include "comm/comm.h"
#include "world/hub.h"
#include "world/launch.h"

/* ---- life ---- */

/* Joins the processes that the launcher started, once; later calls do nothing. To be called before
 * random numbers are drawn or anything else can differ between the ranks. */
mg_status mg_world_start(void);
/* Leaves the world. A status other than 0 tells the others that this rank has failed. */
void mg_world_stop(int exit_status);

/* ---- who is there ---- */

int mg_world_rank(void);
int mg_world_size(void); /* 1 before mg_world_start */
/* How this process was started; valid after mg_world_start. */
const mg_launch *mg_world_launch(void);
const mg_hub_member *mg_world_member(int rank); /* NULL in a world of one */
const char *mg_world_transport(void);           /* "Open MPI 4.1.4"; "" in a world of one */

/* Between mg_world_alone_begin and mg_world_alone_end, which nest, this rank computes by itself:
 * for what only one rank does, such as callbacks. */
void mg_world_alone_begin(void);
void mg_world_alone_end(void);
/* Whether a step of a spread model is joint now: several ranks, and not alone. */
bool mg_world_is_joint(void);

/* ---- failures ---- */

/* NULL; or why the world is over. */
const char *mg_world_over(void);
/* MG_COMM with that reason if the world is over. */
mg_status mg_world_check(void);
/* What this process does, for the sentence if it dies: a joint step begins; the op of this name (a
 * static string) is started. Cheap. */
void mg_world_at_step(void);
void mg_world_at_op(const char *op);
/* MG_COMM, on all ranks, if some rank has left the script although this one still waits for it. */
mg_status mg_world_check_left(void);
/* After a message to or from another rank has failed with MG_COMM: waits until the hub knows which
 * rank has gone. MG_COMM with the sentence that all ranks get. */
mg_status mg_world_explain(void);
/* This rank cannot go on: the others learn `why`, with this rank's name before it. */
void mg_world_fail(const char *why);

/* ---- what ranks agree on ---- */

enum { MG_FLAG_STOP = 1 }; /* some rank was asked to save and stop */

/* Where a rank has come to, for the others to compare. */
enum mg_world_place {
    MG_AT_NEW_STEP, /* a joint step is made */
    MG_AT_STEP,     /* a joint step runs */
    MG_AT_SEND,     /* rank 0 sends a result */
    MG_AT_EPOCH,    /* an epoch has ended, and rank 0 sends what was decided meanwhile */
    MG_AT_END,      /* the data have ended, or a barrier */
    MG_AT_CALL,     /* a call of a model's method that trains or evaluates begins */
    MG_AT_VALUES,   /* ranks that train on weights of their own add something up (values.h) */
};

/* Every rank calls it before it exchanges anything else. MG_USAGE on all ranks, and *differs set,
 * if not all have come to the same place, number (which step) and state of the random numbers; then
 * no rank is in an exchange, and the world is not over. Waiting for a result of rank 0, or at an
 * end of data or a barrier, has no deadline, since others may compute alone for long. */
mg_status mg_world_meet(enum mg_world_place place, int64_t number, int64_t random, bool *differs);
/* Every rank calls it, with flags of its own or none. MG_OK: all have come. */
mg_status mg_world_agree(uint32_t flags);
/* The union of the flags of all calls of mg_world_agree so far: the same on all ranks between two
 * calls. */
uint32_t mg_world_flags(void);
/* Copies the root's bytes to all others. */
mg_status mg_world_broadcast(int root, void *data, size_t bytes);
/* all[0 .. size-1] become the values of the ranks. */
mg_status mg_world_gather(int64_t own, int64_t *all);
/* `all` becomes what the ranks give, one after another: bytes[r] of rank r. This rank has put its
 * own in place. */
mg_status mg_world_gather_lists(void *all, const size_t *bytes);

/* The seconds that a message of so many bytes takes from rank a to rank b, measured `rounds` times
 * to and fro, on all ranks. Every rank calls it. */
mg_status mg_world_measure_link(int a, int b, size_t bytes, int rounds, double *seconds);
/* The seconds in which all ranks add up `count` float32 numbers: the mean of `rounds` times.
 * Every rank calls it. */
mg_status mg_world_measure_sum(int64_t count, int rounds, double *seconds);

/* ---- communicator.c ---- */

/* A communicator among the devices of a joint step: rank r has here[r] of them, all in host memory,
 * and the devices are numbered rank after rank. Every rank calls it at the same point. NULL on
 * failure. */
mg_comm *mg_world_connect(const int64_t *here);

#endif

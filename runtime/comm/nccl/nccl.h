/* mgpu-nccl.so: collectives by NCCL. What the files of this plug-in share.
 *
 * Each call is enqueued on its rank's stream, so it can be recorded with the rest of a step.
 *
 * NCCL's communicators are used in non-blocking mode: a call returns at once, and the calling rank
 * polls until NCCL has finished it. So a rank's lock is held only briefly, and abort, which any
 * thread may call, can take it and remove the rank's communicator between two polls.
 *
 * ncclCommAbort ends kernels that wait for other ranks, but returns only when the last recording
 * that uses the communicator has been destroyed. So it runs on a detached thread per rank. A
 * watcher thread finds errors that arise when no rank is in a call, such as the death of another
 * process, and aborts. The next reset makes new communicators in place of the aborted ones, and
 * changes mg_comm.generation, because recordings with the old ones are invalid.
 *
 * Lock order: lifetime, then a rank's lock, then mutex. */
#ifndef MG_COMM_NCCL_NCCL_H
#define MG_COMM_NCCL_NCCL_H

#include "comm/comm.h"
#include "core/library.h"
#include <nccl.h>
#include <pthread.h>

/* ---- the library, opened at first use ---- */

#define MG_NCCL_FUNCTIONS(X)                                                                       \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclReduce) X(ncclBroadcast) X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)

MG_LIBRARY_TABLE(mg_nccl_api, MG_NCCL_FUNCTIONS);
extern mg_nccl_api mg_nccl;

/* ---- the communicator ---- */

/* The argument of the thread that aborts a rank's NCCL communicator. Allocated when the rank joins,
 * so that aborting needs no memory. */
typedef struct mg_nccl_abort_job {
    struct mg_nccl_comm *of;
    ncclComm_t comm;
} mg_nccl_abort_job;

typedef struct mg_nccl_rank {
    mg_comm_end end;
    pthread_mutex_t lock;         /* for calls with comm */
    ncclComm_t comm;              /* NULL: aborted */
    mg_nccl_abort_job *abort_job; /* owned; NULL once a thread has it */
} mg_nccl_rank;

typedef struct mg_nccl_comm {
    mg_comm comm;
    int first, here; /* the ranks of this process: [first, first + here) */
    bool
        spans_processes; /* the id came from another process; this one cannot make a new id alone */
    mg_comm_id id;       /* of NCCL's current communicators */
    pthread_t watcher;   /* thread */
    bool has_watcher;    /* it was started */
    pthread_mutex_t lifetime;  /* held while communicators are made or aborted */
    pthread_mutex_t mutex;     /* for the members below */
    pthread_cond_t ending;     /* signalled when `ended` is set */
    bool ended;                /* the watcher must return */
    bool aborted;              /* until reset */
    char reason[300];          /* why it was aborted; "": a device failed elsewhere */
    int aborts;                /* threads in ncclCommAbort */
    pthread_cond_t abort_over; /* signalled when one of them has ended */
    bool orphaned; /* the owner no longer waits: the last of these threads frees this struct */
    mg_nccl_rank ranks[]; /* those of this process */
} mg_nccl_comm;

static inline mg_nccl_comm *mg_nccl_of(mg_comm *comm) {
    return (mg_nccl_comm *)comm;
}

static inline bool mg_nccl_failed(ncclResult_t result) {
    return result != ncclSuccess && result != ncclInProgress;
}

/* ---- calls.c ---- */

/* Turns a failed result into a status with message. If the communicator was aborted, that is the
 * cause, and the message is its reason. */
mg_status mg_nccl_fail(mg_nccl_comm *c, ncclResult_t result, const char *what);
/* With r's lock, which is released between polls: waits until NCCL has finished the call that
 * returned `result`, at most for the deadline, and with `stops` until an interrupt, which it takes.
 * `what` is for messages. */
mg_status mg_nccl_wait(mg_nccl_comm *c, mg_nccl_rank *r, ncclResult_t result, bool stops,
                       const char *what);
/* mg_comm_api */
mg_status mg_nccl_run(mg_comm *comm, int i, const mg_collective_call *x);
mg_status mg_nccl_barrier(mg_comm *comm, int i);

/* ---- failures.c ---- */

/* Makes the NCCL communicators of all ranks here, and returns when they have connected to those of
 * the other processes, or with `stops` after an interrupt. */
mg_status mg_nccl_join_ranks(mg_nccl_comm *c, bool stops);
/* With r's lock, which is released: takes the rank's communicator away and aborts it on a separate
 * thread. */
void mg_nccl_abort_rank(mg_nccl_comm *c, mg_nccl_rank *r);
/* Starts the thread that finds errors between calls. */
mg_status mg_nccl_start_watcher(mg_nccl_comm *c);
void mg_nccl_stop_watcher(mg_nccl_comm *c);
/* Frees the struct, when no thread uses it any more. */
void mg_nccl_free_struct(mg_nccl_comm *c);
/* mg_comm_api */
mg_status mg_nccl_check(mg_comm *comm);
void mg_nccl_abort(mg_comm *comm);
void mg_nccl_reset(mg_comm *comm);

#endif

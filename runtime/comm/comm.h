/* Communicators: how the devices of one plan exchange data.
 *
 * Each rank is a device with a thread. All ranks call the same collectives in the same order. A
 * call fails with MG_COMM if the communicator has been aborted or other ranks do not come within
 * the deadline; a rank that fails elsewhere calls abort, so that no other waits for it. Results do
 * not depend on timing: reductions add up in the order of the ranks.
 *
 * Implementations: local.c (threads of one process that see each other's memory), staged.c (any
 * devices, through host memory), nccl/ (GPUs, by NCCL), device/cuda/comm/comm.c (GPUs that read
 * each other's memory). */
#ifndef MG_COMM_COMM_H
#define MG_COMM_COMM_H

#include "comm/collective.h"
#include "core/dtype.h"
#include "core/placement.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mg_comm mg_comm;
struct mg_device;

/* ---- one call of a collective ---- */

/* Reductions that become ready at about the same time are combined in buckets, of at most
 * MG_BUCKET_TENSORS tensors. MG_BUCKET_BYTES are about what a link between GPUs moves in the time
 * that a message takes at least: buckets of gradients are sized by it (graph/partition_buckets.c),
 * others are closed when they hold as many. */
enum { MG_BUCKET_BYTES = 2 << 20, MG_BUCKET_TENSORS = 64 };

/* One tensor on one rank. in and out do not overlap; but communicators of devices that reduce in
 * place (mg_kernel_set.reduces_in_place) get all-reduces whose in is their out. An address that the
 * rank does not read or write (mg_collective_reads, mg_collective_writes) is ignored. */
typedef struct mg_comm_operand {
    const void *in;
    void *out;
    int64_t count; /* elements; all_gather: ignored, see mg_collective_call.counts */
} mg_comm_operand;

/* Equal on all ranks, except for the addresses. */
typedef struct mg_collective_call {
    mg_collective kind;
    mg_dtype dtype;
    enum mg_reduce_kind reduction; /* all_reduce, reduce */
    int root, to;                  /* ranks: see mg_collective */
    /* Several tensors, at most MG_BUCKET_TENSORS, are a bucket: the results equal those of a call
     * per tensor. */
    const mg_comm_operand *operands;
    int n_operands;
    int64_t outer;         /* all_gather: blocks before the gathered axis */
    const int64_t *counts; /* all_gather, per rank: elements of its block */
} mg_collective_call;

/* "all_reduce": for messages. */
const char *mg_collective_name(mg_collective kind);
/* Whether only ranks `root` and `to` call it, independently of the other ranks. */
bool mg_collective_is_point_to_point(mg_collective kind);
/* Whether `rank` gives an operand to the call, and whether it gets a result. */
bool mg_collective_has_input(const mg_collective_call *x, int rank);
bool mg_collective_has_output(const mg_collective_call *x, int rank);
/* Bytes of operand i's in that are read, and of its out that are written, on `rank` of n. */
size_t mg_collective_reads(const mg_collective_call *x, int i, int rank, int n);
size_t mg_collective_writes(const mg_collective_call *x, int i, int rank, int n);

/* ---- the interface of a communicator ---- */

typedef struct mg_memory {
    const void *data;
    size_t bytes;
} mg_memory;

typedef struct mg_comm_api {
    const char *kind; /* "local" */
    /* Takes part in a collective, as `rank`. */
    mg_status (*run)(mg_comm *c, int rank, const mg_collective_call *call);
    /* Like run, but may return before the result is written: the inputs are taken at once. NULL:
     * run does it. */
    mg_status (*begin)(mg_comm *c, int rank, const mg_collective_call *call);
    /* Writes the results of the calls begun so far, if some of the n memories hold one of them;
     * with n = 0, all results. To be called before anything reads them, and at the end of a phase.
     */
    mg_status (*settle)(mg_comm *c, int rank, const mg_memory *read, int n);
    /* Returns when all ranks have called it. */
    mg_status (*barrier)(mg_comm *c, int rank);
    /* May be called from any thread: waiting calls return MG_COMM, and so do all later ones until
     * reset. */
    void (*abort)(mg_comm *c);
    /* Makes an aborted communicator usable again. No rank may be in a call. */
    void (*reset)(mg_comm *c);
    /* MG_COMM between abort and reset, with the reason as message. */
    mg_status (*check)(mg_comm *c);
    void (*free)(mg_comm *c);
    /* Calls only enqueue work on an ordered stream: they may be recorded with the stream's other
     * work and replayed until mg_comm.generation changes. */
    bool recorded;
} mg_comm_api;

struct mg_comm {
    const mg_comm_api *api;
    int n;                /* ranks */
    int generation;       /* changes when recorded calls become invalid */
    double deadline;      /* seconds that a rank waits for the others */
    int64_t *bytes_moved; /* per rank: read from or written to other ranks' memory */
    double *waited;       /* per rank: seconds spent waiting for others */
    double *busy;         /* per rank: seconds spent in collectives without waiting */
    const char **names;   /* per rank: its device; interned, NULL: not known */
    double *beside; /* per rank: seconds that collectives took beside its other work, on a thread */
};

/* ---- communicators ---- */

/* Ranks that are threads of this process and see each other's memory. NULL on failure. */
mg_comm *mg_comm_local(int n);

/* A rank of a staged communicator. */
typedef struct mg_staged_rank {
    struct mg_device *device;
    /* argument of the functions */ /* Copy between host memory and the device's. NULL: the host
                                       sees the device's memory. */
    mg_status (*copy_in)(struct mg_device *device, void *dst, const void *src, size_t bytes);
    mg_status (*copy_out)(struct mg_device *device, void *dst, const void *src, size_t bytes);
} mg_staged_rank;

/* Any mixture of devices, through buffers in host memory. Ranks are copied. NULL on failure. */
mg_comm *mg_comm_staged(const mg_staged_rank *ranks, int n);
/* The same on top of a communicator of host memory (taken over, also on failure; NULL: NULL), of
 * whose ranks the n from `first` on are given. */
mg_comm *mg_comm_staged_on(mg_comm *host, const mg_staged_rank *ranks, int first, int n);

/* ---- communicators that are plug-ins, mgpu-<kind>.so ---- */

/* The id of a team over several processes: one process makes it and sends it to the others. */
typedef struct mg_comm_id {
    char bytes[128];
} mg_comm_id;

typedef struct mg_comm_end { /* a rank of this process: a device that executes a stream */
    void *device;            /* argument of the functions */
    void *stream;
    void *mark;                        /* a byte of the device's memory, for barriers */
    mg_status (*enter)(void *device);  /* makes it the calling thread's current device */
    mg_status (*finish)(void *device); /* waits until all enqueued work is done */
} mg_comm_end;

typedef struct mg_comm_team { /* the ranks that share a communicator */
    int n;                    /* ranks, in all processes */
    int first, here;          /* the ranks of this process: [first, first + here) */
    const mg_comm_id *id;     /* NULL: all are here */
    const mg_comm_end *ends;  /* of the ranks here; copied */
} mg_comm_team;

typedef struct mg_comm_kind { /* returned by the function `mg_comm_plugin` of a plug-in */
    size_t size;              /* of this struct */
    mg_status (*make_id)(mg_comm_id *id);
    /* Returns when all ranks have joined. If the team spans processes, reset cannot repair the
     * communicator after an abort: the ranks must join again, with a new id. NULL on failure. */
    mg_comm *(*join)(const mg_comm_team *team);
} mg_comm_kind;

/* NULL, MG_UNSUPPORTED: there is no such plug-in, or it is of another version. */
const mg_comm_kind *mg_comm_find(const char *kind);

/* ---- for implementations ---- */

/* Fills in the members: n ranks, counters of zero, and the deadline from MGPU_DEADLINE (seconds),
 * ten minutes if that is not set. MG_OOM. */
mg_status mg_comm_set_up(mg_comm *c, const mg_comm_api *api, int n);
void mg_comm_clear(mg_comm *c);
/* The range [result, *last) of `count` elements that `rank` of n reduces where ranks divide the
 * work. Its length is a multiple of `unit` elements, except at the end. */
int64_t mg_comm_share(int n, int rank, int64_t count, int64_t unit, int64_t *last);
/* Adds to bytes_moved the bytes that `rank` gets from other ranks in a call that only moves data.
 * For a reduction it adds nothing: that depends on the algorithm, so the implementation counts. */
void mg_comm_count_moved(mg_comm *c, int rank, const mg_collective_call *x);

/* A communicator whose ranks are threads of this process and that is built on a local communicator:
 * it shares the counters of the local one and forwards barrier, abort, reset and check to it. This
 * is the first member of the implementation's struct, whose api has the four functions below. */
typedef struct mg_comm_over {
    mg_comm comm;
    mg_comm *host; /* the local communicator, or that of the world; owned */
} mg_comm_over;

mg_status mg_comm_over_set_up(mg_comm_over *c, const mg_comm_api *api, int n);
/* The same on top of `host`, which is taken over. */
void mg_comm_over_put(mg_comm_over *c, const mg_comm_api *api, mg_comm *host);
void mg_comm_over_clear(mg_comm_over *c);
mg_status mg_comm_over_barrier(mg_comm *c, int rank);
void mg_comm_over_abort(mg_comm *c);
void mg_comm_over_reset(mg_comm *c);
mg_status mg_comm_over_check(mg_comm *c);

#endif

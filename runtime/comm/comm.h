/* Communicators: what the devices of one plan say to each other.
 *
 * Every rank calls the same collectives in the same order, each from a thread of its own. A call
 * that finds the communicator aborted, or waits longer than the deadline, fails with MG_COMM;
 * whoever fails elsewhere calls abort, so that nobody waits for him. Values do not depend on
 * timing. */
#ifndef MG_COMM_COMM_H
#define MG_COMM_COMM_H

#include "core/dtype.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mg_comm mg_comm;

/* Reductions that are ready about the same time go together, in buckets: so many bytes close one,
 * and more than so many tensors it does not take. */
enum { MG_BUCKET_BYTES = 2 << 20, MG_BUCKET_TENSORS = 64 };

typedef struct mg_reduction { /* one tensor of a bucket */
    const void *in;
    void *out;
    int64_t count;
} mg_reduction;

typedef struct mg_comm_api {
    size_t size;
    const char *kind;
    /* out = in of rank 0 op in of rank 1 op ..., in this order; `op`: enum mg_reduce_kind; on every
     * rank. out and in do not overlap. */
    mg_status (*all_reduce)(mg_comm *c, int rank, const void *in, void *out, int64_t count,
                            mg_dtype dtype, int op);
    /* Several at once, at most MG_BUCKET_TENSORS: the values are those of one after another. NULL:
     * the caller makes one after another. */
    mg_status (*all_reduce_many)(mg_comm *c, int rank, const mg_reduction *list, int n,
                                 mg_dtype dtype, int op);
    /* all_reduce on rank `root` alone: elsewhere out is not touched. */
    mg_status (*reduce)(mg_comm *c, int rank, int root, const void *in, void *out, int64_t count,
                        mg_dtype dtype, int op);
    /* The root's `in` in everybody else's out. */
    mg_status (*broadcast)(mg_comm *c, int rank, int root, const void *in, void *out,
                           int64_t bytes);
    /* The ranks' blocks one after another: out is `outer` times the blocks of rank 0, 1, ...;
     * bytes[k] is the length of rank k's block. */
    mg_status (*all_gather)(mg_comm *c, int rank, const void *in, void *out, int64_t outer,
                            const int64_t *bytes);
    /* Returns when all ranks have called it. */
    mg_status (*barrier)(mg_comm *c, int rank);
    /* From one rank's `in` to another's `out`; both call it, nobody else does. */
    mg_status (*transfer)(mg_comm *c, int rank, int from, int to, const void *in, void *out,
                          int64_t bytes);
    /* Wakes everybody; from any thread. Until reset, all calls fail. */
    void (*abort)(mg_comm *c);
    /* After everybody has returned: as new. */
    void (*reset)(mg_comm *c);
    /* MG_COMM, saying what went wrong, from abort to reset. */
    mg_status (*check)(mg_comm *c);
    void (*free)(mg_comm *c);
    /* Its calls only start work on a device that keeps order: they may be recorded and repeated,
     * until `generation` changes. */
    bool recorded;
} mg_comm_api;

struct mg_comm {
    const mg_comm_api *api;
    int n;
    int generation;       /* of what recordings refer to */
    double deadline;      /* seconds that a rank waits for the others */
    int64_t *bytes_moved; /* per rank: read from or written to other ranks' memory */
    double *waited;       /* per rank: seconds spent waiting for others, */
    double *busy;         /* and in collectives otherwise */
};

/* Ranks that are threads of this process and see each other's memory. NULL on failure. */
mg_comm *mg_comm_local(int n);

/* ---- communicators that are plug-ins, mgpu-<kind>.so ---- */

/* What names a team over several processes: one makes it, all are told. */
typedef struct mg_comm_id {
    char bytes[128];
} mg_comm_id;

typedef struct mg_comm_end { /* a rank of this process: a device whose work is a stream's */
    void *device;            /* for the functions */
    void *stream;
    void *mark;                        /* a byte of its memory, for barriers */
    mg_status (*enter)(void *device);  /* the calling thread uses it from now on */
    mg_status (*finish)(void *device); /* waits until what was started is done */
} mg_comm_end;

typedef struct mg_comm_team { /* who shares a communicator */
    int n;                    /* ranks, in all processes */
    int first, here;          /* those of this one: [first, first + here) */
    const mg_comm_id *id;     /* NULL: all are here */
    const mg_comm_end *ends;  /* of the ranks here; copied */
} mg_comm_team;

typedef struct mg_comm_kind { /* what a plug-in exports as `mg_comm_plugin`, by a function */
    size_t size;
    mg_status (*make_id)(mg_comm_id *id);
    /* Returns when all ranks have joined. One that another process belongs to is not mended by
     * reset: its ranks join anew, with a new id. NULL on failure. */
    mg_comm *(*join)(const mg_comm_team *team);
} mg_comm_kind;

/* NULL, MG_UNSUPPORTED: there is no such plug-in. */
const mg_comm_kind *mg_comm_find(const char *kind);

/* ---- for those who make communicators ---- */

/* n ranks, nothing counted, the deadline that MGPU_DEADLINE says or ten minutes. MG_OOM. */
mg_status mg_comm_set_up(mg_comm *c, const mg_comm_api *api, int n);
void mg_comm_clear(mg_comm *c);

/* One whose ranks are threads of this process and meet in a local one, whose counters it shows:
 * the first member of a larger struct, whose api has these four entries. */
typedef struct mg_comm_over {
    mg_comm comm;
    mg_comm *host;
} mg_comm_over;

mg_status mg_comm_over_set_up(mg_comm_over *c, const mg_comm_api *api, int n);
void mg_comm_over_clear(mg_comm_over *c);
mg_status mg_comm_over_barrier(mg_comm *c, int rank);
void mg_comm_over_abort(mg_comm *c);
void mg_comm_over_reset(mg_comm *c);
mg_status mg_comm_over_check(mg_comm *c);

#endif

/* The pretend GPU's own state: what the files of libcuda.so.1 share.
 *
 * One lock guards all tables (standin_lock), another one the multiprocessors: kernels run one after
 * another. Handles begin with a word that says what they are, so that a stale one is noticed. */
#ifndef STANDIN_GPU_H
#define STANDIN_GPU_H

#include "standin.h"
#include "threads.h"
#include <stdint.h>

enum { STANDIN_GPUS = 16, STANDIN_SHARED = 48 << 10, STANDIN_SHARED_MOST = 227 << 10 };

/* Calls: counted, and made to fail. ENTER begins each function of the driver. */
#define ENTER(function)                                                                            \
    const int entered = standin_enter(#function);                                                  \
    if (entered) return (CUresult)entered

typedef struct standin_counter {
    char *name;
    long long count;
    int fail_in, error; /* the fail_in-th call from now, if not 0; < 0: all */
} standin_counter;

void standin_lock(void);
void standin_unlock(void);
standin_counter *standin_counter_of(const char *prefix, const char *name, const char *suffix);
void standin_add(standin_counter *counter);

/* Says what is wrong, on stderr, and gives back the error. */
CUresult standin_say(CUresult error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The GPU is lost: from now on every call returns the first error. */
CUresult standin_fatal(CUresult error);
CUresult standin_lost(void); /* that error, or CUDA_SUCCESS */

/* Devices. */
struct CUctx_st {
    int device, users;
    size_t total, reserved; /* bytes */
};
bool standin_started(void);
CUcontext standin_context_of(CUdevice device); /* NULL: no such device */
CUcontext standin_current(void);               /* of the calling thread; may be NULL */

/* Memory: whether all the addresses belong to a live allocation of the context (NULL: of any). */
bool standin_holds(CUcontext context, CUdeviceptr address, size_t bytes);
void standin_check_guards(void); /* writes beside allocations are fatal */

/* Streams, and what they record. */
typedef struct standin_node {
    const char *name;
    standin_work *work;
    standin_held *held; /* or NULL */
    standin_counter *replays;
    size_t bytes;
    void *args;
    size_t *waits; /* the nodes that come before it */
    size_t n_waits;
} standin_node;

struct CUgraph_st {
    standin_node *nodes;
    size_t n, room;
};

typedef struct standin_places { /* numbers of nodes */
    size_t *at, n;
} standin_places;
bool standin_places_set(standin_places *places, const size_t *at, size_t n);

struct CUstream_st {
    uint32_t kind;
    CUcontext context;
    CUgraph capture;             /* NULL: what is enqueued runs */
    bool spoilt;                 /* the capture */
    uint64_t number;             /* of this or the last capture */
    standin_places ends;         /* what the next node of the capture waits for */
    CUgraphNode *shown;          /* the same as handles, for who asked */
    struct standin_queue *apart; /* work that a thread does, or NULL */
};

/* Work on a thread of its own, in order; see standin_enqueue_apart. */
CUresult standin_queue_add(struct standin_queue **queue, standin_work *work, void *own);
void standin_queue_finish(struct standin_queue *queue); /* NULL: nothing to wait for */
void standin_queue_free(struct standin_queue *queue);

CUresult standin_stream_error(CUstream stream); /* CUDA_SUCCESS: it can take work */
bool standin_capturing(CUstream stream);
bool standin_graph_add(CUgraph graph, const standin_node *node); /* a copy of it */

/* Runs a kernel over a grid; the error is fatal, and told. */
CUresult standin_run(const standin_kernel *kernel, standin_index blocks, standin_index threads,
                     unsigned shared, const void *params);

#endif

/* The pretend GPU's own state: what the files of libcuda.so.1 share.
 *
 * One lock guards all tables (fake_cuda_lock), another one the multiprocessors: kernels run one
 * after another. Handles begin with a word that says what they are, so that a stale one is noticed.
 */
#ifndef FAKE_CUDA_GPU_H
#define FAKE_CUDA_GPU_H

#include "fake_cuda.h"
#include "threads.h"
#include <stdint.h>

enum { FAKE_CUDA_GPUS = 16, FAKE_CUDA_SHARED = 48 << 10, FAKE_CUDA_SHARED_MOST = 227 << 10 };

/* Calls: counted, and made to fail. ENTER begins each function of the driver. */
#define ENTER(function)                                                                            \
    const int entered = fake_cuda_enter(#function);                                                \
    if (entered) return (CUresult)entered

typedef struct fake_cuda_counter {
    char *name;
    long long count;
    int fail_in, error; /* the fail_in-th call from now, if not 0; < 0: all */
} fake_cuda_counter;

void fake_cuda_lock(void);
void fake_cuda_unlock(void);
fake_cuda_counter *fake_cuda_counter_of(const char *prefix, const char *name, const char *suffix);
void fake_cuda_add(fake_cuda_counter *counter);

/* Says what is wrong, on stderr, and gives back the error. */
CUresult fake_cuda_say(CUresult error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The GPU is lost: from now on every call returns the first error. */
CUresult fake_cuda_fatal(CUresult error);
CUresult fake_cuda_lost(void); /* that error, or CUDA_SUCCESS */

/* Devices. */
struct CUctx_st {
    int device, users;
    size_t total, reserved; /* bytes */
};
bool fake_cuda_started(void);
CUcontext fake_cuda_context_of(CUdevice device); /* NULL: no such device */
CUcontext fake_cuda_current(void);               /* of the calling thread; may be NULL */

/* Memory: whether all the addresses belong to a live allocation of the context (NULL: of any). */
bool fake_cuda_holds(CUcontext context, CUdeviceptr address, size_t bytes);
void fake_cuda_check_guards(void); /* writes beside allocations are fatal */

/* Streams, and what they record. */
typedef struct fake_cuda_node {
    const char *name;
    fake_cuda_work *work;
    fake_cuda_held *held; /* or NULL */
    fake_cuda_counter *replays;
    size_t bytes;
    void *args;
    size_t *waits; /* the nodes that come before it */
    size_t n_waits;
} fake_cuda_node;

struct CUgraph_st {
    fake_cuda_node *nodes;
    size_t n, room;
};

typedef struct fake_cuda_places { /* numbers of nodes */
    size_t *at, n;
} fake_cuda_places;
bool fake_cuda_places_set(fake_cuda_places *places, const size_t *at, size_t n);

struct CUstream_st {
    uint32_t kind;
    CUcontext context;
    CUgraph capture;               /* NULL: what is enqueued runs */
    bool spoilt;                   /* the capture */
    uint64_t number;               /* of this or the last capture */
    fake_cuda_places ends;         /* what the next node of the capture waits for */
    CUgraphNode *shown;            /* the same as handles, for who asked */
    struct fake_cuda_queue *apart; /* work that a thread does, or NULL */
};

/* Work on a thread of its own, in order; see fake_cuda_enqueue_apart. */
CUresult fake_cuda_queue_add(struct fake_cuda_queue **queue, fake_cuda_work *work, void *own);
void fake_cuda_queue_finish(struct fake_cuda_queue *queue); /* NULL: nothing to wait for */
void fake_cuda_queue_free(struct fake_cuda_queue *queue);

CUresult fake_cuda_stream_error(CUstream stream); /* CUDA_SUCCESS: it can take work */
bool fake_cuda_capturing(CUstream stream);
bool fake_cuda_graph_add(CUgraph graph, const fake_cuda_node *node); /* a copy of it */

/* Runs a kernel over a grid; the error is fatal, and told. */
CUresult fake_cuda_run(const fake_cuda_kernel *kernel, fake_cuda_index blocks,
                       fake_cuda_index threads, unsigned shared, const void *params);

#endif

/* The internals of the fake GPU: what the files of libcuda.so.1 share.
 *
 * One lock (fake_cuda_lock) guards all tables. A second one, in block.c, represents the
 * multiprocessors: kernels run one after another. Handles of streams and events begin with a word
 * that tells their kind, so that the use of a destroyed one is noticed. */
#ifndef FAKE_CUDA_GPU_H
#define FAKE_CUDA_GPU_H

#include "fake_cuda.h"
#include "threads.h"
#include <stdint.h>

enum { FAKE_CUDA_GPUS = 16, FAKE_CUDA_SHARED = 48 << 10, FAKE_CUDA_SHARED_MOST = 227 << 10 };

/* ENTER begins each function of the driver: it counts the call and fails it if a failure was
 * requested. */
#define ENTER(function)                                                                            \
    const int entered = fake_cuda_enter(#function);                                                \
    if (entered) return (CUresult)entered

typedef struct fake_cuda_counter {
    char *name;
    long long count;
    int fail_in, error; /* the fail_in-th next call fails with `error`; < 0: all; 0: none */
} fake_cuda_counter;

void fake_cuda_lock(void);
void fake_cuda_unlock(void);
/* The counter named prefix + name + suffix, made if need be; it lives as long as the process. */
fake_cuda_counter *fake_cuda_counter_of(const char *prefix, const char *name, const char *suffix);
void fake_cuda_add(fake_cuda_counter *counter);

CUresult fake_cuda_lost(void); /* the fatal error, or CUDA_SUCCESS */

/* A GPU and its primary context are one thing here. */
struct CUctx_st {
    int device, users;
    size_t total, reserved; /* bytes of memory, and how many of them pools have taken */
};
bool fake_cuda_started(void);
CUcontext fake_cuda_context_of(CUdevice device); /* NULL: no such device */
CUcontext fake_cuda_current(void);               /* the calling thread's; NULL: none */

/* Whether all `bytes` addresses belong to one live allocation of the context (NULL: of any). */
bool fake_cuda_holds(CUcontext context, CUdeviceptr address, size_t bytes);
/* Whether all of it is one live block of pinned memory. */
bool fake_cuda_is_pinned(const void *address, size_t bytes);
/* Looks for writes beside allocations; the first one found is a fatal error. */
void fake_cuda_check_guards(void);

/* A node of a graph: recorded work and what it depends on. */
typedef struct fake_cuda_node {
    const char *name;
    fake_cuda_work *work;
    fake_cuda_held *held; /* NULL: no owner to notify */
    fake_cuda_counter *replays;
    size_t bytes;           /* of args */
    void *args;             /* owned */
    size_t *waits, n_waits; /* the nodes that must run before it, by number; owned */
} fake_cuda_node;

struct CUgraph_st {
    fake_cuda_node *nodes;
    size_t n, room;
};

typedef struct fake_cuda_places { /* a list of node numbers; `at` is owned */
    size_t *at, n;
} fake_cuda_places;
/* Replaces the list by a copy of n numbers; false without memory. */
bool fake_cuda_places_set(fake_cuda_places *places, const size_t *at, size_t n);

/* ---- queue.c: the work of a stream, in its order. Counted. ---- */

typedef struct fake_cuda_queue fake_cuda_queue;
typedef struct fake_cuda_point { /* reached when `number` jobs of the queue are done; queue NULL:
                                    reached */
    fake_cuda_queue *queue;
    uint64_t number;
} fake_cuda_point;

fake_cuda_queue *fake_cuda_queue_new(void); /* NULL without memory */
void fake_cuda_queue_release(fake_cuda_queue *queue);
/* Its end now. The point holds the queue: release that. */
fake_cuda_point fake_cuda_queue_end(fake_cuda_queue *queue);
/* Adds work; `own` was allocated with malloc and is freed after it. apart: a separate thread runs
 * it. */
void fake_cuda_queue_add(fake_cuda_queue *queue, fake_cuda_work *work, void *own);
void fake_cuda_queue_add_apart(fake_cuda_queue *queue, fake_cuda_work *work, void *own);
/* Work that is added later waits for the point. */
void fake_cuda_queue_add_wait(fake_cuda_queue *queue, fake_cuda_point until);
bool fake_cuda_is_reached(fake_cuda_point point);
/* The host waits for the point: for ever if work before it hangs. */
void fake_cuda_reach(fake_cuda_point point);
/* Runs what the GPU might have run by now; false if work before the point hangs. */
bool fake_cuda_drive(fake_cuda_point point);
void fake_cuda_drive_all(void);

struct CUstream_st {
    uint32_t kind;
    CUcontext context;
    CUgraph capture;        /* NULL: work that is enqueued runs at once */
    bool spoilt;            /* the capture is invalid */
    uint64_t number;        /* of this capture or the last one */
    fake_cuda_places ends;  /* the nodes that the next node of the capture depends on */
    CUgraphNode *shown;     /* `ends` as handles, lent by cuStreamGetCaptureInfo */
    fake_cuda_queue *queue; /* its work; owned */
};

/* CUDA_SUCCESS if the stream can take work from this thread. */
CUresult fake_cuda_stream_error(CUstream stream);
/* The host waits until it has done all its work. */
void fake_cuda_finish_stream(CUstream stream);
bool fake_cuda_graph_add(CUgraph graph, const fake_cuda_node *node); /* copies the node */

/* Runs a kernel over a grid. Errors are fatal and are printed with the kernel's name and position.
 */
CUresult fake_cuda_run(const fake_cuda_kernel *kernel, fake_cuda_index blocks,
                       fake_cuda_index threads, unsigned shared, const void *params);

#endif

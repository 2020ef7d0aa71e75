/* What a cuda device keeps, and how its kernels are started.
 *
 * A device cuda:N is GPU N; cuda:N/M is the M-th logical device on it: a stream of its own in the
 * same context. Everything a device does is enqueued on its one stream, in order; only copies to
 * the host and sync wait. So kernels' `run` functions enqueue and nothing else: what must allocate,
 * compile or time belongs into `prepare`, and scratch is asked for in the plan, because what `run`
 * enqueues is recorded once into a graph and repeated.
 *
 * Several threads may use a device: one runs a plan while another takes, gives and copies memory or
 * runs a plan of its own. While a thread records or times, whatever goes to the stream would become
 * part of that, so who enqueues holds `turn`: the functions of memory.h take it themselves, those
 * that a kernel's `run` calls are called by who has it. */
#ifndef MG_DEVICE_CUDA_CONTEXT_CONTEXT_H
#define MG_DEVICE_CUDA_CONTEXT_CONTEXT_H

#include "core/block_cache.h"
#include "device/cuda/codegen/cache.h"
#include "device/cuda/context/driver.h"
#include "device/program/program.h"
#include <pthread.h>

enum { MG_CUDA_FILES = 32 };

/* The compiled kernels/<file>.cu, which the build links in: one image per file, then NULL. */
extern const void *const mg_cuda_images[];

typedef struct mg_cuda {
    mg_device *device;
    int gpu, logical; /* cuda:gpu/logical */
    CUdevice handle;
    CUcontext context;
    CUstream stream;
    pthread_mutex_t turn; /* to use the stream */
    CUmemoryPool pool;
    mg_block_cache kept;      /* freed memory; under the turn, as the pool is */
    size_t kept_most;         /* bytes */
    _Atomic uint64_t open_to; /* other GPUs that may use the pool: one bit each, */
    _Atomic uint64_t shut_to; /* and that were found not to */
    CUevent reached;          /* what its stream was given, for a stream that comes after it */
    int major, minor;         /* compute capability */
    int multiprocessors;      /* on the GPU */
    char gpu_name[64];        /* "NVIDIA H200" */
    CUmodule kernels[MG_CUDA_FILES]; /* one per kernels/<file>.cu; then NULL */
    struct mg_cuda_found *found;     /* the kernels asked for so far: kernels.c */
    pthread_mutex_t finding;
    struct mg_cuda_module *modules; /* generated kernels: module.h */
    pthread_mutex_t compiling;      /* to add to them: held while a program is made */
    CUdeviceptr rng;                /* an mg_rng_cell of the run, and a byte for barriers */
    mg_rng_state rng_there;         /* what it holds when the stream gets there; under the turn */
    bool rng_known;
    CUfunction rng_advance;
    void *staging;   /* pinned, of the host: two halves; or NULL */
    CUevent sent[2]; /* their last pieces have left */
    int half;        /* the next one to fill */
    uint8_t *answer; /* pinned, of the host */
    CUevent answered;
    void *dnn, *dnn_planner, *blas; /* handles of cuDNN and cuBLASLt, made on first use */
    bool dead;                      /* after a fatal error: everything fails with MG_DEVICE */
    char death[200];                /* its words */
} mg_cuda;

static inline mg_cuda *mg_cuda_of(const mg_device *d) {
    return d->state;
}

/* The entries of mg_device_api. */
mg_status mg_cuda_open(mg_device *d);
void mg_cuda_close(mg_device *d);

/* mg_cuda_result for a device: a fatal error also marks it dead, and names it. */
mg_status mg_cuda_check(mg_device *d, CUresult result, const char *what);

/* Makes its context the calling thread's; MG_DEVICE if it is dead. */
mg_status mg_cuda_enter(mg_device *d);

/* The kernel of kernels/<file>.cu of this name, loaded: its first launch may be recorded. */
mg_status mg_cuda_find(mg_device *d, const char *name, CUfunction *function);
/* What was found is forgotten. */
void mg_cuda_free_kernel_table(mg_cuda *s);
/* The one called <name>_<dtype>: _bool, _u8, _i32, _i64, _bf16, _f16, _f32 or _f64. */
mg_status mg_cuda_find_typed(mg_device *d, const char *name, mg_dtype t, CUfunction *function);

/* Enqueues a kernel: `blocks` blocks of `threads` threads with `shared` bytes of dynamic shared
 * memory. `params` is its one parameter, a struct by value (kernels/params.h). No blocks: no work.
 */
mg_status mg_cuda_launch(const mg_device *d, CUfunction f, int64_t blocks, int threads, int shared,
                         const void *params);

/* Blocks of `threads` for n elements, at most what fills the GPU a few times over: kernels loop. */
int64_t mg_cuda_blocks(const mg_device *d, int64_t n, int threads);

/* A kernel's parameter for a draw: where its key and ordinal come from. */
struct mg_draw;
struct mg_draw mg_cuda_draw(const mg_call *call);

#endif

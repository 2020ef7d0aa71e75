/* The state of a cuda device, and how its kernels are found and launched.
 *
 * A device cuda:N is GPU N; cuda:N/M is the M-th logical device on it, with a stream of its own in
 * the same context. Everything a device does is enqueued on its one stream, in order; only copies
 * to the host and sync wait. A kernel's `run` function therefore only enqueues: allocating,
 * compiling and timing belong in `prepare`, and scratch is requested in the plan. The reason is
 * that what `run` enqueues is captured once into a CUDA graph and replayed.
 *
 * Several threads may use a device: one runs a program while another allocates, frees or copies
 * memory, or runs a program of its own. Whatever is enqueued while a thread captures a graph or
 * times a kernel would be captured or timed with it, so a thread must hold the mutex `turn` to
 * enqueue. The functions of memory.c lock it themselves; a kernel's `run` is called by a thread
 * that holds it. */
#ifndef MG_DEVICE_CUDA_CONTEXT_CONTEXT_H
#define MG_DEVICE_CUDA_CONTEXT_CONTEXT_H

#include "core/alloc.h"
#include "device/cuda/codegen/codegen.h"
#include "device/cuda/context/driver.h"
#include "device/device.h"
#include "device/program/program.h"
#include <pthread.h>

enum { MG_CUDA_FILES = 32 };

/* Polled while the host waits: whether to end the wait with MG_INTERRUPTED. */
typedef struct mg_cuda_stop {
    bool (*is_asked)(void *context);
    void *context;
} mg_cuda_stop;

/* Pinned memory for copies between the host and the GPU: channel.c. */
typedef struct mg_cuda_channel {
    CUstream stream;
    pthread_mutex_t
        *turn; /* must be held to enqueue on the stream; NULL: only the channel uses the stream */
    pthread_mutex_t busy; /* held by the thread whose copy is in progress */
    void *pinned;         /* host memory, in two halves; NULL: none yet */
    size_t half_bytes;
    CUevent done[2]; /* per half: its last transfer is complete */
    int next;        /* the half to use next */
} mg_cuda_channel;

/* The compiled kernels/<file>.cu, which the build links in: one image per file, then NULL. */
extern const void *const mg_cuda_images[];

typedef struct mg_cuda {
    mg_device *device;
    int gpu, logical; /* the device is cuda:gpu/logical */
    CUdevice handle;
    CUcontext context;
    CUstream stream;
    pthread_mutex_t turn; /* held by the thread that enqueues on the stream */
    CUmemoryPool pool;
    mg_block_cache kept; /* freed memory for reuse; guarded by the turn, like the pool */
    size_t kept_most;    /* bytes that `kept` holds at most */
    /* Other GPUs, one bit each: those that may access the pool, and those found unable to. */
    _Atomic uint64_t open_to, shut_to;
    CUevent reached;     /* marks a point of the stream that another device's stream waits for */
    int major, minor;    /* compute capability */
    int multiprocessors; /* of the GPU */
    int urgent;          /* the highest priority of its kernels; 0: it knows none */
    char gpu_name[64];   /* "NVIDIA H200" */
    CUmodule kernels[MG_CUDA_FILES]; /* one per kernels/<file>.cu; then NULL */
    struct mg_cuda_found *found;     /* table of the kernels looked up so far: launch.c */
    pthread_mutex_t finding;         /* guards the table */
    struct mg_cuda_module *modules;  /* generated kernels: codegen/module.h */
    pthread_mutex_t compiling;       /* guards the list; held while a program is compiled */
    CUdeviceptr rng; /* an mg_rng_cell with the run's random state, and a byte for barriers */
    mg_rng_state rng_there;  /* the cell's contents after all enqueued work; guarded by the turn */
    bool rng_known;          /* rng_there is valid */
    CUfunction rng_advance;  /* the kernel that advances the cell */
    mg_cuda_channel in, out; /* copies from and to the host, on the stream */
    struct mg_cuda_stage *stage;    /* staged copies: stage.c; NULL: none yet */
    uint8_t *answer;                /* pinned host memory for readbacks of a byte: a ring */
    CUevent answered[MG_READBACKS]; /* the byte is there */
    unsigned asked, told;           /* readbacks so far: begun, waited for */
    atomic_bool interrupted;        /* the last wait for the stream ended before it did */
    struct mg_cuda_stamps *stamps;  /* times of launches: stamps.c; NULL: none yet */
    void *dnn, *blas;               /* handles of cuDNN and cuBLASLt, made on first use */
    bool dead;                      /* a fatal error happened: every call fails with MG_DEVICE */
    char death[200];                /* that error's message */
} mg_cuda;

static inline mg_cuda *mg_cuda_of(const mg_device *d) {
    return d->state;
}

/* The entries `open` and `close` of mg_device_api. */
mg_status mg_cuda_open(mg_device *d);
void mg_cuda_close(mg_device *d);

/* As mg_cuda_result, for a device: the message names it, and a fatal error marks it dead. */
mg_status mg_cuda_check(mg_device *d, CUresult result, const char *what);

/* Makes the device's context current in the calling thread. MG_DEVICE if the device is dead. */
mg_status mg_cuda_enter(mg_device *d);

/* The kernel of this name from any kernels/<file>.cu. It is loaded at once, because loading is not
 * allowed during a capture, which may hold its first launch. MG_INTERNAL if there is none. */
mg_status mg_cuda_find(mg_device *d, const char *name, CUfunction *function);
/* Frees the table of kernels looked up. */
void mg_cuda_free_kernel_table(mg_cuda *s);
/* The kernel <name>_<dtype>, with dtypes written bool, u8, i32, i64, bf16, f16, f32 and f64. */
mg_status mg_cuda_find_typed(mg_device *d, const char *name, mg_dtype t, CUfunction *function);

/* Enqueues a kernel of `blocks` blocks of `threads` threads with `shared` bytes of dynamic shared
 * memory; with 0 blocks it does nothing. `params` points to its one parameter, a struct that is
 * copied (kernels/params.h). */
mg_status mg_cuda_launch(const mg_device *d, CUfunction f, int64_t blocks, int threads, int shared,
                         const void *params);

/* How many blocks of `threads` to launch for n elements: one thread each, but not more blocks than
 * fill the GPU a few times over, because kernels loop over the rest. */
int64_t mg_cuda_blocks(const mg_device *d, int64_t n, int threads);

/* The parameter of a kernel that draws random numbers: the key and ordinal of its draw, or where in
 * device memory to find them. */
struct mg_draw;
struct mg_draw mg_cuda_draw(const mg_call *call);

/* ---- wait.c ---- */

/* Waits for the event. MG_DEVICE, and the device is lost, after the deadline; MG_INTERRUPTED if
 * `stop` (NULL: never) says so. */
mg_status mg_cuda_wait(mg_device *d, CUevent event, const mg_cuda_stop *stop);
/* Takes an interrupt, such as Ctrl-C; for all threads but workers, whose callers do so. */
extern const mg_cuda_stop mg_cuda_on_interrupt;

/* ---- channel.c: the caller holds `busy` ---- */

/* Initializes a zeroed channel. mg_cuda_channel_close also frees a partly opened channel. */
CUresult mg_cuda_channel_open(mg_cuda_channel *c, CUstream stream, pthread_mutex_t *turn);
void mg_cuda_channel_close(const mg_cuda_channel *c);
/* Enqueues a copy to the GPU; the source may be reused. */
mg_status mg_cuda_channel_send(mg_device *d, mg_cuda_channel *c, void *dst, const void *src,
                               size_t bytes, const mg_cuda_stop *stop);
/* Copies to the host and waits for it. */
mg_status mg_cuda_channel_fetch(mg_device *d, mg_cuda_channel *c, void *dst, const void *src,
                                size_t bytes, const mg_cuda_stop *stop);

/* ---- memory.c ----
 *
 * Memory of a cuda device and copies to and from it: see the entries of mg_device_api. All
 * functions but mg_cuda_copy lock the device's turn. Waits end at `stop` (NULL: never), or at an
 * interrupt where there is no such parameter. */

mg_status mg_cuda_alloc(mg_device *d, size_t bytes, void **data);
mg_status mg_cuda_alloc_or_stop(mg_device *d, size_t bytes, const mg_cuda_stop *stop, void **data);
void mg_cuda_free(mg_device *d, void *data, size_t bytes);
/* Gives freed memory that is cached for reuse back to the pool. */
void mg_cuda_free_kept(mg_device *d);
/* Enqueues: sets all bytes to `byte`. */
mg_status mg_cuda_fill(mg_device *d, void *dst, uint8_t byte, size_t bytes);
mg_status mg_cuda_copy_in(mg_device *d, void *dst, const void *src, size_t bytes);
mg_status mg_cuda_copy_out(mg_device *d, void *dst, const void *src, size_t bytes);
mg_status mg_cuda_send(mg_device *d, void *dst, const void *src, size_t bytes,
                       const mg_cuda_stop *stop);
mg_status mg_cuda_fetch(mg_device *d, void *dst, const void *src, size_t bytes,
                        const mg_cuda_stop *stop);
/* Enqueues a copy between addresses of the device. The caller holds the turn. */
mg_status mg_cuda_copy(mg_device *d, void *dst, const void *src, size_t bytes);
/* Waits until the stream has done all its work. */
mg_status mg_cuda_sync(mg_device *d);
mg_status mg_cuda_finish(mg_device *d, const mg_cuda_stop *stop);
/* Enqueues the copy of one byte to the host; the second function waits for the oldest pending
 * readback, of which there are at most MG_READBACKS. */
mg_status mg_cuda_readback_begin(mg_device *d, const void *byte);
mg_status mg_cuda_readback_wait(mg_device *d, uint8_t *answer);

/* ---- peer.c ----
 *
 * Peer access: whether a GPU may use the memory of another, and copies between devices. */

/* Lets the GPU of `reader` read and write the memory of `owner`; *open: whether it can. The first
 * call for two GPUs tries it with a copy; later calls return the stored result. Fails if an
 * interrupt or the loss of a device ends the trial. */
mg_status mg_cuda_enable_peer(mg_device *owner, mg_device *reader, bool *open);
/* The entry of mg_device_api: enqueues the copy and does not wait. MG_UNSUPPORTED without peer
 * access. */
mg_status mg_cuda_copy_peer(mg_device *to, void *dst, mg_device *from, const void *src,
                            size_t bytes);

#endif

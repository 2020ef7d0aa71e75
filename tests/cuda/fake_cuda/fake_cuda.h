/* The interface that the fake CUDA libraries share. libcuda.so.1 exports it; the fakes of NVRTC,
 * cuDNN, cuBLASLt and NCCL use it, and tests use it to make calls fail and to count them.
 *
 * The fake GPU is the host: device memory is host memory. Work that is enqueued on a stream runs at
 * once, on the thread that enqueues it, or later (queue.c); while the stream captures it is
 * recorded in a graph instead. A library function begins with fake_cuda_enter, and hands the work
 * that a GPU would do to fake_cuda_enqueue:
 *
 *     typedef struct add_args { const float *a, *b; float *c; int n; } add_args;
 *     static void add(void *args) { ... }
 *
 *     int libraryAdd(...) {
 *         const int failure = fake_cuda_enter("libraryAdd");
 *         if (failure) return LIBRARY_EXECUTION_FAILED;
 *         const add_args args = {a, b, c, n};
 *         return fake_cuda_enqueue(stream, "libraryAdd", add, &args, sizeof args) == CUDA_SUCCESS
 *                    ? LIBRARY_SUCCESS : LIBRARY_EXECUTION_FAILED;
 *     } */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

typedef void fake_cuda_work(void *args);

/* Counts a call of `function`. If the result is not 0 the call must fail with it: either a test
 * requested it (an error number of the library in question), or an earlier error was fatal, and
 * then every call gives that CUDA error (700 to 719). */
int fake_cuda_enter(const char *function);

/* Runs work(args) now, or records it in the stream's graph with a copy of the `bytes` bytes of
 * `args`. Pointers in `args` must point to device memory, or to memory that lives as long as the
 * graph. fake_cuda_count counts replays under `name`, which must be a string that is never
 * freed. */
CUresult fake_cuda_enqueue(CUstream stream, const char *name, fake_cuda_work *work,
                           const void *args, size_t bytes);

/* Called for each copy of the work's arguments that a graph makes (by = 1) or frees (by = -1). */
typedef void fake_cuda_held(void *args, int by);

/* Like fake_cuda_enqueue, for work that waits for other GPUs, such as a collective: a thread of the
 * stream does it, so the call returns at once. Later work on the stream waits for it. */
CUresult fake_cuda_enqueue_apart(CUstream stream, const char *name, fake_cuda_work *work,
                                 fake_cuda_held *held, const void *args, size_t bytes);

/* The number of the GPU whose context is current on the calling thread; -1 if no context is
 * current. */
int fake_cuda_gpu(void);

/* Called by functions that CUDA forbids during stream capture (allocating, waiting). If the calling
 * thread captures, the capture becomes invalid and the result is an error; else CUDA_SUCCESS. */
CUresult fake_cuda_forbid_capture(void);

/* Whether work on the stream is being recorded. */
bool fake_cuda_capturing(CUstream stream);

/* Whether all `bytes` bytes from `address` on lie in one live allocation of device memory. */
bool fake_cuda_owns(const void *address, size_t bytes);

/* Makes the n-th next call of a function fail with `error`, and only that one; n < 0: all calls; n
 * = 0: none (takes the request back). The environment can request the same:
 * MGPU_FAKE_CUDA_FAIL="function:n:error,...". A fatal error makes all later calls fail too, until
 * fake_cuda_revive. The other settings are listed in tests/cuda/README.md. */
void fake_cuda_fail(const char *function, int n, int error);
void fake_cuda_revive(void);

/* The order in which streams work: "now", "late" or "early" (queue.c); MGPU_FAKE_CUDA_STREAMS sets
 * it for a process. */
void fake_cuda_streams(const char *order);
/* The n-th piece of work that is enqueued from now on never ends; 0: none. MGPU_FAKE_CUDA_HANG sets
 * it for a process. */
void fake_cuda_hang(int n);
/* Lets the work that hangs continue. */
void fake_cuda_go_on(void);

/* For the libraries. Prints the message to stderr and returns `error`. */
CUresult fake_cuda_say(CUresult error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Marks the GPU as lost: from now on every call returns the first such error. Returns `error`. */
CUresult fake_cuda_fatal(CUresult error);
/* Whether kernels and the libraries' work are counted but not run, and memory is 0 until it is
 * written (MGPU_FAKE_CUDA_STILL): for counts of steps that would take minutes here. */
bool fake_cuda_is_still(void);
/* Counts something under this name. */
void fake_cuda_note(const char *what);

/* How often something happened: calls of a function ("cuMemFreeAsync"), launches of a kernel
 * ("kernel <name>"), replays of recorded work ("<name> in graph"). */
long long fake_cuda_count(const char *what);

#endif

/* What the fake CUDA libraries share: exported by libcuda.so.1, used by the others.
 *
 * The pretend GPU is the host: device memory is the host's, and what is enqueued runs at once, on
 * the thread that enqueues it, or is recorded while the stream captures. A library function begins
 * with fake_cuda_enter, and hands the work that a GPU would do to fake_cuda_enqueue:
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

/* Counts a call. Not 0: it must fail with this error, which was asked for (a number of the
 * library's own), or CUDA's 700 to 719 because an earlier error was fatal. */
int fake_cuda_enter(const char *function);

/* Runs work(args) now, or records it with a copy of `args`. Whatever `args` points to must be
 * device memory, or live as long as the graph. */
CUresult fake_cuda_enqueue(CUstream stream, const char *name, fake_cuda_work *work,
                           const void *args, size_t bytes);

/* Told of each copy of its work's arguments that a graph makes (by 1) and gives up (by -1). */
typedef void fake_cuda_held(void *args, int by);

/* The same for work that waits for other GPUs: it is done by a thread, and the call does not wait;
 * what comes next on the stream does. */
CUresult fake_cuda_enqueue_apart(CUstream stream, const char *name, fake_cuda_work *work,
                                 fake_cuda_held *held, const void *args, size_t bytes);

/* The GPU that the calling thread uses; -1: none. */
int fake_cuda_gpu(void);

/* For what must not happen while the calling thread captures (allocation, waiting): an error, and
 * the capture is spoilt. */
CUresult fake_cuda_forbid_capture(void);

/* MGPU_FAKE_CUDA_STRICT=1 in the environment: device memory that was given back is never used
 * again, and touching it is fatal.
 *
 * MGPU_FAKE_CUDA_NAN=lost: a relu at the end of a library's kernel makes 0 of NaN.
 * MGPU_FAKE_CUDA_NAN=made: all that cuDNN computes is NaN.
 *
 * Whether the addresses lie in one live allocation of device memory. */
bool fake_cuda_owns(const void *address, size_t bytes);

/* The n-th next call of a function fails with `error`, and only that one. Also by the environment:
 * MGPU_FAKE_CUDA_FAIL="function:n:error,...". n = 0: never mind; n < 0: all. Fatal errors last: see
 * revive. */
void fake_cuda_fail(const char *function, int n, int error);
void fake_cuda_revive(void);

/* How often a function was called, a kernel ("kernel <name>") started, or recorded work replayed
 * ("<name> in graph"). */
long long fake_cuda_count(const char *what);

#endif

/* The interface between kernels that are compiled as C (cuda_as_c.h) and block.c, which runs them.
 *
 * The threads of a block take turns on one thread of the host: each runs until it ends or comes to
 * a barrier. They never run at the same time, so atomics are plain statements. With
 * MGPU_FAKE_CUDA_ORDER=backwards in the environment the last thread and the last block run first; a
 * result that changes with the order is a race. */
#ifndef FAKE_CUDA_THREADS_H
#define FAKE_CUDA_THREADS_H

#include <stddef.h>

typedef struct fake_cuda_index {
    unsigned x, y, z;
} fake_cuda_index;

/* KERNEL(name, type) defines one as fake_cuda_kernel_<name>, which cuModuleGetFunction looks up.
 * `run` executes the kernel for the thread fake_cuda_at.thread and for all threads that
 * fake_cuda_next_thread hands out after it. */
typedef struct fake_cuda_kernel {
    const char *name;
    size_t bytes; /* of the parameter struct */
    void (*run)(const void *params);
    unsigned char *shared, *shared_end; /* all __shared__ variables of its object file */
} fake_cuda_kernel;

extern struct fake_cuda_position {
    fake_cuda_index thread, block, threads, blocks;
} fake_cuda_at; /* threadIdx, blockIdx, blockDim, gridDim of the running thread */
extern unsigned char *fake_cuda_dynamic; /* the block's dynamic shared memory */

_Bool fake_cuda_next_thread(void);
/* __syncthreads; __syncwarp, which takes whole warps and full masks only. */
void fake_cuda_sync_threads(void);
void fake_cuda_sync_warp(unsigned mask);
/* Sets *value to the *value of lane number `lane` of the warp; keeps it if there is no such lane.
 */
void fake_cuda_shuffle(unsigned mask, void *value, size_t bytes, int lane);
/* One bit for each lane whose predicate is not 0. */
unsigned fake_cuda_ballot(unsigned mask, int predicate);
int fake_cuda_lane(void);

#endif

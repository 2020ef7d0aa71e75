/* Between kernels compiled as C and what runs them.
 *
 * The threads of a block take turns on one thread of the host: each runs until it ends or comes to
 * a barrier, and then the next one does. So nothing here is atomic, and nothing is needed. With
 * MGPU_FAKE_CUDA_ORDER=backwards in the environment the last thread and the last block come first:
 * what then comes out differently is a race. */
#ifndef FAKE_CUDA_THREADS_H
#define FAKE_CUDA_THREADS_H

#include <stddef.h>

typedef struct fake_cuda_index {
    unsigned x, y, z;
} fake_cuda_index;

/* What KERNEL(name, type) makes, as fake_cuda_kernel_<name>: `run` does the calling thread's part
 * and that of all threads which fake_cuda_next_thread hands out after it. */
typedef struct fake_cuda_kernel {
    const char *name;
    size_t bytes; /* of the parameters */
    void (*run)(const void *params);
    unsigned char *shared, *shared_end; /* its object's static shared memory */
} fake_cuda_kernel;

extern struct fake_cuda_position {
    fake_cuda_index thread, block, threads, blocks;
} fake_cuda_at;                          /* threadIdx, blockIdx, blockDim, gridDim */
extern unsigned char *fake_cuda_dynamic; /* the block's dynamic shared memory */

_Bool fake_cuda_next_thread(void);
void fake_cuda_sync_threads(void);
void fake_cuda_sync_warp(unsigned mask);
/* `value` becomes that of the lane at `lane` in the warp; it stays if there is no such lane. */
void fake_cuda_shuffle(unsigned mask, void *value, size_t bytes, int lane);
unsigned fake_cuda_ballot(unsigned mask, int predicate);
int fake_cuda_lane(void);

#endif

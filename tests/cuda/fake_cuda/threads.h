/* Between kernels compiled as C and what runs them.
 *
 * The threads of a block take turns on one thread of the host: each runs until it ends or comes to
 * a barrier, and then the next one does. So nothing here is atomic, and nothing is needed. With
 * MGPU_STANDIN_ORDER=backwards in the environment the last thread and the last block come first:
 * what then comes out differently is a race. */
#ifndef STANDIN_THREADS_H
#define STANDIN_THREADS_H

#include <stddef.h>

typedef struct standin_index {
    unsigned x, y, z;
} standin_index;

/* What KERNEL(name, type) makes, as standin_kernel_<name>: `run` does the calling thread's part and
 * that of all threads which standin_next_thread hands out after it. */
typedef struct standin_kernel {
    const char *name;
    size_t bytes; /* of the parameters */
    void (*run)(const void *params);
    unsigned char *shared, *shared_end; /* its object's static shared memory */
} standin_kernel;

extern struct standin_position {
    standin_index thread, block, threads, blocks;
} standin_at;                          /* threadIdx, blockIdx, blockDim, gridDim */
extern unsigned char *standin_dynamic; /* the block's dynamic shared memory */

_Bool standin_next_thread(void);
void standin_sync_threads(void);
void standin_sync_warp(unsigned mask);
/* `value` becomes that of the lane at `lane` in the warp; it stays if there is no such lane. */
void standin_shuffle(unsigned mask, void *value, size_t bytes, int lane);
unsigned standin_ballot(unsigned mask, int predicate);
int standin_lane(void);

#endif

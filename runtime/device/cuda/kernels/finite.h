/* all_finite: whether all elements of up to MG_FINITE_TENSORS tensors of one dtype are finite, in
 * one launch: one result for all, or one for each. Generated text (finite.c) defines IN, VECTOR and
 * WIDE and includes this.
 *
 * One result: the host sets it to 1; any thread that meets NaN or infinity sets it to 0. One for
 * each: a thread marks the tensor, and the block that is done last writes all results. So the
 * host clears one piece of memory instead of one for each result. */
#include "device/cuda/kernels/elements.h"
#include "device/cuda/kernels/params.h"

VECTOR_OF(IN, VECTOR)

/* x - x is 0 for finite x, and NaN for NaN and infinity. */
DEVICE int is_finite(JOIN(type, IN) v) {
    const REAL x = JOIN(load, IN)(v);
    return x - x == K(0);
}

/* Whether the calling thread's elements are finite: vectors first, then the remaining elements one
 * by one. */
DEVICE int own_part_is_finite(const finite_tensor *t) {
    int good = 1;
    for (int64_t i = FIRST; i < t->vectors; i += STEP) {
        const JOIN(vector, IN) x = ((const JOIN(vector, IN) *)t->in)[i];
        UNROLL
        for (int k = 0; k < VECTOR; k++) good &= is_finite(x.at[k]);
    }
    for (int64_t i = t->vectors * VECTOR + FIRST; i < t->n; i += STEP)
        good &= is_finite(((const JOIN(type, IN) *)t->in)[i]);
    return good;
}

/* Whether the calling block is the last one; what the others have written is then visible. */
DEVICE int is_last_block(unsigned *done) {
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}

KERNEL(all_finite, finite_params) {
    for (int i = 0; i < p.tensors; i++)
        if (!own_part_is_finite(&p.t[i])) *(p.done ? p.bad + i : p.t[i].out) = p.done != 0;
    if (!p.done || !is_last_block(p.done)) return;
    for (int i = threadIdx.x; i < p.tensors; i += blockDim.x)
        *p.t[i].out = !((const volatile unsigned char *)p.bad)[i];
}

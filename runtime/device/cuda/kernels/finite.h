/* Whether all elements of some tensors of one dtype are finite. Generated text (finite.c) defines
 * the numbers and includes this. The result is 1 at first; who meets another element makes it 0. */
#include "device/cuda/kernels/elements.h"
#include "device/cuda/kernels/params.h"

VECTOR_OF(IN, VECTOR)

DEVICE int is_finite(JOIN(type, IN) v) {
    const REAL x = JOIN(load, IN)(v);
    return x - x == K(0);
}

DEVICE int look_at(const finite_tensor *t) {
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

KERNEL(all_finite, finite_params) {
    for (int i = 0; i < p.tensors; i++)
        if (!look_at(&p.t[i])) *p.out = 0;
}

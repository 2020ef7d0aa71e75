/* Division by a number that the host knows in advance, as a multiplication and a shift: GPUs have
 * no instruction for integer division, and index arithmetic divides for every element. The host
 * computes an mg_divisor; mg_divide of index.h uses it in a kernel. */
#ifndef MG_DEVICE_CUDA_DIVISOR_H
#define MG_DEVICE_CUDA_DIVISOR_H

typedef struct mg_divisor {
    unsigned n, multiplier, shift;
} mg_divisor;

#ifndef __CUDACC__
#include <stdint.h>

/* For 1 <= n <= 2^31. The quotient is exact for dividends below 2^31 (Granlund and Montgomery,
 * 1994). */
static inline mg_divisor mg_divisor_of(int64_t n) {
    unsigned shift = 0;
    while (((int64_t)1 << shift) < n) shift++;
    const uint64_t above = ((uint64_t)1 << shift) - (uint64_t)n;
    return (mg_divisor){.n = (unsigned)n,
                        .multiplier = (unsigned)((above << 32) / (uint64_t)n + 1),
                        .shift = shift};
}
#endif

#endif

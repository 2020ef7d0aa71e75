/* The random state of the program, and permutations. */
#ifndef MG_CORE_RNG_H
#define MG_CORE_RNG_H

#include "core/philox.h"
#include <stddef.h>
#include <stdint.h>

/* Uniform in [0, 1) with 24 bits, which float32 and float64 represent exactly. */
static inline double mg_uniform_of(uint32_t word) {
    return (double)(word >> 8) * 0x1p-24;
}

/* Shared by all threads. */
typedef struct mg_rng_state {
    uint32_t seed;
    uint64_t base; /* draws made so far: the ordinal of the next one */
} mg_rng_state;
mg_rng_state mg_rng_get(void);
void mg_rng_set(mg_rng_state state);
/* Takes the next n ordinals; returns the first. */
uint64_t mg_rng_take(uint64_t n);

/* A permutation of 0..n-1 (Fisher-Yates over Philox): a function of seed, stream and ordinal only.
 */
void mg_permutation(int64_t *out, int64_t n, uint32_t seed, uint32_t stream, uint64_t ordinal);

#endif

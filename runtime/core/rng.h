/* Random numbers: the state of the program, and what is made of Philox on the host. */
#ifndef MG_CORE_RNG_H
#define MG_CORE_RNG_H

#include "core/philox.h"
#include <stddef.h>
#include <stdint.h>

/* Uniform in [0, 1) with 24 bits: exact in f32 and f64 alike. */
static inline double mg_uniform_of(uint32_t word) {
    return (double)(word >> 8) * 0x1p-24;
}

/* The thread-independent state of the program: seed and the count of draws made. */
typedef struct mg_rng_state {
    uint32_t seed;
    uint64_t base;
} mg_rng_state;
mg_rng_state mg_rng_get(void);
void mg_rng_set(mg_rng_state state);
/* Takes the next n ordinals; returns the first. */
uint64_t mg_rng_take(uint64_t n);

/* A permutation of 0..n-1 (Fisher-Yates over Philox): a function of seed, stream and ordinal only.
 */
void mg_permutation(int64_t *out, int64_t n, uint32_t seed, uint32_t stream, uint64_t ordinal);

#endif

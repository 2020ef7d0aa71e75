/* The steps of chains for any processor, and the choice among the tables. */
#define TABLE mg_chains_base
#include "device/cpu/chains_body.h"
#include "device/cpu/loops.h"

const mg_chains *mg_chains_best(void) {
    const mg_loops *best = mg_loops_best();
    if (best == &mg_loops_avx512) return &mg_chains_avx512;
    return best == &mg_loops_avx2 ? &mg_chains_avx2 : &mg_chains_base;
}

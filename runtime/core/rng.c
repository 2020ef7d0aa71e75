/* The random state of the process, and permutations.
 *
 * The state is a seed and the count of draws made. A draw takes an ordinal from the count; its
 * numbers are a function of seed and ordinal alone, so nothing else has to be kept. */
#include "core/rng.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mg_rng_state state;

mg_rng_state mg_rng_get(void) {
    pthread_mutex_lock(&lock);
    const mg_rng_state now = state;
    pthread_mutex_unlock(&lock);
    return now;
}

void mg_rng_set(mg_rng_state next) {
    pthread_mutex_lock(&lock);
    state = next;
    pthread_mutex_unlock(&lock);
}

/* Atomic under the lock: two threads never get the same ordinal. */
uint64_t mg_rng_take(uint64_t n) {
    pthread_mutex_lock(&lock);
    const uint64_t first = state.base;
    state.base += n;
    pthread_mutex_unlock(&lock);
    return first;
}

/* Fisher-Yates: position i is swapped with a random position in 0..i. Each choice takes a 64-bit
 * word; one Philox block gives two. The position is the high half of the word's product with i + 1,
 * which needs no division. */
void mg_permutation(int64_t *out, int64_t n, uint32_t seed, uint32_t stream, uint64_t ordinal) {
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) out[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        const uint64_t draw = (uint64_t)(n - 1 - i);
        if (draw % 2 == 0) mg_philox(words, draw / 2, ordinal, seed, stream);
        const uint64_t wide = (uint64_t)words[2 * (draw % 2)] << 32 | words[2 * (draw % 2) + 1];
        const int64_t j = (int64_t)(((unsigned __int128)wide * (uint64_t)(i + 1)) >> 64);
        const int64_t t = out[i];
        out[i] = out[j], out[j] = t;
    }
}

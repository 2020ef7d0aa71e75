/* The random numbers of drawn images: image i uses the Philox blocks of ordinal i, so it depends on
 * the seed and i alone. */
#ifndef MG_DATA_DRAWING_RNG_H
#define MG_DATA_DRAWING_RNG_H

#include "core/alloc.h"
#include "core/rng.h"
#include "core/status.h"

/* The sequence of random numbers for one image. `ordinal` is set for each image. */
typedef struct mg_drawing_rng {
    uint32_t seed, stream;
    uint64_t ordinal, block; /* the image; the next block */
    int used;                /* words of the current block that were given out */
    uint32_t words[4];
} mg_drawing_rng;

/* All bits of the seed are used. Each kind of image has its own `stream`, an even number; the next
 * stream is for numbers that concern all images. */
static inline mg_drawing_rng mg_drawing_rng_of(uint64_t seed, uint32_t stream) {
    return (mg_drawing_rng){.seed = (uint32_t)seed, .stream = stream + (uint32_t)(seed >> 32)};
}

/* The next random number, uniform in [low, high). */
static inline float mg_drawing_uniform(mg_drawing_rng *r, float low, float high) {
    if (r->used == 4) {
        mg_philox(r->words, r->block++, r->ordinal, r->seed, r->stream);
        r->used = 0;
    }
    return low + (high - low) * (float)mg_uniform_of(r->words[r->used++]);
}

/* Continues with the numbers of the given block. */
static inline void mg_drawing_seek(mg_drawing_rng *r, uint64_t block) {
    r->block = block;
    r->used = 4;
}

/* The labels 0 .. 9 of n images, equally often (to within one): a random permutation modulo 10.
 * MG_OOM. */
static inline mg_status mg_drawing_labels(const mg_drawing_rng *r, int64_t n, int32_t *labels) {
    int64_t *order = mg_alloc((size_t)n * sizeof *order);
    if (!order) return MG_OOM;
    mg_permutation(order, n, r->seed, r->stream + 1, 0);
    for (int64_t i = 0; i < n; i++) labels[i] = (int32_t)(order[i] % 10);
    mg_free(order);
    return MG_OK;
}

#endif

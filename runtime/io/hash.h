/* The XXH3 hash of bytes that are added piece by piece, with the processor's widest vectors. */
#ifndef MG_IO_HASH_H
#define MG_IO_HASH_H

#include <stddef.h>
#include <stdint.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef XXH3_state_t mg_hash;

static inline void mg_hash_begin(mg_hash *h) {
    XXH3_64bits_reset(h);
}
void mg_hash_add(mg_hash *h, const void *bytes, size_t n);
/* The hash of all bytes that were added. */
static inline uint64_t mg_hash_end(const mg_hash *h) {
    return XXH3_64bits_digest(h);
}

/* hash_avx2.c: mg_hash_add for processors with AVX2. */
void mg_hash_add_avx2(mg_hash *h, const void *bytes, size_t n);

#endif

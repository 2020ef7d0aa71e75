/* Host memory: every allocation of the library goes through here.
 *
 * That lets it be counted (tests demand zero live bytes at the end) and made to fail on request
 * (fault injection: the n-th allocation fails). Blocks are 64-byte aligned: one cache line, and the
 * alignment that AVX-512 wants. */
#ifndef MG_CORE_ALLOC_H
#define MG_CORE_ALLOC_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL after mg_fail(MG_OOM) if memory is short. A size of 0 gives a valid block. */
void *mg_alloc(size_t size);
void *mg_alloc_zero(size_t size);
/* Keeps the contents up to the smaller size; on failure the old block stays valid. */
void *mg_realloc(void *block, size_t size);
/* Makes room for item number n in an array of *capacity items of item_size bytes, doubling it where
 * it is full. MG_OOM leaves the array as it was. */
mg_status mg_reserve(void **items, int n, int *capacity, size_t item_size);
/* Accepts NULL. */
void mg_free(void *block);
/* A copy for mg_free; NULL after MG_OOM. */
char *mg_strdup(const char *text);

/* Whether the system would give this much memory now: for libraries that crash if it does not. */
bool mg_alloc_has_room(size_t size);

/* Live blocks and their bytes, and allocations ever made. */
typedef struct mg_alloc_stats {
    int64_t live_bytes, live_blocks, total_calls;
} mg_alloc_stats;
mg_alloc_stats mg_alloc_get_stats(void);

/* The n-th allocation from now fails once (1 = the next); 0 switches faults off. */
void mg_alloc_fail_after(int64_t n);
/* The n-th allocation from now and all later ones fail, until mg_alloc_fail_after(0). */
void mg_alloc_fail_from(int64_t n);

/* "1.5 GiB", "200 B": writes at most `room` characters and returns text. */
const char *mg_size_text(double bytes, char *text, size_t room);
#define MG_SIZE_TEXT(bytes) mg_size_text((double)(bytes), (char[32]){0}, 32)

/* Asks the system to back a block that is about to be filled by huge pages, which cost a large one
 * fewer page faults. Only a hint. */
void mg_alloc_prefer_huge(void *block, size_t size);

/* Overflow-safe a * b and a + b for sizes; false on overflow. */
static inline bool mg_size_mul(size_t a, size_t b, size_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}
static inline bool mg_size_add(size_t a, size_t b, size_t *sum) {
    return !__builtin_add_overflow(a, b, sum);
}

/* ---- block caches ----
 *
 * Freed blocks of memory kept for reuse, each for requests of exactly its size: training loops
 * allocate and free the same sizes step after step.
 *
 * The caller locks, allocates and frees; this is only the list. */

enum { MG_BLOCK_CACHE_BLOCKS = 128 };

typedef struct mg_block_cache {
    int n;
    size_t bytes;
    struct {
        void *data;
        size_t bytes;
    } blocks[MG_BLOCK_CACHE_BLOCKS]; /* the oldest first */
} mg_block_cache;

/* Removes and returns the newest block of this size, which may still be in the processor's caches;
 * NULL if there is none. */
void *mg_block_cache_take(mg_block_cache *k, size_t bytes);
/* Keeps a block. The caller first frees what mg_block_cache_excess returns, until that is NULL:
 * then there is room. */
void mg_block_cache_add(mg_block_cache *k, void *data, size_t bytes);
/* While the kept blocks and `more` bytes exceed `most`, or the list is full: removes and returns
 * the oldest block, with its size, to be freed. Else NULL. */
void *mg_block_cache_excess(mg_block_cache *k, size_t more, size_t most, size_t *bytes);
/* Removes and returns the oldest block, with its size; NULL if there is none. */
void *mg_block_cache_drop(mg_block_cache *k, size_t *bytes);

#endif

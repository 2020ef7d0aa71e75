/* Freed blocks of memory kept for reuse, each for requests of exactly its size: training loops
 * allocate and free the same sizes step after step.
 *
 * The caller locks, allocates and frees; this is only the list. */
#ifndef MG_CORE_BLOCK_CACHE_H
#define MG_CORE_BLOCK_CACHE_H

#include <stddef.h>

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

/* Blocks of memory that were freed and are kept to be given again, each for its own size only:
 * training loops take and free the same sizes step after step. The caller locks. */
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

/* The newest of this size, which may still lie in the caches; NULL: none. */
void *mg_block_cache_take(mg_block_cache *k, size_t bytes);
/* There is room for one more once mg_block_cache_excess has nothing to free. */
void mg_block_cache_add(mg_block_cache *k, void *data, size_t bytes);
/* The oldest block, with its size, as long as the kept ones and `more` bytes are over `most`, or
 * too many: to be freed. Else NULL. */
void *mg_block_cache_excess(mg_block_cache *k, size_t more, size_t most, size_t *bytes);
/* The oldest block, with its size; NULL: there is none left. */
void *mg_block_cache_drop(mg_block_cache *k, size_t *bytes);

#endif

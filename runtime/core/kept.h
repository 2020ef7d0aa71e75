/* Blocks of memory that were freed and are kept to be given again, each for its own size only:
 * training loops take and free the same sizes step after step. The caller locks. */
#ifndef MG_CORE_KEPT_H
#define MG_CORE_KEPT_H

#include <stddef.h>

enum { MG_KEPT_BLOCKS = 128 };

typedef struct mg_kept {
    int n;
    size_t bytes;
    struct {
        void *data;
        size_t bytes;
    } blocks[MG_KEPT_BLOCKS]; /* the oldest first */
} mg_kept;

/* The newest of this size, which may still lie in the caches; NULL: none. */
void *mg_kept_take(mg_kept *k, size_t bytes);
/* There is room for one more once mg_kept_excess has nothing to free. */
void mg_kept_add(mg_kept *k, void *data, size_t bytes);
/* The oldest block, with its size, as long as the kept ones and `more` bytes are over `most`, or
 * too many: to be freed. Else NULL. */
void *mg_kept_excess(mg_kept *k, size_t more, size_t most, size_t *bytes);
/* The oldest block, with its size; NULL: there is none left. */
void *mg_kept_drop(mg_kept *k, size_t *bytes);

#endif

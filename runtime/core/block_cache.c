/* Freed blocks kept for reuse: see block_cache.h.
 *
 * There are at most MG_BLOCK_CACHE_BLOCKS of them, so the list is searched from end to end. */
#include "core/block_cache.h"
#include <string.h>

/* Takes block i out of the list; the order of the others stays, so the oldest remains first. */
static void *remove_block(mg_block_cache *k, int i) {
    void *data = k->blocks[i].data;
    k->bytes -= k->blocks[i].bytes;
    memmove(&k->blocks[i], &k->blocks[i + 1], (size_t)(--k->n - i) * sizeof *k->blocks);
    return data;
}

/* Newest first: its memory may still be in the processor's caches. */
void *mg_block_cache_take(mg_block_cache *k, size_t bytes) {
    for (int i = k->n - 1; i >= 0; i--)
        if (k->blocks[i].bytes == bytes) return remove_block(k, i);
    return NULL;
}

void mg_block_cache_add(mg_block_cache *k, void *data, size_t bytes) {
    k->blocks[k->n].data = data;
    k->blocks[k->n++].bytes = bytes;
    k->bytes += bytes;
}

/* Oldest first: it is the least likely to be asked for again. */
void *mg_block_cache_drop(mg_block_cache *k, size_t *bytes) {
    if (!k->n) return NULL;
    *bytes = k->blocks[0].bytes;
    return remove_block(k, 0);
}

/* One call frees at most one block; the caller repeats until NULL. */
void *mg_block_cache_excess(mg_block_cache *k, size_t more, size_t most, size_t *bytes) {
    return k->n == MG_BLOCK_CACHE_BLOCKS || k->bytes + more > most ? mg_block_cache_drop(k, bytes)
                                                                   : NULL;
}

/* Arena planning by the greedy-by-size heuristic: blocks are placed from the largest to the
 * smallest, each at the lowest offset that is free during its whole life. The time is quadratic in
 * the number of blocks. */
#include "device/program/program.h"
#include "core/alloc.h"
#include "device/worker.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that a block occupies, so that the next one is aligned. */
static size_t padded(const mg_block *b) {
    return (b->bytes + MG_ARENA_ALIGNMENT - 1) / MG_ARENA_ALIGNMENT * MG_ARENA_ALIGNMENT;
}

/* Equal sizes by first use: the order must not depend on the sort. */
static int larger_first(const void *a, const void *b) {
    const mg_block *x = *(mg_block *const *)a, *y = *(mg_block *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->first - y->first;
}

/* Whether some call needs both blocks. */
static bool alive_together(const mg_block *a, const mg_block *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset at which b fits between the blocks that live at the same time. `placed` is
 * sorted by offset. */
static size_t lowest_gap(mg_block *const *placed, int n, const mg_block *b) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (!alive_together(placed[i], b)) continue;
        if (placed[i]->offset >= at + padded(b)) break;
        const size_t end = placed[i]->offset + padded(placed[i]);
        if (end > at) at = end;
    }
    return at;
}

/* Inserts b, keeping `placed` sorted by offset. */
static void insert(mg_block **placed, int n, mg_block *b) {
    int lo = 0, hi = n; /* binary search for the first block behind b */
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (placed[mid]->offset <= b->offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(&placed[lo + 1], &placed[lo], (size_t)(n - lo) * sizeof *placed);
    placed[lo] = b;
}

mg_status mg_arena_assign(mg_block **blocks, int n, size_t *total) {
    mg_block **placed = mg_alloc((size_t)(n + 1) * sizeof *placed);
    if (!placed) return MG_OOM;
    mg_status status = MG_OK;
    *total = 0;
    if (n) qsort(blocks, (size_t)n, sizeof *blocks, larger_first);
    for (int i = 0; i < n && status == MG_OK; i++) {
        status = mg_worker_poll();
        blocks[i]->offset = lowest_gap(placed, i, blocks[i]);
        insert(placed, i, blocks[i]);
        const size_t end = blocks[i]->offset + padded(blocks[i]);
        if (end > *total) *total = end;
    }
    mg_free(placed);
    return status;
}

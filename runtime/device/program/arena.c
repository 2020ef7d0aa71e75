/* Arena planning by the greedy-by-size heuristic: blocks are placed from the largest to the
 * smallest, each at the lowest offset that is free during its whole life.
 *
 * A new block must not overlap the blocks that live at its first call, nor the blocks whose lives
 * begin at a later call up to its last. For each of the two kinds, a segment tree over the calls
 * holds the bytes in use, as sets of spans: a node of the first tree has the blocks that live
 * during all of its calls, a node of the second tree those whose lives begin at one of its calls. A
 * block is in O(log calls) sets, and O(log calls) sets are searched to place one. Spans that touch
 * are merged, so a set is small where memory is densely used. */
#include "device/program/program.h"
#include "core/alloc.h"
#include "device/worker.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct span {
    size_t begin, end;
} span;

typedef struct span_set { /* ascending; they do not touch */
    span *items;          /* owned */
    int n, capacity;
} span_set;

/* Node 1 is the root of a tree, 2 i and 2 i + 1 are the children of node i, and n_calls + c is the
 * leaf of call c. */
typedef struct arena {
    int n_calls;
    span_set *living, *starting; /* owned: the nodes of the two trees */
} arena;

enum { MOST_SETS = 3 * 32 }; /* a path through one tree, two through the other */

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

/* ---- sets of spans ---- */

/* The index of the first span that ends at or after `at`. */
static int first_span_from(const span_set *s, size_t at) {
    int lo = 0, hi = s->n;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        if (s->items[mid].end < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Makes room for one more span. Most sets stay small, so the first allocation is small too. */
static mg_status reserve_span(span_set *s) {
    if (s->n < s->capacity) return MG_OK;
    const int wider = s->capacity ? 2 * s->capacity : 2;
    span *moved = mg_realloc(s->items, (size_t)wider * sizeof *moved);
    if (!moved) return MG_OOM;
    s->items = moved;
    s->capacity = wider;
    return MG_OK;
}

/* Adds a span, merged with those that it touches or overlaps. */
static mg_status add_span(span_set *s, span added) {
    const int from = first_span_from(s, added.begin);
    int to = from;
    for (; to < s->n && s->items[to].begin <= added.end; to++) {
        if (s->items[to].begin < added.begin) added.begin = s->items[to].begin;
        if (s->items[to].end > added.end) added.end = s->items[to].end;
    }
    if (from == to) MG_TRY(reserve_span(s));
    memmove(&s->items[from + 1], &s->items[to], (size_t)(s->n - to) * sizeof *s->items);
    s->items[from] = added;
    s->n += 1 - (to - from);
    return MG_OK;
}

/* ---- sets side by side ---- */

/* The spans of a set that have not been visited yet. */
typedef struct cursor {
    const span *next, *end;
} cursor;

/* Cursors that have spans left, in a heap: the first one's next span begins at the lowest offset.
 */
typedef struct cursor_heap {
    int n;
    cursor items[MOST_SETS];
} cursor_heap;

/* Advances to the next span that ends after `at`, by a galloping search (steps that double, then
 * halve). */
static void advance(cursor *c, size_t at) {
    ptrdiff_t step = 1;
    for (; step < c->end - c->next && c->next[step].end <= at; step *= 2) c->next += step;
    for (; step; step /= 2)
        if (step < c->end - c->next && c->next[step].end <= at) c->next += step;
    c->next++;
}

/* Restores the heap below item i. */
static void sift_down(cursor_heap *h, int i) {
    const cursor moved = h->items[i];
    for (int child; (child = 2 * i + 1) < h->n; i = child) {
        const cursor *c = &h->items[child];
        if (child + 1 < h->n && c[1].next->begin < c->next->begin) c = &h->items[++child];
        if (moved.next->begin <= c->next->begin) break;
        h->items[i] = *c;
    }
    h->items[i] = moved;
}

static void add_set(cursor_heap *h, const span_set *s) {
    if (s->n) h->items[h->n++] = (cursor){s->items, s->items + s->n};
}

/* The lowest offset at which `bytes` bytes are free in all sets. */
static size_t lowest_gap(cursor_heap *h, size_t bytes) {
    size_t at = 0;
    for (int i = h->n / 2 - 1; i >= 0; i--) sift_down(h, i);
    while (h->n && h->items[0].next->begin < at + bytes) {
        cursor *first = &h->items[0];
        if (first->next->end > at) at = first->next->end;
        advance(first, at);
        if (first->next == first->end) *first = h->items[--h->n];
        if (h->n) sift_down(h, 0);
    }
    return at;
}

/* ---- placing ---- */

/* The lowest offset at which b overlaps no block that lives at the same time. */
static size_t find_place(const arena *a, const mg_block *b) {
    cursor_heap sets;
    sets.n = 0;
    for (int v = a->n_calls + b->first; v; v /= 2) add_set(&sets, &a->living[v]);
    int from = a->n_calls + b->first + 1, to = a->n_calls + b->last + 1;
    for (; from < to; from /= 2, to /= 2) {
        if (from & 1) add_set(&sets, &a->starting[from++]);
        if (to & 1) add_set(&sets, &a->starting[--to]);
    }
    return lowest_gap(&sets, padded(b));
}

/* Adds a block with its offset to both trees. */
static mg_status enter_block(arena *a, const mg_block *b) {
    const span s = {b->offset, b->offset + padded(b)};
    int from = a->n_calls + b->first, to = a->n_calls + b->last + 1;
    for (int v = from; v; v /= 2) MG_TRY(add_span(&a->starting[v], s));
    for (; from < to; from /= 2, to /= 2) {
        if (from & 1) MG_TRY(add_span(&a->living[from++], s));
        if (to & 1) MG_TRY(add_span(&a->living[--to], s));
    }
    return MG_OK;
}

/* A block that is empty, or that no call uses, needs no place. */
static bool is_in_use(const mg_block *b) {
    return b->bytes && b->first <= b->last;
}

static mg_status place_all(arena *a, mg_block *const *blocks, int n, size_t *total) {
    for (int i = 0; i < n; i++) {
        mg_block *b = blocks[i];
        MG_TRY(mg_worker_poll());
        b->offset = is_in_use(b) ? find_place(a, b) : 0;
        if (is_in_use(b)) MG_TRY(enter_block(a, b));
        if (b->offset + padded(b) > *total) *total = b->offset + padded(b);
    }
    return MG_OK;
}

static void free_sets(span_set *sets, int n) {
    for (int i = 0; sets && i < n; i++) mg_free(sets[i].items);
    mg_free(sets);
}

mg_status mg_arena_assign(mg_block **blocks, int n, size_t *total) {
    arena a = {.n_calls = 1};
    *total = 0;
    for (int i = 0; i < n; i++)
        if (blocks[i]->last >= a.n_calls) a.n_calls = blocks[i]->last + 1;
    a.living = mg_alloc_zero(2 * (size_t)a.n_calls * sizeof *a.living);
    a.starting = mg_alloc_zero(2 * (size_t)a.n_calls * sizeof *a.starting);
    mg_status status = a.living && a.starting ? MG_OK : MG_OOM;
    if (n) qsort(blocks, (size_t)n, sizeof *blocks, larger_first);
    if (status == MG_OK) status = place_all(&a, blocks, n, total);
    free_sets(a.living, 2 * a.n_calls);
    free_sets(a.starting, 2 * a.n_calls);
    return status;
}

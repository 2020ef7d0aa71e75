/* Counted, 64-byte aligned host memory with a fault point.
 *
 * Each block is preceded by one cache line that holds its size, so that mg_free can count the bytes
 * and mg_realloc knows how much to copy, and the address that the system gave. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/limits.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A cache line: the alignment of every block, and the room before it. */
enum { LINE = 64 };

/* Live bytes and blocks, and the number of calls so far. fail_in: calls until the injected failure,
 * 0 if none is planned. */
static atomic_llong live_bytes, live_blocks, total_calls, fail_in;
static atomic_bool fail_on; /* after the planned failure every call fails */

const char *mg_size_text(double bytes, char *text, size_t room) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    snprintf(text, room, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

/* Whether this call is one that was chosen to fail. The counter goes down by one per call; it stays
 * at 0 after a single failure and goes below 0 while all later calls fail. */
static bool fault_now(void) {
    if (atomic_load(&fail_on)) return atomic_fetch_sub(&fail_in, 1) <= 1;
    return atomic_load(&fail_in) > 0 && atomic_fetch_sub(&fail_in, 1) == 1;
}

/* The line before a block. */
typedef struct block_head {
    size_t size;
    void *given; /* what free takes */
} block_head;

/* Up to this size malloc and an own alignment are faster: glibc keeps small blocks that were freed
 * for the next malloc of the thread, but not for posix_memalign. Sanitizers must see the first byte
 * beyond the end, so they get no larger blocks than asked for. */
#ifdef __SANITIZE_ADDRESS__
enum { MOST_SMALL = 0 };
#else
enum { MOST_SMALL = 960 };
#endif

/* `total` bytes that begin at a line; *given is what free takes. NULL: there is no memory. */
static void *take_lines(size_t total, void **given) {
    if (total > MOST_SMALL) return posix_memalign(given, LINE, total) == 0 ? *given : NULL;
    *given = malloc(total + LINE - 1);
    return *given ? (void *)(((uintptr_t)*given + LINE - 1) & ~(uintptr_t)(LINE - 1)) : NULL;
}

/* The one place where memory is taken from the system. */
void *mg_alloc(size_t size) {
    atomic_fetch_add(&total_calls, 1);
    size_t total;
    block_head head = {.size = size};
    const bool fits = mg_size_add(size, LINE, &total) && total <= PTRDIFF_MAX;
    char *place = fits && !fault_now() ? take_lines(total, &head.given) : NULL;
    if (!place) {
        mg_fail(MG_OOM, "out of memory: asked %s%s", MG_SIZE_TEXT(size), mg_reason_limits(ENOMEM));
        return NULL;
    }
    memcpy(place, &head, sizeof head);
    atomic_fetch_add(&live_bytes, (long long)size);
    atomic_fetch_add(&live_blocks, 1);
    return place + LINE;
}

bool mg_alloc_has_room(size_t size) {
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) return false;
    munmap(place, size);
    return true;
}

void *mg_alloc_zero(size_t size) {
    void *block = mg_alloc(size);
    if (block) memset(block, 0, size);
    return block;
}

static block_head head_of(const void *block) {
    block_head head;
    memcpy(&head, (const char *)block - LINE, sizeof head);
    return head;
}

/* Always moves the block: realloc would not keep the alignment. */
void *mg_realloc(void *block, size_t size) {
    void *moved = mg_alloc(size);
    if (!moved || !block) return moved;
    const size_t old = head_of(block).size;
    memcpy(moved, block, old < size ? old : size);
    mg_free(block);
    return moved;
}

/* Doubles the room, so that n additions copy at most 2n items. */
mg_status mg_reserve(void **items, int n, int *capacity, size_t item_size) {
    enum { FIRST = 32 };
    if (n < *capacity) return MG_OK;
    const int wider = *capacity ? 2 * *capacity : FIRST;
    void *moved = mg_realloc(*items, (size_t)wider * item_size);
    if (!moved) return MG_OOM;
    *items = moved;
    *capacity = wider;
    return MG_OK;
}

/* Takes the block off the counters. Accepts NULL. */
void mg_free(void *block) {
    if (!block) return;
    const block_head head = head_of(block);
    atomic_fetch_sub(&live_bytes, (long long)head.size);
    atomic_fetch_sub(&live_blocks, 1);
    free(head.given);
}

char *mg_strdup(const char *text) {
    const size_t n = strlen(text) + 1;
    char *copy = mg_alloc(n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

mg_alloc_stats mg_alloc_get_stats(void) {
    return (mg_alloc_stats){atomic_load(&live_bytes), atomic_load(&live_blocks),
                            atomic_load(&total_calls)};
}

/* For tests: see fault_now. */
void mg_alloc_fail_after(int64_t n) {
    atomic_store(&fail_on, false);
    atomic_store(&fail_in, n);
}

void mg_alloc_fail_from(int64_t n) {
    atomic_store(&fail_in, n);
    atomic_store(&fail_on, n > 0);
}

/* ---- block caches: lists of at most MG_BLOCK_CACHE_BLOCKS, searched from end to end ---- */

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

/* Oldest first: it is the least likely to be requested again. */
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

/* Smaller blocks are not worth a call. madvise takes whole pages. */
void mg_alloc_prefer_huge(void *block, size_t size) {
    enum { PAGE = 4096, SMALL = 4 << 20 };
    const uintptr_t begin = ((uintptr_t)block + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    const uintptr_t end = ((uintptr_t)block + size) & ~(uintptr_t)(PAGE - 1);
    if (size > SMALL) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

/* Host memory: every allocation of the library goes through here.
 *
 * So that it can be counted (tests demand zero live bytes at the end) and made to fail on request
 * (fault injection: the n-th allocation fails). Blocks are 64-byte aligned: one cache line, and
 * what AVX-512 wants. */
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
/* Room for item number n in a block of *capacity items of so many bytes, which becomes twice as
 * wide where there is none. MG_OOM: it is as it was. */
mg_status mg_reserve(void **items, int n, int *capacity, size_t item_size);
void mg_free(void *block);
char *mg_strdup(const char *text);

typedef struct mg_alloc_stats {
    int64_t live_bytes, live_blocks, total_calls;
} mg_alloc_stats;
mg_alloc_stats mg_alloc_get_stats(void);

/* The n-th allocation from now fails once (1 = the next); 0 switches faults off. */
void mg_alloc_fail_after(int64_t n);

/* Overflow-safe a * b and a + b for sizes; false on overflow. */
static inline bool mg_size_mul(size_t a, size_t b, size_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}
static inline bool mg_size_add(size_t a, size_t b, size_t *sum) {
    return !__builtin_add_overflow(a, b, sum);
}

#endif

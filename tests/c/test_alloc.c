/* The allocator (core/alloc): all memory of the library comes from it. It counts live blocks and
 * bytes, aligns every block to a cache line, and can be told to fail, so that other tests can make
 * each allocation of an operation fail once. */
#include "core/alloc.h"
#include "core/status.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* A size larger than any address space. It is volatile so that the compiler cannot see the value
 * and warn about it. */
static volatile size_t impossible = SIZE_MAX / 2 + 4096;

/* Blocks of any size, also 0, are aligned to 64 bytes; the counters rise by exactly the size that
 * was asked for and fall again, and mg_free accepts NULL. */
static void blocks_are_aligned_and_counted(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000, 1 << 20};
    const mg_alloc_stats before = mg_alloc_get_stats();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = mg_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        /* The whole block must be writable. */
        memset(p, 0xa5, sizes[i]);
        assert_int_equal(mg_alloc_get_stats().live_bytes - before.live_bytes, sizes[i]);
        assert_int_equal(mg_alloc_get_stats().live_blocks - before.live_blocks, 1);
        mg_free(p);
    }
    /* NULL is no block, so it does not count. */
    mg_free(NULL);
    assert_int_equal(mg_alloc_get_stats().live_bytes, before.live_bytes);
    assert_int_equal(mg_alloc_get_stats().total_calls - before.total_calls, 7);
}

/* mg_alloc_zero clears memory that a freed block has left dirty. */
static void a_zeroed_block_is_zero(void **state) {
    (void)state;
    unsigned char *dirty = mg_alloc(4096);
    memset(dirty, 0xff, 4096);
    mg_free(dirty);
    unsigned char *p = mg_alloc_zero(4096);
    for (int i = 0; i < 4096; i++) assert_int_equal(p[i], 0);
    mg_free(p);
}

/* mg_realloc works on NULL and keeps the contents when a block grows or shrinks. */
static void resizing_keeps_the_contents(void **state) {
    (void)state;
    char *p = mg_realloc(NULL, 4);
    memcpy(p, "abcd", 4);
    p = mg_realloc(p, 100000);
    assert_memory_equal(p, "abcd", 4);
    /* Smaller again. */
    p = mg_realloc(p, 2);
    assert_memory_equal(p, "ab", 2);
    mg_free(p);
}

/* A size that cannot be allocated is MG_OOM with the size in the message, also where adding the
 * allocator's own header would overflow; the old block of a failed mg_realloc stays valid. */
static void too_large_a_size_is_an_error_with_its_number(void **state) {
    (void)state;
    const mg_alloc_stats before = mg_alloc_get_stats();
    char expected[80];
    snprintf(expected, sizeof expected, "out of memory: asked %.1f TiB",
             (double)impossible / 0x1p40);
    /* Each way to ask for memory fails in the same way. */
    assert_null(mg_alloc(impossible));
    assert_int_equal(mg_error_code(), MG_OOM);
    assert_string_equal(mg_error_message(), expected);
    assert_null(mg_alloc(impossible + (SIZE_MAX / 2 - 4097))); /* SIZE_MAX - 1 */
    assert_null(mg_alloc_zero(impossible));
    char *p = mg_strdup("kept");
    assert_null(mg_realloc(p, impossible));
    assert_string_equal(p, "kept");
    mg_free(p);
    assert_int_equal(mg_alloc_get_stats().live_bytes, before.live_bytes);
}

/* After mg_alloc_fail_after(n) exactly the n-th allocation fails, whichever function makes it;
 * mg_alloc_fail_after(0) switches this off. */
static void the_nth_allocation_fails_once(void **state) {
    (void)state;
    mg_alloc_fail_after(3);
    char *a = mg_alloc(1), *b = mg_strdup("b"), *c = mg_alloc_zero(1), *d = mg_alloc(1);
    assert_true(a && b && !c && d);
    /* A failed mg_realloc leaves its block valid: it is freed below. */
    mg_alloc_fail_after(1);
    assert_null(mg_realloc(a, 100));
    mg_alloc_fail_after(1);
    mg_alloc_fail_after(0);
    c = mg_alloc(1);
    assert_non_null(c);
    mg_free(a), mg_free(b), mg_free(c), mg_free(d);
}

/* After mg_alloc_fail_from(n) the n-th allocation and all later ones fail. */
static void all_allocations_fail_from_the_nth_on(void **state) {
    (void)state;
    mg_alloc_fail_from(2);
    char *a = mg_alloc(1), *b = mg_alloc(1), *c = mg_alloc(1);
    mg_alloc_fail_after(0);
    char *d = mg_alloc(1);
    assert_true(a && !b && !c && d);
    mg_free(a), mg_free(d);
}

/* mg_size_mul and mg_size_add return false instead of a wrapped result. */
static void sizes_are_multiplied_and_added_without_overflow(void **state) {
    (void)state;
    size_t r;
    assert_true(mg_size_mul(1u << 20, 1u << 20, &r) && r == (size_t)1 << 40);
    assert_false(mg_size_mul(SIZE_MAX / 2, 3, &r));
    assert_true(mg_size_add(SIZE_MAX - 1, 1, &r) && r == SIZE_MAX);
    assert_false(mg_size_add(SIZE_MAX, 1, &r));
}

/* Teardown of the group: fails it if a block is still allocated. */
static int no_block_is_left(void **state) {
    (void)state;
    return mg_alloc_get_stats().live_blocks == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_counted),
        cmocka_unit_test(a_zeroed_block_is_zero),
        cmocka_unit_test(resizing_keeps_the_contents),
        cmocka_unit_test(too_large_a_size_is_an_error_with_its_number),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(all_allocations_fail_from_the_nth_on),
        cmocka_unit_test(sizes_are_multiplied_and_added_without_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, no_block_is_left);
}

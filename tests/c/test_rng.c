/* Random numbers (core/rng): the Philox generator against its published test vectors, the process's
 * counter of draws, and the permutations that shuffles use. */
#include "core/rng.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Counter, key and result from the file kat_vectors of Random123, for philox4x32 with 10 rounds. */
static void philox_gives_the_published_numbers(void **state) {
    (void)state;
    static const uint32_t rows[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint32_t *r = rows[i];
        uint32_t out[4];
        mg_philox(out, (uint64_t)r[1] << 32 | r[0], (uint64_t)r[3] << 32 | r[2], r[4], r[5]);
        assert_memory_equal(out, r + 6, sizeof out);
    }
}

/* The upper 24 bits of a word become a number in [0, 1) that is exact in float32, so that rounding
 * never gives 1. */
static void uniform_numbers_lie_from_0_to_below_1(void **state) {
    (void)state;
    assert_true(mg_uniform_of(0) == 0 && mg_uniform_of(0xff) == 0);
    assert_true(mg_uniform_of(0x80000000) == 0.5);
    assert_true(mg_uniform_of(0xffffffff) == 1 - 0x1p-24);
    /* Also as a float the largest one is below 1. */
    assert_true((double)(float)mg_uniform_of(0xffffffff) < 1);
}

/* mg_rng_take(n) returns the number of the first of n draws; the state can be saved and set again.
 */
static void draws_are_numbered_and_the_state_comes_back(void **state) {
    (void)state;
    /* A seed, and a number at which the draws continue. */
    mg_rng_set((mg_rng_state){.seed = 7, .base = 100});
    assert_int_equal(mg_rng_take(3), 100);
    assert_int_equal(mg_rng_take(1), 103);
    assert_int_equal(mg_rng_get().base, 104);
    assert_int_equal(mg_rng_get().seed, 7);
    /* The saved state gives the same numbers again. */
    mg_rng_set((mg_rng_state){.seed = 7, .base = 100});
    assert_int_equal(mg_rng_take(1), 100);
}

/* Threads, and the draws of each. */
enum { THREADS = 4, TAKES = 10000 };

/* A thread that takes many pairs of draws. */
static void *take_many(void *context) {
    for (int i = 0; i < TAKES; i++) mg_rng_take(2);
    return context;
}

/* No draw is counted twice or lost when threads take numbers at the same time. */
static void threads_never_take_the_same_number(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    mg_rng_set((mg_rng_state){.seed = 1, .base = 0});
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_many, NULL), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    /* As many draws as all threads have taken together. */
    assert_int_equal(mg_rng_get().base, 2 * THREADS * TAKES);
}

/* Sizes around those where the algorithm might go wrong, and 0, which must write nothing. */
static void a_permutation_holds_every_number_once(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 10, 1001};
    int64_t p[1001];
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        /* Every number from 0 to size - 1 occurs exactly once. */
        char seen[1001] = {0};
        mg_permutation(p, sizes[k], 1, 2, 3);
        for (int64_t i = 0; i < sizes[k]; i++) {
            assert_in_range(p[i], 0, sizes[k] - 1);
            assert_int_equal(seen[p[i]]++, 0);
        }
    }
    /* No elements: nothing is written. */
    mg_permutation(p, 0, 1, 2, 3);
}

/* The permutation depends on seed, stream and ordinal, and on nothing else, such as draws in
 * between. */
static void a_permutation_is_a_function_of_seed_stream_and_ordinal(void **state) {
    (void)state;
    int64_t a[100], b[100];
    mg_permutation(a, 100, 1, 2, 3);
    mg_rng_take(5);
    mg_permutation(b, 100, 1, 2, 3);
    assert_memory_equal(a, b, sizeof a);
    /* Another seed, then another stream, then another ordinal. */
    mg_permutation(b, 100, 9, 2, 3);
    assert_memory_not_equal(a, b, sizeof a);
    mg_permutation(b, 100, 1, 9, 3);
    assert_memory_not_equal(a, b, sizeof a);
    mg_permutation(b, 100, 1, 2, 9);
    assert_memory_not_equal(a, b, sizeof a);
}

/* Six orders of three numbers in 6000 permutations: each comes about 1000 times. Five standard
 * deviations are 144. */
static void all_orders_are_about_as_frequent(void **state) {
    (void)state;
    int counts[27] = {0}, orders = 0;
    for (uint64_t i = 0; i < 6000; i++) {
        int64_t p[3];
        mg_permutation(p, 3, 4, 5, i);
        /* The three numbers as digits of a number to the base 3. */
        counts[p[0] * 9 + p[1] * 3 + p[2]]++;
    }
    for (int i = 0; i < 27; i++) {
        if (counts[i] == 0) continue;
        assert_in_range(counts[i], 850, 1150);
        orders++;
    }
    assert_int_equal(orders, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(uniform_numbers_lie_from_0_to_below_1),
        cmocka_unit_test(draws_are_numbered_and_the_state_comes_back),
        cmocka_unit_test(threads_never_take_the_same_number),
        cmocka_unit_test(a_permutation_holds_every_number_once),
        cmocka_unit_test(a_permutation_is_a_function_of_seed_stream_and_ordinal),
        cmocka_unit_test(all_orders_are_about_as_frequent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

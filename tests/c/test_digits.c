/* Drawn digits: the same everywhere, balanced, different from one another. */
#include "core/alloc.h"
#include "data/digits.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 200, PIXELS = MG_DIGIT_SIDE * MG_DIGIT_SIDE };

static uint8_t one[N * PIXELS], two[N * PIXELS];
static int32_t labels_one[N], labels_two[N];

static void draw(uint8_t *images, int32_t *labels, uint64_t seed) {
    assert_int_equal(mg_digits_draw(N, seed, images, labels), MG_OK);
}

static void the_same_seed_draws_the_same(void **state) {
    (void)state;
    draw(one, labels_one, 7), draw(two, labels_two, 7);
    assert_memory_equal(one, two, sizeof one);
    assert_memory_equal(labels_one, labels_two, sizeof labels_one);
}

static void seeds_differ_in_all_their_bits(void **state) {
    (void)state;
    static const uint64_t seeds[] = {8, 7 + ((uint64_t)1 << 32)};
    draw(one, labels_one, 7);
    for (int i = 0; i < 2; i++) {
        draw(two, labels_two, seeds[i]);
        assert_memory_not_equal(one, two, sizeof one);
        assert_memory_not_equal(labels_one, labels_two, sizeof labels_one);
    }
}

static void labels_are_balanced(void **state) {
    (void)state;
    int count[10] = {0};
    draw(one, labels_one, 0);
    for (int i = 0; i < N; i++) {
        assert_in_range(labels_one[i], 0, 9);
        count[labels_one[i]]++;
    }
    for (int i = 0; i < 10; i++) assert_int_equal(count[i], N / 10);
}

static void every_image_has_ink_and_paper_and_none_occurs_twice(void **state) {
    (void)state;
    draw(one, labels_one, 3);
    for (int i = 0; i < N; i++) {
        int ink = 0;
        for (int k = 0; k < PIXELS; k++) ink += one[i * PIXELS + k] > 128;
        assert_in_range(ink, 15, PIXELS / 2);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(one + i * PIXELS, one + k * PIXELS, PIXELS);
    }
}

static void no_images_are_possible_and_short_memory_is_reported(void **state) {
    (void)state;
    assert_int_equal(mg_digits_draw(0, 1, one, labels_one), MG_OK);
    mg_alloc_fail_after(1);
    assert_int_equal(mg_digits_draw(N, 1, one, labels_one), MG_OOM);
    mg_alloc_fail_after(0);
    assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_draws_the_same),
        cmocka_unit_test(seeds_differ_in_all_their_bits),
        cmocka_unit_test(labels_are_balanced),
        cmocka_unit_test(every_image_has_ink_and_paper_and_none_occurs_twice),
        cmocka_unit_test(no_images_are_possible_and_short_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Drawn digits (data/digits): a data set that needs no download. The images depend only on their
 * number and the seed, so every machine draws the same ones. */
#include "core/alloc.h"
#include "data/drawings.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The number of images, and the pixels of one. */
enum { N = 200, PIXELS = MG_DIGIT_SIDE * MG_DIGIT_SIDE };

/* Two drawings of N images, to compare. */
static uint8_t one[N * PIXELS], two[N * PIXELS];
static int32_t labels_one[N], labels_two[N];

/* Draws N digits; asserts success. */
static void draw(uint8_t *images, int32_t *labels, uint64_t seed) {
    assert_int_equal(mg_digits_draw(N, seed, images, labels), MG_OK);
}

/* Two drawings with one seed have the same bytes. */
static void the_same_seed_draws_the_same(void **state) {
    (void)state;
    draw(one, labels_one, 7), draw(two, labels_two, 7);
    assert_memory_equal(one, two, sizeof one);
    assert_memory_equal(labels_one, labels_two, sizeof labels_one);
}

/* Every bit of the 64-bit seed counts: seeds that differ only in the upper half give other images.
 */
static void seeds_differ_in_all_their_bits(void **state) {
    (void)state;
    /* The next seed, and one that differs from 7 in bit 32. */
    static const uint64_t seeds[] = {8, 7 + ((uint64_t)1 << 32)};
    draw(one, labels_one, 7);
    for (int i = 0; i < 2; i++) {
        draw(two, labels_two, seeds[i]);
        assert_memory_not_equal(one, two, sizeof one);
        assert_memory_not_equal(labels_one, labels_two, sizeof labels_one);
    }
}

/* Each of the ten classes appears equally often. */
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

/* An image is neither empty nor full, and no two images are equal. */
static void every_image_has_ink_and_paper_and_none_occurs_twice(void **state) {
    (void)state;
    draw(one, labels_one, 3);
    for (int i = 0; i < N; i++) {
        /* Pixels that are more than half dark. */
        int ink = 0;
        for (int k = 0; k < PIXELS; k++) ink += one[i * PIXELS + k] > 128;
        assert_in_range(ink, 15, PIXELS / 2);
        for (int k = 0; k < i; k++) /* Compared with every earlier image. */
            assert_memory_not_equal(one + i * PIXELS, one + k * PIXELS, PIXELS);
    }
}

/* Drawing 0 images succeeds; a failed allocation is MG_OOM and leaves nothing behind. */
static void no_images_are_possible_and_short_memory_is_reported(void **state) {
    (void)state;
    assert_int_equal(mg_digits_draw(0, 1, one, labels_one), MG_OK);
    /* The first allocation fails. */
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

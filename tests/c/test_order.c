/* Orders (data/order.h): the sequences of row numbers that stages such as shuffle, batch and cycle
 * make. */
#include "core/alloc.h"
#include "stages.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Reads at most `limit` elements of an order as numbers: for each element its sizes, innermost
 * first, then its rows. Returns how many numbers. */
static int listed(mg_order *o, int64_t *out, int limit, int *n_elements) {
    mg_rows rows = {0};
    bool got = true;
    int n = 0;
    *n_elements = 0;
    /* A pass ends when the order gives no further element. */
    while (*n_elements < limit) {
        assert_int_equal(mg_order_next(o, &rows, &got), MG_OK);
        if (!got) break;
        for (int i = 0; i < rows.rank; i++) out[n++] = rows.dim[i];
        for (int64_t i = 0; i < rows.n; i++) out[n++] = mg_rows_key(&rows, i).row;
        (*n_elements)++;
        assert_in_range(n, 0, MOST / 2);
    }
    mg_free(rows.number);
    return n;
}

/* Asserts that an order over n_rows rows gives exactly these numbers, as `listed` writes them, and
 * announces its length. */
static void check_rows(int64_t n_rows, const mg_stage *stages, int n_stages,
                       const int64_t *expected, int n_expected) {
    int64_t rows[MOST];
    int n_elements;
    mg_order *o = mg_order_new(n_rows, stages, n_stages);
    assert_non_null(o);
    /* Pass 0 from its start. */
    assert_int_equal(mg_order_seek(o, 0, 0), MG_OK);
    const int n = listed(o, rows, MOST, &n_elements);
    assert_int_equal(n, n_expected);
    assert_memory_equal(rows, expected, (size_t)n * sizeof *rows);
    assert_int_equal(mg_order_length(o), n_elements);
    mg_order_free(o);
}
/* check_rows with the expected numbers as arguments. */
#define CHECK_ROWS(n_rows, stages, ...)                                                            \
    check_rows(n_rows, stages, (int)(sizeof(stages) / sizeof(stages)[0]),                          \
               (const int64_t[]){__VA_ARGS__},                                                     \
               (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* Each pair of stages in both orders: take before cycle repeats the taken elements, take after it
 * counts over all rounds, and so on. A batch shows its size before its rows. */
static void stages_act_in_their_order(void **state) {
    (void)state;
    static const mg_stage take_cycle[] = {TAKE(2), CYCLE(2)}, cycle_take[] = {CYCLE(2), TAKE(4)},
                          skip_cycle[] = {SKIP(2), CYCLE(2)},
                          endless[] = {CYCLE(MG_ENDLESS), TAKE(7)},
                          batch_cycle[] = {BATCH(2), CYCLE(2)},
                          cycle_batch[] = {CYCLE(2), BATCH(4)}, full[] = {FULL_BATCH(2)},
                          skip_batch[] = {SKIP(1), BATCH(5), TAKE(1)};
    CHECK_ROWS(3, take_cycle, 0, 1, 0, 1);
    CHECK_ROWS(3, cycle_take, 0, 1, 2, 0);
    CHECK_ROWS(3, skip_cycle, 2, 2);
    CHECK_ROWS(3, endless, 0, 1, 2, 0, 1, 2, 0);
    CHECK_ROWS(3, batch_cycle, 2, 0, 1, 1, 2, 2, 0, 1, 1, 2);
    CHECK_ROWS(3, cycle_batch, 4, 0, 1, 2, 0, 2, 1, 2);
    CHECK_ROWS(3, full, 2, 0, 1);
    CHECK_ROWS(3, skip_batch, 2, 1, 2);
}

/* A batch of batches has two sizes. Smaller batches can be batched alone, but not together with
 * larger ones. */
static void batches_of_batches_have_two_sizes(void **state) {
    (void)state;
    /* The inner batches have 2 rows, the outer ones 2 batches. */
    static const mg_stage twice[] = {BATCH(2), BATCH(2)};
    CHECK_ROWS(6, twice, 2, 2, 0, 1, 2, 3, 2, 1, 4, 5);
    CHECK_ROWS(5, twice, 2, 2, 0, 1, 2, 3, 1, 1, 4);
    /* Of 7 rows the last batch has one, and cannot share a batch with one of two. */
    mg_order *o = mg_order_new(7, twice, 2);
    mg_rows rows = {0};
    bool got;
    assert_int_equal(mg_order_seek(o, 0, 1), MG_OK);
    assert_int_equal(mg_order_next(o, &rows, &got), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "sizes {2} and {1}"));
    mg_free(rows.number);
    mg_order_free(o);
}

/* Every n-th element, of a shuffled order and of batches, too; more shards than elements. */
static void shards_share_the_elements_out(void **state) {
    (void)state;
    static const mg_stage second[] = {SHARD(1, 3)}, last[] = {SHARD(4, 5)},
                          of_batches[] = {BATCH(2), SHARD(1, 2)},
                          after_cycle[] = {CYCLE(2), SHARD(0, 4)},
                          endless[] = {CYCLE(MG_ENDLESS), SHARD(1, 2), TAKE(4)};
    CHECK_ROWS(8, second, 1, 4, 7);
    CHECK_ROWS(7, second, 1, 4);
    CHECK_ROWS(5, last, 4);
    check_rows(4, last, 1, NULL, 0);
    CHECK_ROWS(7, of_batches, 2, 2, 3, 1, 6);
    CHECK_ROWS(5, after_cycle, 0, 4, 3);
    CHECK_ROWS(3, endless, 1, 0, 2, 1);
    /* Together, the shards of a shuffled order have each element once. */
    int seen[20] = {0};
    for (int i = 0; i < 3; i++) {
        const mg_stage stages[] = {SHUFFLE(9, 3), SHARD(i, 3)};
        int64_t rows[MOST];
        int n;
        mg_order *o = mg_order_new(20, stages, 2);
        mg_order_seek(o, 1, 0);
        listed(o, rows, MOST, &n);
        for (int k = 0; k < n; k++) seen[rows[k]]++;
        mg_order_free(o);
    }
    for (int i = 0; i < 20; i++) assert_int_equal(seen[i], 1);
}

/* As tf.data's window(size, shift, stride) with each window made a batch: overlapping, with gaps
 * within and between windows, and with windows that the end cuts short. */
static void windows_may_overlap(void **state) {
    (void)state;
    static const mg_stage overlapping[] = {WINDOW(3, 1, 1)}, full[] = {FULL_WINDOW(3, 1, 1)},
                          apart[] = {WINDOW(2, 3, 2)}, gaps[] = {FULL_WINDOW(2, 4, 1)},
                          as_batch[] = {WINDOW(2, 2, 1)},
                          of_batches[] = {BATCH(1), WINDOW(2, 1, 1)};
    CHECK_ROWS(4, overlapping, 3, 0, 1, 2, 3, 1, 2, 3, 2, 2, 3, 1, 3);
    CHECK_ROWS(4, full, 3, 0, 1, 2, 3, 1, 2, 3);
    check_rows(2, full, 1, NULL, 0);
    CHECK_ROWS(8, apart, 2, 0, 2, 2, 3, 5, 1, 6);
    CHECK_ROWS(7, gaps, 2, 0, 1, 2, 4, 5);
    CHECK_ROWS(5, as_batch, 2, 0, 1, 2, 2, 3, 1, 4);
    CHECK_ROWS(3, of_batches, 1, 2, 0, 1, 1, 2, 1, 2, 1, 1, 2);
}

/* Stages that leave no element end at once, even before an endless cycle. */
static void nothing_comes_of_nothing(void **state) {
    (void)state;
    static const mg_stage stages[][2] = {{TAKE(0), CYCLE(MG_ENDLESS)},
                                         {SKIP(9), SHUFFLE(4, 1)},
                                         {CYCLE(0), BATCH(2)},
                                         {FULL_BATCH(9), CYCLE(MG_ENDLESS)}};
    for (int i = 0; i < 4; i++) check_rows(3, stages[i], 2, NULL, 0);
}

/* 20 passes of a shuffle with a window of 8 over 50 elements: each pass has every element once and
 * a new order; an element comes at most 7 places early, but may come late. */
static void a_shuffle_gives_each_element_once_and_reaches_its_window(void **state) {
    (void)state;
    enum { N = 50, WINDOW = 8 };
    static const mg_stage stages[] = {SHUFFLE(WINDOW, 3)};
    int64_t rows[MOST], again[MOST];
    /* How often an element comes later than its window, and how often each one comes in all. */
    int n, late = 0, seen[N] = {0};
    mg_order *o = mg_order_new(N, stages, 1);
    /* Elements come once, not too early, and not in the order of the pass before. */
    for (uint64_t pass = 0; pass < 20; pass++) {
        assert_int_equal(mg_order_seek(o, pass, 0), MG_OK);
        assert_int_equal(listed(o, rows, N, &n), N);
        for (int i = 0; i < N; i++) {
            assert_true(rows[i] < i + WINDOW);
            late += rows[i] < i - WINDOW;
            seen[rows[i]]++;
        }
        if (pass > 0) assert_memory_not_equal(rows, again, sizeof *rows * N);
        memcpy(again, rows, sizeof *rows * N);
    }
    /* Once in each pass; and some elements stay in the window for long. */
    for (int i = 0; i < N; i++) assert_int_equal(seen[i], 20);
    assert_true(late > 20);
    mg_order_free(o);
}

/* Fixed orders. They must never change, on any machine, because saved positions in a pass refer to
 * them. Both halves of the seed count. */
static void a_seed_and_a_pass_decide_the_order(void **state) {
    (void)state;
    static const mg_stage window[] = {SHUFFLE(3, 1)}, all[] = {SHUFFLE(100, 1)},
                          high[] = {SHUFFLE(100, 1 + ((uint64_t)1 << 32))};
    /* A window of three elements, and one of all. */
    CHECK_ROWS(8, window, 2, 3, 4, 0, 5, 7, 6, 1);
    CHECK_ROWS(8, all, 5, 6, 4, 1, 0, 2, 3, 7);
    int64_t rows[MOST], other[MOST];
    int n;
    mg_order *a = mg_order_new(8, all, 1), *b = mg_order_new(8, high, 1);
    /* All eight rows with either seed. */
    mg_order_seek(a, 0, 0), mg_order_seek(b, 0, 0);
    listed(a, rows, 8, &n), listed(b, other, 8, &n);
    assert_memory_not_equal(rows, other, 8 * sizeof *rows);
    mg_order_free(a), mg_order_free(b);
}

/* Each round of a cycle is shuffled anew, so no two rounds of two outer passes are equal. */
static void rounds_of_a_cycle_are_shuffled_anew(void **state) {
    (void)state;
    enum { N = 12, ROUNDS = 3 };
    /* A cycle of three rounds, and an endless one read for as long. */
    static const mg_stage chains[2][2] = {{SHUFFLE(N, 5), CYCLE(ROUNDS)},
                                          {SHUFFLE(N, 5), CYCLE(MG_ENDLESS)}};
    int64_t rows[MOST];
    int n;
    for (int c = 0; c < 2; c++) {
        mg_order *o = mg_order_new(N, chains[c], 2);
        for (uint64_t pass = 0; pass < 2; pass++) {
            mg_order_seek(o, pass, 0);
            listed(o, rows + pass * N * ROUNDS, N * ROUNDS, &n);
        }
        /* Every round differs from all earlier ones. */
        for (int i = 0; i < 2 * ROUNDS; i++)
            for (int k = 0; k < i; k++)
                assert_memory_not_equal(rows + i * N, rows + k * N, N * sizeof *rows);
        mg_order_free(o);
    }
}

/* Chains of six stages: seeking to a position gives the same elements as reading from the start,
 * and none behind the end. */
static void seeking_gives_what_reading_would(void **state) {
    (void)state;
    static const mg_stage chains[][6] = {
        {SHUFFLE(5, 1), CYCLE(4), SKIP(3), BATCH(4), TAKE(12), SHUFFLE(2, 9)},
        {SKIP(2), SHUFFLE(100, 2), BATCH(2), CYCLE(3), SHUFFLE(3, 4), FULL_BATCH(1)},
        {CYCLE(MG_ENDLESS), SHUFFLE(7, 3), BATCH(3), SKIP(1), TAKE(20), CYCLE(2)},
        {SHUFFLE(6, 1), SHUFFLE(3, 1), CYCLE(2), SHUFFLE(9, 2), SKIP(4), BATCH(1)},
        {SHUFFLE(4, 8), CYCLE(MG_ENDLESS), FULL_BATCH(3), SKIP(5), BATCH(2), TAKE(11)},
        {SHUFFLE(6, 1), SHARD(2, 3), CYCLE(7), WINDOW(4, 2, 2), SHARD(0, 2), SHUFFLE(3, 1)},
        {CYCLE(MG_ENDLESS), FULL_WINDOW(2, 5, 1), SHARD(1, 2), WINDOW(3, 1, 2), TAKE(9), SKIP(1)},
        {WINDOW(5, 1, 1), SHUFFLE(4, 2), SKIP(2), CYCLE(3), SHARD(3, 4), SHARD(0, 2)}};
    int64_t whole[MOST], rest[MOST];
    int count, left;
    for (size_t c = 0; c < sizeof chains / sizeof chains[0]; c++) {
        mg_order *o = mg_order_new(11, chains[c], 6);
        /* All of pass 2, then pass 2 from every position on. */
        mg_order_seek(o, 2, 0);
        const int n = listed(o, whole, MOST, &count);
        assert_int_equal(mg_order_length(o), count);
        for (int at = 0; at <= count + 1; at++) {
            assert_int_equal(mg_order_seek(o, 2, at), MG_OK);
            /* The rest of the pass must be the end of the whole one. */
            const int m = listed(o, rest, MOST, &left);
            assert_int_equal(left, at > count ? 0 : count - at);
            assert_memory_equal(rest, whole + n - m, (size_t)m * sizeof *rest);
        }
        mg_order_free(o);
    }
}

/* Position 2^50 of an endless shuffle is reached without producing the elements before it. */
static void far_positions_are_reached_at_once(void **state) {
    (void)state;
    static const mg_stage stages[] = {SHUFFLE(10, 1), CYCLE(MG_ENDLESS), BATCH(4)};
    int64_t rows[MOST];
    int n;
    mg_order *o = mg_order_new(10, stages, 3);
    assert_int_equal(mg_order_length(o), MG_ENDLESS);
    /* Two batches there: a size and four rows each. */
    mg_order_seek(o, 0, (int64_t)1 << 50);
    assert_int_equal(listed(o, rows, 2, &n), 10);
    mg_order_free(o);
}

/* Teardown of the group: fails if a block of memory is left. */
static int nothing_is_left(void **state) {
    (void)state;
    return mg_alloc_get_stats().live_blocks == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_act_in_their_order),
        cmocka_unit_test(batches_of_batches_have_two_sizes),
        cmocka_unit_test(shards_share_the_elements_out),
        cmocka_unit_test(windows_may_overlap),
        cmocka_unit_test(nothing_comes_of_nothing),
        cmocka_unit_test(a_shuffle_gives_each_element_once_and_reaches_its_window),
        cmocka_unit_test(a_seed_and_a_pass_decide_the_order),
        cmocka_unit_test(rounds_of_a_cycle_are_shuffled_anew),
        cmocka_unit_test(seeking_gives_what_reading_would),
        cmocka_unit_test(far_positions_are_reached_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}

/* The arena that places a program's temporaries (device/program/arena.c), against its rule in plain
 * loops. */
#include "core/alloc.h"
#include "device/program/program.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MOST = 300, ROUNDS = 600 };

static size_t padded(const mg_block *b) {
    return (b->bytes + MG_ARENA_ALIGNMENT - 1) / MG_ARENA_ALIGNMENT * MG_ARENA_ALIGNMENT;
}

static bool alive_together(const mg_block *a, const mg_block *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Whether b, at this offset, is beside all of the n blocks that live at the same time. */
static bool fits(mg_block *const *placed, int n, const mg_block *b, size_t offset) {
    for (int i = 0; i < n; i++)
        if (alive_together(placed[i], b) && placed[i]->offset < offset + padded(b) &&
            offset < placed[i]->offset + padded(placed[i]))
            return false;
    return true;
}

/* The lowest offset where b fits: 0, or the end of a block that is placed. */
static size_t lowest_offset(mg_block *const *placed, int n, const mg_block *b) {
    size_t lowest = SIZE_MAX;
    if (fits(placed, n, b, 0)) return 0;
    for (int i = 0; i < n; i++) {
        const size_t end = placed[i]->offset + padded(placed[i]);
        if (end < lowest && fits(placed, n, b, end)) lowest = end;
    }
    return lowest;
}

/* How blocks live, by the round: for a few calls; from a call in the first half to the mirrored one
 * in the second half, as activations do; for any time. Some are empty, some are never used. */
static mg_block random_block(int round, int calls) {
    const int first = rand() % calls, any = rand() % calls;
    mg_block b = {(size_t)(rand() % (round % 2 ? 5000 : 40000)), first, first + rand() % 4, 0};
    if (round % 3 == 1) b.first = first / 2, b.last = calls - first / 2;
    if (round % 3 == 2) b.first = any < first ? any : first, b.last = any < first ? first : any;
    if (rand() % 20 == 0) b.bytes = 0;
    if (rand() % 20 == 0) b.first = calls + 4, b.last = 0;
    return b;
}

/* mg_arena_assign sorts the list in the order in which it places the blocks. */
static void each_block_has_the_lowest_offset_that_is_free_during_its_life(void **state) {
    (void)state;
    static mg_block blocks[MOST], *list[MOST];
    srand(1); /* the same blocks in every run */
    for (int round = 0; round < ROUNDS; round++) {
        const int n = rand() % (round % 50 ? 60 : MOST), calls = 1 + rand() % (2 * n + 1);
        size_t total, end = 0;
        for (int i = 0; i < n; i++) {
            blocks[i] = random_block(round, calls);
            list[i] = &blocks[i];
        }
        assert_int_equal(mg_arena_assign(list, n, &total), MG_OK);
        for (int i = 0; i < n; i++) {
            if (i) assert_true(list[i - 1]->bytes >= list[i]->bytes);
            assert_int_equal(list[i]->offset, lowest_offset(list, i, list[i]));
            const size_t last = list[i]->offset + padded(list[i]);
            end = last > end ? last : end;
        }
        assert_int_equal(total, end);
    }
}

static void an_allocation_that_fails_is_out_of_memory(void **state) {
    (void)state;
    mg_block blocks[40], *list[40];
    size_t total;
    mg_status status = MG_OOM;
    for (int64_t n = 1; status != MG_OK; n++) {
        for (int i = 0; i < 40; i++) {
            blocks[i] = (mg_block){(size_t)(i * 100), i, i + 3, 0};
            list[i] = &blocks[i];
        }
        mg_alloc_fail_after(n);
        status = mg_arena_assign(list, 40, &total);
        mg_alloc_fail_after(0);
        assert_true(status == MG_OK || status == MG_OOM);
    }
}

static int check_all_freed(void **state) {
    (void)state;
    return mg_alloc_get_stats().live_blocks ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_block_has_the_lowest_offset_that_is_free_during_its_life),
        cmocka_unit_test(an_allocation_that_fails_is_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, check_all_freed);
}

/* Rows of NumPy's files (data/sources/numpy) when memory or files fail: each allocation and file
 * call fails once. tests/lua/data/npz_spec.lua has the rest. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include "data/sources/sources.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define FOLDER "tests/golden/npy/"

static void arm_file(int64_t n) {
    mg_io_fail_after(n, EIO);
}

/* Opens the arrays and reads the last row; in the n-th round `arm` makes the n-th call fail. */
static void survives(const mg_numpy_field *fields, int n_fields, void (*arm)(int64_t n),
                     mg_status code) {
    bool whole = false;
    int64_t n = 1;
    for (; !whole; n++) {
        double room[2][16];
        mg_cell cell[2] = {{.data = room[0]}, {.data = room[1]}};
        arm(n);
        mg_source *s = mg_numpy_source("npz", fields, n_fields);
        whole = s && mg_source_read(s, (mg_row_key){0, s->n_rows - 1}, cell) == MG_OK;
        arm(0);
        mg_source_release(s);
        assert_int_equal(mg_io_open_count(), 0);
        assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
        if (!whole) assert_int_equal(mg_error_code(), code);
    }
    assert_true(n > 4);
}

static void every_failing_allocation_and_file_call_is_survived(void **state) {
    static const mg_numpy_field plain[] = {{FOLDER "fortran.npy", NULL},
                                           {FOLDER "big_endian.npy", NULL}},
                                zipped[] = {{FOLDER "stored.npz", "a"},
                                            {FOLDER "deflated.npz", "a"}};
    (void)state;
    survives(plain, 2, mg_alloc_fail_after, MG_OOM);
    survives(plain, 2, arm_file, MG_IO);
    survives(zipped, 2, mg_alloc_fail_after, MG_OOM);
    survives(zipped, 2, arm_file, MG_IO);
}

/* Unpacking a large array takes seconds. */
static void ctrl_c_ends_unpacking(void **state) {
    static const mg_numpy_field field = {FOLDER "deflated.npz", "a"};
    (void)state;
    mg_interrupt();
    assert_null(mg_numpy_source("npz", &field, 1));
    assert_int_equal(mg_error_code(), MG_INTERRUPTED);
    assert_string_equal(mg_error_message(), "interrupted");
    assert_false(mg_interrupt_pending());
    assert_int_equal(mg_io_open_count(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
        cmocka_unit_test(ctrl_c_ends_unpacking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

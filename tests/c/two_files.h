/* Fixture: two temporary files, `path` and `other`, for the tests of sources that read files. */
#ifndef TESTS_C_TWO_FILES_H
#define TESTS_C_TWO_FILES_H

#include "core/alloc.h"
#include "core/io.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/mgpu_test_XXXXXX", other[] = "/tmp/mgpu_test_XXXXXX";

static inline void write_to(const char *file, const char *text, size_t n) {
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

/* Makes the n-th file call fail, as mg_alloc_fail_after does with allocations. */
static inline void arm_file(int64_t n) {
    mg_io_fail_after(n, EIO);
}

/* A group's setup. */
static inline int make_files(void **state) {
    (void)state;
    const int a = mkstemp(path), b = mkstemp(other);
    if (a >= 0) close(a);
    if (b >= 0) close(b);
    return a >= 0 && b >= 0 ? 0 : -1;
}

/* A group's teardown: removes the files; fails (not 0) if memory is left or a file is open. */
static inline int check_all_freed(void **state) {
    (void)state;
    unlink(path);
    unlink(other);
    return mg_alloc_get_stats().live_blocks || mg_io_open_count() ? -1 : 0;
}

#endif

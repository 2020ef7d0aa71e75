/* Fixture: two temporary files, `path` and `other`, for the tests of sources that read files. */
#ifndef TESTS_C_TWO_FILES_H
#define TESTS_C_TWO_FILES_H

#include "core/alloc.h"
#include "core/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[] = "/tmp/mgpu_test_XXXXXX", other[] = "/tmp/mgpu_test_XXXXXX";

static inline void write_to(const char *file, const char *text, size_t n) {
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

/* Writes a file again in place, as if that were a second later: file systems count time in ticks of
 * milliseconds, and readers look at a file once in a tick. */
static inline void rewrite(const char *file, const char *text, size_t n) {
    struct stat s;
    usleep(30 * 1000);
    assert_int_equal(stat(file, &s), 0);
    write_to(file, text, n);
    const struct timespec later[2] = {s.st_atim, {s.st_mtim.tv_sec + 1, s.st_mtim.tv_nsec}};
    assert_int_equal(utimensat(AT_FDCWD, file, later, 0), 0);
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

/* Resource limits (core/limits): a write beyond the limit on file sizes is an error of that write,
 * whatever the host program does with SIGXFSZ; messages name the limits that are set. */
#define _GNU_SOURCE
#include "core/limits.h"
#include "core/io.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

static char path[] = "/tmp/mgpu-test-limits-XXXXXX";

enum { LIMIT = 1000 };

static void set_limit(__rlimit_resource_t limit, rlim_t n) {
    struct rlimit r;
    assert_int_equal(getrlimit(limit, &r), 0);
    r.rlim_cur = n < r.rlim_max ? n : r.rlim_max;
    assert_int_equal(setrlimit(limit, &r), 0);
}

static mg_status replace(size_t n, bool reserve) {
    static const char bytes[2 * LIMIT] = "new";
    mg_file *f = mg_io_create(path);
    if (!f) return mg_error_code();
    mg_status status = reserve ? mg_io_reserve(f, (int64_t)n) : MG_OK;
    if (status == MG_OK) status = mg_io_write(f, bytes, n);
    if (status == MG_OK) return mg_io_commit(f);
    mg_io_close(f);
    return status;
}

static mg_status append(size_t n) {
    static const char bytes[2 * LIMIT];
    int64_t size = 3;
    return mg_io_append(path, &size, bytes, n);
}

static void assert_refused(mg_status status) {
    char text[16] = "", expected[512];
    assert_int_equal(status, MG_IO);
    snprintf(expected, sizeof expected,
             "cannot write %s: File too large (limited to %d bytes in a file: raise it with ulimit "
             "-f)",
             path, LIMIT);
    assert_string_equal(mg_error_message(), expected);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(text, 1, sizeof text, f), 3);
    fclose(f);
    assert_string_equal(text, "old");
}

/* Each way to write too much, with what the host program may have made of the signal. */
static void assert_all_refused(void) {
    struct sigaction before, after;
    sigset_t mask, later, waiting;
    sigaction(SIGXFSZ, NULL, &before);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    assert_refused(replace(LIMIT + 1, false));
    assert_refused(replace(LIMIT + 1, true));
    assert_refused(append(LIMIT));
    sigaction(SIGXFSZ, NULL, &after);
    sigprocmask(SIG_SETMASK, NULL, &later);
    sigpending(&waiting);
    assert_ptr_equal(before.sa_handler, after.sa_handler);
    assert_int_equal(sigismember(&mask, SIGXFSZ), sigismember(&later, SIGXFSZ));
    assert_false(sigismember(&waiting, SIGXFSZ));
}

static void a_write_beyond_the_limit_is_an_error(void **state) {
    (void)state;
    struct rlimit before;
    sigset_t file_limit;
    sigemptyset(&file_limit);
    sigaddset(&file_limit, SIGXFSZ);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    FILE *f = fopen(path, "wb");
    fputs("old", f);
    fclose(f);
    set_limit(RLIMIT_FSIZE, LIMIT);
    assert_all_refused();
    signal(SIGXFSZ, SIG_IGN);
    assert_all_refused();
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_BLOCK, &file_limit, NULL);
    assert_all_refused();
    sigprocmask(SIG_UNBLOCK, &file_limit, NULL);
    assert_int_equal(replace(LIMIT, true), MG_OK); /* up to the limit everything is possible */
    assert_int_equal(append(LIMIT - 3), MG_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(mg_io_open_count(), 0);
}

static void a_reason_names_the_limits_that_are_set(void **state) {
    (void)state;
    struct rlimit address, data;
    assert_int_equal(getrlimit(RLIMIT_AS, &address), 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &data), 0);
    assert_string_equal(mg_reason(ENOENT), "No such file or directory");
    assert_string_equal(mg_reason_limits(ENOENT), "");
    set_limit(RLIMIT_AS, (rlim_t)1 << 50);
    set_limit(RLIMIT_DATA, (rlim_t)1 << 49);
    assert_string_equal(mg_reason(ENOMEM),
                        "Cannot allocate memory (limited to 1125899906842624 bytes of address "
                        "space: raise it with ulimit -v; 562949953421312 bytes of data: raise it "
                        "with ulimit -d)");
    assert_int_equal(setrlimit(RLIMIT_AS, &address), 0);
    assert_int_equal(setrlimit(RLIMIT_DATA, &data), 0);
}

static int make_file(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_beyond_the_limit_is_an_error),
        cmocka_unit_test(a_reason_names_the_limits_that_are_set),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}

/* Files: whole or not at all, whatever fails on the way. */
#include "core/alloc.h"
#include "core/io.h"
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/mgpu-test-io-XXXXXX";

/* A path in the tests' folder; valid until the eighth call after. */
static const char *in_folder(const char *name) {
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static mg_status write_text(const char *path, const char *text) {
    mg_file *f = mg_io_create(path);
    if (!f) return mg_error_code();
    mg_status status = MG_OK;
    for (const char *p = text; *p && status == MG_OK; p++) status = mg_io_write(f, p, 1);
    if (status == MG_OK) return mg_io_commit(f);
    mg_io_close(f);
    return status;
}

static mg_status read_text(const char *path, char *text, size_t room) {
    size_t got = 0;
    int64_t size;
    mg_file *f = mg_io_open(path);
    if (!f) return mg_error_code();
    mg_status status = mg_io_size(f, &size);
    if (status == MG_OK) status = mg_io_read(f, text, room - 1, &got);
    if (status == MG_OK && got != (size_t)size) status = mg_fail(MG_INTERNAL, "size");
    text[got] = 0;
    mg_io_close(f);
    return status;
}

static void assert_contents(const char *path, const char *expected) {
    char text[256];
    assert_int_equal(read_text(path, text, sizeof text), MG_OK);
    assert_string_equal(text, expected);
}

static int files_in_folder(void) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void a_new_file_is_seen_only_after_commit(void **state) {
    (void)state;
    const char *path = in_folder("new");
    mg_file *f = mg_io_create(path);
    assert_non_null(f);
    assert_int_equal(mg_io_open_count(), 1);
    assert_int_equal(mg_io_write(f, "abc", 3), MG_OK);
    assert_false(mg_io_exists(path));
    assert_int_equal(mg_io_commit(f), MG_OK);
    assert_contents(path, "abc");
    assert_int_equal(mg_io_open_count(), 0);
    assert_int_equal(files_in_folder(), 1);
}

static void a_file_given_up_leaves_nothing(void **state) {
    (void)state;
    const char *path = in_folder("given_up");
    assert_int_equal(write_text(path, "old"), MG_OK);
    const int before = files_in_folder();
    mg_file *f = mg_io_create(path);
    assert_int_equal(mg_io_write(f, "new", 3), MG_OK);
    mg_io_close(f);
    mg_io_close(NULL);
    assert_contents(path, "old");
    assert_int_equal(files_in_folder(), before);
}

static void reading_goes_to_the_end_and_from_where_one_says(void **state) {
    (void)state;
    const char *path = in_folder("reading");
    char text[16];
    size_t got;
    assert_int_equal(write_text(path, "0123456789"), MG_OK);
    mg_file *f = mg_io_open(path);
    assert_int_equal(mg_io_read(f, text, 4, &got), MG_OK);
    assert_int_equal(got, 4);
    assert_int_equal(mg_io_read(f, text, sizeof text, &got), MG_OK);
    assert_int_equal(got, 6);
    assert_int_equal(mg_io_read(f, text, sizeof text, &got), MG_OK);
    assert_int_equal(got, 0);
    assert_int_equal(mg_io_seek(f, 8), MG_OK);
    assert_int_equal(mg_io_read(f, text, sizeof text, &got), MG_OK);
    assert_int_equal(got, 2);
    assert_memory_equal(text, "89", 2);
    assert_int_equal(mg_io_seek(f, -1), MG_IO);
    mg_io_close(f);
}

static void assert_message(const char *what, const char *path, int error) {
    char expected[512];
    snprintf(expected, sizeof expected, "cannot %s %s: %s", what, path, strerror(error));
    assert_int_equal(mg_error_code(), MG_IO);
    assert_string_equal(mg_error_message(), expected);
}

static void errors_name_the_path_and_the_reason(void **state) {
    (void)state;
    const char *path = in_folder("no/such/file");
    assert_null(mg_io_open(path));
    assert_message("open", path, ENOENT);
    assert_null(mg_io_create(path));
    assert_message("write", path, ENOENT);
    char text[8];
    assert_int_equal(read_text(folder, text, sizeof text), MG_IO);
    assert_non_null(strstr(mg_error_message(), "is not a regular file"));
    assert_int_equal(mkdir(in_folder("taken"), 0777), 0);
    assert_int_equal(write_text(in_folder("taken"), "x"), MG_IO);
    assert_message("write", in_folder("taken"), EISDIR);
    rmdir(in_folder("taken"));
}

static void a_pipe_is_refused_at_once(void **state) {
    (void)state;
    const char *path = in_folder("pipe");
    char text[8];
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_text(path, text, sizeof text), MG_IO);
    assert_false(mg_io_exists(path));
    unlink(path);
}

/* create, three writes, fsync, rename: each fails once. */
static void the_old_file_survives_every_failing_call(void **state) {
    (void)state;
    const char *path = in_folder("survivor");
    assert_int_equal(write_text(path, "old"), MG_OK);
    const int before = files_in_folder();
    int failures = 0;
    for (int n = 1;; n++) {
        mg_io_fail_after(n, ENOSPC);
        const mg_status status = write_text(path, "new");
        mg_io_fail_after(0, 0);
        assert_int_equal(mg_io_open_count(), 0);
        assert_int_equal(files_in_folder(), before);
        if (status == MG_OK) break;
        assert_message("write", path, ENOSPC);
        assert_contents(path, "old");
        failures++;
    }
    assert_int_equal(failures, 6);
    assert_contents(path, "new");
}

static void reading_survives_every_failing_call(void **state) {
    (void)state;
    const char *path = in_folder("unreadable");
    char text[16];
    assert_int_equal(write_text(path, "data"), MG_OK);
    int failures = 0;
    for (int n = 1;; n++, failures++) {
        mg_io_fail_after(n, EIO);
        const mg_status status = read_text(path, text, sizeof text);
        mg_io_fail_after(0, 0);
        assert_int_equal(mg_io_open_count(), 0);
        if (status == MG_OK) break;
        assert_int_equal(status, MG_IO);
        assert_non_null(strstr(mg_error_message(), path));
        assert_non_null(strstr(mg_error_message(), strerror(EIO)));
    }
    assert_int_equal(failures, 4); /* open, size, two reads */
}

static void short_memory_leaves_no_file_behind(void **state) {
    (void)state;
    const char *path = in_folder("short");
    const int before = files_in_folder();
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    int failures = 0;
    for (int n = 1;; n++, failures++) {
        mg_alloc_fail_after(n);
        const mg_status status = write_text(path, "new");
        mg_alloc_fail_after(0);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        if (status == MG_OK) break;
        assert_int_equal(status, MG_OOM);
        assert_int_equal(files_in_folder(), before);
    }
    assert_int_equal(failures, 3);
}

static void a_call_that_is_interrupted_is_made_again(void **state) {
    (void)state;
    const char *path = in_folder("again");
    mg_io_fail_after(2, EINTR);
    assert_int_equal(write_text(path, "abc"), MG_OK);
    assert_contents(path, "abc");
}

static void folders_are_made_with_their_parents(void **state) {
    (void)state;
    struct stat s;
    const char *path = in_folder("a/b//c/");
    assert_int_equal(mg_io_make_folder(path), MG_OK);
    assert_int_equal(mg_io_make_folder(path), MG_OK);
    assert_true(stat(path, &s) == 0 && S_ISDIR(s.st_mode));
    assert_false(mg_io_exists(path));
    assert_int_equal(write_text(in_folder("a/file"), "x"), MG_OK);
    assert_int_equal(mg_io_make_folder(in_folder("a/file")), MG_IO);
    assert_message("make the folder", in_folder("a/file"), ENOTDIR);
    assert_int_equal(mg_io_make_folder(in_folder("a/file/b")), MG_IO);
    assert_int_equal(mg_io_make_folder(""), MG_USAGE);
    mg_io_fail_after(1, EROFS);
    assert_int_equal(mg_io_make_folder(in_folder("z")), MG_IO);
    assert_non_null(strstr(mg_error_message(), strerror(EROFS)));
    mg_alloc_fail_after(1);
    assert_int_equal(mg_io_make_folder(in_folder("z")), MG_OOM);
}

static int open_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) return -1;
    return mg_alloc_get_stats().live_blocks == 0 && mg_io_open_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_is_seen_only_after_commit),
        cmocka_unit_test(a_file_given_up_leaves_nothing),
        cmocka_unit_test(reading_goes_to_the_end_and_from_where_one_says),
        cmocka_unit_test(errors_name_the_path_and_the_reason),
        cmocka_unit_test(a_pipe_is_refused_at_once),
        cmocka_unit_test(the_old_file_survives_every_failing_call),
        cmocka_unit_test(reading_survives_every_failing_call),
        cmocka_unit_test(short_memory_leaves_no_file_behind),
        cmocka_unit_test(a_call_that_is_interrupted_is_made_again),
        cmocka_unit_test(folders_are_made_with_their_parents),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}

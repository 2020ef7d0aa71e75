/* Files (core/io): reading, new files, folders, and their errors. test_io_replace.c looks into how
 * a file is replaced. */
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

/* The temporary folder of these tests. */
static char folder[] = "/tmp/mgpu-test-io-XXXXXX";

#include "text_files.h"

static mg_status write_text(const char *path, const char *text) {
    return write_bytes(path, text, false);
}

/* Reads a file of less than `room` bytes as text, and compares its length with mg_io_size. */
static mg_status read_text(const char *path, char *text, size_t room) {
    size_t got = 0;
    int64_t size;
    mg_file *f = mg_io_open(path);
    if (!f) return mg_error_code();
    mg_status status = mg_io_size(f, &size);
    /* One read must give the whole file. */
    if (status == MG_OK) status = mg_io_read(f, text, room - 1, &got);
    if (status == MG_OK && got != (size_t)size) status = mg_fail(MG_INTERNAL, "size");
    text[got] = 0;
    mg_io_close(f);
    return status;
}

/* Asserts that the file holds this text. */
static void assert_contents(const char *path, const char *expected) {
    char text[256];
    assert_int_equal(read_text(path, text, sizeof text), MG_OK);
    assert_string_equal(text, expected);
}

/* The number of files in the folder: shows temporary files that were left behind. */
static int files_in_folder(void) {
    int n = 0;
    DIR *d = opendir(folder);
    /* Names that begin with a dot are the folder itself and its parent. */
    for (struct dirent *e = readdir(d); e; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Before mg_io_commit there is no file under its name. */
static void a_new_file_is_seen_only_after_commit(void **state) {
    (void)state;
    const char *path = in_folder("new");
    mg_file *f = mg_io_create(path);
    assert_non_null(f);
    assert_int_equal(mg_io_open_count(), 1);
    assert_int_equal(mg_io_write(f, "abc", 3), MG_OK);
    /* Written, but not yet visible. */
    assert_false(mg_io_exists(path));
    assert_int_equal(mg_io_commit(f), MG_OK);
    assert_contents(path, "abc");
    /* No temporary file is left. */
    assert_int_equal(mg_io_open_count(), 0);
    assert_int_equal(files_in_folder(), 1);
}

/* mg_io_close without a commit keeps the old file and removes the temporary one. */
static void a_file_closed_without_commit_leaves_nothing(void **state) {
    (void)state;
    const char *path = in_folder("given_up");
    assert_int_equal(write_text(path, "old"), MG_OK);
    const int before = files_in_folder();
    /* A second file of the same name is created and discarded. */
    mg_file *f = mg_io_create(path);
    assert_int_equal(mg_io_write(f, "new", 3), MG_OK);
    mg_io_close(f);
    mg_io_close(NULL);
    assert_contents(path, "old");
    assert_int_equal(files_in_folder(), before);
}

/* mg_io_read returns fewer bytes at the end of the file, then 0; mg_io_seek sets the position and
 * refuses a negative one. */
static void reading_ends_at_the_end_and_can_seek(void **state) {
    (void)state;
    const char *path = in_folder("reading");
    char text[16];
    size_t got;
    assert_int_equal(write_text(path, "0123456789"), MG_OK);
    mg_file *f = mg_io_open(path);
    /* Four bytes, the remaining six, then none. */
    assert_int_equal(mg_io_read(f, text, 4, &got), MG_OK);
    assert_int_equal(got, 4);
    assert_int_equal(mg_io_read(f, text, sizeof text, &got), MG_OK);
    assert_int_equal(got, 6);
    assert_int_equal(mg_io_read(f, text, sizeof text, &got), MG_OK);
    assert_int_equal(got, 0);
    /* From byte 8 there are two left. */
    assert_int_equal(mg_io_seek(f, 8), MG_OK);
    assert_int_equal(mg_io_read(f, text, sizeof text, &got), MG_OK);
    assert_int_equal(got, 2);
    assert_memory_equal(text, "89", 2);
    assert_int_equal(mg_io_seek(f, -1), MG_IO);
    mg_io_close(f);
}

/* Asserts an MG_IO error with the message "cannot WHAT PATH: REASON". */
static void assert_message(const char *what, const char *path, int error) {
    char expected[512];
    snprintf(expected, sizeof expected, "cannot %s %s: %s", what, path, strerror(error));
    assert_int_equal(mg_error_code(), MG_IO);
    assert_string_equal(mg_error_message(), expected);
}

/* Missing folders, a folder in place of a file to read, and a folder under the name of a file to
 * write. */
static void errors_name_the_path_and_the_reason(void **state) {
    (void)state;
    const char *path = in_folder("no/such/file");
    /* A missing folder, for reading and for writing. */
    assert_null(mg_io_open(path));
    assert_message("open", path, ENOENT);
    assert_null(mg_io_create(path));
    assert_message("write", path, ENOENT);
    /* A folder cannot be read as a file. */
    char text[8];
    assert_int_equal(read_text(folder, text, sizeof text), MG_IO);
    assert_non_null(strstr(mg_error_message(), "is not a regular file"));
    /* A folder cannot be replaced by a file. */
    assert_int_equal(mkdir(in_folder("taken"), 0777), 0);
    assert_int_equal(write_text(in_folder("taken"), "x"), MG_IO);
    assert_message("write", in_folder("taken"), EISDIR);
    rmdir(in_folder("taken"));
}

/* Opening a named pipe must not wait for a writer. */
static void a_pipe_is_refused_at_once(void **state) {
    (void)state;
    const char *path = in_folder("pipe");
    char text[8];
    /* A named pipe without a writer. */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_text(path, text, sizeof text), MG_IO);
    assert_false(mg_io_exists(path));
    unlink(path);
}

/* Fails each system call of a read once; no file stays open. */
static void reading_survives_every_failing_call(void **state) {
    (void)state;
    const char *path = in_folder("unreadable");
    char text[16];
    assert_int_equal(write_text(path, "data"), MG_OK);
    /* Fail the first call, then the second one, until the read succeeds. */
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

/* mg_io_make_folder makes parents, accepts an existing folder, and refuses a path through a file.
 */
static void folders_are_made_with_their_parents(void **state) {
    (void)state;
    struct stat s;
    /* Doubled and trailing slashes are allowed; making the folder twice is no error. */
    const char *path = in_folder("a/b//c/");
    assert_int_equal(mg_io_make_folder(path), MG_OK);
    assert_int_equal(mg_io_make_folder(path), MG_OK);
    assert_true(stat(path, &s) == 0 && S_ISDIR(s.st_mode));
    assert_false(mg_io_exists(path));
    /* A file in the place of a folder, and of a parent. */
    assert_int_equal(write_text(in_folder("a/file"), "x"), MG_OK);
    assert_int_equal(mg_io_make_folder(in_folder("a/file")), MG_IO);
    assert_message("make the folder", in_folder("a/file"), ENOTDIR);
    assert_int_equal(mg_io_make_folder(in_folder("a/file/b")), MG_IO);
    assert_int_equal(mg_io_make_folder(""), MG_USAGE);
    /* A failing system call and a failing allocation. */
    mg_io_fail_after(1, EROFS);
    assert_int_equal(mg_io_make_folder(in_folder("z")), MG_IO);
    assert_non_null(strstr(mg_error_message(), strerror(EROFS)));
    mg_alloc_fail_after(1);
    assert_int_equal(mg_io_make_folder(in_folder("z")), MG_OOM);
}

/* Refused: a missing folder, a file in its place, a path that is a folder, a failing call. */
static void a_path_is_checked_before_a_file_is_made_there(void **state) {
    (void)state;
    assert_int_equal(mg_io_check_creatable(in_folder("new")), MG_OK);
    assert_int_equal(mg_io_check_creatable("/new"), access("/", W_OK) == 0 ? MG_OK : MG_IO);
    assert_int_equal(mg_io_check_creatable(in_folder("missing/new")), MG_IO);
    assert_message("write to the folder", in_folder("missing"), ENOENT);
    assert_int_equal(write_text(in_folder("plain"), "x"), MG_OK);
    assert_int_equal(mg_io_check_creatable(in_folder("plain")), MG_OK);
    assert_int_equal(mg_io_check_creatable(in_folder("plain/new")), MG_IO);
    assert_non_null(strstr(mg_error_message(), "is not a folder"));
    assert_int_equal(mg_io_check_creatable(folder), MG_IO);
    assert_message("write", folder, EISDIR);
    mg_io_fail_after(2, EACCES); /* the first call looks at the path itself */
    assert_int_equal(mg_io_check_creatable(in_folder("new")), MG_IO);
    assert_message("write to the folder", folder, EACCES);
    mg_alloc_fail_after(1);
    assert_int_equal(mg_io_check_creatable(in_folder("new")), MG_OOM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_is_seen_only_after_commit),
        cmocka_unit_test(a_file_closed_without_commit_leaves_nothing),
        cmocka_unit_test(reading_ends_at_the_end_and_can_seek),
        cmocka_unit_test(errors_name_the_path_and_the_reason),
        cmocka_unit_test(a_pipe_is_refused_at_once),
        cmocka_unit_test(reading_survives_every_failing_call),
        cmocka_unit_test(folders_are_made_with_their_parents),
        cmocka_unit_test(a_path_is_checked_before_a_file_is_made_there),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}

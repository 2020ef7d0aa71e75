/* Lines of text files (data/sources/text_lines) and sets of files (io/file_set), of which few are
 * open at a time. Every allocation and file call fails once. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include "data/sources/sources.h"
#include "io/file_set.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>
#include "free_cells.h"
#include "two_files.h"

static const char *const PATHS[] = {path, other};

/* Asserts that the lines of the source are the `expected` ones, each followed by '|'. */
static void lines_are(int n_paths, int64_t skip, const char *expected) {
    char found[4096] = "";
    size_t n = 0;
    mg_source *s = mg_text_lines_source(PATHS, n_paths, skip);
    if (!s) fail_msg("%s", mg_error_message());
    assert_true(s->field[0].text);
    for (int64_t row = 0; row < s->n_rows; row++) {
        mg_cell cell = {{0}, NULL};
        assert_int_equal(mg_source_read(s, (mg_row_key){0, row}, &cell), MG_OK);
        assert_int_equal(cell.shape.rank, 1);
        memcpy(found + n, cell.data, (size_t)cell.shape.dim[0]);
        n += (size_t)cell.shape.dim[0];
        found[n++] = '|';
        free_cells(s, &cell);
    }
    mg_source_release(s);
    assert_string_equal(found, expected);
}

static void lines_end_with_lf_or_crlf_or_the_file(void **state) {
    static const struct {
        const char *text, *lines;
    } cases[] = {{"a\nbc\n", "a|bc|"},
                 {"a\r\nb\rc\r\n", "a|b\rc|"},
                 {"a\n\n\r\nb", "a|||b|"},
                 {"\n", "|"},
                 {"a", "a|"},
                 {"a\r", "a\r|"},
                 {"\xef\xbb\xbfx\ny", "x|y|"},
                 {"\n\na", "||a|"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_to(path, cases[i].text, strlen(cases[i].text));
        lines_are(1, 0, cases[i].lines);
    }
}

static void several_files_and_skipped_lines(void **state) {
    (void)state;
    write_to(path, "head\na\nb\n", 9);
    write_to(other, "head\r\nc", 7);
    lines_are(2, 0, "head|a|b|head|c|");
    lines_are(2, 1, "a|b|c|");
    lines_are(2, 2, "b|");
    write_to(path, "", 0);
    lines_are(2, 1, "c|");
    write_to(other, "head\n", 5);
    assert_null(mg_text_lines_source(PATHS, 2, 1));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "there are no lines in"));
}

static void gzip_is_unpacked(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        gzFile f = gzopen(PATHS[i], "wb");
        assert_true(gzputs(f, i ? "c\nd\n" : "a\nb") > 0);
        gzclose(f);
    }
    lines_are(2, 0, "a|b|c|d|");
    write_to(path, "x\n", 2);
    lines_are(2, 0, "x|c|d|");
}

/* A line end at every place around a chunk's border, and lines longer than a chunk. */
static void chunks_make_no_difference(void **state) {
    enum { CHUNK = 1 << 20 };
    static char text[2 * CHUNK + 100];
    (void)state;
    for (int shift = -2; shift <= 2; shift++) {
        memset(text, 'x', sizeof text);
        text[CHUNK + shift] = '\n';
        text[CHUNK + shift - 1] = '\r';
        text[2 * CHUNK + 7] = '\n';
        write_to(path, text, sizeof text);
        mg_source *s = mg_text_lines_source(PATHS, 1, 0);
        const int64_t lengths[] = {CHUNK + shift - 1, CHUNK + 6 - shift, 92};
        assert_int_equal(s->n_rows, 3);
        for (int64_t row = 0; row < 3; row++) {
            mg_cell cell = {{0}, NULL};
            assert_int_equal(mg_source_read(s, (mg_row_key){0, row}, &cell), MG_OK);
            assert_int_equal(cell.shape.dim[0], lengths[row]);
            free_cells(s, &cell);
        }
        mg_source_release(s);
    }
}

static void long_lines_are_refused(void **state) {
    (void)state;
    FILE *f = fopen(path, "wb");
    fputs("a\nb\n", f);
    fseek(f, MG_TEXT_LINE + 10, SEEK_SET);
    fputs("\n", f);
    fclose(f);
    assert_null(mg_text_lines_source(PATHS, 1, 1));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "line 3 has more than 64 MiB"));
}

/* More files than are open at a time; one of them changes. */
static void many_files_share_descriptors(void **state) {
    enum { N = MG_FILE_SET_OPEN + 30 };
    static char names[N][64];
    const char *paths[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        char text[32];
        snprintf(names[i], sizeof names[i], "%s.%d", path, i);
        paths[i] = names[i];
        write_to(paths[i], text, (size_t)snprintf(text, sizeof text, "%d\n", i));
    }
    mg_source *s = mg_text_lines_source(paths, N, 0);
    assert_true(mg_io_open_count() <= MG_FILE_SET_OPEN);
    for (int64_t k = 0; k < 3 * N; k++) {
        char text[32] = "";
        mg_cell cell = {{0}, NULL};
        assert_int_equal(mg_source_read(s, (mg_row_key){0, k * 37 % N}, &cell), MG_OK);
        memcpy(text, cell.data, (size_t)cell.shape.dim[0]);
        assert_int_equal(atoi(text), k * 37 % N);
        free_cells(s, &cell);
    }
    assert_true(mg_io_open_count() <= MG_FILE_SET_OPEN);
    int failed = 0;
    usleep(30 * 1000);
    for (int i = 0; i < N; i++) write_to(paths[i], "", 0);
    for (int64_t row = 0; row < N; row++) {
        mg_cell cell = {{0}, NULL};
        const mg_status status = mg_source_read(s, (mg_row_key){0, row}, &cell);
        failed += status == MG_IO && strstr(mg_error_message(), "since the data set was opened");
        free_cells(s, &cell);
    }
    assert_int_equal(failed, N);
    mg_source_release(s);
    for (int i = 0; i < N; i++) unlink(paths[i]);
}

/* The same number of bytes, but other lines: found while the file is open, too. */
static void a_file_written_again_in_place_is_refused(void **state) {
    (void)state;
    write_to(path, "one\ntwo\n", 8);
    mg_source *s = mg_text_lines_source(PATHS, 1, 0);
    mg_cell cell = {{0}, NULL};
    assert_int_equal(mg_source_read(s, (mg_row_key){0, 1}, &cell), MG_OK);
    free_cells(s, &cell);
    rewrite(path, "a\nbcdef\n", 8);
    for (int64_t row = 0; row < 2; row++) {
        assert_int_equal(mg_source_read(s, (mg_row_key){0, row}, &cell), MG_IO);
        assert_non_null(strstr(mg_error_message(), "text_lines: /tmp/mgpu_test_"));
        assert_non_null(strstr(mg_error_message(), "has changed since the data set was opened"));
        free_cells(s, &cell);
    }
    mg_source_release(s);
}

/* ---- sets of files ---- */

/* Reads from each file in a forked process, whose first byte is known. SIGALRM ends it if it waits
 * for a lock. It ends by exit, which writes its counts in a coverage build. */
static bool child_can_read(mg_file_set *files, char first) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        alarm(60);
        for (int i = 0; i < mg_file_set_count(files); i++)
            if (mg_file_set_read(files, i, &byte, 1, 0) != MG_OK || byte != first) exit(1);
        exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0;
}

/* Sets are freed in any order, the first, the last and one between others. */
static void several_sets_may_be_open(void **state) {
    (void)state;
    write_to(path, "abc", 3);
    for (int order = 0; order < 6; order++) {
        mg_file_set *s[3];
        const int first = order % 3, second = (first + 1 + order / 3) % 3;
        char byte = 0;
        for (int i = 0; i < 3; i++) s[i] = mg_file_set_open(PATHS, 1, MG_PACKED_AUTO, NULL);
        mg_file_set_close(s[first]);
        mg_file_set_close(s[second]);
        mg_file_set *left = s[3 - first - second];
        assert_true(child_can_read(left, 'a'));
        assert_int_equal(mg_file_set_read(left, 0, &byte, 1, 2), MG_OK);
        assert_int_equal(byte, 'c');
        mg_file_set_close(left);
        assert_int_equal(mg_io_open_count(), 0);
    }
    mg_file_set_close(NULL);
}

/* A file is taken as gzip only if it begins with all three bytes, and if the caller's function does
 * not decide otherwise. */
static mg_packing never_packed(const unsigned char *head, size_t n) {
    assert_int_equal(n, 3);
    assert_int_equal(head[0], 0x1f);
    return MG_PACKED_NONE;
}

static void gzip_is_known_by_three_bytes(void **state) {
    (void)state;
    static const char *const heads[] = {"",           "\x1f",        "\x1f\x8b",
                                        "\x1f\x8b\7", "\x1f\x8a\x8", "a\x8b\x8"};
    char bytes[4];
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        const size_t n = strlen(heads[i]);
        write_to(path, heads[i], n);
        mg_file_set *s = mg_file_set_open(PATHS, 1, MG_PACKED_AUTO, NULL);
        assert_non_null(s);
        assert_int_equal(mg_file_set_size(s, 0), n);
        assert_int_equal(mg_file_set_read(s, 0, bytes, n, 0), MG_OK);
        assert_memory_equal(bytes, heads[i], n);
        mg_file_set_close(s);
    }
    write_to(path, "\x1f\x8b\x8", 3);
    assert_null(mg_file_set_open(PATHS, 1, MG_PACKED_AUTO, NULL));
    assert_int_equal(mg_error_code(), MG_DATA);
    mg_file_set *s = mg_file_set_open(PATHS, 1, MG_PACKED_AUTO, never_packed);
    assert_int_equal(mg_file_set_size(s, 0), 3);
    mg_file_set_close(s);
}

/* A file that was closed in favor of others, and has been removed when it is read again. */
static void a_file_that_is_gone_is_named(void **state) {
    enum { N = MG_FILE_SET_OPEN + 1 };
    static char names[N][64];
    const char *paths[N];
    char byte, expected[128];
    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%s.%d", path, i);
        write_to(paths[i] = names[i], "x", 1);
    }
    mg_file_set *s = mg_file_set_open(paths, N, MG_PACKED_AUTO, NULL);
    assert_int_equal(mg_io_open_count(), MG_FILE_SET_OPEN);
    for (int i = 0; i < N; i++) unlink(paths[i]);
    assert_int_equal(mg_file_set_read(s, 0, &byte, 1, 0), MG_IO); /* the oldest one */
    snprintf(expected, sizeof expected, "cannot open %s: No such file", paths[0]);
    assert_memory_equal(mg_error_message(), expected, strlen(expected));
    assert_int_equal(mg_file_set_read(s, N - 1, &byte, 1, 0), MG_OK); /* still open */
    mg_file_set_close(s);
    assert_int_equal(mg_io_open_count(), 0);
}

/* ---- forks ---- */

/* Files that are opened again and again, under the set's lock. */
typedef struct shared_set {
    mg_file_set *files;
    atomic_bool stop;
} shared_set;

static void *read_in_turns(void *argument) {
    shared_set *s = argument;
    char byte;
    for (int i = 0; !atomic_load(&s->stop); i++)
        mg_file_set_read(s->files, i * 7 % mg_file_set_count(s->files), &byte, 1, 0);
    return NULL;
}

static void a_forked_process_can_read(void **state) {
    enum { N = MG_FILE_SET_OPEN + 30, FORKS = 40 };
    static char names[N][64];
    const char *paths[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%s.%d", path, i);
        paths[i] = names[i];
        write_to(paths[i], "x\n", 2);
    }
    shared_set s = {.files = mg_file_set_open(paths, N, MG_PACKED_AUTO, NULL)};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_turns, &s), 0);
    bool good = true;
    for (int i = 0; i < FORKS && good; i++) good = child_can_read(s.files, 'x');
    atomic_store(&s.stop, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_true(good);
    mg_file_set_close(s.files);
    for (int i = 0; i < N; i++) unlink(paths[i]);
}

/* Opens the source and reads the last line; in the n-th round `arm` makes the n-th call fail. */
static void survives(void (*arm)(int64_t n), mg_status code) {
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    bool whole = false;
    int64_t n = 1;
    for (; !whole; n++) {
        mg_cell cell = {{0}, NULL};
        arm(n);
        mg_source *s = mg_text_lines_source(PATHS, 2, 0);
        whole = s && mg_source_read(s, (mg_row_key){0, s->n_rows - 1}, &cell) == MG_OK;
        arm(0);
        if (s) free_cells(s, &cell);
        mg_source_release(s);
        assert_int_equal(mg_io_open_count(), 0);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        if (!whole) assert_int_equal(mg_error_code(), code);
    }
    assert_true(n > 8);
}

static void every_failing_allocation_and_file_call_is_survived(void **state) {
    (void)state;
    write_to(path, "a\nb\n", 4);
    gzFile f = gzopen(other, "wb");
    assert_true(gzputs(f, "c\nd\n") > 0);
    gzclose(f);
    survives(mg_alloc_fail_after, MG_OOM);
    survives(arm_file, MG_IO);
    mg_interrupt();
    assert_null(mg_text_lines_source(PATHS, 1, 0));
    assert_int_equal(mg_error_code(), MG_INTERRUPTED);
    assert_null(mg_text_lines_source((const char *const[]){"/nowhere/x"}, 1, 0));
    assert_int_equal(mg_error_code(), MG_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_with_lf_or_crlf_or_the_file),
        cmocka_unit_test(several_files_and_skipped_lines),
        cmocka_unit_test(gzip_is_unpacked),
        cmocka_unit_test(chunks_make_no_difference),
        cmocka_unit_test(long_lines_are_refused),
        cmocka_unit_test(a_file_written_again_in_place_is_refused),
        cmocka_unit_test(several_sets_may_be_open),
        cmocka_unit_test(gzip_is_known_by_three_bytes),
        cmocka_unit_test(a_file_that_is_gone_is_named),
        cmocka_unit_test(a_forked_process_can_read),
        cmocka_unit_test(many_files_share_descriptors),
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
    };
    return cmocka_run_group_tests(tests, make_files, check_all_freed);
}

/* Tar archives (io/tar) and CIFAR's files in them (data/cifar): names, skipped entries, plain and
 * gzipped; archives that are cut off or damaged anywhere are refused; every allocation fails once.
 */
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include "data/cifar.h"
#include "io/tar.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

enum { BLOCK = 512, IMAGE = 3 * MG_CIFAR_PIXELS, MOST = 64 << 10 };

static char path[] = "/tmp/mgpu_test_tar_XXXXXX";

/* The archive that is being made. */
static unsigned char archive[MOST];
static size_t used;

static void add_header(const char *name, char type, size_t size, const char *magic) {
    unsigned char *h = archive + used;
    unsigned sum = 0;
    memset(h, 0, BLOCK);
    memcpy(h, name, strlen(name) < 100 ? strlen(name) : 100);
    snprintf((char *)h + 124, 12, "%011zo", size);
    memcpy(h + 257, magic, strlen(magic));
    h[156] = (unsigned char)type;
    memset(h + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    used += BLOCK;
}

static void add_entry(const char *name, char type, const void *bytes, size_t size) {
    add_header(name, type, size, "ustar");
    memcpy(archive + used, bytes, size);
    memset(archive + used + size, 0, BLOCK);
    used += (size + BLOCK - 1) / BLOCK * BLOCK;
}

static void write_archive(size_t n, bool gzip) {
    if (gzip) {
        gzFile f = gzopen(path, "wb");
        assert_int_equal(gzwrite(f, archive, (unsigned)n), n);
        gzclose(f);
        return;
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(archive, 1, n, f), n);
    fclose(f);
}

/* Ends the archive and writes it. */
static void finish(bool gzip) {
    memset(archive + used, 0, 2 * BLOCK);
    used += 2 * BLOCK;
    write_archive(used, gzip);
}

/* ---- archives ---- */

static void regular_files_are_found_and_all_else_is_skipped(void **state) {
    (void)state;
    for (int gzip = 0; gzip < 2; gzip++) {
        const mg_tar_entry *e;
        char text[8] = "";
        size_t got;
        used = 0;
        add_entry("folder/", '5', "", 0);
        add_entry("pax", 'x', "20 path=other.bin\n", 18);
        add_entry("./a.txt", '0', "hello", 5);
        add_entry("link", '2', "", 0);
        add_entry("b.txt", 0, "", 0);
        add_entry("c.txt", '0', "worlds", 6);
        finish(gzip);
        mg_tar *t = mg_tar_open(path);
        assert_non_null(t);
        assert_int_equal(mg_tar_next(t, &e), MG_OK);
        assert_string_equal(e->name, "a.txt");
        assert_int_equal(mg_tar_read(t, text, 3, &got), MG_OK); /* the rest is skipped */
        assert_memory_equal(text, "hel", 3);
        assert_int_equal(mg_tar_next(t, &e), MG_OK);
        assert_string_equal(e->name, "b.txt");
        assert_int_equal(mg_tar_read(t, text, 8, &got), MG_OK);
        assert_int_equal(got, 0);
        assert_int_equal(mg_tar_next(t, &e), MG_OK);
        assert_int_equal(mg_tar_read(t, text, 8, &got), MG_OK);
        assert_int_equal(got, 6);
        assert_memory_equal(text, "worlds", 6);
        for (int i = 0; i < 2; i++) { /* the end stays the end */
            assert_int_equal(mg_tar_next(t, &e), MG_OK);
            assert_null(e);
        }
        mg_tar_close(t);
    }
}

/* The prefix of the ustar format, names of 100 characters without a zero byte, and GNU's magic,
 * whose prefix is something else. */
static void long_names_are_put_together(void **state) {
    (void)state;
    const mg_tar_entry *e;
    char name[101], expected[300];
    memset(name, 'n', 100), name[100] = 0;
    for (int gnu = 0; gnu < 2; gnu++) {
        used = 0;
        add_header(name, '0', 0, gnu ? "ustar  " : "ustar");
        unsigned char *h = archive;
        unsigned sum = 0;
        memset(h + 345, 'p', 155);
        memset(h + 148, ' ', 8);
        for (int i = 0; i < BLOCK; i++) sum += h[i];
        snprintf((char *)h + 148, 8, "%06o", sum);
        finish(false);
        mg_tar *t = mg_tar_open(path);
        assert_int_equal(mg_tar_next(t, &e), MG_OK);
        memset(expected, 'p', 155);
        snprintf(expected + 155, 120, "/%s", name);
        assert_string_equal(e->name, gnu ? name : expected);
        mg_tar_close(t);
    }
}

/* Reads everything; returns the status at which that ends. */
static mg_status read_all(void) {
    char some[100];
    size_t got;
    const mg_tar_entry *e = NULL;
    mg_tar *t = mg_tar_open(path);
    mg_status status = t ? MG_OK : mg_error_code();
    while (status == MG_OK && (status = mg_tar_next(t, &e)) == MG_OK && e) do {
            status = mg_tar_read(t, some, sizeof some, &got);
        } while (status == MG_OK && got);
    mg_tar_close(t);
    return status;
}

static void damaged_archives_are_refused(void **state) {
    (void)state;
    used = 0;
    add_entry("a.txt", '0', "hello", 5);
    finish(false);
    for (size_t n = 1; n < 2 * BLOCK; n++) { /* cut off */
        write_archive(n, false);
        assert_int_equal(read_all(), MG_DATA);
        write_archive(n, true);
        assert_int_equal(read_all(), MG_DATA);
    }
    for (size_t n = 0; n <= used; n += BLOCK) { /* at the end of an entry: the end may be missing */
        write_archive(n, false);
        assert_int_equal(read_all(), n == BLOCK ? MG_DATA : MG_OK);
    }
    for (size_t i = 0; i < BLOCK; i++) { /* a header byte changed */
        archive[i] ^= 1;
        write_archive(used, false);
        archive[i] ^= 1;
        /* but for the byte after the checksum's end */
        assert_int_equal(read_all(), i == 155 ? MG_OK : MG_DATA);
    }
    used = 0;
    add_entry("", '0', "hello", 5);
    write_archive(BLOCK + 2, false);
    assert_int_equal(read_all(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "ends at byte 514, within an entry without a name"));
    /* a size that is no octal number */
    used = 0;
    add_header("a.txt", '0', 0, "ustar");
    archive[124] = 0x80;
    archive[148 + 2] = (unsigned char)(archive[148 + 2] + 1); /* 0x80 - '0' = 0120 octal more */
    finish(false);
    assert_int_equal(read_all(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "no header of a tar archive at byte 0"));
}

/* A number ends at a space, a zero byte or the end of its field. */
static void sizes_are_read_in_every_form(void **state) {
    (void)state;
    static const struct {
        char field[13];
        int64_t size; /* -1: refused */
    } cases[] = {{"00000000005", 5},  {"000000000005", 5},  {"          5 ", 5},
                 {"           5", 5}, {"5\0xxxxxxxxxx", 5}, {"            ", 0},
                 {"00000000008", -1}, {"5x", -1},           {"-0000000005", -1},
                 {"777777777777", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mg_tar_entry *e = NULL;
        unsigned sum = 0;
        used = 0;
        add_entry("a.txt", '0', "hello", 5);
        memcpy(archive + 124, cases[i].field, 12);
        memset(archive + 148, ' ', 8);
        for (int k = 0; k < BLOCK; k++) sum += archive[k];
        snprintf((char *)archive + 148, 8, "%06o", sum);
        if (cases[i].size == 0) used = BLOCK;
        finish(false);
        mg_tar *t = mg_tar_open(path);
        const mg_status status = mg_tar_next(t, &e);
        if (e) assert_true(e->size == cases[i].size || i == 9);
        mg_tar_close(t);
        if (i == 9) { /* a size that the file does not have */
            assert_int_equal(read_all(), MG_DATA);
            continue;
        }
        assert_int_equal(status, cases[i].size < 0 ? MG_DATA : MG_OK);
        if (status == MG_OK) assert_int_equal(read_all(), MG_OK);
    }
}

/* In the n-th round the n-th file call fails. */
static void failing_file_calls_are_reported(void **state) {
    (void)state;
    static char zeros[MOST / 2];
    for (int gzip = 0; gzip < 2; gzip++) {
        mg_status status = MG_IO;
        int64_t n = 0;
        used = 0;
        add_entry("pax", 'x', zeros, sizeof zeros);
        add_entry("a.txt", '0', "hello", 5);
        finish(gzip);
        while (status != MG_OK) {
            mg_io_fail_after(++n, EIO);
            status = read_all();
            mg_io_fail_stop();
            assert_true(status == MG_OK || status == MG_IO);
            assert_int_equal(mg_io_open_count(), 0);
            assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
        }
        assert_true(n > 3);
    }
}

/* Ctrl-C while an entry is skipped, and while the end is looked for. */
static void skipping_can_be_interrupted(void **state) {
    (void)state;
    const mg_tar_entry *e = NULL;
    static char zeros[MOST / 2];
    used = 0;
    add_entry("large", '0', zeros, sizeof zeros);
    add_entry("a.txt", '0', "hello", 5);
    finish(false);
    mg_tar *t = mg_tar_open(path);
    assert_int_equal(mg_tar_next(t, &e), MG_OK);
    mg_interrupt();
    assert_int_equal(mg_tar_next(t, &e), MG_INTERRUPTED);
    assert_false(mg_interrupt_pending());
    mg_tar_close(t);
    t = mg_tar_open(path);
    for (int i = 0; i < 2; i++) assert_int_equal(mg_tar_next(t, &e), MG_OK);
    assert_string_equal(e->name, "a.txt");
    mg_interrupt();
    assert_int_equal(mg_tar_next(t, &e), MG_INTERRUPTED);
    mg_tar_close(t);
}

/* ---- CIFAR ---- */

static const mg_cifar_format TWO = {.labels = 2, .classes = {20, 100}};

/* n records of two labels: record i has the labels first + i and 2 (first + i), and pixels that say
 * where they are. */
static size_t make_records(unsigned char *bytes, int n, int first) {
    unsigned char *p = bytes;
    for (int i = 0; i < n; i++) {
        *p++ = (unsigned char)(first + i), *p++ = (unsigned char)(2 * (first + i));
        for (int k = 0; k < IMAGE; k++) *p++ = (unsigned char)(7 * k + first + i);
    }
    return (size_t)(p - bytes);
}

static void expect_rows(const mg_cifar *c, int rows) {
    assert_int_equal(c->rows, rows);
    for (int i = 0; i < rows; i++) {
        assert_int_equal(c->labels[2 * i], i);
        assert_int_equal(c->labels[2 * i + 1], 2 * i);
        for (int k = 0; k < MG_CIFAR_PIXELS; k++)
            for (int channel = 0; channel < 3; channel++)
                assert_int_equal(c->images[i * IMAGE + 3 * k + channel],
                                 (unsigned char)(7 * (channel * MG_CIFAR_PIXELS + k) + i));
    }
}

static const char *const NAMES[] = {"one.bin", "two.bin"};

static void make_cifar_archive(void) {
    static unsigned char one[3 * (IMAGE + 2)], two[2 * (IMAGE + 2)];
    make_records(one, 3, 0), make_records(two, 2, 3);
    used = 0;
    add_entry("set/two.bin", '0', two, sizeof two); /* before its turn */
    add_entry("set/readme", '0', "text", 4);
    add_entry("set/one.bin", '0', one, sizeof one);
    finish(true);
}

static void records_are_read_from_files_and_archives(void **state) {
    (void)state;
    mg_cifar c = {0};
    make_cifar_archive();
    assert_int_equal(mg_cifar_read_archive(&c, &TWO, path, NAMES, 2), MG_OK);
    expect_rows(&c, 5);
    mg_cifar_free(&c);
    for (int gzip = 0; gzip < 2; gzip++) {
        for (int first = 0; first < 8; first += 4) { /* two files, one after the other */
            write_archive(make_records(archive, 4, first), gzip);
            assert_int_equal(mg_cifar_read(&c, &TWO, path), MG_OK);
        }
        expect_rows(&c, 8);
        mg_cifar_free(&c);
    }
}

static void expect_refusal(mg_status status, const char *message, mg_cifar *c) {
    assert_int_equal(status, MG_DATA);
    if (!strstr(mg_error_message(), message)) fail_msg("%s", mg_error_message());
    mg_cifar_free(c);
}

static void wrong_files_are_refused(void **state) {
    (void)state;
    mg_cifar c = {0};
    const size_t n = make_records(archive, 3, 0);
    write_archive(n - 1, false);
    expect_refusal(mg_cifar_read(&c, &TWO, path), "the file ends within record 3, of 3074 bytes",
                   &c);
    write_archive(0, false);
    expect_refusal(mg_cifar_read(&c, &TWO, path), "the file is empty", &c);
    archive[2 * (IMAGE + 2) + 1] = 100;
    write_archive(n, false);
    expect_refusal(mg_cifar_read(&c, &TWO, path), "record 3 has the label 100, but there are 100",
                   &c);
    make_cifar_archive();
    const char *const names[] = {"one.bin", "three.bin"};
    expect_refusal(mg_cifar_read_archive(&c, &TWO, path, names, 2), "has no three.bin", &c);
    used -= 2 * BLOCK;
    add_entry("one.bin", '0', archive + BLOCK, IMAGE + 2);
    finish(true);
    expect_refusal(mg_cifar_read_archive(&c, &TWO, path, NAMES, 2), "a second file of that name",
                   &c);
}

static void reading_cifar_can_be_interrupted(void **state) {
    (void)state;
    mg_cifar c = {0};
    make_cifar_archive();
    mg_interrupt();
    assert_int_equal(mg_cifar_read_archive(&c, &TWO, path, NAMES, 2), MG_INTERRUPTED);
    mg_cifar_free(&c);
    write_archive(make_records(archive, 4, 0), false);
    mg_interrupt();
    assert_int_equal(mg_cifar_read(&c, &TWO, path), MG_INTERRUPTED);
    assert_false(mg_interrupt_pending());
    mg_cifar_free(&c);
}

/* Of an archive, and of a file on its own. */
static void short_memory_is_reported(void **state) {
    (void)state;
    mg_status status = MG_OOM;
    write_archive(make_records(archive, 4, 0), true);
    for (int at = 1; status != MG_OK; at++) {
        mg_cifar c = {0};
        mg_alloc_fail_after(at);
        status = mg_cifar_read(&c, &TWO, path);
        mg_alloc_fail_after(0);
        mg_cifar_free(&c);
        assert_true(status == MG_OK || status == MG_OOM);
    }
    status = MG_IO;
    for (int at = 1; status != MG_OK; at++) {
        mg_cifar c = {0};
        mg_io_fail_after(at, EIO);
        status = mg_cifar_read(&c, &TWO, path);
        mg_io_fail_stop();
        mg_cifar_free(&c);
        assert_true(status == MG_OK || status == MG_IO);
    }
    status = MG_OOM;
    make_cifar_archive();
    for (int at = 1; status != MG_OK; at++) {
        mg_cifar c = {0};
        mg_alloc_fail_after(at);
        status = mg_cifar_read_archive(&c, &TWO, path, NAMES, 2);
        mg_alloc_fail_after(0);
        mg_cifar_free(&c);
        assert_true(status == MG_OK ? at > 8 : status == MG_OOM);
        assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regular_files_are_found_and_all_else_is_skipped),
        cmocka_unit_test(long_names_are_put_together),
        cmocka_unit_test(damaged_archives_are_refused),
        cmocka_unit_test(sizes_are_read_in_every_form),
        cmocka_unit_test(failing_file_calls_are_reported),
        cmocka_unit_test(skipping_can_be_interrupted),
        cmocka_unit_test(records_are_read_from_files_and_archives),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(reading_cifar_can_be_interrupted),
        cmocka_unit_test(short_memory_is_reported),
    };
    close(mkstemp(path));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}

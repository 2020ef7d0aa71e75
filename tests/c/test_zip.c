/* Zip archives (io/zip): round trips, archives of other programs, and damaged or hostile ones. */
#include "core/alloc.h"
#include "io/zip.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* The temporary folder of the tests, and the one file in it. */
static char folder[] = "/tmp/mgpu_test_zip_XXXXXX";
static char path[128];

/* Bytes that neither compress well nor look like a header. */
static unsigned char *noise(size_t n) {
    unsigned char *p = malloc(n + 1);
    uint32_t v = 1;
    for (size_t i = 0; i < n; i++) {
        v = v * 1664525 + 1013904223;
        p[i] = (unsigned char)(v >> 24 & 15); /* deflate halves it */
    }
    return p;
}

/* Writes an archive with three entries: "b/stored", "a" (deflated) and "empty". */
static mg_status write_sample(const unsigned char *bytes, size_t n) {
    mg_zip_writer *w = mg_zip_create(path);
    if (!w) return mg_error_code();
    mg_status status = mg_zip_add(w, "b/stored", 5, false);
    if (status == MG_OK) status = mg_zip_write(w, "he", 2);
    if (status == MG_OK) status = mg_zip_write(w, "llo", 3);
    if (status == MG_OK) status = mg_zip_add(w, "a", (int64_t)n, true);
    if (status == MG_OK) status = mg_zip_write(w, bytes, n);
    if (status == MG_OK) status = mg_zip_add(w, "empty", 0, true);
    if (status == MG_OK) return mg_zip_commit(w);
    mg_zip_abandon(w);
    return status;
}

/* Reads an entry in pieces of 1000 bytes; *n is its size. Freed by the caller; NULL after an error.
 */
static unsigned char *read_entry(mg_zip *z, const char *name, size_t *n) {
    const mg_zip_entry *e = mg_zip_find(z, name);
    if (!e || mg_zip_start(z, e) != MG_OK) return NULL;
    unsigned char *bytes = malloc((size_t)e->size + 1);
    *n = 0;
    for (size_t got = 1; got; *n += got)
        if (mg_zip_read(z, bytes + *n, 1000, &got) != MG_OK) {
            free(bytes);
            return NULL;
        }
    return bytes;
}

/* Reads every entry of the file. */
static mg_status read_all(void) {
    size_t n, length;
    mg_zip *z = mg_zip_open(path);
    if (!z) return mg_error_code();
    const mg_zip_entry *e = mg_zip_entries(z, &n);
    mg_status status = MG_OK;
    for (size_t i = 0; status == MG_OK && i < n; i++) {
        unsigned char *bytes = read_entry(z, e[i].name, &length);
        if (!bytes) status = mg_error_code();
        free(bytes);
    }
    mg_zip_close(z);
    return status;
}

/* The file's bytes; *n is their number. Freed by the caller. */
static unsigned char *read_file(size_t *n) {
    FILE *f = fopen(path, "rb");
    unsigned char *bytes = malloc(1 << 20);
    *n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

static void write_file(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Entries come back, by name and sorted; deflate makes them smaller. */
static void entries_survive(void **state) {
    (void)state;
    size_t n = 100000, count, length;
    unsigned char *bytes = noise(n);
    assert_int_equal(write_sample(bytes, n), MG_OK);
    mg_zip *z = mg_zip_open(path);
    assert_non_null(z);
    const mg_zip_entry *e = mg_zip_entries(z, &count);
    assert_int_equal(count, 3);
    assert_string_equal(e[0].name, "a");
    assert_string_equal(e[1].name, "b/stored");
    assert_string_equal(e[2].name, "empty");
    assert_true(e[0].size == (int64_t)n && e[0].packed < (int64_t)n * 3 / 4);
    assert_null(mg_zip_find(z, "b"));
    /* In any order, and twice. */
    for (int i = 0; i < 2; i++) {
        unsigned char *a = read_entry(z, "a", &length);
        assert_int_equal(length, n);
        assert_memory_equal(a, bytes, n);
        free(a);
        unsigned char *b = read_entry(z, "b/stored", &length);
        assert_int_equal(length, 5);
        assert_memory_equal(b, "hello", 5);
        free(b);
        free(read_entry(z, "empty", &length));
        assert_int_equal(length, 0);
    }
    /* An entry that is left in the middle. */
    unsigned char some[10];
    assert_int_equal(mg_zip_start(z, &e[0]), MG_OK);
    assert_int_equal(mg_zip_read(z, some, sizeof some, &length), MG_OK);
    assert_memory_equal(some, bytes, sizeof some);
    mg_zip_close(z);
    free(bytes);
}

/* Equal entries give equal bytes; a name given twice, or none, is refused and the old file stays.
 */
static void writing_is_deterministic_and_checked(void **state) {
    (void)state;
    size_t n, m;
    assert_int_equal(write_sample((const unsigned char *)"xyz", 3), MG_OK);
    unsigned char *first = read_file(&n);
    assert_int_equal(write_sample((const unsigned char *)"xyz", 3), MG_OK);
    unsigned char *second = read_file(&m);
    assert_int_equal(n, m);
    assert_memory_equal(first, second, n);
    free(second);
    mg_zip_writer *w = mg_zip_create(path);
    assert_int_equal(mg_zip_add(w, "", 0, false), MG_USAGE);
    assert_int_equal(mg_zip_add(w, "a", 0, false), MG_OK);
    assert_int_equal(mg_zip_add(w, "a", 0, false), MG_OK);
    assert_int_equal(mg_zip_commit(w), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "given twice"));
    second = read_file(&m);
    assert_int_equal(n, m);
    assert_memory_equal(first, second, n);
    free(first), free(second);
}

/* More entries than 16 bits count need the zip64 records. */
static void many_entries_need_zip64(void **state) {
    (void)state;
    enum { N = 66000 };
    char name[16];
    size_t n, length = 0;
    mg_zip_writer *w = mg_zip_create(path);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(mg_zip_add(w, name, 1, false), MG_OK);
        assert_int_equal(mg_zip_write(w, name, 1), MG_OK);
    }
    assert_int_equal(mg_zip_commit(w), MG_OK);
    mg_zip *z = mg_zip_open(path);
    if (!z) fail_msg("%s", mg_error_message());
    mg_zip_entries(z, &n);
    assert_int_equal(n, N);
    unsigned char *bytes = read_entry(z, "65999", &length);
    assert_true(length == 1 && bytes[0] == '6');
    free(bytes);
    mg_zip_close(z);
}

/* What Python's zipfile writes to a pipe: sizes after the data; "f" is deflated and has a zip64
 * field in its local header, "s" is stored. */
static void archives_of_other_programs_are_read(void **state) {
    (void)state;
    static const char archive[] =
        "\x50\x4b\x03\x04\x2d\x00\x08\x00\x08\x00\x00\x00\x21\x00\x00\x00\x00\x00\xff\xff\xff\xff"
        "\xff\xff\xff\xff\x01\x00\x14\x00\x66\x01\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x4b\x4c\x4a\x24\x0a\x02\x00\x50\x4b\x07\x08\x13\x5a\xd4\xbc"
        "\x07\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00\x00\x00\x00\x00\x50\x4b\x03\x04\x14\x00"
        "\x08\x00\x00\x00\x00\x00\x21\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00"
        "\x00\x00\x73\x68\x65\x6c\x6c\x6f\x50\x4b\x07\x08\x86\xa6\x10\x36\x05\x00\x00\x00\x05\x00"
        "\x00\x00\x50\x4b\x01\x02\x2d\x03\x2d\x00\x08\x00\x08\x00\x00\x00\x21\x00\x13\x5a\xd4\xbc"
        "\x07\x00\x00\x00\x28\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x01"
        "\x00\x00\x00\x00\x66\x50\x4b\x01\x02\x14\x03\x14\x00\x08\x00\x00\x00\x00\x00\x21\x00\x86"
        "\xa6\x10\x36\x05\x00\x00\x00\x05\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x80\x01\x52\x00\x00\x00\x73\x50\x4b\x05\x06\x00\x00\x00\x00\x02\x00\x02\x00\x5e\x00"
        "\x00\x00\x86\x00\x00\x00\x00\x00";
    size_t n;
    write_file(archive, sizeof archive - 1);
    mg_zip *z = mg_zip_open(path);
    if (!z) fail_msg("%s", mg_error_message());
    unsigned char *f = read_entry(z, "f", &n), *s = NULL;
    assert_int_equal(n, 40);
    assert_memory_equal(f, "abababababababababababababababababababab", 40);
    s = read_entry(z, "s", &n);
    assert_int_equal(n, 5);
    assert_memory_equal(s, "hello", 5);
    free(f), free(s);
    mg_zip_close(z);
}

/* Every flipped bit is detected, or does not change the bytes that are read. Every truncation is
 * detected. */
static void flips_and_truncations_are_detected(void **state) {
    (void)state;
    size_t n, length;
    unsigned char *bytes = noise(300);
    assert_int_equal(write_sample(bytes, 300), MG_OK);
    unsigned char *file = read_file(&n);
    int detected = 0;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_file(file, n);
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (read_all() != MG_OK) {
            detected++;
            continue;
        }
        /* A name in the directory and a method cannot have changed: the local header has both. */
        mg_zip *z = mg_zip_open(path);
        unsigned char *a = read_entry(z, "a", &length);
        assert_non_null(a);
        assert_int_equal(length, 300);
        assert_memory_equal(a, bytes, 300);
        free(a);
        mg_zip_close(z);
    }
    assert_true(detected > (int)(8 * n * 3 / 5)); /* the rest is times, versions and the like */
    for (size_t i = 0; i < n; i++) {
        write_file(file, i);
        assert_int_equal(read_all(), MG_DATA);
    }
    free(file), free(bytes);
}

/* 128 MiB of zeros take 128 KiB: more than 64 MiB and 32 times the file's size. */
static void bombs_are_refused(void **state) {
    (void)state;
    unsigned char *zeros = calloc(1, 1 << 20);
    mg_zip_writer *w = mg_zip_create(path);
    assert_int_equal(mg_zip_add(w, "bomb", 128 << 20, true), MG_OK);
    for (int i = 0; i < 128; i++) assert_int_equal(mg_zip_write(w, zeros, 1 << 20), MG_OK);
    assert_int_equal(mg_zip_commit(w), MG_OK);
    free(zeros);
    assert_null(mg_zip_open(path));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "32 times the file's size"));
}

/* A change of the sample: `width` bytes at an offset from the record of "a" in the directory, from
 * the end record, or from the start of the file, and what the refusal says. */
typedef struct change {
    enum { RECORD, END, START } from;
    int offset, width;
    uint32_t value;
    mg_status code;
    const char *part;
} change;

static void wrong_directories_are_refused(void **state) {
    (void)state;
    static const change changes[] = {
        {RECORD, 0, 1, 'x', MG_DATA, "directory is damaged"},
        {RECORD, 8, 2, 1, MG_UNSUPPORTED, "\"a\" is encrypted"},
        {RECORD, 10, 2, 12, MG_UNSUPPORTED, "compression method 12"},
        {RECORD, 10, 2, 0, MG_DATA, "\"a\" cannot have 3 bytes"},
        {RECORD, 16, 4, 7, MG_DATA, "differ"},
        {RECORD, 20, 4, 1 << 30, MG_DATA, "outside of the file"},
        {RECORD, 24, 4, 1 << 30, MG_DATA, "cannot have 1073741824 bytes"},
        {RECORD, 24, 4, 4, MG_DATA, "differ"},
        {RECORD, 24, 4, UINT32_MAX, MG_DATA, "lacks its zip64 sizes"},
        {RECORD, 28, 2, 0, MG_DATA, "has no name"},
        {RECORD, 28, 2, 60000, MG_DATA, "directory is damaged"},
        {RECORD, 32, 2, 60000, MG_DATA, "directory is damaged"},
        {RECORD, 42, 4, 1 << 30, MG_DATA, "outside of the file"},
        {RECORD, 46, 1, 0, MG_DATA, "directory is damaged"},
        {RECORD, 46, 1, 'b', MG_DATA, "differ"},
        {END, 4, 2, 1, MG_UNSUPPORTED, "several files"},
        {END, 8, 2, 2, MG_UNSUPPORTED, "several files"},
        {END, 8, 4, 2 << 16 | 2, MG_DATA, "longer than its entries"},
        {END, 8, 4, 4 << 16 | 4, MG_DATA, "cannot hold 4 entries"},
        {END, 8, 4, UINT32_MAX, MG_DATA, "zip64 record is damaged"},
        {END, 12, 4, 1, MG_DATA, "not where the file's end says"},
        {END, 16, 4, 1, MG_DATA, "not where the file's end says"},
        {END, 20, 2, 1, MG_DATA, "its end is missing"},
        {START, 6, 2, 1, MG_DATA, "differ"},
        {START, 26, 2, 7, MG_DATA, "differ"},
        {START, 30, 1, 'x', MG_DATA, "differ"},
    };
    size_t n;
    assert_int_equal(write_sample((const unsigned char *)"xyz", 3), MG_OK);
    unsigned char *file = read_file(&n), *end = file + n - 22;
    unsigned char *const from[] = {file + (end[16] | end[17] << 8), end, file};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const change *c = &changes[i];
        unsigned char *p = from[c->from] + c->offset, kept[4];
        memcpy(kept, p, 4);
        for (int k = 0; k < c->width; k++) p[k] = (unsigned char)(c->value >> 8 * k);
        write_file(file, n);
        const mg_status status = read_all();
        if (status != c->code || !strstr(mg_error_message(), c->part))
            fail_msg("change %zu: %s", i, status == MG_OK ? "accepted" : mg_error_message());
        memcpy(p, kept, 4);
    }
    free(file);
}

/* The first bytes of a file, as an archive. */
static void refuse_archive(const void *bytes, size_t n, int64_t holes, const char *part) {
    write_file("", 0);
    assert_int_equal(truncate(path, holes), 0);
    FILE *f = fopen(path, "ab");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    assert_null(mg_zip_open(path));
    if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());
}

/* An end record without room for the zip64 one before it, and one with a directory of 16 MiB. */
static void ends_that_cannot_be_are_refused(void **state) {
    (void)state;
    enum { LONG = (16 << 20) + 1 };
    unsigned char end[22] = "PK\5\6";
    end[8] = end[9] = end[10] = end[11] = 255;
    refuse_archive(end, sizeof end, 0, "the zip64 record is missing");
    end[8] = end[10] = 1, end[9] = end[11] = 0;
    for (int i = 0; i < 4; i++) end[12 + i] = (unsigned char)(LONG >> 8 * i);
    refuse_archive(end, sizeof end, LONG, "a zip directory of 16777217 bytes is too long");
    assert_int_equal(mg_error_code(), MG_UNSUPPORTED);
}

/* Reading fails with MG_DATA and the part of a message. */
static void refuse_rest(mg_zip *z, const char *part) {
    static unsigned char bytes[1 << 20];
    size_t got;
    assert_int_equal(mg_zip_read(z, bytes, sizeof bytes, &got), MG_DATA);
    if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());
    mg_zip_close(z);
}

/* The file is truncated while it is being read: this is reported, wherever it ends. */
static void a_file_cut_while_open_is_refused(void **state) {
    (void)state;
    enum { N = 400000 };
    unsigned char *bytes = noise(N), some[10];
    size_t got;
    for (int cut = 0; cut < 3; cut++) {
        assert_int_equal(write_sample(bytes, N), MG_OK);
        mg_zip *z = mg_zip_open(path);
        const mg_zip_entry *e = mg_zip_find(z, cut == 1 ? "a" : "b/stored");
        if (cut == 0) {
            assert_int_equal(truncate(path, 10), 0);
            assert_int_equal(mg_zip_start(z, e), MG_DATA);
            assert_non_null(strstr(mg_error_message(), "t.zip became shorter while it was read"));
            mg_zip_close(z);
            continue;
        }
        assert_int_equal(mg_zip_start(z, e), MG_OK);
        if (cut == 1) assert_int_equal(mg_zip_read(z, some, sizeof some, &got), MG_OK);
        assert_int_equal(truncate(path, cut == 1 ? 1000 : 40), 0);
        refuse_rest(z, cut == 1 ? "\"a\" is damaged: the file ends within it"
                                : "\"b/stored\" is damaged: the file ends within it");
    }
    free(bytes);
}

/* Two entries of one name, which mg_zip_commit would not write. */
static void a_name_given_twice_is_refused(void **state) {
    (void)state;
    size_t n;
    mg_zip_writer *w = mg_zip_create(path);
    assert_int_equal(mg_zip_add(w, "x", 0, false), MG_OK);
    assert_int_equal(mg_zip_add(w, "y", 0, false), MG_OK);
    assert_int_equal(mg_zip_commit(w), MG_OK);
    unsigned char *file = read_file(&n);
    for (size_t i = 0; i < n; i++)
        if (file[i] == 'y') file[i] = 'x';
    write_file(file, n);
    assert_int_equal(read_all(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "given twice"));
    free(file);
}

/* A small archive with all of its numbers in zip64 fields, behind another extra field. */
static const char archive64[] =
    "\x50\x4b\x03\x04\x2d\x00\x00\x00\x00\x00\x00\x00\x21\x00\x86\xa6\x10\x36\xff\xff\xff\xff"
    "\xff\xff\xff\xff\x01\x00\x14\x00\x7a\x01\x00\x10\x00\x05\x00\x00\x00\x00\x00\x00\x00\x05"
    "\x00\x00\x00\x00\x00\x00\x00\x68\x65\x6c\x6c\x6f\x50\x4b\x01\x02\x2d\x00\x2d\x00\x00\x00"
    "\x00\x00\x00\x00\x21\x00\x86\xa6\x10\x36\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x24\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x7a\x55\x54\x04\x00\x74\x69\x6d"
    "\x65\x01\x00\x18\x00\x05\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x50\x4b\x06\x06\x2c\x00\x00\x00\x00\x00\x00\x00\x2d\x00\x2d"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"
    "\x00\x00\x00\x53\x00\x00\x00\x00\x00\x00\x00\x38\x00\x00\x00\x00\x00\x00\x00\x50\x4b\x06"
    "\x07\x00\x00\x00\x00\x8b\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x50\x4b\x05\x06\x00"
    "\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00";
enum { EXTRA64 = 111, RECORD64 = 139, LOCATOR64 = 195, END64 = 215, ARCHIVE64 = END64 + 22 };

static void zip64_fields_are_read(void **state) {
    (void)state;
    size_t n;
    assert_int_equal(sizeof archive64 - 1, ARCHIVE64);
    write_file(archive64, ARCHIVE64);
    mg_zip *z = mg_zip_open(path);
    if (!z) fail_msg("%s", mg_error_message());
    unsigned char *bytes = read_entry(z, "z", &n);
    assert_int_equal(n, 5);
    assert_memory_equal(bytes, "hello", 5);
    free(bytes);
    mg_zip_close(z);
}

/* Each field of the ordinary record says whether its number is in the zip64 record instead. */
static void one_number_may_need_the_zip64_record(void **state) {
    (void)state;
    static const unsigned char given[12] = {1, 0, 1, 0, 0x53, 0, 0, 0, 0x38, 0, 0, 0};
    static const int fields[3][2] = {{2, 4}, {4, 8}, {8, 12}}; /* entries; bytes; offset */
    unsigned char file[ARCHIVE64];
    for (int i = 0; i < 3; i++) {
        memcpy(file, archive64, ARCHIVE64);
        memcpy(file + END64 + 8, given, 12);
        for (int k = fields[i][0]; k < fields[i][1]; k++) file[END64 + 8 + k] = 0xff;
        write_file(file, ARCHIVE64);
        if (i == 0) file[END64 + 8] = file[END + 9] = 0xff;
        write_file(file, ARCHIVE64);
        if (read_all() != MG_OK) fail_msg("field %d: %s", i, mg_error_message());
        file[RECORD64] = 'x'; /* so it was read */
        write_file(file, ARCHIVE64);
        assert_int_equal(read_all(), MG_DATA);
        assert_non_null(strstr(mg_error_message(), "the zip64 record is damaged"));
    }
}

/* 8 bytes of that archive changed: hostile numbers are refused, not computed with. */
static void wrong_zip64_fields_are_refused(void **state) {
    (void)state;
    static const struct {
        int at;
        uint64_t value;
        mg_status code;
        const char *part;
    } changes[] = {
        {RECORD64, 0x2c06064c50, MG_DATA, "the zip64 record is damaged"},
        {RECORD64 + 4, 45, MG_DATA, "the zip64 record is damaged"},
        {RECORD64 + 4, UINT64_MAX, MG_DATA, "the zip64 record is damaged"},
        {RECORD64 + 16, 1, MG_UNSUPPORTED, "several files"},
        {RECORD64 + 16, (uint64_t)1 << 32, MG_UNSUPPORTED, "several files"},
        {RECORD64 + 24, 2, MG_UNSUPPORTED, "several files"},
        {RECORD64 + 32, 2, MG_UNSUPPORTED, "several files"},
        {RECORD64 + 40, UINT64_MAX, MG_DATA, "not where the file's end says"},
        {RECORD64 + 40, INT64_MAX, MG_DATA, "not where the file's end says"},
        {RECORD64 + 48, UINT64_MAX, MG_DATA, "not where the file's end says"},
        {RECORD64 + 48, INT64_MAX, MG_DATA, "not where the file's end says"},
        {LOCATOR64, 0x07064b51, MG_DATA, "the zip64 record is damaged"},
        {LOCATOR64 + 8, 138, MG_DATA, "the zip64 record is damaged"},
        {LOCATOR64 + 8, UINT64_MAX, MG_DATA, "the zip64 record is damaged"},
        {EXTRA64, (uint64_t)5 << 32 | 19 << 16 | 1, MG_DATA, "lacks its zip64 sizes"},
        {EXTRA64, (uint64_t)5 << 32 | 25 << 16 | 1, MG_DATA, "lacks its zip64 sizes"},
        {EXTRA64, (uint64_t)5 << 32 | 24 << 16 | 2, MG_DATA, "lacks its zip64 sizes"},
        {EXTRA64 + 4, UINT64_MAX, MG_DATA, "\"z\" lies outside of the file"},
        {EXTRA64 + 4, INT64_MAX, MG_DATA, "\"z\" cannot have 9223372036854775807 bytes"},
        {EXTRA64 + 12, UINT64_MAX, MG_DATA, "\"z\" lies outside of the file"},
        {EXTRA64 + 12, INT64_MAX, MG_DATA, "\"z\" lies outside of the file"},
        {EXTRA64 + 20, UINT64_MAX, MG_DATA, "\"z\" lies outside of the file"},
        {EXTRA64 + 20, INT64_MAX, MG_DATA, "\"z\" lies outside of the file"},
        {EXTRA64 + 20, 56, MG_DATA, "\"z\" lies outside of the file"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        unsigned char file[ARCHIVE64];
        memcpy(file, archive64, ARCHIVE64);
        for (int k = 0; k < 8; k++)
            file[changes[i].at + k] = (unsigned char)(changes[i].value >> 8 * k);
        write_file(file, ARCHIVE64);
        const mg_status status = read_all();
        if (status != changes[i].code || !strstr(mg_error_message(), changes[i].part))
            fail_msg("change %zu: %s", i, status == MG_OK ? "accepted" : mg_error_message());
    }
    unsigned char file[ARCHIVE64]; /* as many entries as no directory can hold, in both places */
    memcpy(file, archive64, ARCHIVE64);
    memset(file + RECORD64 + 24, 0xff, 16);
    write_file(file, ARCHIVE64);
    assert_int_equal(read_all(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "83 bytes of zip directory cannot hold -1 entries"));
    memcpy(file, archive64, ARCHIVE64); /* a directory that begins before the file */
    memset(file + RECORD64 + 48, 0xff, 8);
    file[RECORD64 + 40] = RECORD64 + 1;
    write_file(file, ARCHIVE64);
    assert_int_equal(read_all(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "not where the file's end says"));
}

/* Entries that share their data, as in the archives that inflate to petabytes. */
static void overlapping_entries_are_refused(void **state) {
    (void)state;
    size_t n;
    assert_int_equal(write_sample((const unsigned char *)"xyz", 3), MG_OK);
    unsigned char *file = read_file(&n);
    /* The second record of the directory gets the offset of the first one, 0. */
    unsigned char *end = file + n - 22;
    const size_t directory = end[16] | (size_t)end[17] << 8;
    unsigned char *a = file + directory;
    assert_memory_equal(a, "PK\1\2", 4);
    memset(a + 42, 0, 4); /* "a" is the first by name, the second in the file */
    write_file(file, n);
    assert_int_equal(read_all(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "overlaps"));
    free(file);
}

/* Makes the n-th file call or allocation from now on fail, in turn. */
static void arm_disk(int64_t n) {
    mg_io_fail_after(n, ENOSPC);
}

static mg_status write_small(void) {
    return write_sample((const unsigned char *)"0123456789", 10);
}

/* Repeats `run` with the n-th call failing, until it succeeds; returns how often it failed. */
static int fail_each(mg_status (*run)(void), void (*arm)(int64_t n), mg_status code) {
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    for (int n = 1;; n++) {
        arm(n);
        const mg_status status = run();
        arm(0);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        assert_int_equal(mg_io_open_count(), 0);
        if (status == MG_OK) return n - 1;
        assert_int_equal(status, code);
    }
}

static void failing_calls_leave_nothing(void **state) {
    (void)state;
    assert_true(fail_each(write_small, arm_disk, MG_IO) > 20);
    assert_true(fail_each(write_small, mg_alloc_fail_after, MG_OOM) > 10);
    assert_true(fail_each(read_all, arm_disk, MG_IO) > 10);
    assert_true(fail_each(read_all, mg_alloc_fail_after, MG_OOM) > 10);
    write_file(archive64, ARCHIVE64);
    assert_true(fail_each(read_all, arm_disk, MG_IO) > 10);
}

static int open_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.zip", folder);
    return 0;
}

/* Teardown: fails if memory or a file is left. */
static int close_all(void **state) {
    (void)state;
    unlink(path);
    if (rmdir(folder) != 0) return -1;
    return mg_alloc_get_stats().live_blocks == 0 && mg_io_open_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_survive),
        cmocka_unit_test(writing_is_deterministic_and_checked),
        cmocka_unit_test(many_entries_need_zip64),
        cmocka_unit_test(archives_of_other_programs_are_read),
        cmocka_unit_test(flips_and_truncations_are_detected),
        cmocka_unit_test(bombs_are_refused),
        cmocka_unit_test(wrong_directories_are_refused),
        cmocka_unit_test(ends_that_cannot_be_are_refused),
        cmocka_unit_test(a_file_cut_while_open_is_refused),
        cmocka_unit_test(a_name_given_twice_is_refused),
        cmocka_unit_test(zip64_fields_are_read),
        cmocka_unit_test(one_number_may_need_the_zip64_record),
        cmocka_unit_test(wrong_zip64_fields_are_refused),
        cmocka_unit_test(overlapping_entries_are_refused),
        cmocka_unit_test(failing_calls_leave_nothing),
    };
    return cmocka_run_group_tests(tests, open_folder, close_all);
}

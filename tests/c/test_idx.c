/* IDX files (data/idx), the format of MNIST: every element type, plain and gzipped. Damaged files
 * must be refused with a message that names the file, and without taking memory for sizes that a
 * damaged header claims. Every allocation and file call fails once. */
#include "core/alloc.h"
#include "core/io.h"
#include "data/idx.h"
#include "device/device.h"
#include "graph/graph.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

/* The file that all tests write and load; mkstemp makes its name. */
static char path[] = "/tmp/mgpu_test_idx_XXXXXX";

/* Makes the file hold these bytes. */
static void write_bytes(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Writes these bytes gzipped; mode "ab" appends a second gzip member. */
static void write_gzip(const void *bytes, size_t n, const char *mode) {
    gzFile f = gzopen(path, mode);
    assert_non_null(f);
    assert_int_equal(gzwrite(f, bytes, (unsigned)n), (int)n);
    gzclose(f);
}

/* Reads the bytes of the file, at most `room`; returns how many. */
static size_t read_file(unsigned char *bytes, size_t room) {
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, room, f);
    fclose(f);
    return n;
}

/* Asserts that a file of these bytes is refused as MG_DATA, with a message that names the file and
 * contains `part`. */
static void refused(const void *bytes, size_t n, const char *part) {
    write_bytes(bytes, n);
    assert_null(mg_idx_load(path));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), path));
    if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());
}

/* Asserts that the file is loaded as n elements of the dtype with these values. */
static void loads(mg_dtype dtype, int n, const double *expected) {
    double v[16];
    mg_tensor *t = mg_idx_load(path);
    if (!t) fail_msg("%s", mg_error_message());
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(mg_tensor_count(t), n);
    assert_int_equal(mg_tensor_read_double(t, v), MG_OK);
    for (int i = 0; i < n; i++) assert_true(v[i] == expected[i]);
    mg_tensor_release(t);
}

/* A file of six uint8 elements in a 2 x 3 table: magic number, two sizes, data. */
static const unsigned char SIX[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255};

/* The six element types of the format; numbers are big-endian, and int8 and int16 become int32. */
static void every_type_is_read(void **state) {
    (void)state;
    static const struct {
        mg_dtype dtype;
        size_t n;
        unsigned char bytes[24];
        double expected[2];
    } cases[] = {
        {MG_U8, 10, {0, 0, 8, 1, 0, 0, 0, 2, 7, 255}, {7, 255}},
        {MG_I32, 10, {0, 0, 9, 1, 0, 0, 0, 2, 7, 255}, {7, -1}},
        {MG_I32, 12, {0, 0, 11, 1, 0, 0, 0, 2, 1, 2, 255, 254}, {258, -2}},
        {MG_I32, 16, {0, 0, 12, 1, 0, 0, 0, 2, 0, 1, 0, 2, 255, 255, 255, 255}, {65538, -1}},
        {MG_F32, 16, {0, 0, 13, 1, 0, 0, 0, 2, 63, 192, 0, 0, 191, 128, 0, 0}, {1.5, -1}},
        {MG_F64, 24, {0, 0, 14, 1, 0, 0, 0, 2, 63, 248, 0, 0, 0, 0, 0, 0, 191, 240}, {1.5, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_bytes(cases[i].bytes, cases[i].n);
        loads(cases[i].dtype, 2, cases[i].expected);
    }
}

/* A gzipped file gives the same tensor, also if it consists of two gzip members. */
static void plain_and_gzipped_files_give_the_same(void **state) {
    (void)state;
    const double expected[] = {1, 2, 3, 4, 5, 255};
    write_bytes(SIX, sizeof SIX);
    loads(MG_U8, 6, expected);
    write_gzip(SIX, sizeof SIX, "wb");
    loads(MG_U8, 6, expected);
    /* Two members, one after the other, as gzip files that were concatenated. */
    write_gzip(SIX, 13, "wb"); /* two members, one after the other */
    write_gzip(SIX + 13, sizeof SIX - 13, "ab");
    loads(MG_U8, 6, expected);
}

/* A file without axes holds one element; a size of 0 gives an empty tensor. */
static void scalars_and_empty_arrays_are_read(void **state) {
    (void)state;
    write_bytes("\0\0\x8\0\x9", 5);
    loads(MG_U8, 1, (double[]){9});
    write_bytes("\0\0\x8\2\0\0\0\0\0\0\0\5", 12);
    loads(MG_U8, 0, NULL);
}

/* 5 MiB of incompressible data: more than the buffers of zlib and the reader hold. */
static void a_large_gzipped_file_is_read_whole(void **state) {
    (void)state;
    const size_t n = 5 << 20;
    unsigned char *bytes = calloc(1, n + 8), *back = malloc(n);
    /* Magic number of uint8 with one axis, and the size 5 << 20, big-endian. */
    memcpy(bytes, (const unsigned char[]){0, 0, 8, 1, 0, 0x50, 0, 0}, 8);
    for (size_t i = 0; i < n; i++) bytes[8 + i] = (unsigned char)(i * 2654435761u >> 13);
    write_gzip(bytes, n + 8, "wb1");
    mg_tensor *t = mg_idx_load(path);
    assert_non_null(t);
    assert_int_equal(mg_tensor_read(t, back), MG_OK);
    assert_memory_equal(back, bytes + 8, n);
    mg_tensor_release(t);
    free(bytes), free(back);
}

/* Truncated headers, another magic number, an unknown type, too many axes, and sizes whose product
 * overflows, also behind a size of 0. */
static void damaged_headers_are_refused(void **state) {
    (void)state;
    /* Cut within the magic number, or another one. */
    refused("", 0, "within the magic number");
    refused("\0\0\x8", 3, "within the magic number");
    refused("hello, world", 12, "is not an IDX file");
    refused("\0\0\7\1\0\0\0\1x", 9, "is not an IDX file");
    refused("\0\0\x8\x9", 4, "9 axes");
    refused("\0\0\x8\2\0\0\0\1\0", 9, "within the sizes");
    refused("\0\0\x8\1\xff\xff\xff\xff", 8, "needs 4294967295 bytes");
    /* Eight-byte elements whose number overflows, once behind a size of 0. */
    refused("\0\0\xe\4\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20,
            "too many elements");
    refused("\0\0\xe\4\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20,
            "too many elements");
}

/* Fewer or more elements than the header promises; in a gzipped file, data behind the last element.
 */
static void files_of_the_wrong_length_are_refused(void **state) {
    (void)state;
    unsigned char longer[sizeof SIX + 1] = {0};
    memcpy(longer, SIX, sizeof SIX);
    /* A plain file that ends too early, and one with bytes after the last element. */
    for (size_t n = 12; n < sizeof SIX; n++) refused(SIX, n, "needs 6 bytes");
    refused(longer, sizeof longer, "the file has 7");
    /* The same surplus in a gzipped file. */
    write_gzip(longer, sizeof longer, "wb");
    assert_null(mg_idx_load(path));
    assert_non_null(strstr(mg_error_message(), "after the last element"));
}

/* A gzip file cut at any byte, with a changed checksum or length, or followed by other data. */
static void damaged_gzip_data_is_refused(void **state) {
    (void)state;
    unsigned char bytes[256];
    write_gzip(SIX, sizeof SIX, "wb");
    const size_t n = read_file(bytes, sizeof bytes);
    for (size_t k = 2; k < n; k++) refused(bytes, k, "");
    for (size_t k = n - 8; k < n; k++) { /* the last 8 bytes: checksum and length */
        bytes[k] ^= 1;
        refused(bytes, n, "damaged");
        bytes[k] ^= 1;
    }
    /* A byte behind the gzip member that begins no other member. */
    bytes[n] = 'x';
    refused(bytes, n + 1, ""); /* not another member */
}

/* 64 bytes claim 4 GiB: refused from the size of the compressed file, before any memory is taken.
 */
static void a_claim_takes_no_memory(void **state) {
    (void)state;
    unsigned char bytes[64] = {0, 0, 8, 1, 0xff, 0xff, 0xff, 0xff};
    write_gzip(bytes, sizeof bytes, "wb");
    assert_null(mg_idx_load(path));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "gzipped bytes: refused"));
}

/* 70 MB of zeros gzip to 70 kB: more than 64 MiB and 32 times the file. The limit counts the bytes
 * of the tensor: 20 million small integers are 80 MB. */
static void bombs_are_refused(void **state) {
    (void)state;
    const int sizes[] = {70000000, 20000000};
    for (int i = 0; i < 2; i++) {
        const uint32_t n = (uint32_t)sizes[i];
        const unsigned char head[] = {0,
                                      0,
                                      i ? 9 : 8,
                                      1,
                                      (unsigned char)(n >> 24),
                                      (unsigned char)(n >> 16),
                                      (unsigned char)(n >> 8),
                                      (unsigned char)n};
        unsigned char *zeros = calloc(1, n);
        gzFile f = gzopen(path, "wb");
        assert_int_equal(gzwrite(f, head, sizeof head), sizeof head);
        assert_int_equal(gzwrite(f, zeros, n), sizes[i]);
        gzclose(f);
        free(zeros);
        assert_null(mg_idx_load(path));
        assert_int_equal(mg_error_code(), MG_DATA);
        assert_non_null(strstr(mg_error_message(), "unpack the file with gunzip"));
    }
}

/* Missing files and folders are MG_IO, with the path in the message. */
static void missing_files_and_folders_are_named(void **state) {
    (void)state;
    assert_null(mg_idx_load("/nowhere/file"));
    assert_int_equal(mg_error_code(), MG_IO);
    assert_non_null(strstr(mg_error_message(), "/nowhere/file"));
    assert_null(mg_idx_load("/tmp"));
    assert_int_equal(mg_error_code(), MG_IO);
}

/* Loads the file again and again; in the n-th round `arm` makes the n-th allocation or file call
 * fail. Each failure must have the code and leave no memory and no open file, until a round
 * succeeds. */
static void survives(void (*arm)(int64_t n), mg_status code) {
    mg_tensor *t = NULL;
    mg_tensor_release(mg_idx_load(path)); /* for memory that is allocated once per process */
    /* Nothing but the tensor may be left in the end. */
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    for (int64_t n = 1; !t; n++) {
        arm(n);
        t = mg_idx_load(path);
        arm(0);
        assert_int_equal(mg_io_open_count(), 0);
        if (t) break;
        assert_int_equal(mg_error_code(), code);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
    }
    mg_tensor_release(t);
    assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
}

/* Makes the n-th file call from now on fail. */
static void arm_file(int64_t n) {
    mg_io_fail_after(n, EIO);
}

/* A plain file of int16, which needs a conversion, and a gzipped one. */
static void every_failing_allocation_and_file_call_is_survived(void **state) {
    (void)state;
    write_bytes("\0\0\xb\1\0\0\0\1\1\2", 10);
    survives(mg_alloc_fail_after, MG_OOM);
    survives(arm_file, MG_IO);
    write_gzip(SIX, sizeof SIX, "wb");
    survives(mg_alloc_fail_after, MG_OOM);
    survives(arm_file, MG_IO);
}

/* Setup of the group: the device ref:0 as default and an empty temporary file. */
static int open_ref(void **state) {
    (void)state;
    mg_device *ref = mg_device_find("ref:0");
    if (ref) mg_device_set_default(ref);
    /* mkstemp creates the file and fills in its name. */
    const int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    return ref && fd >= 0 ? 0 : -1;
}

/* Teardown: fails if a block of memory or a tensor is left. */
static int close_all(void **state) {
    (void)state;
    unlink(path);
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(plain_and_gzipped_files_give_the_same),
        cmocka_unit_test(scalars_and_empty_arrays_are_read),
        cmocka_unit_test(a_large_gzipped_file_is_read_whole),
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(files_of_the_wrong_length_are_refused),
        cmocka_unit_test(damaged_gzip_data_is_refused),
        cmocka_unit_test(a_claim_takes_no_memory),
        cmocka_unit_test(bombs_are_refused),
        cmocka_unit_test(missing_files_and_folders_are_named),
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}

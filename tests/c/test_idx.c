/* IDX files: every type, plain and gzipped, damaged in every way, with memory and files failing. */
#include "core/alloc.h"
#include "core/io.h"
#include "data/idx.h"
#include "device/device.h"
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

static char path[] = "/tmp/mgpu_test_idx_XXXXXX";

static void write_bytes(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void write_gzip(const void *bytes, size_t n, const char *mode) {
    gzFile f = gzopen(path, mode);
    assert_non_null(f);
    assert_int_equal(gzwrite(f, bytes, (unsigned)n), (int)n);
    gzclose(f);
}

static size_t read_file(unsigned char *bytes, size_t room) {
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, room, f);
    fclose(f);
    return n;
}

/* The file must be refused, with a message that names it and contains `part`. */
static void refused(const void *bytes, size_t n, const char *part) {
    write_bytes(bytes, n);
    assert_null(mg_idx_load(path));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), path));
    if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());
}

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

static const unsigned char SIX[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255};

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

static void plain_and_gzipped_files_give_the_same(void **state) {
    (void)state;
    const double expected[] = {1, 2, 3, 4, 5, 255};
    write_bytes(SIX, sizeof SIX);
    loads(MG_U8, 6, expected);
    write_gzip(SIX, sizeof SIX, "wb");
    loads(MG_U8, 6, expected);
    write_gzip(SIX, 13, "wb"); /* two members, one after the other */
    write_gzip(SIX + 13, sizeof SIX - 13, "ab");
    loads(MG_U8, 6, expected);
}

static void scalars_and_empty_arrays_are_read(void **state) {
    (void)state;
    write_bytes("\0\0\x8\0\x9", 5);
    loads(MG_U8, 1, (double[]){9});
    write_bytes("\0\0\x8\2\0\0\0\0\0\0\0\5", 12);
    loads(MG_U8, 0, NULL);
}

static void a_large_gzipped_file_is_read_whole(void **state) {
    (void)state;
    const size_t n = 5 << 20;
    unsigned char *bytes = calloc(1, n + 8), *back = malloc(n);
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

static void damaged_headers_are_refused(void **state) {
    (void)state;
    refused("", 0, "within the magic number");
    refused("\0\0\x8", 3, "within the magic number");
    refused("hello, world", 12, "is not an IDX file");
    refused("\0\0\7\1\0\0\0\1x", 9, "is not an IDX file");
    refused("\0\0\x8\x9", 4, "9 axes");
    refused("\0\0\x8\2\0\0\0\1\0", 9, "within the sizes");
    refused("\0\0\x8\1\xff\xff\xff\xff", 8, "needs 4294967295 bytes");
    refused("\0\0\xe\4\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20,
            "too many elements");
    refused("\0\0\xe\4\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20,
            "too many elements");
}

static void files_of_the_wrong_length_are_refused(void **state) {
    (void)state;
    unsigned char longer[sizeof SIX + 1] = {0};
    memcpy(longer, SIX, sizeof SIX);
    for (size_t n = 12; n < sizeof SIX; n++) refused(SIX, n, "needs 6 bytes");
    refused(longer, sizeof longer, "the file has 7");
    write_gzip(longer, sizeof longer, "wb");
    assert_null(mg_idx_load(path));
    assert_non_null(strstr(mg_error_message(), "after the last element"));
}

static void damaged_gzip_data_is_refused(void **state) {
    (void)state;
    unsigned char bytes[256];
    write_gzip(SIX, sizeof SIX, "wb");
    const size_t n = read_file(bytes, sizeof bytes);
    for (size_t k = 2; k < n; k++) refused(bytes, k, ""); /* truncated anywhere */
    for (size_t k = n - 8; k < n; k++) {                  /* sum and length */
        bytes[k] ^= 1;
        refused(bytes, n, "damaged");
        bytes[k] ^= 1;
    }
    bytes[n] = 'x';
    refused(bytes, n + 1, ""); /* not another member */
}

/* 4 GiB claimed by a hundred bytes: refused before memory is asked for. */
static void a_claim_takes_no_memory(void **state) {
    (void)state;
    unsigned char bytes[64] = {0, 0, 8, 1, 0xff, 0xff, 0xff, 0xff};
    write_gzip(bytes, sizeof bytes, "wb");
    assert_null(mg_idx_load(path));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "gzipped bytes can hold"));
}

static void missing_files_and_folders_are_named(void **state) {
    (void)state;
    assert_null(mg_idx_load("/nowhere/file"));
    assert_int_equal(mg_error_code(), MG_IO);
    assert_non_null(strstr(mg_error_message(), "/nowhere/file"));
    assert_null(mg_idx_load("/tmp"));
    assert_int_equal(mg_error_code(), MG_IO);
}

/* `arm` lets the n-th allocation or file call fail. */
static void survives(void (*arm)(int64_t n), mg_status code) {
    mg_tensor *t = NULL;
    mg_tensor_release(mg_idx_load(path)); /* what is made once is made now */
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

static void arm_file(int64_t n) {
    mg_io_fail_after(n, EIO);
}

static void every_failing_allocation_and_file_call_is_survived(void **state) {
    (void)state;
    write_bytes("\0\0\xb\1\0\0\0\1\1\2", 10);
    survives(mg_alloc_fail_after, MG_OOM);
    survives(arm_file, MG_IO);
    write_gzip(SIX, sizeof SIX, "wb");
    survives(mg_alloc_fail_after, MG_OOM);
    survives(arm_file, MG_IO);
}

static int open_ref(void **state) {
    (void)state;
    mg_device *ref = mg_device_find("ref:0");
    if (ref) mg_device_set_default(ref);
    const int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    return ref && fd >= 0 ? 0 : -1;
}

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
        cmocka_unit_test(missing_files_and_folders_are_named),
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}

/* Compressed files (io/unpack): the same bytes come out of a plain, a gzipped and a zlib file, read
 * in order or at positions. Damage and bombs are refused, and every allocation and file call fails
 * once. */
#include "core/alloc.h"
#include "core/threads.h"
#include "io/unpack.h"
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

enum { N = 200001 }; /* more than three read buffers */

static char path[] = "/tmp/mgpu_test_unpack_XXXXXX";
static unsigned char text[N], packed[2 * N];

static void write_bytes(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Packs the first n bytes of `text` at `at`; window: 15 zlib, 31 gzip. Returns the size. */
static size_t pack_text(unsigned char *at, size_t n, int window) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = text, z.avail_in = (uInt)n;
    z.next_out = at, z.avail_out = (uInt)sizeof packed;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t size = z.total_out;
    deflateEnd(&z);
    return size;
}

/* Asserts that the file unpacks to n bytes: the text, repeated. */
static void unpacks(mg_packing packing, size_t n) {
    unsigned char *back = malloc(n + 1);
    size_t got = 0;
    int64_t size = 0;
    mg_unpacked *u = mg_unpacked_open(path, packing);
    assert_non_null(u);
    assert_int_equal(mg_unpacked_read(u, back, n + 1, &got), MG_OK);
    assert_int_equal(got, n);
    for (size_t i = 0; i < n; i += N) assert_memory_equal(back + i, text, n - i < N ? n - i : N);
    assert_int_equal(mg_unpacked_read(u, back, 1, &got), MG_OK);
    assert_int_equal(got, 0);
    mg_unpacked_close(u);

    mg_file *f = mg_unpack(path, packing, &size);
    if (!f) fail_msg("%s", mg_error_message());
    assert_int_equal(size, n);
    memset(back, 0, n);
    if (n > 1) assert_int_equal(mg_io_read_at(f, back + n / 2, n, (int64_t)n / 2, &got), MG_OK);
    for (size_t i = n / 2; i < n; i++) assert_int_equal(back[i], text[i % N]);
    mg_io_close(f);
    free(back);
}

static void refused(mg_packing packing, mg_status code, const char *part) {
    int64_t size;
    assert_null(mg_unpack(path, packing, &size));
    assert_int_equal(mg_error_code(), code);
    assert_non_null(strstr(mg_error_message(), path));
    if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());
}

static void plain_gzip_and_zlib_give_the_same_bytes(void **state) {
    (void)state;
    write_bytes(text, N);
    unpacks(MG_PACKED_AUTO, N);
    unpacks(MG_PACKED_NONE, N);
    const size_t first = pack_text(packed, N, 31);
    write_bytes(packed, first);
    unpacks(MG_PACKED_AUTO, N);
    unpacks(MG_PACKED_GZIP, N);
    const size_t second = pack_text(packed + first, N, 31); /* two members */
    write_bytes(packed, first + second);
    unpacks(MG_PACKED_AUTO, 2 * N);
    write_bytes(packed, pack_text(packed, N, 15));
    unpacks(MG_PACKED_ZLIB, N);
    write_bytes(packed, pack_text(packed, 0, 31));
    unpacks(MG_PACKED_AUTO, 0);
    write_bytes("", 0);
    unpacks(MG_PACKED_AUTO, 0);
}

/* A plain file may begin with the bytes that mark a gzip file. */
static void the_caller_may_know_better(void **state) {
    (void)state;
    text[0] = 0x1f, text[1] = 0x8b;
    write_bytes(text, N);
    unpacks(MG_PACKED_NONE, N);
    refused(MG_PACKED_AUTO, MG_DATA, "the gzip data is damaged");
    refused(MG_PACKED_ZLIB, MG_DATA, "the zlib data is damaged");
}

static void several_files_go_into_one(void **state) {
    (void)state;
    unsigned char got[2 * N];
    int64_t size;
    size_t n;
    mg_file *all = mg_io_unnamed();
    assert_non_null(all);
    for (int zlib = 0; zlib < 2; zlib++) {
        write_bytes(packed, pack_text(packed, N, zlib ? 15 : 31));
        const mg_packing packing = zlib ? MG_PACKED_ZLIB : MG_PACKED_GZIP;
        assert_int_equal(mg_unpack_into(path, packing, all, &size), MG_OK);
        assert_int_equal(size, N);
    }
    assert_int_equal(mg_io_read_at(all, got, sizeof got, 0, &n), MG_OK);
    assert_int_equal(n, 2 * N);
    assert_memory_equal(got, text, N);
    assert_memory_equal(got + N, text, N);
    mg_interrupt();
    assert_int_equal(mg_unpack_into(path, MG_PACKED_ZLIB, all, &size), MG_INTERRUPTED);
    assert_false(mg_interrupt_pending());
    mg_io_close(all);
}

static void damage_is_refused(void **state) {
    (void)state;
    for (int zlib = 0; zlib < 2; zlib++) {
        const mg_packing packing = zlib ? MG_PACKED_ZLIB : MG_PACKED_GZIP;
        const size_t n = pack_text(packed, N, zlib ? 15 : 31);
        write_bytes(packed, n - 1);
        refused(packing, MG_DATA, "the file is truncated");
        packed[n] = 'x';
        write_bytes(packed, n + 1);
        refused(packing, MG_DATA, zlib ? "bytes after the end" : "");
        packed[n - 1] ^= 1; /* of the checksum or the length */
        write_bytes(packed, n);
        refused(packing, MG_DATA, "damaged");
    }
    write_bytes("\x78\xbb\1\2\3\4", 6); /* zlib data that was packed with a dictionary */
    refused(MG_PACKED_ZLIB, MG_DATA, "the zlib data is damaged near byte 0: it wants a dictionary");
}

/* 1.3 GB of zeros, from 1.3 MB of gzip data: 1 GiB and 200 times the file are more. */
static void bombs_are_refused(void **state) {
    (void)state;
    static const unsigned char zeros[1 << 20];
    gzFile f = gzopen(path, "wb");
    for (int i = 0; i < 1300; i++) assert_int_equal(gzwrite(f, zeros, sizeof zeros), sizeof zeros);
    gzclose(f);
    mg_unpacked *u = mg_unpacked_open(path, MG_PACKED_AUTO);
    unsigned char *room = malloc(sizeof zeros);
    mg_status status = MG_OK;
    size_t got = 1;
    int reads = 0;
    for (; status == MG_OK && got; reads++) status = mg_unpacked_read(u, room, sizeof zeros, &got);
    assert_int_equal(status, MG_DATA);
    assert_non_null(strstr(mg_error_message(), "unpack to more than 1024 MiB"));
    assert_true(reads > 1024);
    free(room);
    mg_unpacked_close(u);
}

static void other_files_are_refused(void **state) {
    (void)state;
    int64_t size;
    assert_null(mg_unpack("/nowhere/file", MG_PACKED_AUTO, &size));
    assert_int_equal(mg_error_code(), MG_IO);
    assert_null(mg_unpack("/tmp", MG_PACKED_AUTO, &size));
    assert_int_equal(mg_error_code(), MG_IO);
    write_bytes(packed, pack_text(packed, N, 31));
    setenv("TMPDIR", "/nowhere", 1);
    assert_null(mg_unpack(path, MG_PACKED_AUTO, &size));
    unsetenv("TMPDIR");
    assert_string_equal(mg_error_message(),
                        "cannot make a temporary file in /nowhere: No such file or directory");
}

static void arm_file(int64_t n) {
    mg_io_fail_after(n, ENOSPC);
}

/* In the n-th round `arm` makes the n-th allocation or file call fail. */
static void survives(void (*arm)(int64_t n), mg_status code) {
    mg_file *f = NULL;
    int64_t n = 1, size;
    for (; !f; n++) {
        arm(n);
        f = mg_unpack(path, MG_PACKED_AUTO, &size);
        arm(0);
        if (f) break;
        assert_int_equal(mg_error_code(), code);
        assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
        assert_int_equal(mg_io_open_count(), 0);
    }
    assert_true(n > 5);
    mg_io_close(f);
}

static void every_failing_allocation_and_file_call_is_survived(void **state) {
    (void)state;
    write_bytes(packed, pack_text(packed, N, 31));
    survives(mg_alloc_fail_after, MG_OOM);
    survives(arm_file, MG_IO);
}

static int make_text(void **state) {
    (void)state;
    for (size_t i = 0; i < N; i++) text[i] = (unsigned char)(i * 2654435761u >> 13);
    const int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    return fd >= 0 ? 0 : -1;
}

static int check_all_freed(void **state) {
    (void)state;
    unlink(path);
    return mg_alloc_get_stats().live_blocks || mg_io_open_count() ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_gzip_and_zlib_give_the_same_bytes),
        cmocka_unit_test(the_caller_may_know_better),
        cmocka_unit_test(several_files_go_into_one),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(bombs_are_refused),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
    };
    return cmocka_run_group_tests(tests, make_text, check_all_freed);
}

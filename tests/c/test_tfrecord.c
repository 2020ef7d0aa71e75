/* TFRecord files (io/tfrecord): checksums, frames, appending, and writes that fail. */
#include "core/alloc.h"
#include "core/io.h"
#include "io/tfrecord.h"
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

static char path[] = "/tmp/mgpu-test-tfrecord-XXXXXX";

/* The contents of the file: their length. */
static size_t contents(unsigned char bytes[256]) {
    size_t got = 0;
    mg_file *f = mg_io_open(path);
    assert_non_null(f);
    assert_int_equal(mg_io_read(f, bytes, 256, &got), MG_OK);
    mg_io_close(f);
    return got;
}

/* RFC 3720, B.4: the CRC-32C of 32 zeros is 8a9136aa, and of "123456789" e3069283. */
static void checksums_are_masked_castagnoli(void **state) {
    (void)state;
    const unsigned char zeros[32] = {0};
    const uint32_t crc = 0x8a9136aa, digits = 0xe3069283;
    assert_int_equal(mg_tfrecord_checksum(zeros, 32), (crc >> 15 | crc << 17) + 0xa282ead8);
    assert_int_equal(mg_tfrecord_checksum("123456789", 9),
                     (digits >> 15 | digits << 17) + 0xa282ead8);
}

/* The CPU's instruction and the table agree on every length and alignment up to a few words. */
static void checksums_do_not_depend_on_the_cpu(void **state) {
    (void)state;
    unsigned char bytes[80];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * i * 37 + 11);
    assert_int_equal(mg_crc32c_by_table("123456789", 9), 0xe3069283);
    for (size_t first = 0; first < 9; first++)
        for (size_t n = 0; n <= sizeof bytes - first; n++)
            assert_int_equal(mg_crc32c(bytes + first, n), mg_crc32c_by_table(bytes + first, n));
}

/* What mg_tfrecord_frame writes is read again, and no bit of it can flip unnoticed. */
static void every_flipped_bit_of_a_record_is_noticed(void **state) {
    (void)state;
    unsigned char head[MG_TFRECORD_HEAD], bytes[3 + MG_TFRECORD_TAIL] = "abc";
    uint64_t n;
    mg_tfrecord_frame(bytes, 3, head, bytes + 3);
    assert_true(mg_tfrecord_length(head, &n));
    assert_int_equal(n, 3);
    assert_true(mg_tfrecord_intact(bytes, 3));
    for (size_t bit = 0; bit < 8 * sizeof head; bit++) {
        head[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(mg_tfrecord_length(head, &n));
        head[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(mg_tfrecord_intact(bytes, 3));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

/* The bytes that TensorFlow 2.21's TFRecordWriter writes for the records "abc" and "". */
static void records_are_those_of_tensorflow(void **state) {
    (void)state;
    static const unsigned char expected[] = {0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xb0,
                                             0x99, 0x49, 0x0e, 0x61, 0x62, 0x63, 0x6e, 0x57, 0xf1,
                                             0x21, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                             0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2};
    const mg_tfrecord records[] = {{"abc", 3}, {"", 0}};
    unsigned char bytes[256];
    int64_t size = 0;
    /* Both at once, then one after the other. */
    assert_int_equal(mg_tfrecord_append(path, &size, records, 2), MG_OK);
    assert_int_equal(size, sizeof expected);
    assert_int_equal(contents(bytes), sizeof expected);
    assert_memory_equal(bytes, expected, sizeof expected);
    size = 0;
    assert_int_equal(mg_tfrecord_append(path, &size, records, 1), MG_OK);
    assert_int_equal(mg_tfrecord_append(path, &size, records + 1, 1), MG_OK);
    assert_int_equal(contents(bytes), sizeof expected);
    assert_memory_equal(bytes, expected, sizeof expected);
}

/* Whatever file call fails, the same call succeeds later, and half a record is replaced. */
static void a_failed_append_can_be_repeated(void **state) {
    (void)state;
    static const int errors[] = {EIO, ENOSPC, MG_IO_SHORT, EINTR};
    const mg_tfrecord record = {"abc", 3};
    unsigned char bytes[256];
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++)
        for (int64_t at = 1;; at++) {
            int64_t size = 0;
            assert_int_equal(mg_tfrecord_append(path, &size, &record, 1), MG_OK);
            mg_io_fail_after(at, errors[e]);
            const mg_status status = mg_tfrecord_append(path, &size, &record, 1);
            const bool hit = mg_io_fail_stop();
            if (errors[e] == MG_IO_SHORT || errors[e] == EINTR) assert_int_equal(status, MG_OK);
            if (status != MG_OK) {
                assert_int_equal(status, MG_IO);
                assert_int_equal(size, 19);
                assert_int_equal(mg_tfrecord_append(path, &size, &record, 1), MG_OK);
            }
            assert_int_equal(contents(bytes), 38);
            assert_memory_equal(bytes, bytes + 19, 19);
            if (!hit) break;
        }
    assert_int_equal(mg_io_open_count(), 0);
}

/* If memory for the frames cannot be allocated, nothing is written. */
static void an_append_without_memory_writes_nothing(void **state) {
    (void)state;
    const mg_tfrecord records[] = {{"abc", 3}, {"de", 2}};
    unsigned char bytes[256];
    mg_status status = MG_OOM;
    int64_t size = 0, n = 0;
    assert_int_equal(mg_tfrecord_append(path, &size, records, 1), MG_OK);
    while (status != MG_OK) {
        mg_alloc_fail_after(++n);
        status = mg_tfrecord_append(path, &size, records, 2);
        mg_alloc_fail_after(0);
        if (status == MG_OK) break;
        assert_int_equal(status, MG_OOM);
        assert_int_equal(size, 19);
        assert_int_equal(contents(bytes), 19);
        assert_int_equal(mg_io_open_count(), 0);
        assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
    }
    assert_true(n > 1);
    assert_int_equal(size, 19 + 19 + 18);
    assert_int_equal(contents(bytes), size);
}

/* A file that has been truncated is not continued with a gap. */
static void a_file_that_is_too_short_is_refused(void **state) {
    (void)state;
    const mg_tfrecord record = {"abc", 3};
    int64_t size = 1000;
    assert_int_equal(mg_tfrecord_append(path, &size, &record, 1), MG_IO);
    assert_non_null(strstr(mg_error_message(), "but 1000 were written before"));
    assert_int_equal(size, 1000);
}

/* Small records, one larger than the buffer, and an empty one. */
static mg_status write_records(mg_packing packing) {
    static unsigned char large[200 * 1000];
    for (size_t i = 0; i < sizeof large; i++) large[i] = (unsigned char)(i * 2654435761u >> 13);
    mg_tfrecord_writer *w = mg_tfrecord_writer_open(path, packing);
    mg_status status = w ? MG_OK : mg_error_code();
    for (int i = 0; i < 30 && status == MG_OK; i++)
        status = mg_tfrecord_writer_add(w, large, i == 20 ? sizeof large : (size_t)i * 300);
    if (status == MG_OK) status = mg_tfrecord_writer_finish(w);
    if (status == MG_OK) status = mg_tfrecord_writer_commit(w);
    mg_tfrecord_writer_free(w);
    return status;
}

/* Plain, gzip and zlib files hold the same records. */
static void whole_files_are_written(void **state) {
    (void)state;
    static unsigned char first[400 * 1000], bytes[400 * 1000];
    size_t expected = 0, got;
    for (mg_packing packing = MG_PACKED_NONE; packing <= MG_PACKED_ZLIB; packing++) {
        assert_int_equal(write_records(packing), MG_OK);
        mg_unpacked *u = mg_unpacked_open(path, packing);
        assert_int_equal(mg_unpacked_read(u, bytes, sizeof bytes, &got), MG_OK);
        mg_unpacked_close(u);
        if (packing == MG_PACKED_NONE) {
            memcpy(first, bytes, expected = got);
            uint64_t n, records = 0;
            for (size_t at = 0; at < got; records++, at += 16 + n) {
                assert_true(mg_tfrecord_length(bytes + at, &n));
                assert_true(mg_tfrecord_intact(bytes + at + 12, n));
            }
            assert_int_equal(records, 30);
        }
        assert_int_equal(got, expected);
        assert_memory_equal(bytes, first, got);
    }
}

/* Whatever fails, the old file stays, and no other file is left. */
static void a_file_that_cannot_be_written_leaves_the_old_one(void **state) {
    (void)state;
    unsigned char bytes[256];
    const mg_tfrecord record = {"abc", 3};
    for (mg_packing packing = MG_PACKED_NONE; packing <= MG_PACKED_ZLIB; packing++)
        for (int memory = 0; memory < 2; memory++)
            for (int64_t n = 1, size = 0;; n++, size = 0) {
                assert_int_equal(mg_tfrecord_append(path, &size, &record, 1), MG_OK);
                if (memory)
                    mg_alloc_fail_after(n);
                else
                    mg_io_fail_after(n, ENOSPC);
                const mg_status status = write_records(packing);
                mg_alloc_fail_after(0);
                mg_io_fail_stop();
                assert_int_equal(mg_io_open_count(), 0);
                assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
                if (status == MG_OK) break;
                assert_int_equal(status, memory ? MG_OOM : MG_IO);
                if (!strstr(mg_error_message(), "is written, but"))
                    assert_int_equal(contents(bytes), 19);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_masked_castagnoli),
        cmocka_unit_test(checksums_do_not_depend_on_the_cpu),
        cmocka_unit_test(every_flipped_bit_of_a_record_is_noticed),
        cmocka_unit_test(records_are_those_of_tensorflow),
        cmocka_unit_test(a_failed_append_can_be_repeated),
        cmocka_unit_test(an_append_without_memory_writes_nothing),
        cmocka_unit_test(a_file_that_is_too_short_is_refused),
        cmocka_unit_test(whole_files_are_written),
        cmocka_unit_test(a_file_that_cannot_be_written_leaves_the_old_one),
    };
    const int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const int failed = cmocka_run_group_tests_name("tfrecord", tests, NULL, NULL);
    unlink(path);
    return failed;
}

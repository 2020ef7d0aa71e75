/* The records between a job and an attached prompt (program/attach/record.h): however many bytes
 * come at a time, they are read as they were written, and anything else is refused before memory is
 * taken for it. */
#include "core/alloc.h"
#include "program/attach/record.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Gives the reader at most `piece` bytes at a time, until a record is complete or refused. Returns
 * the bytes taken. */
static size_t give(mg_attach_reader *reader, const uint8_t *bytes, size_t n, size_t piece,
                   mg_status *status, bool *complete) {
    size_t at = 0;
    *status = MG_OK;
    *complete = false;
    while (at < n && *status == MG_OK && !*complete) {
        size_t wanted;
        void *to = mg_attach_room(reader, &wanted);
        assert_true(wanted > 0);
        if (wanted > piece) wanted = piece;
        if (wanted > n - at) wanted = n - at;
        memcpy(to, bytes + at, wanted);
        at += wanted;
        *status = mg_attach_received(reader, wanted, complete);
    }
    return at;
}

static size_t put(uint8_t *to, mg_attach_kind kind, const char *body, size_t n) {
    mg_attach_head(to, kind, n);
    memcpy(to + MG_ATTACH_HEAD, body, n);
    return MG_ATTACH_HEAD + n;
}

static void records_are_read_as_they_were_written(void **state) {
    (void)state;
    uint8_t bytes[256];
    size_t n = put(bytes, MG_ATTACH_RUN, "\0P\0x = 1", 8);
    n += put(bytes + n, MG_ATTACH_STATE, "", 0);
    n += put(bytes + n, MG_ATTACH_RUN, "\1\0\0", 3);
    for (size_t piece = 1; piece <= n; piece++) {
        mg_attach_reader reader = {.at_job = true};
        mg_status status;
        bool complete;
        size_t at = give(&reader, bytes, n, piece, &status, &complete);
        assert_true(complete && mg_attach_kind_of(&reader) == MG_ATTACH_RUN);
        assert_int_equal(reader.bytes, 8);
        assert_string_equal((const char *)reader.body + MG_ATTACH_AT_CODE, "x = 1");
        assert_int_equal(reader.version, MG_ATTACH_PROTOCOL);
        mg_attach_next(&reader);
        at += give(&reader, bytes + at, n - at, piece, &status, &complete);
        assert_true(complete && mg_attach_kind_of(&reader) == MG_ATTACH_STATE && !reader.bytes);
        mg_attach_next(&reader);
        at += give(&reader, bytes + at, n - at, piece, &status, &complete);
        assert_true(complete && reader.bytes == 3 && at == n);
        mg_attach_reader_free(&reader);
    }
}

static void refuses(bool at_job, const char *head, mg_status expected, const char *message) {
    mg_attach_reader reader = {.at_job = at_job};
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    mg_status status;
    bool complete;
    give(&reader, (const uint8_t *)head, MG_ATTACH_HEAD, 3, &status, &complete);
    assert_int_equal(status, expected);
    assert_false(complete);
    if (!strstr(mg_error_message(), message))
        fail_msg("\"%s\" does not contain \"%s\"", mg_error_message(), message);
    assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
    mg_attach_reader_free(&reader);
}

static void what_is_no_record_is_refused_before_memory_is_taken(void **state) {
    (void)state;
    refuses(true, "no recor", MG_DATA, "not a record");
    refuses(true, "mb\1\0\0\0\0\0", MG_DATA, "not a record");
    refuses(true, "ma\2\0\0\0\0\0", MG_UNSUPPORTED, "version 2 of the protocol, here 1");
    refuses(true, "ma\1\7\0\0\0\0", MG_DATA, "an unexpected record of kind 7");
    refuses(false, "ma\1\2\3\0\0\0", MG_DATA, "an unexpected record of kind 2");
    refuses(true, "ma\1\x0b\0\0\0\0", MG_DATA, "an unexpected record of kind 11");
    refuses(true, "ma\1\xff\0\0\0\0", MG_DATA, "an unexpected record of kind 255");
    refuses(true, "ma\1\0\1\0\0\0", MG_DATA, "a record of kind 0 with 1 bytes");
    refuses(true, "ma\1\2\2\0\0\0", MG_DATA, "a record of kind 2 with 2 bytes");
    refuses(true, "ma\1\2\xff\xff\xff\xff", MG_DATA, "with 4294967295 bytes");
    refuses(true, "ma\1\2\1\0\x10\0", MG_DATA, "with 1048577 bytes");
    refuses(false, "ma\1\x0b\0\0\0\0", MG_DATA, "a record of kind 11 with 0 bytes");
}

static void without_memory_a_record_is_refused(void **state) {
    (void)state;
    uint8_t bytes[64];
    const size_t n = put(bytes, MG_ATTACH_RUN, "\0P\0x", 4);
    mg_attach_reader reader = {.at_job = true};
    mg_status status;
    bool complete;
    mg_alloc_fail_after(1);
    give(&reader, bytes, n, n, &status, &complete);
    mg_alloc_fail_after(0);
    assert_int_equal(status, MG_OOM);
    mg_attach_reader_free(&reader);
}

static void numbers_are_little_endian(void **state) {
    (void)state;
    uint8_t bytes[4];
    mg_attach_put(bytes, 0x01020304, 4);
    assert_memory_equal(bytes, "\4\3\2\1", 4);
    assert_int_equal(mg_attach_number(bytes, 4), 0x01020304);
    assert_int_equal(mg_attach_number(bytes, 2), 0x0304);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_read_as_they_were_written),
        cmocka_unit_test(what_is_no_record_is_refused_before_memory_is_taken),
        cmocka_unit_test(without_memory_a_record_is_refused),
        cmocka_unit_test(numbers_are_little_endian),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

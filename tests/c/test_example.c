/* Messages of type tf.train.Example (data/example): what TensorFlow writes, every form that
 * protocol buffers allow, and damage, which is refused without reading past the message. */
#include "core/alloc.h"
#include "data/example.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const names[] = {"b", "f", "i"};
enum { N_NAMES = 3 };

/* tf.train.Example(features=tf.train.Features(feature={
 *     "b": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"hi", b""])),
 *     "f": tf.train.Feature(float_list=tf.train.FloatList(value=[1.5, -2])),
 *     "i": tf.train.Feature(int64_list=tf.train.Int64List(value=[3, -1, 300]))
 * })).SerializeToString(deterministic=True) of TensorFlow 2.21 */
static const uint8_t of_tensorflow[] = {
    0x0a, 0x3a, 0x0a, 0x0d, 0x0a, 0x01, 0x62, 0x12, 0x08, 0x0a, 0x06, 0x0a, 0x02, 0x68, 0x69,
    0x0a, 0x00, 0x0a, 0x11, 0x0a, 0x01, 0x66, 0x12, 0x0c, 0x12, 0x0a, 0x0a, 0x08, 0x00, 0x00,
    0xc0, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0x0a, 0x16, 0x0a, 0x01, 0x69, 0x12, 0x11, 0x1a, 0x0f,
    0x0a, 0x0d, 0x03, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xac, 0x02};

/* Copies the message into a block of exactly its size, so that the address sanitizer sees reads
 * past its end. */
static mg_status find(const uint8_t *message, size_t n, mg_feature found[N_NAMES]) {
    uint8_t *copy = malloc(n ? n : 1);
    if (n) memcpy(copy, message, n);
    const mg_status status = mg_example_find(copy, n, names, N_NAMES, found);
    for (int i = 0; i < N_NAMES; i++) { /* the copy is about to go */
        if (status != MG_OK || !found[i].list) continue;
        void *values = malloc(found[i].count * 8 + 1);
        size_t length;
        if (found[i].kind == MG_FEATURE_FLOAT) mg_feature_floats(&found[i], values);
        if (found[i].kind == MG_FEATURE_INT64) mg_feature_integers(&found[i], values);
        if (found[i].kind == MG_FEATURE_BYTES && found[i].count)
            assert_in_range(mg_feature_string(&found[i], &length) + length - copy, 0, n);
        free(values);
        found[i].list = message + (found[i].list - copy);
    }
    free(copy);
    return status;
}

static void messages_of_tensorflow_are_read(void **state) {
    (void)state;
    mg_feature found[N_NAMES];
    float floats[2];
    int64_t integers[3];
    size_t n;
    assert_int_equal(find(of_tensorflow, sizeof of_tensorflow, found), MG_OK);
    assert_int_equal(found[0].kind, MG_FEATURE_BYTES);
    assert_int_equal(found[0].count, 2);
    assert_memory_equal(mg_feature_string(&found[0], &n), "hi", 2);
    assert_int_equal(n, 2);
    assert_int_equal(found[1].kind, MG_FEATURE_FLOAT);
    assert_int_equal(found[1].count, 2);
    mg_feature_floats(&found[1], floats);
    assert_true(floats[0] == 1.5f && floats[1] == -2);
    assert_int_equal(found[2].kind, MG_FEATURE_INT64);
    assert_int_equal(found[2].count, 3);
    mg_feature_integers(&found[2], integers);
    assert_true(integers[0] == 3 && integers[1] == -1 && integers[2] == 300);
}

/* The body of a feature i, put into the messages around it. Returns their length. */
static size_t around(const uint8_t *feature, size_t n, uint8_t message[128]) {
    uint8_t *p = message;
    *p++ = 0x0a, *p++ = (uint8_t)(n + 7);                              /* Example.features */
    *p++ = 0x0a, *p++ = (uint8_t)(n + 5);                              /* an entry */
    *p++ = 0x0a, *p++ = 1, *p++ = 'i', *p++ = 0x12, *p++ = (uint8_t)n; /* key, value */
    memcpy(p, feature, n);
    return (size_t)(p - message) + n;
}

/* Reads feature i from this body. */
static mg_status read_feature(const uint8_t *feature, size_t n, mg_feature *f) {
    static uint8_t message[128];
    mg_feature found[N_NAMES];
    const mg_status status = find(message, around(feature, n, message), found);
    *f = found[2];
    return status;
}
#define READ(f, ...)                                                                               \
    read_feature((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), (f))

/* Asserts that a feature with this body is refused with a message that contains `part`. */
#define REFUSED(part, ...)                                                                         \
    do {                                                                                           \
        mg_feature f_;                                                                             \
        assert_int_equal(READ(&f_, __VA_ARGS__), MG_DATA);                                         \
        if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());                 \
    } while (0)

static void numbers_may_be_packed_or_not(void **state) {
    (void)state;
    mg_feature f;
    int64_t integers[5];
    float floats[3];
    /* one, two packed, an unknown field 2 in between, one, and an empty pack */
    assert_int_equal(
        READ(&f, 0x1a, 13, 0x08, 7, 0x0a, 2, 8, 9, 0x10, 99, 0x08, 0x80, 0x01, 0x0a, 0), MG_OK);
    assert_int_equal(f.kind, MG_FEATURE_INT64);
    assert_int_equal(f.count, 4);
    mg_feature_integers(&f, integers);
    assert_true(integers[0] == 7 && integers[1] == 8 && integers[2] == 9 && integers[3] == 128);
    assert_int_equal(READ(&f, 0x12, 11, 0x0d, 0, 0, 0x80, 0x3f, 0x0a, 4, 0, 0, 0, 0x40), MG_OK);
    assert_int_equal(f.count, 2);
    mg_feature_floats(&f, floats);
    assert_true(floats[0] == 1 && floats[1] == 2);
    /* the largest and the longest varint */
    assert_int_equal(
        READ(&f, 0x1a, 12, 0x0a, 10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
        MG_OK);
    mg_feature_integers(&f, integers);
    assert_true(integers[0] == -1);
}

static void empty_and_missing_features_are_told_apart_from_lists(void **state) {
    (void)state;
    mg_feature f, found[N_NAMES];
    assert_int_equal(find(NULL, 0, found), MG_OK);
    assert_int_equal(found[0].kind, MG_FEATURE_NONE);
    assert_int_equal(READ(&f, 0x12, 0), MG_OK); /* an empty list of floats */
    assert_int_equal(f.kind, MG_FEATURE_FLOAT);
    assert_int_equal(f.count, 0);
    assert_int_equal(READ(&f, 0x20, 5), MG_OK); /* only an unknown field */
    assert_int_equal(f.kind, MG_FEATURE_NONE);
    assert_string_equal(MG_FEATURE_TEXT(MG_FEATURE_NONE, 0), "no list");
    assert_string_equal(MG_FEATURE_TEXT(MG_FEATURE_FLOAT, 1), "1 float");
    assert_string_equal(MG_FEATURE_TEXT(MG_FEATURE_INT64, 0), "0 integers");
}

/* Two messages one after another are their merger, in which the later feature replaces. */
static void the_later_of_two_features_counts(void **state) {
    (void)state;
    uint8_t message[128];
    mg_feature found[N_NAMES];
    int64_t value;
    const uint8_t first[] = {0x1a, 3, 0x0a, 1, 5}, second[] = {0x1a, 3, 0x0a, 1, 6};
    size_t n = around(first, sizeof first, message);
    n += around(second, sizeof second, message + n);
    assert_int_equal(find(message, n, found), MG_OK);
    assert_int_equal(found[2].count, 1);
    mg_feature_integers(&found[2], &value);
    assert_int_equal(value, 6);
}

static void damage_is_named(void **state) {
    (void)state;
    REFUSED("an integer has more than 64 bits at byte 22", 0x1a, 13, 0x0a, 11, 0xff, 0xff, 0xff,
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0);
    REFUSED("more than 64 bits", 0x1a, 12, 0x0a, 10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xff, 2);
    REFUSED("an integer is cut off at byte 14", 0x1a, 3, 0x0a, 1, 0x80);
    REFUSED("a length exceeds the message that contains it at byte 10", 0x1a, 4, 0x0a, 1, 5);
    REFUSED("exceeds the message", 0x1a, 3, 0x0a, 2, 5);
    REFUSED("exceeds the message", 0x1a, 12, 0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xff, 1);
    REFUSED("part of a float", 0x12, 5, 0x0a, 3, 0, 0, 0);
    REFUSED("a number is cut off", 0x12, 4, 0x0d, 0, 0, 0);
    REFUSED("a value of a list has the wrong wire type", 0x12, 2, 0x08, 1);
    REFUSED("a value of a list has the wrong wire type", 0x1a, 5, 0x0d, 0, 0, 0, 0);
    REFUSED("a value of a list has the wrong wire type", 0x0a, 2, 0x08, 1);
    REFUSED("a field has the wrong wire type", 0x18, 1);
    REFUSED("an unknown wire type", 0x23, 0x24);
    REFUSED("an impossible number", 0x02, 0);
    REFUSED("a feature has two lists", 0x12, 0, 0x1a, 0);
}

/* Cut at every byte, and with every bit flipped, a message is refused or read, within its bounds.
 * Cut between two fields it is a valid message. */
static void damage_of_every_byte_and_bit_is_survived(void **state) {
    (void)state;
    mg_feature found[N_NAMES];
    uint8_t bytes[sizeof of_tensorflow];
    for (size_t n = 1; n < sizeof bytes; n++)
        assert_int_equal(find(of_tensorflow, n, found), MG_DATA);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        memcpy(bytes, of_tensorflow, sizeof bytes);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        const mg_status status = find(bytes, sizeof bytes, found);
        assert_true(status == MG_OK || status == MG_DATA);
    }
}

/* A written message has the bytes that TensorFlow writes for it, and can be read back. */
static void written_messages_are_those_of_tensorflow(void **state) {
    (void)state;
    const float floats[] = {1.5f, -2};
    const int64_t integers[] = {3, -1, 300};
    const mg_feature_value values[] = {{"b", MG_FEATURE_BYTES, "hi", 2, NULL},
                                       {"f", MG_FEATURE_FLOAT, floats, 2, NULL},
                                       {"i", MG_FEATURE_INT64, integers, 3, NULL}};
    size_t n;
    uint8_t *bytes = mg_example_encode(values + 1, 2, &n);
    assert_non_null(bytes);
    assert_int_equal(n, sizeof of_tensorflow - 15);
    assert_memory_equal(bytes + 2, of_tensorflow + 17, n - 2);
    mg_free(bytes);
    bytes = mg_example_encode(values, 1, &n);
    assert_int_equal(n, 15);
    assert_memory_equal(bytes + 4,
                        "\x0a\x01"
                        "b\x12\x06\x0a\x04\x0a\x02hi",
                        11);
    mg_free(bytes);
    mg_feature found[N_NAMES];
    const mg_feature_value empty[] = {{"b", MG_FEATURE_BYTES, "", 0, NULL},
                                      {"f", MG_FEATURE_FLOAT, NULL, 0, NULL},
                                      {"i", MG_FEATURE_INT64, NULL, 0, NULL}};
    bytes = mg_example_encode(empty, 3, &n);
    assert_int_equal(find(bytes, n, found), MG_OK);
    assert_int_equal(found[0].count, 1);
    assert_int_equal(found[1].kind, MG_FEATURE_FLOAT);
    assert_int_equal(found[1].count, 0);
    assert_int_equal(found[2].kind, MG_FEATURE_INT64);
    mg_free(bytes);
    mg_alloc_fail_after(1);
    assert_null(mg_example_encode(values, 3, &n));
    assert_int_equal(mg_error_code(), MG_OOM);
    const mg_feature_value huge = {"b", MG_FEATURE_BYTES, NULL, (size_t)1 << 31, NULL};
    assert_null(mg_example_encode(&huge, 1, &n));
    assert_int_equal(mg_error_code(), MG_UNSUPPORTED);
    assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_tensorflow_are_read),
        cmocka_unit_test(numbers_may_be_packed_or_not),
        cmocka_unit_test(empty_and_missing_features_are_told_apart_from_lists),
        cmocka_unit_test(the_later_of_two_features_counts),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(damage_of_every_byte_and_bit_is_survived),
        cmocka_unit_test(written_messages_are_those_of_tensorflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

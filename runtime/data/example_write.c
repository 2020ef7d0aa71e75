/* Writing messages of type tf.train.Example. All lengths are computed first, from the innermost
 * list outwards, because a length precedes its contents. */
#include "core/alloc.h"
#include "data/example.h"
#include <string.h>

enum { MOST_BYTES = INT32_MAX }; /* of a protocol buffer */

/* The bytes of v as a varint: 7 bits each. */
static size_t varint_size(uint64_t v) {
    size_t n = 1;
    while (v >>= 7) n++;
    return n;
}

/* The bytes of a field of n bytes, with its key (one byte, for fields below 16) and length. */
static size_t field_size(size_t n) {
    return 1 + varint_size(n) + n;
}

static uint8_t *put_varint(uint8_t *p, uint64_t v) {
    for (; v >= 128; v >>= 7) *p++ = (uint8_t)(v | 128);
    *p++ = (uint8_t)v;
    return p;
}

/* Writes the key and length of a field of n bytes, whose wire type is 2. */
static uint8_t *put_head(uint8_t *p, int field, size_t n) {
    *p++ = (uint8_t)(field << 3 | 2);
    return put_varint(p, n);
}

/* The strings of a feature; `one` is memory for a single one. */
static const mg_text *strings_of(const mg_feature_value *v, mg_text *one, size_t *n) {
    *one = (mg_text){v->data, v->count};
    *n = v->strings ? v->count : 1;
    return v->strings ? v->strings : one;
}

/* The bytes of packed numbers. */
static size_t numbers_size(const mg_feature_value *v) {
    const int64_t *integers = v->data;
    size_t n = 0;
    if (v->kind == MG_FEATURE_FLOAT) return v->count * sizeof(float);
    for (size_t i = 0; i < v->count; i++) n += varint_size((uint64_t)integers[i]);
    return n;
}

/* The bytes of a list: packed numbers in one field (no field if the list is empty), or a field for
 * each string. */
static size_t list_size(const mg_feature_value *v) {
    mg_text one;
    size_t n, size = 0;
    if (v->kind != MG_FEATURE_BYTES) return (size = numbers_size(v)) ? field_size(size) : 0;
    const mg_text *strings = strings_of(v, &one, &n);
    for (size_t i = 0; i < n; i++) size += field_size(strings[i].n);
    return size;
}

static uint8_t *put_strings(uint8_t *p, const mg_feature_value *v) {
    mg_text one;
    size_t n;
    const mg_text *strings = strings_of(v, &one, &n);
    for (size_t i = 0; i < n; i++) {
        p = put_head(p, 1, strings[i].n);
        if (strings[i].n) memcpy(p, strings[i].bytes, strings[i].n);
        p += strings[i].n;
    }
    return p;
}

static uint8_t *put_numbers(uint8_t *p, const mg_feature_value *v) {
    const int64_t *integers = v->data;
    const size_t size = numbers_size(v);
    if (!size) return p;
    p = put_head(p, 1, size);
    if (v->kind != MG_FEATURE_INT64) {
        memcpy(p, v->data, size);
        return p + size;
    }
    for (size_t i = 0; i < v->count; i++) p = put_varint(p, (uint64_t)integers[i]);
    return p;
}

/* The sizes of a feature's messages, each inside the next. */
typedef struct sizes {
    size_t list, feature, entry;
} sizes;

static sizes measure(const mg_feature_value *v) {
    sizes s = {.list = list_size(v)};
    s.feature = field_size(s.list);
    s.entry = field_size(strlen(v->name)) + field_size(s.feature);
    return s;
}

static uint8_t *put_entry(uint8_t *p, const mg_feature_value *v) {
    const sizes s = measure(v);
    const size_t name = strlen(v->name);
    p = put_head(p, 1, s.entry);
    p = put_head(p, 1, name);
    memcpy(p, v->name, name);
    p = put_head(p + name, 2, s.feature);
    p = put_head(p, (int)v->kind, s.list);
    return v->kind == MG_FEATURE_BYTES ? put_strings(p, v) : put_numbers(p, v);
}

uint8_t *mg_example_encode(const mg_feature_value *values, int n, size_t *size) {
    size_t features = 0;
    for (int i = 0; i < n; i++) features += field_size(measure(&values[i]).entry);
    *size = field_size(features);
    if (*size > MOST_BYTES) {
        mg_fail(MG_UNSUPPORTED, "a record of %s: at most 2 GiB are possible", MG_SIZE_TEXT(*size));
        return NULL;
    }
    uint8_t *bytes = mg_alloc(*size);
    if (!bytes) return NULL;
    uint8_t *p = put_head(bytes, 1, features);
    for (int i = 0; i < n; i++) p = put_entry(p, &values[i]);
    return bytes;
}

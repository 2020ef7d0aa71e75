/* Reading messages of type tf.train.Example in one pass; every length is checked against the
 * enclosing message. */
#include "data/example.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */

/* The rest of a message, or of a nested message, that is being read. */
typedef struct span {
    const uint8_t *at, *end;
    const uint8_t *start; /* of the outermost message, for error messages */
} span;

/* ---- fields ---- */

static mg_status damaged(const span *s, const char *what) {
    return mg_fail(MG_DATA, "no valid tf.train.Example: %s at byte %lld of the message", what,
                   (long long)(s->at - s->start));
}

static mg_status read_varint(span *s, uint64_t *v) {
    *v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (s->at == s->end) return damaged(s, "an integer is cut off");
        const uint8_t byte = *s->at++;
        if (shift == 63 && byte > 1) break; /* more than 64 bits */
        *v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return MG_OK;
    }
    s->at--;
    return damaged(s, "an integer has more than 64 bits");
}

/* Reads the number and wire type that begin a field. */
static mg_status read_key(span *s, uint64_t *field, int *type) {
    const uint8_t *start = s->at;
    uint64_t key;
    MG_TRY(read_varint(s, &key));
    *field = key >> 3;
    *type = (int)(key & 7);
    if (*field > 0 && *field < 1 << 29) return MG_OK;
    s->at = start;
    return damaged(s, "a field has an impossible number");
}

/* Reads a length, sets `inner` to the following bytes of that length, and moves s past them. */
static mg_status read_inner(span *s, span *inner) {
    const uint8_t *start = s->at;
    uint64_t n;
    MG_TRY(read_varint(s, &n));
    if (n > (uint64_t)(s->end - s->at)) {
        s->at = start;
        return damaged(s, "a length exceeds the message that contains it");
    }
    *inner = (span){.at = s->at, .end = s->at + n, .start = s->start};
    s->at += n;
    return MG_OK;
}

static mg_status skip_fixed(span *s, int size) {
    if (s->end - s->at < size) return damaged(s, "a number is cut off");
    s->at += size;
    return MG_OK;
}

static mg_status skip_field(span *s, int type) {
    uint64_t value;
    span inner;
    switch (type) {
    case VARINT: return read_varint(s, &value);
    case FIXED64: return skip_fixed(s, 8);
    case BYTES: return read_inner(s, &inner);
    case FIXED32: return skip_fixed(s, 4);
    default: return damaged(s, "a field has an unknown wire type");
    }
}

/* Reads the length of a known field that holds a message or a string. */
static mg_status read_known(span *s, int type, span *inner) {
    return type == BYTES ? read_inner(s, inner) : damaged(s, "a field has the wrong wire type");
}

/* ---- lists ---- */

/* The wire type of a number of the list when it is not packed. */
static int number_type(mg_feature_kind kind) {
    return kind == MG_FEATURE_FLOAT ? FIXED32 : VARINT;
}

/* Checks packed numbers and adds their number to *count. */
static mg_status count_packed(span packed, mg_feature_kind kind, size_t *count) {
    if (kind == MG_FEATURE_FLOAT) {
        if ((packed.end - packed.at) % 4) return damaged(&packed, "a list has part of a float");
        *count += (size_t)(packed.end - packed.at) / 4;
        return MG_OK;
    }
    for (uint64_t value; packed.at < packed.end; ++*count) MG_TRY(read_varint(&packed, &value));
    return MG_OK;
}

/* Checks the list and sets its count. */
static mg_status count_values(mg_feature *f, const uint8_t *start) {
    span s = {.at = f->list, .end = f->list + f->bytes, .start = start}, inner = s;
    while (s.at < s.end) {
        uint64_t field;
        int type;
        MG_TRY(read_key(&s, &field, &type));
        if (field != 1) {
            MG_TRY(skip_field(&s, type));
        } else if (f->kind != MG_FEATURE_BYTES && type == BYTES) {
            MG_TRY(read_inner(&s, &inner));
            MG_TRY(count_packed(inner, f->kind, &f->count));
        } else if (type == (f->kind == MG_FEATURE_BYTES ? BYTES : number_type(f->kind))) {
            MG_TRY(skip_field(&s, type));
            f->count++;
        } else {
            return damaged(&s, "a value of a list has the wrong wire type");
        }
    }
    return MG_OK;
}

/* Sets *v to the next values of a list that count_values has checked: packed numbers, or one value.
 * False at the end. */
static bool next_values(span *s, int *type, span *v) {
    while (s->at < s->end) {
        uint64_t field = 0, value;
        if (read_key(s, &field, type) != MG_OK) return false; /* not after count_values */
        *v = *s;
        if (*type == BYTES) {
            read_inner(s, v);
        } else if (*type == VARINT) {
            read_varint(s, &value);
            v->end = s->at;
        } else {
            s->at += *type == FIXED64 ? 8 : 4;
            v->end = s->at;
        }
        if (field == 1) return true;
    }
    return false;
}

static span list_of(const mg_feature *f) {
    return (span){.at = f->list, .end = f->list + f->bytes, .start = f->list};
}

void mg_feature_floats(const mg_feature *f, float *dst) {
    span s = list_of(f), v;
    for (int type; next_values(&s, &type, &v); dst += (v.end - v.at) / 4)
        memcpy(dst, v.at, (size_t)(v.end - v.at));
}

void mg_feature_integers(const mg_feature *f, int64_t *dst) {
    span s = list_of(f), v;
    for (int type; next_values(&s, &type, &v);)
        while (v.at < v.end) {
            uint64_t value;
            read_varint(&v, &value);
            *dst++ = (int64_t)value;
        }
}

const uint8_t *mg_feature_string(const mg_feature *f, size_t *n) {
    span s = list_of(f), v = s;
    int type;
    next_values(&s, &type, &v);
    *n = (size_t)(v.end - v.at);
    return v.at;
}

void mg_feature_strings(const mg_feature *f, mg_text *dst) {
    span s = list_of(f), v;
    for (int type; next_values(&s, &type, &v);) *dst++ = (mg_text){v.at, (size_t)(v.end - v.at)};
}

/* ---- features ---- */

/* Reads a Feature. */
static mg_status read_feature(span s, mg_feature *f) {
    *f = (mg_feature){0};
    while (s.at < s.end) {
        uint64_t field;
        int type;
        span list;
        MG_TRY(read_key(&s, &field, &type));
        if (field > MG_FEATURE_INT64) {
            MG_TRY(skip_field(&s, type));
            continue;
        }
        if (f->kind) return damaged(&s, "a feature has two lists");
        MG_TRY(read_known(&s, type, &list));
        *f = (mg_feature){
            .kind = (mg_feature_kind)field, .list = list.at, .bytes = (size_t)(list.end - list.at)};
        MG_TRY(count_values(f, s.start));
    }
    return MG_OK;
}

/* Reads an entry of the map of features and stores it if its name is one of `names`. */
static mg_status read_entry(span s, const char *const *names, int n_names, mg_feature *found) {
    span key = {0}, value = {.start = s.start};
    while (s.at < s.end) {
        uint64_t field;
        int type;
        MG_TRY(read_key(&s, &field, &type));
        if (field == 1)
            MG_TRY(read_known(&s, type, &key));
        else if (field == 2)
            MG_TRY(read_known(&s, type, &value));
        else
            MG_TRY(skip_field(&s, type));
    }
    const size_t n = (size_t)(key.end - key.at);
    for (int i = 0; i < n_names; i++)
        if (strlen(names[i]) == n && (n == 0 || memcmp(names[i], key.at, n) == 0))
            MG_TRY(read_feature(value, &found[i]));
    return MG_OK;
}

static mg_status read_features(span s, const char *const *names, int n_names, mg_feature *found) {
    while (s.at < s.end) {
        uint64_t field;
        int type;
        span entry;
        MG_TRY(read_key(&s, &field, &type));
        if (field != 1) {
            MG_TRY(skip_field(&s, type));
            continue;
        }
        MG_TRY(read_known(&s, type, &entry));
        MG_TRY(read_entry(entry, names, n_names, found));
    }
    return MG_OK;
}

mg_status mg_example_find(const uint8_t *message, size_t n, const char *const *names, int n_names,
                          mg_feature *found) {
    span s = {.at = message, .end = message + n, .start = message};
    for (int i = 0; i < n_names; i++) found[i] = (mg_feature){0};
    while (s.at < s.end) {
        uint64_t field;
        int type;
        span features;
        MG_TRY(read_key(&s, &field, &type));
        if (field != 1) {
            MG_TRY(skip_field(&s, type));
            continue;
        }
        MG_TRY(read_known(&s, type, &features));
        MG_TRY(read_features(features, names, n_names, found));
    }
    return MG_OK;
}

const char *mg_feature_text(mg_feature_kind kind, size_t count, char *text, size_t room) {
    static const char *const words[] = {"no list", "string", "float", "integer"};
    if (kind == MG_FEATURE_NONE) return words[0];
    snprintf(text, room, "%zu %s%s", count, words[kind], count == 1 ? "" : "s");
    return text;
}

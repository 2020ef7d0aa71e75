/* Messages of type tf.train.Example: named features, each a list of strings, floats or integers.
 * They are the records of TensorFlow's data sets (io/tfrecord.h).
 *
 * The messages are protocol buffers (proto3):
 *     Example   { features = 1: Features }
 *     Features  { feature = 1: map of string (1) to Feature (2) }
 *     Feature   { bytes_list = 1 | float_list = 2 | int64_list = 3 }
 *               each list has the values { value = 1: repeated }
 * Numbers may be packed or not. As protocol buffers require, unknown fields are skipped, and of two
 * features with the same name the later one counts. Everything that no writer of these messages
 * produces is an error: other wire types, lengths past the end of the enclosing message, varints of
 * more than 64 bits, two lists in one feature.
 *
 * Reading takes no memory: a feature points into the message. */
#ifndef MG_DATA_EXAMPLE_H
#define MG_DATA_EXAMPLE_H

#include "core/status.h"
#include "data/source.h"
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of the fields of Feature. */
typedef enum mg_feature_kind {
    MG_FEATURE_NONE, /* the message lacks it, or it has no list */
    MG_FEATURE_BYTES,
    MG_FEATURE_FLOAT,
    MG_FEATURE_INT64
} mg_feature_kind;

/* A feature in a message. */
typedef struct mg_feature {
    mg_feature_kind kind;
    size_t count;        /* of values */
    const uint8_t *list; /* the list's message, borrowed; its structure has been checked */
    size_t bytes;        /* its length */
} mg_feature;

/* Finds the features of these names; found[i].kind is MG_FEATURE_NONE for one that is not there.
 * MG_DATA: the message is damaged; the error text names the byte. */
mg_status mg_example_find(const uint8_t *message, size_t n, const char *const *names, int n_names,
                          mg_feature *found);

/* Write all `count` values of a feature of the kind to dst. */
void mg_feature_floats(const mg_feature *f, float *dst);
void mg_feature_integers(const mg_feature *f, int64_t *dst);
/* The first string of a feature of kind bytes with at least one: borrowed, *n bytes. */
const uint8_t *mg_feature_string(const mg_feature *f, size_t *n);
/* Writes all `count` strings of a feature of kind bytes to dst: borrowed from the message. */
void mg_feature_strings(const mg_feature *f, mg_text *dst);

/* "1 string", "3 floats", "0 integers", "no list": writes at most `room` bytes and returns text. */
const char *mg_feature_text(mg_feature_kind kind, size_t count, char *text, size_t room);
#define MG_FEATURE_TEXT(kind, count) mg_feature_text(kind, count, (char[48]){0}, 48)

/* ---- writing ---- */

/* A feature to be written: `count` float or int64_t values, or one string of `count` bytes, or,
 * where `strings` is not NULL, `count` of those. */
typedef struct mg_feature_value {
    const char *name; /* borrowed, as are data and strings */
    mg_feature_kind kind;
    const void *data;
    size_t count;
    const mg_text *strings;
} mg_feature_value;

/* The message of these features, in their order, numbers packed: the bytes that
 * tf.train.Example.SerializeToString gives. Sets *size. Owned, for mg_free; NULL: MG_OOM, or
 * MG_UNSUPPORTED: longer than the 2 GiB that protocol buffers allow. */
uint8_t *mg_example_encode(const mg_feature_value *values, int n, size_t *size);

#endif

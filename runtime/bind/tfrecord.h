/* TFRecord files in Lua: schemas, and values of Lua as features. */
#ifndef MG_BIND_TFRECORD_H
#define MG_BIND_TFRECORD_H

#include "bind/bind.h"
#include "data/example.h"
#include "data/sources/tfrecord.h"
#include "io/tfrecord.h"

typedef struct bind_record_fields {
    int n;
    mg_record_field field[];
} bind_record_fields;

/* Pushes an owner of the fields of the schema at index and returns them. `who` begins messages. */
bind_record_fields *bind_push_record_fields(lua_State *L, int index, const char *who);

/* Pushes a block of the elements, in the field's dtype, of the number, boolean, nested table or
 * tensor at index, which must have the field's shape, or be a number for all elements of it.
 * Raises; `who` begins the message. */
const void *bind_record_numbers(lua_State *L, int index, const mg_record_field *f, const char *who);

/* Pushes a block of the n strings in the array at index, which must keep them alive. Raises; `who`
 * begins the message. */
const mg_text *bind_record_texts(lua_State *L, int index, size_t n, const char *who);

/* The value at index as a feature; may push memory that the feature points to. Raises, naming row
 * (from 1) and feature. */
mg_feature_value bind_record_value(lua_State *L, int index, const mg_record_field *f, int64_t row);

#endif

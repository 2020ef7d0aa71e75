/* Sources and transforms: making, sharing and freeing them; cells that hold several strings. */
#include "data/source.h"
#include "core/alloc.h"
#include "data/transform.h"
#include <assert.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

/* ---- sources ---- */

/* The fields follow the kind's own struct in the block. */
void *mg_source_alloc(const mg_source_api *api, size_t size, int n_fields) {
    const size_t before = (size + alignof(mg_field) - 1) / alignof(mg_field) * alignof(mg_field);
    if (n_fields > MG_SOURCE_FIELDS) {
        mg_fail(MG_USAGE, "%s: a row would have %d fields; at most %d are possible", api->name,
                n_fields, MG_SOURCE_FIELDS);
        return NULL;
    }
    mg_source *s = mg_alloc_zero(before + (size_t)n_fields * sizeof *s->field);
    if (!s) return NULL;
    s->api = api;
    s->n_fields = n_fields;
    s->field = (mg_field *)(void *)((char *)s + before);
    atomic_init(&s->references, 1);
    return s;
}

void mg_source_name_error(const char *who) {
    const size_t n = strlen(who);
    const char *message = mg_error_message();
    const bool named = strncmp(message, who, n) == 0 && message[n] == ':';
    if (!named && mg_error_code() != MG_OOM && mg_error_code() != MG_INTERRUPTED)
        mg_error_prefix(who);
}

mg_source *mg_source_retain(mg_source *s) {
    atomic_fetch_add(&s->references, 1);
    return s;
}

void mg_source_release(mg_source *s) {
    if (s && atomic_fetch_sub(&s->references, 1) == 1) s->api->free(s);
}

mg_status mg_source_read(mg_source *s, mg_row_key key, mg_cell cell[]) {
    return mg_source_read_wanted(s, key, NULL, cell);
}

mg_status mg_source_read_wanted(mg_source *s, mg_row_key key, const mg_wanted *const wanted[],
                                mg_cell cell[]) {
    return s->api->read_wanted ? s->api->read_wanted(s, key, wanted, cell)
                               : s->api->read(s, key.row, cell);
}

mg_status mg_source_prepare(mg_source *s) {
    return s->api->prepare ? s->api->prepare(s) : MG_OK;
}

void mg_source_describe(const mg_source *s, int64_t row, char *text, size_t room) {
    if (s->api->describe)
        s->api->describe(s, row, text, room);
    else
        snprintf(text, room, "row %lld", (long long)row + 1);
}

bool mg_field_varies(const mg_field *f) {
    for (int i = 0; i < f->shape.rank; i++)
        if (f->shape.dim[i] < 0) return true;
    return false;
}

size_t mg_cell_bytes(const mg_field *f, const mg_shape *shape) {
    return (size_t)mg_shape_count(shape) * mg_dtype_size(f->dtype);
}

void mg_source_copy_fields(mg_source *s, const mg_source *other) {
    assert(s->n_fields == other->n_fields);
    memcpy(s->field, other->field, (size_t)s->n_fields * sizeof *s->field);
    s->n_rows = other->n_rows;
}

/* ---- several strings in one cell ---- */

size_t mg_texts_size(const mg_text *texts, size_t n) {
    size_t size = n * sizeof(uint64_t);
    for (size_t i = 0; i < n; i++) size += texts[i].n;
    return size;
}

void mg_texts_pack(const mg_text *texts, size_t n, void *dst) {
    char *p = dst;
    for (size_t i = 0; i < n; i++) {
        const uint64_t length = texts[i].n;
        memcpy(p, &length, sizeof length);
        p += sizeof length;
        if (length) memcpy(p, texts[i].bytes, length);
        p += length;
    }
}

bool mg_texts_next(const char **at, const char *end, mg_text *text) {
    uint64_t length;
    if ((size_t)(end - *at) < sizeof length) return false;
    memcpy(&length, *at, sizeof length);
    const char *bytes = *at + sizeof length;
    if (length > (uint64_t)(end - bytes)) return false;
    *text = (mg_text){bytes, (size_t)length};
    *at = bytes + length;
    return true;
}

/* ---- transforms ---- */

void *mg_transform_alloc(const mg_transform_api *api, size_t size) {
    mg_transform *t = mg_alloc_zero(size);
    if (!t) return NULL;
    t->api = api;
    atomic_init(&t->references, 1);
    return t;
}

mg_transform *mg_transform_retain(mg_transform *t) {
    atomic_fetch_add(&t->references, 1);
    return t;
}

void mg_transform_release(mg_transform *t) {
    if (t && atomic_fetch_sub(&t->references, 1) == 1) t->api->free(t);
}

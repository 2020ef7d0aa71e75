/* Sources and transforms: making, sharing and freeing them. */
#include "data/source.h"
#include "core/alloc.h"
#include "data/transform.h"
#include <string.h>

/* ---- sources ---- */

void *mg_source_alloc(const mg_source_api *api, size_t size) {
    mg_source *s = mg_alloc_zero(size);
    if (!s) return NULL;
    s->api = api;
    atomic_init(&s->references, 1);
    return s;
}

mg_source *mg_source_retain(mg_source *s) {
    atomic_fetch_add(&s->references, 1);
    return s;
}

void mg_source_release(mg_source *s) {
    if (s && atomic_fetch_sub(&s->references, 1) == 1) s->api->free(s);
}

mg_status mg_source_read(mg_source *s, mg_row_key key, mg_cell cell[]) {
    return s->api->read_epoch ? s->api->read_epoch(s, key, cell) : s->api->read(s, key.row, cell);
}

mg_status mg_source_prepare(mg_source *s) {
    return s->api->prepare ? s->api->prepare(s) : MG_OK;
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
    memcpy(s->field, other->field, sizeof s->field);
    s->n_fields = other->n_fields;
    s->n_rows = other->n_rows;
}

void mg_cells_free(const mg_source *s, mg_cell cell[]) {
    for (int k = 0; k < s->n_fields; k++)
        if (mg_field_varies(&s->field[k])) mg_free(cell[k].data), cell[k] = (mg_cell){0};
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

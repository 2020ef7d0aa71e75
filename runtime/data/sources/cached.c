/* A cache in memory. Rows of a fixed size are stored in one block, whose pages the system provides
 * as they are filled; other rows are separate blocks.
 *
 * There is no lock: the first thread that reads a row stores it, and another thread that needs the
 * row meanwhile reads it for itself. */
#include "data/sources/sources.h"
#include "core/alloc.h"
#include "data/sources/row_file.h"
#include <string.h>

enum { MISSING, BEING_KEPT, KEPT };

typedef struct packed_row {
    size_t bytes;
    char data[];
} packed_row;

typedef struct cached_source {
    mg_source base;
    mg_source *inner; /* retained */
    /* if no field varies: */
    size_t row_bytes;
    char *rows;          /* owned */
    atomic_uchar *state; /* owned: of each row, MISSING ... */
    /* else: */
    _Atomic(packed_row *) *row; /* owned, with what they point to; NULL: missing */
} cached_source;

static bool any_varies(const mg_source *s) {
    bool any = false;
    for (int k = 0; k < s->n_fields; k++) any = any || mg_field_varies(&s->field[k]);
    return any;
}

static mg_status out_of_memory(void) {
    return mg_fail(MG_OOM, "cache: out of memory: give it a path, as in :cache \"rows.cache\", to "
                           "keep the rows in a file");
}

/* ---- rows of a fixed size ---- */

static mg_status read_fixed(mg_source *base, int64_t row, mg_cell cell[]) {
    cached_source *s = (cached_source *)base;
    atomic_uchar *state = &s->state[row];
    char *place = s->rows + (size_t)row * s->row_bytes;
    if (atomic_load_explicit(state, memory_order_acquire) == KEPT)
        return mg_unpack_row(base, place, s->row_bytes, cell);
    MG_TRY(mg_source_read(s->inner, (mg_row_key){.row = row}, cell));
    unsigned char missing = MISSING;
    if (!atomic_compare_exchange_strong(state, &missing, BEING_KEPT)) return MG_OK;
    mg_pack_row(base, cell, place);
    atomic_store_explicit(state, KEPT, memory_order_release);
    return MG_OK;
}

static bool make_places(cached_source *s) {
    mg_cell cell[s->base.n_fields];
    size_t bytes;
    for (int k = 0; k < s->base.n_fields; k++) cell[k].shape = s->base.field[k].shape;
    s->row_bytes = mg_packed_bytes(&s->base, cell);
    if (!mg_size_mul(s->row_bytes, (size_t)s->base.n_rows, &bytes)) return false;
    s->rows = mg_alloc(bytes);
    s->state = mg_alloc_zero((size_t)s->base.n_rows * sizeof s->state[0]);
    return s->rows && s->state;
}

/* ---- rows that vary ---- */

static mg_status read_varying(mg_source *base, int64_t row, mg_cell cell[]) {
    cached_source *s = (cached_source *)base;
    packed_row *kept = atomic_load(&s->row[row]), *missing = NULL;
    if (kept) return mg_unpack_row(base, kept->data, kept->bytes, cell);
    MG_TRY(mg_source_read(s->inner, (mg_row_key){.row = row}, cell));
    const size_t bytes = mg_packed_bytes(base, cell);
    if (!(kept = mg_alloc(sizeof *kept + bytes))) return out_of_memory();
    kept->bytes = bytes;
    mg_pack_row(base, cell, kept->data);
    if (!atomic_compare_exchange_strong(&s->row[row], &missing, kept)) mg_free(kept);
    return MG_OK;
}

static bool make_pointers(cached_source *s) {
    size_t bytes;
    if (!mg_size_mul((size_t)s->base.n_rows, sizeof s->row[0], &bytes)) return false;
    s->row = mg_alloc_zero(bytes);
    return s->row != NULL;
}

/* ---- both ---- */

static mg_status prepare(mg_source *base) {
    return mg_source_prepare(((cached_source *)base)->inner);
}

static void free_source(mg_source *base) {
    cached_source *s = (cached_source *)base;
    for (int64_t i = 0; s->row && i < base->n_rows; i++) mg_free(atomic_load(&s->row[i]));
    mg_free(s->row);
    mg_free(s->state);
    mg_free(s->rows);
    mg_source_release(s->inner);
    mg_free(s);
}

static void describe(const mg_source *base, int64_t row, char *text, size_t room) {
    mg_source_describe(((const cached_source *)base)->inner, row, text, room);
}

static const mg_source_api fixed = {.name = "cache",
                                    .read = read_fixed,
                                    .prepare = prepare,
                                    .describe = describe,
                                    .free = free_source},
                           varying = {.name = "cache",
                                      .read = read_varying,
                                      .prepare = prepare,
                                      .describe = describe,
                                      .free = free_source};

mg_source *mg_cached_source(mg_source *inner) {
    if (inner->cheap) return mg_source_retain(inner); /* a further copy would be no faster */
    const bool varies = any_varies(inner);
    cached_source *s = mg_source_alloc(varies ? &varying : &fixed, sizeof *s, inner->n_fields);
    if (!s) return NULL;
    s->inner = mg_source_retain(inner);
    mg_source_copy_fields(&s->base, inner);
    if (varies ? make_pointers(s) : make_places(s)) return &s->base;
    mg_source_release(&s->base);
    out_of_memory();
    return NULL;
}

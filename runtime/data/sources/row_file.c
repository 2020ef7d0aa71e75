/* Files of rows. The file holds the packed rows, a table with an entry for each row, a record for
 * each field, and the trailer.
 *
 * The trailer's hash covers the table, the fields and the trailer; each row has a hash in the
 * table, which is checked when the row is read for the first time. Lengths and offsets are checked
 * nevertheless, because a hash does not protect against forged files. The file is mapped, so
 * reading a row is a copy of memory. */
#include "data/sources/row_file.h"
#include "core/alloc.h"
#include "core/io.h"
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BUFFER = 1 << 20, ALIGNMENT = 8 };
static const char MAGIC[8] = "MGROWS1";

typedef struct row_entry {
    int64_t offset; /* of the packed row, which ends where the next one or the table begins */
    uint64_t hash;
} row_entry;

typedef struct field_record {
    int32_t dtype, text, rank, texts;
    int64_t dim[MG_MAX_RANK];
} field_record;

typedef struct trailer {
    int64_t n_rows, n_fields;
    int64_t rows_end, table; /* offsets */
    uint64_t hash;           /* of the table, the fields, and the trailer with 0 in this place */
    char magic[8];
} trailer;

static void record_fields(const mg_source *s, field_record record[]) {
    memset(record, 0, (size_t)s->n_fields * sizeof *record);
    for (int k = 0; k < s->n_fields; k++) {
        const mg_field *f = &s->field[k];
        record[k] = (field_record){
            .dtype = (int32_t)f->dtype, .text = f->text, .rank = f->shape.rank, .texts = f->texts};
        memcpy(record[k].dim, f->shape.dim, (size_t)f->shape.rank * sizeof record[k].dim[0]);
    }
}

static uint64_t hash_of(const row_entry *table, const field_record *fields, trailer t) {
    XXH3_state_t state;
    t.hash = 0;
    XXH3_64bits_reset(&state);
    if (t.n_rows) XXH3_64bits_update(&state, table, (size_t)t.n_rows * sizeof *table);
    XXH3_64bits_update(&state, fields, (size_t)t.n_fields * sizeof *fields);
    XXH3_64bits_update(&state, &t, sizeof t);
    return XXH3_64bits_digest(&state);
}

/* The bytes of each row of s; 0 if a field varies. */
static size_t bytes_of_rows(const mg_source *s) {
    mg_cell cell[s->n_fields];
    for (int k = 0; k < s->n_fields; k++) {
        if (mg_field_varies(&s->field[k])) return 0;
        cell[k].shape = s->field[k].shape;
    }
    return mg_packed_bytes(s, cell);
}

/* ---- writing ---- */

struct mg_row_writer {
    const mg_source *source; /* the caller's */
    mg_file *file;           /* owned */
    row_entry *table;        /* owned */
    int64_t n, offset;       /* rows, and bytes, so far */
    size_t used;             /* of the buffer */
    char *buffer;            /* owned */
    char *row;               /* owned: a row that is larger than the buffer */
    size_t row_room;
};

/* Checks before writing whether rows of known size fit on the disk. */
static mg_status check_space(const mg_row_writer *w, const char *path) {
    const size_t row = bytes_of_rows(w->source);
    int64_t left;
    size_t needed;
    if (!row) return MG_OK;
    MG_TRY(mg_io_free_space(w->file, &left));
    if (!mg_size_mul(row + sizeof(row_entry), (size_t)w->source->n_rows, &needed))
        needed = SIZE_MAX;
    if (needed <= (size_t)left) return MG_OK;
    return mg_fail(MG_IO, "cannot write %s: it needs %s, but the disk has only %s left", path,
                   MG_SIZE_TEXT(needed), MG_SIZE_TEXT(left));
}

static mg_status open_writer(mg_row_writer *w, const char *path) {
    size_t bytes;
    if (!(w->file = mg_io_create(path))) return mg_error_code();
    MG_TRY(check_space(w, path));
    if (!mg_size_mul((size_t)w->source->n_rows, sizeof *w->table, &bytes))
        return mg_fail(MG_OOM, "out of memory: a table of %lld rows", (long long)w->source->n_rows);
    w->table = mg_alloc(bytes);
    w->buffer = mg_alloc(BUFFER);
    return w->table && w->buffer ? MG_OK : MG_OOM;
}

mg_row_writer *mg_row_writer_new(const char *path, const mg_source *s) {
    mg_row_writer *w = mg_alloc_zero(sizeof *w);
    if (!w) return NULL;
    w->source = s;
    if (open_writer(w, path) == MG_OK) return w;
    mg_row_writer_free(w);
    return NULL;
}

static mg_status flush(mg_row_writer *w) {
    const size_t n = w->used;
    w->used = 0;
    return mg_io_write(w->file, w->buffer, n);
}

/* Sets *room to memory for packing `bytes` bytes of a row: in the buffer if it is large enough. */
static mg_status room_for(mg_row_writer *w, size_t bytes, char **room) {
    if (bytes > BUFFER - w->used) MG_TRY(flush(w));
    *room = w->buffer + w->used;
    if (bytes <= BUFFER) return MG_OK;
    if (bytes > w->row_room) {
        mg_free(w->row);
        w->row_room = 0;
        if (!(w->row = mg_alloc(bytes))) return MG_OOM;
        w->row_room = bytes;
    }
    *room = w->row;
    return MG_OK;
}

mg_status mg_row_writer_add(mg_row_writer *w, const mg_cell cell[]) {
    const size_t bytes = mg_packed_bytes(w->source, cell);
    char *room;
    MG_TRY(room_for(w, bytes, &room));
    mg_pack_row(w->source, cell, room);
    w->table[w->n++] = (row_entry){w->offset, XXH3_64bits(room, bytes)};
    w->offset += (int64_t)bytes;
    if (room == w->row) return mg_io_write(w->file, room, bytes);
    w->used += bytes;
    return MG_OK;
}

mg_status mg_row_writer_commit(mg_row_writer *w) {
    static const char zeros[ALIGNMENT];
    const int64_t end = w->offset, padding = (ALIGNMENT - end % ALIGNMENT) % ALIGNMENT;
    field_record fields[w->source->n_fields];
    trailer t = {
        .n_rows = w->n, .n_fields = w->source->n_fields, .rows_end = end, .table = end + padding};
    memcpy(t.magic, MAGIC, sizeof t.magic);
    record_fields(w->source, fields);
    t.hash = hash_of(w->table, fields, t);
    MG_TRY(flush(w));
    MG_TRY(mg_io_write(w->file, zeros, (size_t)padding));
    MG_TRY(mg_io_write(w->file, w->table, (size_t)w->n * sizeof *w->table));
    MG_TRY(mg_io_write(w->file, fields, (size_t)t.n_fields * sizeof *fields));
    MG_TRY(mg_io_write(w->file, &t, sizeof t));
    mg_file *file = w->file;
    w->file = NULL;
    return mg_io_commit(file);
}

void mg_row_writer_free(mg_row_writer *w) {
    if (!w) return;
    mg_io_close(w->file);
    mg_free(w->table);
    mg_free(w->buffer);
    mg_free(w->row);
    mg_free(w);
}

/* ---- reading ---- */

struct mg_row_file {
    char *path;       /* owned */
    const char *data; /* mapped */
    size_t bytes;
    const row_entry *table; /* in data */
    int64_t n_rows, rows_end;
    size_t row_bytes;      /* of each row, if no field varies; else 0 */
    atomic_uchar *checked; /* owned: per row, whether its entry and its hash were checked */
};

static mg_status damaged(const char *path, const char *where) {
    return mg_fail(MG_DATA, "%s is damaged %s: remove the file to have it written again", path,
                   where);
}

/* Finds the trailer and checks that its parts fill the file. */
static mg_status find_parts(mg_row_file *f, trailer *t, const field_record **fields) {
    if (f->bytes < sizeof *t ||
        (memcpy(t, f->data + f->bytes - sizeof *t, sizeof *t), memcmp(t->magic, MAGIC, 8) != 0))
        return mg_fail(
            MG_DATA,
            "%s is not a file of cached rows, or it was cut off: give another path, or remove "
            "the file to have it written again",
            f->path);
    const size_t left = f->bytes - sizeof *t;
    if (t->n_fields < 1 || t->n_fields > MG_SOURCE_FIELDS || t->n_rows < 0 || t->table < 0 ||
        t->table % ALIGNMENT || t->rows_end < 0 || t->rows_end > t->table ||
        (size_t)t->table > left)
        return damaged(f->path, "at its end");
    const size_t fields_bytes = (size_t)t->n_fields * sizeof **fields,
                 table_bytes = left - (size_t)t->table;
    if (table_bytes < fields_bytes ||
        (table_bytes - fields_bytes) / sizeof *f->table != (size_t)t->n_rows ||
        (table_bytes - fields_bytes) % sizeof *f->table)
        return damaged(f->path, "at its end");
    f->table = (const row_entry *)(const void *)(f->data + t->table);
    *fields = (const field_record *)(const void *)(f->table + t->n_rows);
    return t->hash == hash_of(f->table, *fields, *t) ? MG_OK : damaged(f->path, "at its end");
}

static const char *field_text(const field_record *f, char *text, size_t room) {
    mg_shape shape = {.rank = f->rank >= 0 && f->rank <= MG_MAX_RANK ? f->rank : 0};
    memcpy(shape.dim, f->dim, sizeof shape.dim);
    const bool known = f->dtype >= 0 && f->dtype < MG_N_DTYPES;
    if (f->texts) {
        snprintf(text, room, "%d strings", f->texts);
        return text;
    }
    snprintf(text, room, "%s %s",
             f->text ? "string"
             : known ? mg_dtype_name((mg_dtype)f->dtype)
                     : "?",
             MG_SHAPE_TEXT(&shape));
    return text;
}
#define FIELD_TEXT(f) field_text((f), (char[256]){0}, 256)

/* Checks that the file's rows have the fields and the number of rows of s. */
static mg_status check_fields(const mg_row_file *f, const trailer *t, const field_record *there,
                              const mg_source *s) {
    static const char *const what =
        "it holds rows of another dataset: give another path, or remove "
        "the file to have it written again";
    field_record here[s->n_fields];
    record_fields(s, here);
    if (t->n_fields != s->n_fields)
        return mg_fail(MG_USAGE, "%s has %lld fields, the rows here have %d: %s", f->path,
                       (long long)t->n_fields, s->n_fields, what);
    for (int k = 0; k < s->n_fields; k++)
        if (memcmp(&there[k], &here[k], sizeof here[k]) != 0)
            return mg_fail(MG_USAGE, "field %d is %s in %s, but %s here: %s", k + 1,
                           FIELD_TEXT(&there[k]), f->path, FIELD_TEXT(&here[k]), what);
    if (t->n_rows != s->n_rows)
        return mg_fail(MG_USAGE, "%s has %lld rows, the dataset here has %lld: %s", f->path,
                       (long long)t->n_rows, (long long)s->n_rows, what);
    return MG_OK;
}

static mg_status map_file(mg_row_file *f) {
    int64_t bytes = 0;
    mg_file *file = mg_io_open(f->path);
    if (!file) return mg_error_code();
    mg_status status = mg_io_size(file, &bytes);
    const void *data = NULL;
    if (status == MG_OK) status = mg_io_map(file, (size_t)bytes, &data);
    mg_io_close(file);
    f->data = data;
    f->bytes = data ? (size_t)bytes : 0;
    return status;
}

static mg_status open_file(mg_row_file *f, const mg_source *s) {
    trailer t;
    const field_record *fields = NULL;
    MG_TRY(map_file(f));
    MG_TRY(find_parts(f, &t, &fields));
    MG_TRY(check_fields(f, &t, fields, s));
    f->n_rows = t.n_rows;
    f->rows_end = t.rows_end;
    f->row_bytes = bytes_of_rows(s);
    f->checked = mg_alloc_zero((size_t)t.n_rows * sizeof f->checked[0]);
    return f->checked ? MG_OK : MG_OOM;
}

mg_row_file *mg_row_file_open(const char *path, const mg_source *s) {
    mg_row_file *f = mg_alloc_zero(sizeof *f);
    if (!f) return NULL;
    if ((f->path = mg_strdup(path)) && open_file(f, s) == MG_OK) return f;
    mg_row_file_close(f);
    return NULL;
}

static mg_status damaged_row(const mg_row_file *f, int64_t row) {
    char where[40];
    snprintf(where, sizeof where, "in row %lld", (long long)row + 1);
    return damaged(f->path, where);
}

/* Finds the row by the table. MG_DATA: its position is outside the file, or wrong for rows of one
 * size. */
static mg_status find_row(const mg_row_file *f, int64_t row, int64_t *from, size_t *bytes) {
    *from = f->table[row].offset;
    const int64_t to = row + 1 < f->n_rows ? f->table[row + 1].offset : f->rows_end;
    if (*from < 0 || to < *from || to > f->rows_end) return damaged_row(f, row);
    *bytes = (size_t)(to - *from);
    const bool right =
        !f->row_bytes || (*bytes == f->row_bytes && (size_t)*from == (size_t)row * f->row_bytes);
    return right ? MG_OK : damaged_row(f, row);
}

/* A row that was checked, and has the size of all rows, is found without the table. */
mg_status mg_row_file_read(mg_row_file *f, const mg_source *s, int64_t row, mg_cell cell[]) {
    const bool checked = atomic_load_explicit(&f->checked[row], memory_order_relaxed);
    int64_t from = row * (int64_t)f->row_bytes;
    size_t bytes = f->row_bytes;
    if (!checked || !f->row_bytes) MG_TRY(find_row(f, row, &from, &bytes));
    if (!checked) {
        if (XXH3_64bits(f->data + from, bytes) != f->table[row].hash) return damaged_row(f, row);
        atomic_store_explicit(&f->checked[row], 1, memory_order_relaxed);
    }
    const mg_status status = mg_unpack_row(s, f->data + from, bytes, cell);
    return status == MG_DATA ? damaged_row(f, row) : status;
}

void mg_row_file_close(mg_row_file *f) {
    if (!f) return;
    mg_io_unmap(f->data, f->bytes);
    mg_free(f->checked);
    mg_free(f->path);
    mg_free(f);
}

/* The first pass over CSV files: headers, kinds of columns, number of rows. */
#include "core/alloc.h"
#include "data/sources/csv.h"
#include <string.h>

bool mg_csv_is_missing(const mg_csv_table *t, const char *cell) {
    for (int i = 0; i < t->n_no_value; i++)
        if (*cell == *t->no_value[i] && strcmp(cell, t->no_value[i]) == 0) return true;
    return false;
}

/* The first kind, from `at_least` on, that the cell has. */
static mg_csv_kind kind_of(const char *cell, mg_csv_kind at_least) {
    int64_t i;
    double v;
    if (at_least <= MG_CSV_INT64 && mg_csv_integer(cell, &i)) {
        const bool small = i >= INT32_MIN && i <= INT32_MAX;
        return small ? at_least : MG_CSV_INT64;
    }
    return at_least <= MG_CSV_FLOAT && mg_csv_number(cell, &v) ? MG_CSV_FLOAT : MG_CSV_TEXT;
}

/* ---- headers ---- */

static bool has_number(const mg_csv_record *e) {
    double v;
    for (int i = 0; i < e->n; i++)
        if (mg_csv_number(e->cell[i].text, &v)) return true;
    return false;
}

/* Makes the columns of the first record, and decides whether it is a header. */
static mg_status start_columns(mg_csv_table *t, const mg_csv_record *e) {
    t->columns = mg_alloc_zero((size_t)e->n * sizeof *t->columns);
    if (!t->columns) return MG_OOM;
    t->n_columns = e->n;
    if (t->header == MG_CSV_FIND_HEADER)
        t->header = has_number(e) ? MG_CSV_NO_HEADER : MG_CSV_HEADER;
    for (int i = 0; i < e->n && t->header == MG_CSV_HEADER; i++)
        if (!(t->columns[i].name = mg_strdup(e->cell[i].text))) return MG_OOM;
    return MG_OK;
}

static mg_status check_length(const mg_csv_table *t, const char *path, const mg_csv_record *e) {
    if (e->n == t->n_columns) return MG_OK;
    return mg_fail(MG_DATA, "csv: %s: line %lld has %d cells, the first record has %d", path,
                   (long long)e->line, e->n, t->n_columns);
}

/* The header of a later file, or of one that is read again, has the names of the first one. */
static mg_status check_header(const mg_csv_table *t, const char *path, const mg_csv_record *e) {
    MG_TRY(check_length(t, path, e));
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->cell[i].text, t->columns[i].name) != 0)
            return mg_fail(MG_DATA,
                           "csv: %s: line %lld: column %d is called \"%.80s\" here, and \"%.80s\" "
                           "in the header of %s",
                           path, (long long)e->line, i + 1, e->cell[i].text, t->columns[i].name,
                           t->paths[0]);
    return MG_OK;
}

mg_csv_reader *mg_csv_table_open(const mg_csv_table *t, int file) {
    const mg_csv_record *e = NULL;
    mg_csv_reader *r = mg_csv_reader_open(t->paths[file], &t->format);
    if (!r || t->header != MG_CSV_HEADER) return r;
    mg_status status = mg_csv_reader_next(r, &e);
    if (status == MG_OK && e) status = check_header(t, t->paths[file], e);
    if (status == MG_OK) return r;
    mg_csv_reader_close(r);
    return NULL;
}

/* ---- rows ---- */

static void note_row(mg_csv_table *t, const mg_csv_record *e) {
    for (int i = 0; i < e->n; i++) {
        mg_csv_column *c = &t->columns[i];
        const char *text = e->cell[i].text;
        c->bytes += (int64_t)e->cell[i].bytes;
        if (mg_csv_is_missing(t, text))
            c->missing++;
        else if (c->kind != MG_CSV_TEXT)
            c->kind = kind_of(text, c->kind);
    }
    t->n_rows++;
}

static mg_status scan_rows(mg_csv_table *t, const char *path, mg_csv_reader *r) {
    const mg_csv_record *e;
    for (;;) {
        MG_TRY(mg_csv_reader_next(r, &e));
        if (!e) return MG_OK;
        MG_TRY(check_length(t, path, e));
        note_row(t, e);
    }
}

/* The first record of the first file makes the columns. */
static mg_status scan_first(mg_csv_table *t, mg_csv_reader *r) {
    const mg_csv_record *e;
    MG_TRY(mg_csv_reader_next(r, &e));
    if (!e) return mg_fail(MG_DATA, "csv: %s is empty", t->paths[0]);
    MG_TRY(start_columns(t, e));
    if (t->header == MG_CSV_NO_HEADER) note_row(t, e);
    return scan_rows(t, t->paths[0], r);
}

static mg_status scan_file(mg_csv_table *t, int i) {
    mg_csv_reader *r = i ? mg_csv_table_open(t, i) : mg_csv_reader_open(t->paths[0], &t->format);
    if (!r) return mg_error_code();
    t->states[i] = mg_csv_reader_state(r);
    const mg_status status = i ? scan_rows(t, t->paths[i], r) : scan_first(t, r);
    mg_csv_reader_close(r);
    return status;
}

mg_status mg_csv_scan(mg_csv_table *t) {
    t->states = mg_alloc((size_t)t->n_paths * sizeof *t->states);
    mg_status status = t->states ? MG_OK : MG_OOM;
    for (int i = 0; i < t->n_paths && status == MG_OK; i++) status = scan_file(t, i);
    if (status != MG_OK) mg_source_name_error("csv");
    if (status == MG_OK && t->n_rows == 0)
        return mg_fail(MG_DATA, "csv: %s has a header, but no rows", t->paths[0]);
    return status;
}

void mg_csv_table_clear(mg_csv_table *t) {
    for (int i = 0; i < t->n_columns; i++) mg_free(t->columns[i].name);
    mg_free(t->columns);
    mg_free(t->states);
    t->columns = NULL;
    t->states = NULL;
    t->n_columns = 0;
}

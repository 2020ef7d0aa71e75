/* CSV files as a source: the second pass, which reads the cells into arrays. */
#include "data/sources/csv.h"
#include "core/alloc.h"
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A field's cells: numbers and ids of classes in rows of row_bytes, or texts, one after another. */
typedef struct csv_data {
    mg_csv_as as;
    size_t row_bytes;
    char *values;      /* owned */
    char *text;        /* owned: text_bytes */
    int64_t *text_end; /* owned: where the text of each row ends */
    int64_t text_bytes;
} csv_data;

typedef struct csv_source {
    mg_source base;
    csv_data data[]; /* of each field */
} csv_source;

/* ---- the source ---- */

static mg_status read_text(const csv_data *d, int64_t row, mg_cell *cell) {
    const int64_t begin = row ? d->text_end[row - 1] : 0, n = d->text_end[row] - begin;
    cell->data = mg_alloc((size_t)n);
    if (!cell->data) return MG_OOM;
    cell->shape = MG_SHAPE(n);
    memcpy(cell->data, d->text + begin, (size_t)n);
    return MG_OK;
}

static mg_status csv_read(mg_source *base, int64_t row, mg_cell cell[]) {
    const csv_source *s = (const csv_source *)base;
    for (int k = 0; k < base->n_fields; k++) {
        const csv_data *d = &s->data[k];
        if (d->as == MG_CSV_STRINGS)
            MG_TRY(read_text(d, row, &cell[k]));
        else
            memcpy(cell[k].data, d->values + (size_t)row * d->row_bytes, d->row_bytes);
    }
    return MG_OK;
}

static void csv_free(mg_source *base) {
    csv_source *s = (csv_source *)base;
    for (int k = 0; k < base->n_fields; k++) {
        mg_free(s->data[k].values);
        mg_free(s->data[k].text);
        mg_free(s->data[k].text_end);
    }
    mg_free(s);
}

static const mg_source_api csv_api = {.name = "csv", .read = csv_read, .free = csv_free};

/* ---- cells ---- */

typedef struct loading {
    const mg_csv_table *t;
    const mg_csv_missing *missing;
    const mg_csv_field *fields;
    csv_source *s;
    mg_class_names *names[MG_SOURCE_FIELDS];
    const char *path;
    const mg_csv_record *record;
    int64_t row;
} loading;

/* MG_DATA: "csv: FILE: line 3, column 2 (\"age\"): ...". */
static mg_status fail_cell(const loading *l, int column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static mg_status fail_cell(const loading *l, int column, const char *format, ...) {
    char text[256], name[96] = "";
    const char *known = l->t->columns[column].name;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (known) snprintf(name, sizeof name, " (\"%.80s\")", known);
    return mg_fail(MG_DATA, "csv: %s: line %lld, column %d%s: %s", l->path,
                   (long long)l->record->line, column + 1, name, text);
}

static mg_status fail_missing(const loading *l, int column) {
    return fail_cell(l, column, "the value is missing; the option `missing` sets a default");
}

static mg_status fail_changed(const loading *l) {
    return mg_fail(MG_DATA, "csv: %s changed while it was read", l->path);
}

/* The smallest and largest values of the integer dtypes that CSV files are read as. */
static bool integer_bounds(mg_dtype dtype, int64_t *least, int64_t *most) {
    *least = dtype == MG_I32 ? INT32_MIN : dtype == MG_I64 ? INT64_MIN : 0;
    *most = dtype == MG_I32   ? INT32_MAX
            : dtype == MG_I64 ? INT64_MAX
            : dtype == MG_U8  ? UINT8_MAX
                              : 1;
    return !mg_dtype_is_float(dtype);
}

static bool parse_truth(const char *text, int64_t *value) {
    *value = strcasecmp(text, "true") == 0;
    return *value || strcasecmp(text, "false") == 0;
}

static void put_integer(mg_dtype dtype, int64_t value, char *dst) {
    const int32_t narrow = (int32_t)value;
    if (dtype == MG_I64)
        memcpy(dst, &value, sizeof value);
    else if (dtype == MG_I32)
        memcpy(dst, &narrow, sizeof narrow);
    else
        *dst = (char)value;
}

static mg_status load_integer(loading *l, int column, mg_dtype dtype, char *dst) {
    const char *text = l->record->cell[column].text;
    int64_t value, least, most;
    double number;
    integer_bounds(dtype, &least, &most);
    const bool whole =
        mg_csv_integer(text, &value) || (dtype == MG_BOOL && parse_truth(text, &value));
    if (!whole)
        return fail_cell(l, column, "\"%.60s\" is not of dtype %s%s", text, mg_dtype_name(dtype),
                         mg_csv_number(text, &number) ? ": give the column a floating dtype" : "");
    if (value < least || value > most)
        return fail_cell(l, column, "%.60s does not fit %s", text, mg_dtype_name(dtype));
    put_integer(dtype, value, dst);
    return MG_OK;
}

/* The largest number of a floating dtype. */
static double most_of(mg_dtype dtype) {
    return dtype == MG_F32 ? FLT_MAX : DBL_MAX;
}

static mg_status load_float(loading *l, int column, mg_dtype dtype, char *dst) {
    const char *text = l->record->cell[column].text;
    double value;
    if (!mg_csv_number(text, &value))
        return fail_cell(l, column,
                         "\"%.60s\" is not a number (`columns` can leave text columns out)", text);
    const bool written_as_number = strpbrk(text, "0123456789") != NULL;
    if (written_as_number && fabs(value) > most_of(dtype))
        return fail_cell(l, column, "%.60s does not fit %s", text, mg_dtype_name(dtype));
    mg_from_double(dst, &value, dtype, 1);
    return MG_OK;
}

static mg_status load_number(loading *l, int column, mg_dtype dtype, char *dst) {
    int64_t least, most;
    const bool integer = integer_bounds(dtype, &least, &most);
    if (!mg_csv_is_missing(l->t, l->record->cell[column].text))
        return (integer ? load_integer : load_float)(l, column, dtype, dst);
    const mg_csv_missing *m = &l->missing[column];
    if (!m->has_number) return fail_missing(l, column);
    const bool fits = integer ? m->number == floor(m->number) && m->number >= (double)least &&
                                    m->number < (double)most + 1 /* 2^63 for int64, exactly */
                              : !isfinite(m->number) || fabs(m->number) <= most_of(dtype);
    if (!fits)
        return fail_cell(l, column, "the value for missing ones, %.17g, does not fit %s", m->number,
                         mg_dtype_name(dtype));
    mg_from_double(dst, &m->number, dtype, 1);
    return MG_OK;
}

/* The cell's text, or the default text if it is missing. */
static mg_csv_cell text_of(const loading *l, int column) {
    const mg_csv_cell cell = l->record->cell[column];
    const char *instead = l->missing[column].text;
    if (!instead || !mg_csv_is_missing(l->t, cell.text)) return cell;
    return (mg_csv_cell){instead, strlen(instead)};
}

static mg_status load_text(loading *l, int column, csv_data *d) {
    const mg_csv_cell cell = text_of(l, column);
    const int64_t begin = l->row ? d->text_end[l->row - 1] : 0;
    if ((int64_t)cell.bytes > d->text_bytes - begin) return fail_changed(l);
    memcpy(d->text + begin, cell.text, cell.bytes);
    d->text_end[l->row] = begin + (int64_t)cell.bytes;
    return MG_OK;
}

static mg_status load_class(loading *l, int k, int column, char *dst) {
    const mg_csv_cell cell = text_of(l, column);
    int32_t id = -1;
    if (!cell.bytes) return fail_missing(l, column);
    if (!l->fields[k].classes)
        MG_TRY(mg_class_names_add(l->names[k], cell.text, &id));
    else if ((id = mg_class_names_find(l->names[k], cell.text)) < 0)
        return fail_cell(l, column, "\"%.60s\" is not one of the %d classes", cell.text,
                         l->fields[k].n_classes);
    memcpy(dst, &id, sizeof id);
    return MG_OK;
}

/* ---- rows ---- */

static mg_status load_field(loading *l, int k) {
    const mg_csv_field *f = &l->fields[k];
    csv_data *d = &l->s->data[k];
    if (f->as == MG_CSV_STRINGS) return load_text(l, f->columns[0], d);
    char *dst = d->values + (size_t)l->row * d->row_bytes;
    if (f->as == MG_CSV_CLASSES) return load_class(l, k, f->columns[0], dst);
    for (int i = 0; i < f->n_columns; i++, dst += mg_dtype_size(f->dtype))
        MG_TRY(load_number(l, f->columns[i], f->dtype, dst));
    return MG_OK;
}

static mg_status load_rows(loading *l, mg_csv_reader *r) {
    for (;;) {
        MG_TRY(mg_csv_reader_next(r, &l->record));
        if (!l->record) return MG_OK;
        if (l->record->n != l->t->n_columns || l->row == l->t->n_rows) return fail_changed(l);
        for (int k = 0; k < l->s->base.n_fields; k++) MG_TRY(load_field(l, k));
        l->row++;
    }
}

static mg_status load_files(loading *l) {
    mg_status status = MG_OK;
    for (int i = 0; i < l->t->n_paths && status == MG_OK; i++) {
        l->path = l->t->paths[i];
        mg_csv_reader *r = mg_csv_table_open(l->t, i);
        status = r ? load_rows(l, r) : mg_error_code();
        /* The file may have been rewritten with cells of the same lengths. */
        if (status == MG_OK) status = mg_csv_reader_check_unchanged(r, &l->t->states[i]);
        mg_csv_reader_close(r);
    }
    return status == MG_OK && l->row < l->t->n_rows ? fail_changed(l) : status;
}

/* ---- classes ---- */

static mg_status start_classes(loading *l, int k) {
    const mg_csv_field *f = &l->fields[k];
    l->names[k] = mg_class_names_new();
    if (!l->names[k]) return MG_OOM;
    for (int32_t i = 0, id; i < f->n_classes; i++) {
        MG_TRY(mg_class_names_add(l->names[k], f->classes[i], &id));
        if (id != i)
            return mg_fail(MG_USAGE, "csv: the class \"%.80s\" is given twice", f->classes[i]);
    }
    return MG_OK;
}

/* Ids of classes that were found are in the order of their first rows: sorts them. */
static mg_status sort_classes(loading *l, int k) {
    if (l->fields[k].as != MG_CSV_CLASSES || l->fields[k].classes) return MG_OK;
    int32_t *id = (int32_t *)(void *)l->s->data[k].values;
    int32_t *map = mg_alloc((size_t)mg_class_names_count(l->names[k]) * sizeof *map);
    const mg_status status = map ? mg_class_names_sort(l->names[k], map) : MG_OOM;
    for (int64_t i = 0; status == MG_OK && i < l->row; i++) id[i] = map[id[i]];
    mg_free(map);
    return status;
}

/* ---- making the source ---- */

static mg_status check_field(const mg_csv_table *t, const mg_csv_field *f) {
    for (int i = 0; i < f->n_columns; i++)
        if (f->columns[i] < 0 || f->columns[i] >= t->n_columns)
            return mg_fail(MG_USAGE, "csv: there is no column %d: the file has %d",
                           f->columns[i] + 1, t->n_columns);
    const bool known = f->dtype == MG_F32 || f->dtype == MG_F64 || f->dtype == MG_I32 ||
                       f->dtype == MG_I64 || f->dtype == MG_U8 || f->dtype == MG_BOOL;
    if (f->as != MG_CSV_NUMBERS || known) return MG_OK;
    return mg_fail(MG_USAGE,
                   "csv: a column cannot be read as %s; float32 float64 int32 int64 uint8 bool and "
                   "string are possible",
                   mg_dtype_name(f->dtype));
}

/* Room for all rows of a field. */
static mg_status start_field(loading *l, int k) {
    const mg_csv_field *f = &l->fields[k];
    csv_data *d = &l->s->data[k];
    mg_field *out = &l->s->base.field[k];
    const size_t rows = (size_t)l->t->n_rows;
    size_t bytes = 0;
    MG_TRY(check_field(l->t, f));
    d->as = f->as;
    *out = (mg_field){.dtype = f->as == MG_CSV_NUMBERS ? f->dtype : MG_I32};
    if (f->matrix) out->shape = MG_SHAPE(f->n_columns);
    if (f->as == MG_CSV_CLASSES) MG_TRY(start_classes(l, k));
    if (f->as == MG_CSV_STRINGS) {
        const mg_csv_column *c = &l->t->columns[f->columns[0]];
        const char *instead = l->missing[f->columns[0]].text;
        const int64_t more = instead ? c->missing * (int64_t)strlen(instead) : 0;
        *out = (mg_field){.dtype = MG_U8, .shape = MG_SHAPE(-1), .text = true};
        d->text_bytes = c->bytes + more;
        d->text = mg_alloc((size_t)d->text_bytes);
        d->text_end = d->text ? mg_alloc(rows * sizeof *d->text_end) : NULL;
        return d->text_end ? MG_OK : MG_OOM;
    }
    d->row_bytes = mg_dtype_size(out->dtype) * (size_t)f->n_columns;
    if (!mg_size_mul(rows, d->row_bytes, &bytes))
        return mg_fail(MG_OOM, "csv: %zu rows of %zu bytes are too many", rows, d->row_bytes);
    d->values = mg_alloc(bytes);
    return d->values ? MG_OK : MG_OOM;
}

mg_source *mg_csv_source(const mg_csv_table *t, const mg_csv_missing *missing,
                         const mg_csv_field *fields, int n_fields, mg_class_names **classes) {
    const size_t data = (size_t)n_fields * sizeof(csv_data);
    csv_source *s = mg_source_alloc(&csv_api, sizeof *s + data, n_fields);
    loading l = {.t = t, .missing = missing, .fields = fields, .s = s, .path = t->paths[0]};
    *classes = NULL;
    if (!s) return NULL;
    s->base.n_rows = t->n_rows;
    s->base.cheap = true;
    mg_status status = MG_OK;
    for (int k = 0; k < n_fields && status == MG_OK; k++) status = start_field(&l, k);
    if (status == MG_OK) status = load_files(&l);
    for (int k = 0; k < n_fields && status == MG_OK; k++) status = sort_classes(&l, k);
    for (int k = 0; k < n_fields; k++) {
        const bool wanted = status == MG_OK && l.names[k] && !*classes;
        if (wanted)
            *classes = l.names[k];
        else
            mg_class_names_free(l.names[k]);
    }
    if (status == MG_OK) return &s->base;
    mg_source_name_error("csv");
    mg_source_release(&s->base);
    return NULL;
}

/* Rows of NumPy's arrays, read on demand from their position in the file.
 *
 * Files are read with mg_io_read_at and not mapped to memory: so a file that becomes shorter gives
 * an error, and not a signal that ends the process. */
#include "data/sources/sources.h"
#include "core/alloc.h"
#include "core/threads.h"
#include "io/npy.h"
#include "io/zip.h"
#include <stdio.h>
#include <string.h>

enum { PIECE = 16 << 20 }; /* bytes that are unpacked between two checks for Ctrl-C */

/* The rows of an array: in a file, or in memory. */
typedef struct array_rows {
    mg_file *file;       /* owned; NULL: in memory */
    mg_io_state state;   /* of the file when it was opened */
    unsigned char *rows; /* owned: all of them, or NULL */
    int64_t begin;       /* of the first row in the file */
    size_t row_bytes, n; /* of a row in the file, and its elements */
    mg_dtype dtype;
    const mg_stored_type *stored; /* the elements in the file, if they are widened to dtype */
    bool big_endian;              /* in the file */
    char *path;                   /* owned */
} array_rows;

typedef struct numpy_source {
    mg_source base;
    char *who;          /* owned */
    array_rows array[]; /* of each field */
} numpy_source;

/* ---- the source ---- */

/* Other bytes than 0 and 1 in a bool tensor would break kernels. */
static mg_status check_booleans(const numpy_source *s, const array_rows *a, int64_t row,
                                const unsigned char *bytes) {
    for (size_t i = 0; a->dtype == MG_BOOL && i < a->n; i++)
        if (bytes[i] > 1)
            return mg_fail(MG_DATA, "%s: %s: byte %zu of row %lld is %d, which is not a boolean",
                           s->who, a->path, i, (long long)row, bytes[i]);
    return MG_OK;
}

/* From memory, as it was read and widened before. */
static mg_status copy_row(const numpy_source *s, const array_rows *a, int64_t row, void *dst) {
    const size_t bytes = a->n * mg_dtype_size(a->dtype);
    memcpy(dst, a->rows + (size_t)row * bytes, bytes);
    return check_booleans(s, a, row, dst);
}

/* The elements are at the end of the row's cell. */
static mg_status widen_row(const numpy_source *s, const array_rows *a, int64_t row, void *dst) {
    char name[32];
    snprintf(name, sizeof name, "row %lld", (long long)row);
    if (mg_stored_widen(a->stored, dst, a->n, a->path, name) == MG_OK) return MG_OK;
    mg_error_prefix(s->who);
    return mg_error_code();
}

/* From the file. */
static mg_status read_row(const numpy_source *s, const array_rows *a, int64_t row, void *dst) {
    const int64_t at = row * (int64_t)a->row_bytes;
    char *end = (char *)dst + a->n * mg_dtype_size(a->dtype) - a->row_bytes;
    size_t got;
    MG_TRY(mg_io_read_at(a->file, end, a->row_bytes, a->begin + at, &got));
    if (got < a->row_bytes)
        return mg_fail(MG_IO, "%s: %s ends within row %lld: it became shorter after it was opened",
                       s->who, a->path, (long long)row);
    if (mg_io_check_unchanged(a->file, &a->state) != MG_OK) {
        mg_error_prefix(s->who);
        return MG_IO;
    }
    if (a->big_endian) mg_npy_swap(end, mg_stored_size(a->stored, a->dtype), a->n);
    return a->stored ? widen_row(s, a, row, dst) : check_booleans(s, a, row, dst);
}

static mg_status numpy_read(mg_source *base, int64_t row, mg_cell cell[]) {
    const numpy_source *s = (const numpy_source *)base;
    for (int k = 0; k < base->n_fields; k++)
        MG_TRY((s->array[k].rows ? copy_row : read_row)(s, &s->array[k], row, cell[k].data));
    return MG_OK;
}

static void numpy_free(mg_source *base) {
    numpy_source *s = (numpy_source *)base;
    for (int k = 0; k < base->n_fields; k++) {
        mg_io_close(s->array[k].file);
        mg_free(s->array[k].rows);
        mg_free(s->array[k].path);
    }
    mg_free(s->who);
    mg_free(s);
}

static const mg_source_api numpy_api = {.name = "npz", .read = numpy_read, .free = numpy_free};

/* ---- opening ---- */

static mg_status read_plain(void *context, void *dst, size_t n) {
    size_t got;
    MG_TRY(mg_io_read(context, dst, n, &got));
    return got == n ? MG_OK : mg_fail(MG_DATA, "the file ends too early");
}

/* In pieces, since unpacking takes long. */
static mg_status read_zipped(void *context, void *dst, size_t n) {
    for (size_t done = 0, got; done < n; done += got) {
        const size_t piece = n - done < PIECE ? n - done : PIECE;
        if (mg_interrupt_take()) return mg_fail(MG_INTERRUPTED, "interrupted");
        MG_TRY(mg_zip_read(context, (char *)dst + done, piece, &got));
        if (got < piece) return mg_fail(MG_DATA, "the array ends too early");
    }
    return MG_OK;
}

/* Sets up field k from the array's header. at: the position of the elements in the file; -1: they
 * must be loaded. Elements in Fortran order are always loaded. */
static mg_status take_array(numpy_source *s, int k, mg_npy_array *a, int64_t at) {
    array_rows *r = &s->array[k];
    const mg_shape *shape = &a->shape;
    mg_field *field = &s->base.field[k];
    if (!shape->rank || !shape->dim[0])
        return mg_fail(MG_USAGE, "%s: array \"%.80s\" of shape %s has no rows", a->path, a->name,
                       MG_SHAPE_TEXT(shape));
    if (k && shape->dim[0] != s->base.n_rows)
        return mg_fail(MG_USAGE, "%s: array \"%.80s\" has %lld rows, the first array has %lld",
                       a->path, a->name, (long long)shape->dim[0], (long long)s->base.n_rows);
    s->base.n_rows = shape->dim[0];
    field->dtype = r->dtype = a->dtype;
    field->shape = mg_shape_of(shape->rank - 1, shape->dim + 1);
    r->stored = a->stored;
    r->n = (size_t)mg_shape_count(&field->shape);
    r->row_bytes = r->n * mg_stored_size(a->stored, a->dtype);
    r->big_endian = a->big_endian;
    r->begin = at;
    if (at >= 0 && !(a->fortran && shape->rank > 1)) return MG_OK;
    r->rows = mg_alloc((size_t)s->base.n_rows * mg_cell_bytes(field, &field->shape));
    return r->rows ? mg_npy_read_values(a, r->rows) : MG_OOM;
}

static mg_status open_plain(numpy_source *s, int k) {
    array_rows *r = &s->array[k];
    mg_npy_array a = {.path = r->path, .name = "arr_0", .source = read_plain, .context = r->file};
    MG_TRY(mg_io_size(r->file, &a.bytes));
    MG_TRY(mg_npy_read_header(&a));
    const int64_t bytes = mg_shape_count(&a.shape) * (int64_t)mg_stored_size(a.stored, a.dtype);
    return take_array(s, k, &a, a.bytes - bytes);
}

/* MG_USAGE: the archive has no such array; the message lists the arrays that it has. */
static mg_status fail_name(const char *path, const mg_zip *z, const char *name) {
    char list[512] = "";
    size_t n, used = 0;
    const mg_zip_entry *e = mg_zip_entries(z, &n);
    for (size_t i = 0; i < n && used < sizeof list - 100; i++) {
        const int length = (int)strlen(e[i].name) - 4; /* without ".npy" */
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.*s", i ? ", " : "",
                                 length < 0    ? 0
                                 : length > 80 ? 80
                                               : length,
                                 e[i].name);
    }
    return mg_fail(MG_USAGE, "%s: there is no array \"%.80s\"; there are: %s", path, name, list);
}

static mg_status open_in(numpy_source *s, int k, mg_zip *z, const char *name) {
    array_rows *r = &s->array[k];
    char file[300];
    snprintf(file, sizeof file, "%.280s.npy", name);
    const mg_zip_entry *e = mg_zip_find(z, file);
    if (!e) return fail_name(r->path, z, name);
    mg_npy_array a = {
        .path = r->path, .name = name, .bytes = e->size, .source = read_zipped, .context = z};
    MG_TRY(mg_zip_start(z, e));
    MG_TRY(mg_npy_read_header(&a));
    return take_array(s, k, &a, mg_zip_position(z));
}

static mg_status open_zipped(numpy_source *s, int k, const char *name) {
    mg_zip *z = mg_zip_from(s->array[k].file, s->array[k].path);
    const mg_status status = z ? open_in(s, k, z, name) : mg_error_code();
    mg_zip_close(z);
    return status;
}

static mg_status open_array(numpy_source *s, int k, const mg_numpy_field *f) {
    array_rows *r = &s->array[k];
    r->path = mg_strdup(f->path);
    r->file = r->path ? mg_io_open(f->path) : NULL;
    if (!r->file) return mg_error_code();
    MG_TRY(mg_io_look(r->file, &r->state));
    MG_TRY(f->name ? open_zipped(s, k, f->name) : open_plain(s, k));
    if (!r->rows) return MG_OK;
    mg_io_close(r->file);
    r->file = NULL;
    return MG_OK;
}

mg_source *mg_numpy_source(const char *who, const mg_numpy_field *fields, int n) {
    numpy_source *s = mg_source_alloc(&numpy_api, sizeof *s + (size_t)n * sizeof s->array[0], n);
    if (!s) return NULL;
    s->who = mg_strdup(who);
    s->base.cheap = true;
    mg_status status = s->who ? MG_OK : MG_OOM;
    for (int k = 0; k < n && status == MG_OK; k++) status = open_array(s, k, &fields[k]);
    if (status == MG_OK) return &s->base;
    mg_source_name_error(who);
    mg_source_release(&s->base);
    return NULL;
}

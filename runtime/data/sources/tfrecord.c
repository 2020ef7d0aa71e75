/* Reading a row: the record's bytes are read and verified, its features found, and each turned into
 * a cell. The block of the record's bytes lives for one read. */
#include "data/sources/tfrecord.h"
#include "core/alloc.h"
#include "data/example.h"
#include "data/image.h"
#include "data/sources/tfrecord_index.h"
#include "io/tfrecord.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct tfrecord_source {
    mg_source base;
    mg_file_set *files; /* owned */
    mg_record_index index;
    const char **names; /* owned: those of the fields */
    mg_record_field field[];
} tfrecord_source;

/* ---- messages ---- */

/* "FILE: record 7". The number is known only if no record was left out. */
static void describe(const mg_source *base, int64_t row, char *text, size_t room) {
    const tfrecord_source *s = (const tfrecord_source *)base;
    const mg_record_place *place = &s->index.place[row];
    char number[32] = "the record";
    if (!s->index.skipped) {
        int64_t first = row;
        while (first > 0 && s->index.place[first - 1].file == place->file) first--;
        snprintf(number, sizeof number, "record %lld", (long long)(row - first + 1));
    }
    snprintf(text, room, "%s: %s at byte %" PRId64, mg_file_set_path(s->files, place->file), number,
             place->position);
}

/* Puts the record's file and number before the stored message; messages of MG_IO already name the
 * file. */
static mg_status at_record(const tfrecord_source *s, int64_t row, mg_status status) {
    char place[4300], text[4352];
    if (status == MG_IO) {
        mg_error_prefix("tfrecord");
        return status;
    }
    describe(&s->base, row, place, sizeof place);
    snprintf(text, sizeof text, "tfrecord: %s", place);
    mg_error_prefix(text);
    return status;
}

/* The error for a feature that does not match the schema. */
static mg_status mismatch(const mg_record_field *f, const mg_feature *found, const char *expected) {
    if (found->kind == MG_FEATURE_NONE)
        return mg_fail(MG_DATA,
                       "feature \"%s\" is missing; expected %s (give the field a `default` if that "
                       "may be)",
                       f->name, expected);
    return mg_fail(MG_DATA, "feature \"%s\": expected %s, found %s", f->name, expected,
                   MG_FEATURE_TEXT(found->kind, found->count));
}

/* ---- cells ---- */

/* Gives the cell of a field with one size of -1 a shape of `count` elements, and memory. False:
 * there is no such shape. */
static bool shape_cell(const mg_record_field *f, size_t count, mg_cell *cell, mg_status *status) {
    size_t others = 1;
    *status = MG_OK;
    cell->shape = f->shape;
    for (int i = 0; i < f->shape.rank; i++)
        if (f->shape.dim[i] >= 0) others *= (size_t)f->shape.dim[i];
    if (others ? count % others : count) return false;
    for (int i = 0; i < f->shape.rank; i++)
        if (f->shape.dim[i] < 0) cell->shape.dim[i] = others ? (int64_t)(count / others) : 0;
    cell->data = mg_alloc(count * mg_dtype_size(f->dtype));
    if (!cell->data) *status = MG_OOM;
    return true;
}

/* Makes the cell ready for `count` elements; `unit` names one: "float". */
static mg_status size_cell(const mg_record_field *f, bool varies, const mg_feature *found,
                           size_t count, const char *unit, mg_cell *cell) {
    char expected[256];
    mg_status status = MG_OK;
    if (varies ? shape_cell(f, count, cell, &status) : count == (size_t)mg_shape_count(&f->shape))
        return status;
    if (varies)
        snprintf(expected, sizeof expected, "%ss for shape %s", unit, MG_SHAPE_TEXT(&f->shape));
    else
        snprintf(expected, sizeof expected, "%" PRId64 " %s%s%s%s", mg_shape_count(&f->shape), unit,
                 mg_shape_count(&f->shape) == 1 ? "" : "s", f->shape.rank ? " for shape " : "",
                 f->shape.rank ? MG_SHAPE_TEXT(&f->shape) : "");
    if (f->form == MG_RECORD_LIST) return mismatch(f, found, expected);
    return mg_fail(MG_DATA, "feature \"%s\": expected %s, found %zu", f->name, expected, count);
}

/* int64 to int32, in place. */
static mg_status narrow(const mg_record_field *f, const int64_t *src, int32_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (src[i] < INT32_MIN || src[i] > INT32_MAX)
            return mg_fail(MG_DATA,
                           "feature \"%s\": value %zu is %" PRId64
                           ", which int32 cannot hold (read it as int64)",
                           f->name, i + 1, src[i]);
        dst[i] = (int32_t)src[i];
    }
    return MG_OK;
}

static mg_status read_list(const mg_record_field *f, bool varies, const mg_feature *found,
                           mg_cell *cell) {
    const bool floats = f->dtype == MG_F32;
    const char *unit = floats ? "float" : "integer";
    if (found->kind != (floats ? MG_FEATURE_FLOAT : MG_FEATURE_INT64)) {
        char expected[64];
        snprintf(expected, sizeof expected, "a list of %ss", unit);
        return mismatch(f, found, expected);
    }
    MG_TRY(size_cell(f, varies, found, found->count, unit, cell));
    if (floats) mg_feature_floats(found, cell->data);
    if (f->dtype == MG_I64) mg_feature_integers(found, cell->data);
    if (f->dtype != MG_I32) return MG_OK;
    int64_t *wide = mg_alloc(found->count * sizeof *wide);
    if (!wide) return MG_OOM;
    mg_feature_integers(found, wide);
    const mg_status status = narrow(f, wide, cell->data, found->count);
    mg_free(wide);
    return status;
}

static mg_status read_raw(const mg_record_field *f, bool varies, const mg_feature *found,
                          mg_cell *cell) {
    size_t n;
    const uint8_t *bytes = mg_feature_string(found, &n);
    const size_t element = mg_dtype_size(f->dtype);
    char unit[64];
    if (n % element)
        return mg_fail(MG_DATA, "feature \"%s\": %zu bytes are not a whole number of %s", f->name,
                       n, mg_dtype_name(f->dtype));
    snprintf(unit, sizeof unit, "%s element", mg_dtype_name(f->dtype));
    MG_TRY(size_cell(f, varies, found, n / element, unit, cell));
    if (n) memcpy(cell->data, bytes, n);
    for (size_t i = 0; f->dtype == MG_BOOL && i < n; i++)
        ((uint8_t *)cell->data)[i] = ((uint8_t *)cell->data)[i] != 0;
    return MG_OK;
}

static mg_status read_text(const void *bytes, size_t n, mg_cell *cell) {
    cell->shape = MG_SHAPE((int64_t)n);
    cell->data = mg_alloc(n);
    if (!cell->data) return MG_OOM;
    if (n) memcpy(cell->data, bytes, n);
    return MG_OK;
}

/* A cell of several strings (data/source.h). */
static mg_status read_texts(const mg_record_field *f, const mg_feature *found, mg_cell *cell) {
    const size_t n = (size_t)f->shape.dim[0];
    char expected[48];
    snprintf(expected, sizeof expected, "%zu string%s", n, n == 1 ? "" : "s");
    if (found->kind != MG_FEATURE_BYTES || found->count != n) return mismatch(f, found, expected);
    mg_text *texts = mg_alloc(n * sizeof *texts);
    if (!texts) return MG_OOM;
    mg_feature_strings(found, texts);
    const size_t size = mg_texts_size(texts, n);
    cell->shape = MG_SHAPE((int64_t)size);
    cell->data = mg_alloc(size);
    if (cell->data) mg_texts_pack(texts, n, cell->data);
    mg_free(texts);
    return cell->data ? MG_OK : MG_OOM;
}

static mg_status read_image(const mg_record_field *f, bool varies, const uint8_t *bytes, size_t n,
                            const mg_wanted *wanted, mg_cell *cell) {
    mg_image image;
    const mg_status status =
        mg_image_decode(bytes, n, (mg_image_form){.channels = f->channels}, wanted, &image);
    if (status != MG_OK) {
        char text[512];
        snprintf(text, sizeof text, "feature \"%.400s\"", f->name);
        mg_error_prefix(text);
        return status;
    }
    mg_shape shape = MG_SHAPE(image.height, image.width, image.channels);
    const mg_shape found = shape;
    if (f->shape.rank == 2) shape.dim[--shape.rank] = 0; /* one channel */
    if (!mg_record_shape_fits(f, &shape)) {
        mg_free(image.pixels);
        return mg_fail(MG_DATA,
                       "feature \"%s\": expected an image of shape %s, found one of shape %s (a "
                       "shape of {-1, -1, %d} lets sizes vary)",
                       f->name, MG_SHAPE_TEXT(&f->shape), MG_SHAPE_TEXT(&found), image.channels);
    }
    if (varies) {
        *cell = (mg_cell){shape, image.pixels};
        return MG_OK;
    }
    memcpy(cell->data, image.pixels, (size_t)mg_shape_count(&shape));
    mg_free(image.pixels);
    return MG_OK;
}

/* The cell of a field whose feature is missing. */
static mg_status read_missing(const mg_record_field *f, bool varies, const mg_feature *found,
                              mg_cell *cell) {
    mg_status status;
    if (f->form == MG_RECORD_TEXT && f->fallback)
        return read_text(f->fallback, f->fallback_bytes, cell);
    if (f->fallback) {
        memcpy(cell->data, f->fallback, f->fallback_bytes);
        return MG_OK;
    }
    if (varies && f->form <= MG_RECORD_RAW) {
        shape_cell(f, 0, cell, &status);
        return status;
    }
    if (f->form == MG_RECORD_TEXT && f->shape.rank) return read_texts(f, found, cell);
    if (f->form != MG_RECORD_LIST) return mismatch(f, found, "one string");
    return read_list(f, varies, found, cell);
}

static mg_status read_cell(const mg_record_field *f, bool varies, const mg_feature *found,
                           const mg_wanted *wanted, mg_cell *cell) {
    size_t n;
    if (found->kind == MG_FEATURE_NONE) return read_missing(f, varies, found, cell);
    if (f->form == MG_RECORD_LIST) return read_list(f, varies, found, cell);
    if (f->form == MG_RECORD_TEXT && f->shape.rank) return read_texts(f, found, cell);
    if (found->kind != MG_FEATURE_BYTES || found->count != 1)
        return mismatch(f, found, "one string");
    if (f->form == MG_RECORD_RAW) return read_raw(f, varies, found, cell);
    const uint8_t *bytes = mg_feature_string(found, &n);
    if (f->form == MG_RECORD_TEXT) return read_text(bytes, n, cell);
    return read_image(f, varies, bytes, n, wanted, cell);
}

/* ---- the source ---- */

/* Turns the bytes of a record into cells. */
static mg_status read_cells(const tfrecord_source *s, const uint8_t *bytes, size_t n,
                            const mg_wanted *const wanted[], mg_cell cell[]) {
    mg_feature found[s->base.n_fields];
    if (!mg_tfrecord_intact(bytes, n))
        return mg_fail(MG_DATA, "its bytes do not match their checksum: the file is damaged "
                                "(skip_bad = true leaves such records out)");
    MG_TRY(mg_example_find(bytes, n, s->names, s->base.n_fields, found));
    for (int k = 0; k < s->base.n_fields; k++)
        MG_TRY(read_cell(&s->field[k], mg_field_varies(&s->base.field[k]), &found[k],
                         wanted ? wanted[k] : NULL, &cell[k]));
    return MG_OK;
}

static mg_status read_row(mg_source *base, mg_row_key key, const mg_wanted *const wanted[],
                          mg_cell cell[]) {
    tfrecord_source *s = (tfrecord_source *)base;
    const mg_record_place *place = &s->index.place[key.row];
    uint8_t *bytes = mg_alloc((size_t)place->bytes + MG_TFRECORD_TAIL);
    if (!bytes) return MG_OOM;
    mg_status status =
        mg_file_set_read(s->files, place->file, bytes, (size_t)place->bytes + MG_TFRECORD_TAIL,
                         place->position + MG_TFRECORD_HEAD);
    if (status == MG_OK) status = read_cells(s, bytes, place->bytes, wanted, cell);
    mg_free(bytes);
    return status == MG_OK ? MG_OK : at_record(s, key.row, status);
}

static void free_source(mg_source *base) {
    tfrecord_source *s = (tfrecord_source *)base;
    for (int k = 0; k < base->n_fields; k++) mg_record_field_clear(&s->field[k]);
    mg_file_set_close(s->files);
    mg_free(s->index.place);
    mg_free(s->names);
    mg_free(s);
}

static const mg_source_api api = {
    .name = "tfrecord", .read_wanted = read_row, .describe = describe, .free = free_source};

/* The field of the source for a field of the schema. */
static mg_field row_field(const mg_record_field *f) {
    if (f->form != MG_RECORD_TEXT) return (mg_field){.dtype = f->dtype, .shape = f->shape};
    return (mg_field){.dtype = MG_U8,
                      .shape = MG_SHAPE(-1),
                      .text = true,
                      .texts = f->shape.rank ? (int)f->shape.dim[0] : 0};
}

/* A record begins with a length and its checksum, which no compressed data match; gzip data begin
 * with 1f 8b 08, zlib data with two bytes that say "deflate" and are together a multiple of 31. */
static mg_packing packing_of(const unsigned char *head, size_t n) {
    uint64_t length;
    if (n >= MG_TFRECORD_HEAD && mg_tfrecord_length(head, &length)) return MG_PACKED_NONE;
    if (n >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8) return MG_PACKED_GZIP;
    const bool zlib = n >= 2 && (head[0] & 15) == 8 && (head[0] << 8 | head[1]) % 31 == 0;
    return zlib ? MG_PACKED_ZLIB : MG_PACKED_NONE;
}

mg_source *mg_tfrecord_source(const mg_tfrecord_spec *spec) {
    const size_t fields = (size_t)spec->n_fields * sizeof(mg_record_field);
    tfrecord_source *s = mg_source_alloc(&api, sizeof *s + fields, spec->n_fields);
    if (!s) {
        for (int k = 0; k < spec->n_fields; k++) mg_record_field_clear(&spec->field[k]);
        return NULL;
    }
    for (int k = 0; k < spec->n_fields; k++) {
        s->field[k] = spec->field[k];
        s->base.field[k] = row_field(&s->field[k]);
        spec->field[k] = (mg_record_field){0};
    }
    s->names = mg_alloc((size_t)spec->n_fields * sizeof *s->names);
    for (int k = 0; s->names && k < spec->n_fields; k++) s->names[k] = s->field[k].name;
    if (s->names)
        s->files = mg_file_set_open(spec->paths, spec->n_paths, spec->packing, packing_of);
    if (s->files && mg_record_index_build(s->files, spec->skip_bad, &s->index) == MG_OK) {
        s->base.n_rows = s->index.n;
        return &s->base;
    }
    mg_source_name_error("tfrecord");
    mg_source_release(&s->base);
    return NULL;
}

void mg_tfrecord_source_skipped(const mg_source *base, int64_t *records, int64_t *bytes) {
    const tfrecord_source *s = (const tfrecord_source *)base;
    *records = s->index.skipped;
    *bytes = s->index.lost_bytes;
}

bool mg_record_shape_fits(const mg_record_field *f, const mg_shape *shape) {
    if (f->shape.rank != shape->rank) return false;
    for (int i = 0; i < shape->rank; i++)
        if (f->shape.dim[i] >= 0 && f->shape.dim[i] != shape->dim[i]) return false;
    return true;
}

void mg_record_field_clear(mg_record_field *f) {
    mg_free(f->name);
    mg_free(f->fallback);
    *f = (mg_record_field){0};
}

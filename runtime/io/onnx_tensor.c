/* TensorProto: sizes, element type, and where the elements are; reading them.
 *
 * Elements are bytes of the file (raw_data, float_data, double_data, or a part of a file of
 * external data), or packed varints (int32_data for everything of at most 32 bits, and int64_data).
 */
#include "core/alloc.h"
#include "io/onnx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 1 << 18 };

/* What the fields of a TensorProto say. */
typedef struct tensor {
    mg_shape shape;
    int64_t type, location;
    onnx_source source;
    int data;                            /* the field that holds the elements; 0: none */
    char *name, *path, *offset, *length; /* owned; NULL: not given */
    size_t name_bytes;
} tensor;

enum { /* fields */
       DIMS = 1,
       DATA_TYPE = 2,
       SEGMENT = 3,
       FLOAT_DATA = 4,
       INT32_DATA = 5,
       INT64_DATA = 7,
       NAME = 8,
       RAW_DATA = 9,
       DOUBLE_DATA = 10,
       EXTERNAL_DATA = 13,
       DATA_LOCATION = 14
};

/* TensorProto.DataType: the dtype, and the field for elements that are no raw data. */
static const struct {
    const char *name;
    int dtype, field; /* -1: tensors have no such elements */
} types[] = {{"undefined", -1, 0},
             {"float32", MG_F32, FLOAT_DATA},
             {"uint8", MG_U8, INT32_DATA},
             {"int8", -1, 0},
             {"uint16", -1, 0},
             {"int16", -1, 0},
             {"int32", MG_I32, INT32_DATA},
             {"int64", MG_I64, INT64_DATA},
             {"string", -1, 0},
             {"bool", MG_BOOL, INT32_DATA},
             {"float16", MG_F16, INT32_DATA},
             {"float64", MG_F64, DOUBLE_DATA},
             {"uint32", -1, 0},
             {"uint64", -1, 0},
             {"complex64", -1, 0},
             {"complex128", -1, 0},
             {"bfloat16", MG_BF16, INT32_DATA}};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* For messages. */
static const char *name_of(const tensor *t) {
    return t->name ? t->name : "";
}

static mg_status fail_tensor(const onnx_reader *r, const tensor *t, const char *what) {
    return mg_fail(MG_DATA, "%s: the tensor \"%.80s\" is damaged: %s", r->f->path, name_of(t),
                   what);
}

/* ---- fields ---- */

static mg_status add_size(onnx_reader *r, tensor *t, int64_t end) {
    uint64_t size;
    MG_TRY(onnx_read_varint(r, end, &size));
    if (t->shape.rank == MG_MAX_RANK)
        return mg_fail(MG_UNSUPPORTED, "%s: a tensor has more than %d axes", r->f->path,
                       MG_MAX_RANK);
    t->shape.dim[t->shape.rank++] = (int64_t)size;
    return MG_OK;
}

static mg_status read_dims(onnx_reader *r, tensor *t, int wire, int64_t end) {
    if (wire == ONNX_VARINT) return add_size(r, t, end);
    if (wire != ONNX_BYTES) return onnx_damaged(r, "a field has the wrong wire type");
    while (r->at < end) MG_TRY(add_size(r, t, end));
    return MG_OK;
}

static mg_status read_number(onnx_reader *r, int wire, int64_t end, int64_t *number) {
    uint64_t value;
    if (wire != ONNX_VARINT) return onnx_damaged(r, "a field has the wrong wire type");
    MG_TRY(onnx_read_varint(r, end, &value));
    *number = (int64_t)value;
    return MG_OK;
}

/* Replaces *text. */
static mg_status take_text(onnx_reader *r, int64_t end, char **text, size_t *n) {
    mg_free(*text);
    *text = onnx_read_text(r, end, n);
    return *text ? MG_OK : mg_error_code();
}

/* Replaces *text by a text without zero bytes. */
static mg_status take_plain_text(onnx_reader *r, const tensor *t, int64_t end, char **text) {
    size_t n;
    MG_TRY(take_text(r, end, text, &n));
    return strlen(*text) == n ? MG_OK : fail_tensor(r, t, "its place has a zero byte");
}

/* A StringStringEntryProto: owned texts, NULL where one is missing, also on failure. */
static mg_status read_pair(onnx_reader *r, const tensor *t, int64_t end, char **key, char **value) {
    *key = *value = NULL;
    while (r->at < end) {
        uint64_t number;
        int wire;
        int64_t field_end;
        MG_TRY(onnx_read_key(r, end, &number, &wire, &field_end));
        if (wire == ONNX_BYTES && number <= 2)
            MG_TRY(take_plain_text(r, t, field_end, number == 1 ? key : value));
        else
            MG_TRY(onnx_skip(r, wire, field_end));
    }
    return MG_OK;
}

/* An entry of external_data: what it says about place and length. */
static mg_status read_external(onnx_reader *r, tensor *t, int64_t end) {
    char *key, *value;
    const mg_status status = read_pair(r, t, end, &key, &value);
    char **place = !key || !value                 ? NULL
                   : strcmp(key, "location") == 0 ? &t->path
                   : strcmp(key, "offset") == 0   ? &t->offset
                   : strcmp(key, "length") == 0   ? &t->length
                                                  : NULL;
    if (status == MG_OK && place) {
        mg_free(*place);
        *place = value;
        value = NULL;
    }
    mg_free(key);
    mg_free(value);
    return status;
}

/* The elements are not read here. */
static mg_status find_elements(onnx_reader *r, tensor *t, uint64_t number, int wire, int64_t end) {
    if (wire != ONNX_BYTES) return onnx_damaged(r, "the elements of a tensor are not packed");
    if (t->data) return onnx_damaged(r, "a tensor has its elements twice");
    t->data = (int)number;
    t->source = (onnx_source){.kind = number == INT32_DATA || number == INT64_DATA ? ONNX_VARINTS
                                                                                   : ONNX_RAW,
                              .file = -1,
                              .at = r->at,
                              .bytes = end - r->at};
    return onnx_skip(r, wire, end);
}

static mg_status read_field(onnx_reader *r, tensor *t, uint64_t number, int wire, int64_t end) {
    switch (number) {
    case DIMS: return read_dims(r, t, wire, end);
    case DATA_TYPE: return read_number(r, wire, end, &t->type);
    case DATA_LOCATION: return read_number(r, wire, end, &t->location);
    case SEGMENT: return fail_tensor(r, t, "it is a segment of one");
    case NAME:
        if (wire != ONNX_BYTES) return onnx_damaged(r, "a field has the wrong wire type");
        return take_text(r, end, &t->name, &t->name_bytes);
    case EXTERNAL_DATA:
        if (wire != ONNX_BYTES) return onnx_damaged(r, "a field has the wrong wire type");
        return read_external(r, t, end);
    case FLOAT_DATA:
    case INT32_DATA:
    case INT64_DATA:
    case RAW_DATA:
    case DOUBLE_DATA: return find_elements(r, t, number, wire, end);
    default: return onnx_skip(r, wire, end);
    }
}

/* ---- external data ---- */

/* Whether the path leads to the model's folder or below it, by its text. */
static bool stays_below(const char *path) {
    if (!*path || *path == '/' || strchr(path, '\\')) return false;
    for (const char *part = path; part; part = strchr(part, '/')) {
        if (*part == '/') part++;
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2])) return false;
    }
    return true;
}

/* The path beside the model's, whose folder has so many bytes; owned. */
static char *path_beside(const char *model, size_t folder, const char *path) {
    const size_t n = strlen(path);
    char *joined = mg_alloc(folder + n + 1);
    if (!joined) return NULL;
    memcpy(joined, model, folder);
    memcpy(joined + folder, path, n + 1);
    return joined;
}

/* A symbolic link in the part of the path below the model's folder. */
static mg_status refuse_links(const onnx_reader *r, char *joined, size_t folder) {
    for (char *p = joined + folder;; p++) {
        if (*p && *p != '/') continue;
        const char end = *p;
        mg_io_identity identity;
        *p = 0;
        const mg_status status = mg_io_identify(joined, &identity);
        const bool is_link = status == MG_OK && identity.is_link;
        if (is_link)
            mg_fail(MG_DATA, "%s: the file of external data %s is a symbolic link: copy it",
                    r->f->path, joined);
        *p = end;
        if (status != MG_OK) return status;
        if (is_link) return MG_DATA;
        if (!end) return MG_OK;
    }
}

/* Puts the model and the tensor in front of a failure to read the file beside the model. */
static mg_status fail_beside(const onnx_reader *r, const tensor *t) {
    char reason[512];
    snprintf(reason, sizeof reason, "%s", mg_error_message());
    return mg_fail(MG_IO,
                   "%s: the tensor \"%.80s\" is in a file of external data, which must lie beside "
                   "the model: %s",
                   r->f->path, name_of(t), reason);
}

/* Opens one more file. */
static mg_status open_external(onnx_reader *r, const tensor *t, int *index) {
    onnx_state *s = r->f->state;
    const char *slash = strrchr(r->f->path, '/');
    const size_t folder = slash ? (size_t)(slash - r->f->path) + 1 : 0;
    if (!stays_below(t->path))
        return mg_fail(MG_DATA,
                       "%s: the tensor \"%.80s\" is in the file \"%.200s\": external data must be "
                       "in the model's folder",
                       r->f->path, name_of(t), t->path);
    if (s->n_external == ONNX_MOST_EXTERNAL)
        return mg_fail(MG_UNSUPPORTED, "%s: the model has more than %d files of external data",
                       r->f->path, (int)ONNX_MOST_EXTERNAL);
    onnx_external *e = &s->external[s->n_external];
    char *joined = path_beside(r->f->path, folder, t->path);
    mg_status status = joined ? refuse_links(r, joined, folder) : MG_OOM;
    *e = (onnx_external){0};
    if (status == MG_OK) status = (e->location = mg_strdup(t->path)) ? MG_OK : MG_OOM;
    if (status == MG_OK) status = (e->file = mg_io_open(joined)) ? MG_OK : mg_error_code();
    mg_free(joined);
    *index = s->n_external++; /* closed with the others, also after a failure */
    if (status == MG_OK) status = mg_io_size(e->file, &e->size);
    return status == MG_IO ? fail_beside(r, t) : status;
}

/* A number of at most 18 digits, or -1. */
static int64_t decimal(const char *text) {
    const size_t n = strspn(text, "0123456789");
    return n > 0 && n <= 18 && !text[n] ? strtoll(text, NULL, 10) : -1;
}

/* Finds the elements of `bytes` bytes in a file of external data. Files are read at most once: what
 * a small model asks for is limited by what lies beside it. */
static mg_status place_external(onnx_reader *r, tensor *t, int64_t bytes) {
    onnx_state *s = r->f->state;
    int i = 0;
    if (!t->path) return fail_tensor(r, t, "its external data have no location");
    while (i < s->n_external && strcmp(s->external[i].location, t->path) != 0) i++;
    if (i == s->n_external) MG_TRY(open_external(r, t, &i));
    onnx_external *e = &s->external[i];
    const int64_t offset = t->offset ? decimal(t->offset) : 0;
    const int64_t length = t->length ? decimal(t->length) : bytes;
    if (offset < 0 || length != bytes)
        return fail_tensor(r, t, "the place of its external data does not fit its shape");
    if (offset > e->size || bytes > e->size - offset)
        return fail_tensor(r, t, "its external data are beyond the end of the file");
    if (bytes > e->size - e->used)
        return fail_tensor(r, t, "tensors share bytes of the external data");
    e->used += bytes;
    t->source = (onnx_source){.kind = ONNX_RAW, .file = i, .at = offset, .bytes = bytes};
    return MG_OK;
}

/* ---- checks ---- */

/* The number of varints. */
static mg_status count_varints(onnx_reader *r, const onnx_source *source, int64_t *count) {
    const int64_t back = r->at;
    uint64_t value;
    r->at = source->at;
    for (*count = 0; r->at < source->at + source->bytes; ++*count)
        MG_TRY(onnx_read_varint(r, source->at + source->bytes, &value));
    r->at = back;
    return MG_OK;
}

static mg_status check_tensor(onnx_reader *r, tensor *t) {
    if (t->type < 0 || t->type >= N_TYPES || types[t->type].dtype < 0)
        return mg_fail(MG_UNSUPPORTED,
                       "%s: the tensor \"%.80s\" has elements of type %s, which tensors here do "
                       "not have",
                       r->f->path, name_of(t),
                       t->type < 0 || t->type >= N_TYPES ? "unknown to this program"
                                                         : types[t->type].name);
    if (mg_shape_check(&t->shape, r->f->path) != MG_OK)
        return fail_tensor(r, t, "its shape is impossible");
    const int64_t size = (int64_t)mg_dtype_size((mg_dtype)types[t->type].dtype);
    int64_t count = mg_shape_count(&t->shape), there;
    if (count > INT64_MAX / size) return fail_tensor(r, t, "its shape is impossible");
    if (t->location == 1) return place_external(r, t, count * size);
    if (t->location != 0) return fail_tensor(r, t, "its data_location is unknown");
    if (t->data && t->data != RAW_DATA && t->data != types[t->type].field)
        return fail_tensor(r, t, "its elements are in the field of another type");
    there = t->source.bytes;
    if (t->source.kind == ONNX_VARINTS)
        MG_TRY(count_varints(r, &t->source, &there));
    else
        count *= size;
    return there == count ? MG_OK
                          : fail_tensor(r, t, "its shape and the number of its elements differ");
}

static mg_status read_fields(onnx_reader *r, tensor *t, int64_t end) {
    while (r->at < end) {
        uint64_t number;
        int wire;
        int64_t field_end;
        MG_TRY(onnx_read_key(r, end, &number, &wire, &field_end));
        MG_TRY(read_field(r, t, number, wire, field_end));
    }
    return check_tensor(r, t);
}

/* One more entry, and its source. */
static mg_status add_entry(onnx_reader *r, const tensor *t) {
    onnx_state *s = r->f->state;
    char name[32];
    if (s->n_sources == MOST_TENSORS)
        return mg_fail(MG_UNSUPPORTED, "%s: the model has more than %d tensors", r->f->path,
                       (int)MOST_TENSORS);
    MG_TRY(mg_reserve((void **)&s->sources, s->n_sources, &s->source_room, sizeof *s->sources));
    snprintf(name, sizeof name, "t%d", r->f->n_entries);
    mg_store_entry *e = mg_store_file_add(r->f, name);
    if (!e) return MG_OOM;
    e->dtype = (mg_dtype)types[t->type].dtype;
    e->shape = t->shape;
    s->sources[s->n_sources++] = t->source;
    return MG_OK;
}

mg_status onnx_read_tensor(onnx_reader *r, int64_t end, char **name, size_t *n) {
    tensor t = {.source.file = -1};
    mg_status status = read_fields(r, &t, end);
    if (status == MG_OK && !t.name) status = (t.name = mg_strdup("")) ? MG_OK : MG_OOM;
    if (status == MG_OK) status = add_entry(r, &t);
    if (status == MG_OK) {
        *name = t.name;
        *n = t.name_bytes;
        t.name = NULL;
    }
    mg_free(t.name);
    mg_free(t.path);
    mg_free(t.offset);
    mg_free(t.length);
    return status;
}

/* ---- elements ---- */

/* Halves are the bits of a varint; other elements are its low bytes. */
static mg_status read_varints(onnx_reader *r, const onnx_source *source, size_t size, void *dst) {
    r->at = source->at;
    for (char *p = dst; r->at < source->at + source->bytes; p += size) {
        uint64_t value;
        MG_TRY(onnx_read_varint(r, source->at + source->bytes, &value));
        memcpy(p, &value, size); /* little-endian, as the machines that this program runs on */
    }
    return MG_OK;
}

static mg_status read_raw(mg_store_file *f, const onnx_source *source, void *dst) {
    const onnx_state *s = f->state;
    size_t got;
    mg_file *file = source->file < 0 ? f->file : s->external[source->file].file;
    MG_TRY(mg_io_read_at(file, dst, (size_t)source->bytes, source->at, &got));
    if (got == (size_t)source->bytes) return MG_OK;
    return mg_fail(MG_DATA, "%s: the file has become shorter", f->path);
}

static mg_status read_entry(mg_store_file *f, int i) {
    mg_store_entry *e = &f->entries[i];
    onnx_state *s = f->state;
    mg_store_room room;
    mg_status status = mg_store_room_new(&room, e);
    if (status == MG_OK)
        status = s->sources[i].kind == ONNX_RAW ? read_raw(f, &s->sources[i], room.bytes)
                                                : read_varints(&s->reader, &s->sources[i],
                                                               mg_dtype_size(e->dtype), room.bytes);
    if (status == MG_OK) {
        e->nonfinite =
            mg_store_has_nonfinite(e->dtype, room.bytes, (size_t)mg_shape_count(&e->shape));
        status = mg_store_file_take(f, e, &room);
    }
    mg_store_room_free(&room);
    return status;
}

mg_status onnx_read_elements(mg_store_file *f) {
    for (int i = 0; i < f->n_entries; i++) MG_TRY(read_entry(f, i));
    return MG_OK;
}

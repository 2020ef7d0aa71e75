/* The safetensors file format: 8 bytes header length (little-endian), a JSON header of that length,
 * then the tensors' bytes, row-major and little-endian.
 *
 * The header maps each tensor's name to {dtype, shape, data_offsets: [begin, end)}, with offsets
 * counted from the end of the header, and "__metadata__" to a map of strings. Reading trusts
 * nothing: each tensor's bytes must match its dtype and shape, and all of them must tile the data
 * exactly. So no two overlap, nothing is hidden between them, and no more memory is taken than the
 * file has bytes. */
#include "io/safetensors.h"
#include "core/alloc.h"
#include "device/buffer.h"
#include "graph/graph.h"
#include "io/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MAX_HEADER = 100 << 20; /* the limit of the format's definition */
static const char METADATA[] = "__metadata__";

/* How a file spells the dtypes. */
static const struct {
    const char *name;
    mg_dtype dtype;
} dtype_names[] = {{"F64", MG_F64}, {"F32", MG_F32}, {"F16", MG_F16}, {"BF16", MG_BF16},
                   {"I64", MG_I64}, {"I32", MG_I32}, {"U8", MG_U8},   {"BOOL", MG_BOOL}};
enum { N_DTYPES = sizeof dtype_names / sizeof dtype_names[0] };
_Static_assert(N_DTYPES == (int)MG_N_DTYPES, "a file has a name for every dtype");

/* The dtype's name in a file. */
static const char *file_dtype(mg_dtype t) {
    for (int i = 0; i < N_DTYPES; i++)
        if (dtype_names[i].dtype == t) return dtype_names[i].name;
    return "?";
}

typedef struct file_tensor { /* an entry of the header */
    const char *name;        /* borrowed from the header */
    mg_dtype dtype;
    mg_shape shape;
    int64_t begin, end; /* bytes of the data */
} file_tensor;

/* A file being read. */
typedef struct file_reader {
    mg_file *file;
    const char *path;
    int64_t data, data_size; /* the first byte after the header; the bytes from there on */
    json_t *header;          /* owned */
    file_tensor *entries;    /* owned */
    size_t n;
    mg_store *into;
} file_reader;

/* ---- reading the header ---- */

/* Reads n bytes, or fails with MG_DATA: the file ends within `what`. */
static mg_status read_exactly(file_reader *r, void *dst, size_t n, const char *what) {
    size_t got;
    MG_TRY(mg_io_read(r->file, dst, n, &got));
    if (got == n) return MG_OK;
    return mg_fail(MG_DATA, "%s: the file ends within %s: %zu of %zu bytes are there", r->path,
                   what, got, n);
}

/* Reads and parses the header. Its length is checked against the file's size before memory is
 * taken. */
static mg_status read_json_header(file_reader *r) {
    int64_t size;
    unsigned char raw[8];
    uint64_t n = 0;
    MG_TRY(mg_io_size(r->file, &size));
    MG_TRY(read_exactly(r, raw, sizeof raw, "the header's length"));
    for (int i = 7; i >= 0; i--) n = n << 8 | raw[i];
    if (n > (uint64_t)MAX_HEADER)
        return mg_fail(MG_DATA, "%s: not a safetensors file: a header of %llu bytes is too long",
                       r->path, (unsigned long long)n);
    if ((int64_t)n > size - 8)
        return mg_fail(MG_DATA, "%s: the file has %lld bytes, but its header alone needs %lld",
                       r->path, (long long)size, (long long)n + 8);
    char *text = mg_alloc(n + 1);
    if (!text) return MG_OOM;
    mg_status status = read_exactly(r, text, n, "the header");
    if (status == MG_OK) {
        r->header = mg_json_parse(text, n, r->path);
        if (!r->header) status = mg_error_code();
    }
    mg_free(text);
    r->data = 8 + (int64_t)n;
    r->data_size = size - r->data;
    if (status == MG_OK && !json_is_object(r->header))
        return mg_fail(MG_DATA, "%s: the header is not a JSON object", r->path);
    return status;
}

/* Adds the strings of "__metadata__" to the store's notes. Notes are C strings: one with a zero
 * byte inside is refused. */
static mg_status read_metadata(file_reader *r, json_t *map) {
    const char *key;
    json_t *value;
    if (!json_is_object(map))
        return mg_fail(MG_DATA, "%s: %s is not a map of strings", r->path, METADATA);
    json_object_foreach(map, key, value) {
        if (!json_is_string(value))
            return mg_fail(MG_DATA, "%s: %s: \"%.80s\" is not a string", r->path, METADATA, key);
        if (strlen(json_string_value(value)) != json_string_length(value))
            return mg_fail(MG_DATA, "%s: %s: \"%.80s\" contains a zero byte", r->path, METADATA,
                           key);
        MG_TRY(mg_store_add_note(r->into, key, json_string_value(value)));
    }
    return MG_OK;
}

/* The fields of one entry, each checked before the next is read.
 *
 * A dtype that the library lacks (F8_E4M3, ...) is MG_UNSUPPORTED, because the file is not damaged.
 */
static mg_status parse_dtype(const file_reader *r, file_tensor *e, const json_t *name) {
    const char *text = json_string_value(name);
    for (int i = 0; text && i < N_DTYPES; i++)
        if (strcmp(text, dtype_names[i].name) == 0) {
            e->dtype = dtype_names[i].dtype;
            return MG_OK;
        }
    if (!text) return mg_fail(MG_DATA, "%s: tensor \"%.80s\" has no dtype", r->path, e->name);
    return mg_fail(MG_UNSUPPORTED,
                   "%s: tensor \"%.80s\" has dtype %.20s; F64 F32 F16 BF16 I64 I32 U8 BOOL are "
                   "known",
                   r->path, e->name, text);
}

/* At most MG_MAX_RANK sizes, none negative, with a product that fits. */
static mg_status parse_shape(const file_reader *r, file_tensor *e, const json_t *shape) {
    if (!json_is_array(shape))
        return mg_fail(MG_DATA, "%s: tensor \"%.80s\" has no shape", r->path, e->name);
    if (json_array_size(shape) > MG_MAX_RANK)
        return mg_fail(MG_UNSUPPORTED, "%s: tensor \"%.80s\" has %zu axes; at most %d are possible",
                       r->path, e->name, json_array_size(shape), MG_MAX_RANK);
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return mg_fail(MG_DATA, "%s: tensor \"%.80s\": entry %zu of its shape is not a size",
                           r->path, e->name, i + 1);
        e->shape.dim[e->shape.rank++] = json_integer_value(size);
    }
    if (mg_shape_check(&e->shape, e->name) == MG_OK) return MG_OK;
    return mg_fail(MG_DATA, "%s: tensor \"%.80s\": shape %s has too many elements", r->path,
                   e->name, MG_SHAPE_TEXT(&e->shape));
}

/* The offsets must lie inside the data and span exactly the bytes of dtype and shape. */
static mg_status parse_offsets(const file_reader *r, file_tensor *e, const json_t *offsets) {
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return mg_fail(MG_DATA, "%s: tensor \"%.80s\" has no data_offsets", r->path, e->name);
    e->begin = json_integer_value(begin);
    e->end = json_integer_value(end);
    if (e->begin < 0 || e->end < e->begin || e->end > r->data_size)
        return mg_fail(MG_DATA,
                       "%s: tensor \"%.80s\" lies at bytes %lld to %lld of the data, which has "
                       "%lld: the file is truncated or damaged",
                       r->path, e->name, (long long)e->begin, (long long)e->end,
                       (long long)r->data_size);
    const int64_t needed = mg_shape_count(&e->shape) * (int64_t)mg_dtype_size(e->dtype);
    if (needed != e->end - e->begin)
        return mg_fail(MG_DATA, "%s: tensor \"%.80s\": %s of shape %s takes %lld bytes, not %lld",
                       r->path, e->name, mg_dtype_name(e->dtype), MG_SHAPE_TEXT(&e->shape),
                       (long long)needed, (long long)(e->end - e->begin));
    return MG_OK;
}

/* Parses the header's entry of one tensor; fields beyond the three known ones are refused. */
static mg_status parse_entry(const file_reader *r, file_tensor *e, const json_t *value) {
    if (!json_is_object(value))
        return mg_fail(MG_DATA, "%s: the entry of tensor \"%.80s\" is not an object", r->path,
                       e->name);
    MG_TRY(parse_dtype(r, e, json_object_get(value, "dtype")));
    MG_TRY(parse_shape(r, e, json_object_get(value, "shape")));
    MG_TRY(parse_offsets(r, e, json_object_get(value, "data_offsets")));
    if (json_object_size(value) == 3) return MG_OK;
    return mg_fail(MG_DATA, "%s: the entry of tensor \"%.80s\" has unknown fields", r->path,
                   e->name);
}

/* For qsort: by position in the file. An empty tensor goes before one that begins at the same byte.
 */
static int compare_offsets(const void *a, const void *b) {
    const file_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The sorted entries must follow one another from the first byte of the data to the last. */
static mg_status check_tiling(const file_reader *r) {
    int64_t at = 0;
    for (size_t i = 0; i < r->n; i++) {
        const file_tensor *e = &r->entries[i];
        if (e->begin != at)
            return mg_fail(MG_DATA, "%s: tensor \"%.80s\" begins at byte %lld of the data, %s",
                           r->path, e->name, (long long)e->begin,
                           e->begin < at ? "inside another tensor" : "after a hole");
        at = e->end;
    }
    if (at == r->data_size) return MG_OK;
    return mg_fail(MG_DATA, "%s: the last %lld bytes of the file belong to no tensor", r->path,
                   (long long)(r->data_size - at));
}

/* Fills and sorts r->entries. */
static mg_status parse_header(file_reader *r) {
    const char *name;
    json_t *value;
    r->entries = mg_alloc((json_object_size(r->header) + 1) * sizeof *r->entries);
    if (!r->entries) return MG_OOM;
    json_object_foreach(r->header, name, value) {
        if (strcmp(name, METADATA) == 0) {
            MG_TRY(read_metadata(r, value));
            continue;
        }
        file_tensor *e = &r->entries[r->n++];
        *e = (file_tensor){.name = name};
        MG_TRY(parse_entry(r, e, value));
    }
    qsort(r->entries, r->n, sizeof *r->entries, compare_offsets);
    return check_tiling(r);
}

/* ---- reading the tensors ---- */

/* Other bytes than 0 and 1 in a bool tensor would break kernels. */
static mg_status check_booleans(const file_reader *r, const file_tensor *e,
                                const unsigned char *bytes) {
    for (int64_t i = 0; e->dtype == MG_BOOL && i < e->end - e->begin; i++)
        if (bytes[i] > 1)
            return mg_fail(MG_DATA, "%s: tensor \"%.80s\": byte %lld is %d, which is not a boolean",
                           r->path, e->name, (long long)i, bytes[i]);
    return MG_OK;
}

/* Reads one tensor, onto the default device.
 *
 * The file stands at its first byte, because the entries are sorted and tile the data: nothing is
 * sought. */
static mg_status load_tensor(file_reader *r, const file_tensor *e) {
    const size_t n = (size_t)(e->end - e->begin);
    void *bytes = mg_alloc(n);
    if (!bytes) return MG_OOM;
    mg_status status = read_exactly(r, bytes, n, e->name);
    if (status == MG_OK) status = check_booleans(r, e, bytes);
    if (status == MG_OK) {
        mg_tensor *t = mg_tensor_from_host(bytes, e->dtype, &e->shape, NULL);
        status = t ? mg_store_add(r->into, e->name, t) : mg_error_code();
        mg_tensor_release(t);
    }
    mg_free(bytes);
    return status;
}

/* The `load` of the format's row.
 *
 * What was read before a failure stays in `into`, which the caller frees. */
static mg_status safetensors_load(mg_file *f, const char *path, mg_store *into) {
    file_reader r = {.file = f, .path = path, .into = into};
    mg_status status = read_json_header(&r);
    if (status == MG_OK) status = parse_header(&r);
    for (size_t i = 0; status == MG_OK && i < r.n; i++) status = load_tensor(&r, &r.entries[i]);
    mg_free(r.entries);
    json_decref(r.header);
    return status;
}

/* A plausible header length, followed by a JSON object. */
static bool safetensors_recognise(const unsigned char *head, size_t n, int64_t size) {
    uint64_t length = 0;
    if (n < 9) return false;
    for (int i = 7; i >= 0; i--) length = length << 8 | head[i];
    return length <= (uint64_t)MAX_HEADER && (int64_t)length <= size - 8 && head[8] == '{';
}

/* ---- writing ---- */

/* For qsort: wide dtypes first, so that every tensor is aligned to its element size; then by name,
 * so that equal stores give equal files. */
static int compare_for_writing(const void *a, const void *b) {
    const mg_stored *x = *(const mg_stored *const *)a, *y = *(const mg_stored *const *)b;
    const size_t wx = mg_dtype_size((mg_dtype)x->tensor->dtype);
    const size_t wy = mg_dtype_size((mg_dtype)y->tensor->dtype);
    return wx != wy ? (wx > wy ? -1 : 1) : strcmp(x->name, y->name);
}

/* {dtype, shape, data_offsets} of a tensor whose bytes begin at `begin`. Owned; NULL if memory is
 * short. */
static json_t *entry_json(const mg_tensor *t, int64_t begin) {
    json_t *shape = json_array();
    for (int i = 0; i < t->shape.rank; i++)
        json_array_append_new(shape, json_integer(t->shape.dim[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", file_dtype((mg_dtype)t->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + (int64_t)mg_tensor_bytes(t)));
}

/* Fills the header from the store; `order` is the order of the tensors in the file, from which
 * their offsets follow.
 *
 * MG_USAGE for names that JSON cannot hold (not UTF-8), names used twice, and a tensor called
 * "__metadata__". */
static mg_status make_header(const mg_store *s, const mg_stored *const *order, json_t *header) {
    int64_t at = 0;
    json_t *notes = s->n_notes ? json_object() : NULL;
    if (notes && json_object_set_new(header, METADATA, notes) != 0)
        return mg_fail(MG_OOM, "out of memory while writing a header");
    for (size_t i = 0; i < s->n_notes; i++)
        if (json_object_set_new(notes, s->notes[i].key, json_string(s->notes[i].text)) != 0)
            return mg_fail(MG_USAGE, "metadata \"%.80s\" is not UTF-8 text", s->notes[i].key);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const char *name = order[i]->name;
        if (strcmp(name, METADATA) == 0 || json_object_get(header, name))
            return mg_fail(MG_USAGE, "the tensor name \"%.80s\" is %s", name,
                           strcmp(name, METADATA) ? "given twice" : "reserved");
        if (json_object_set_new(header, name, entry_json(order[i]->tensor, at)) != 0)
            return mg_fail(MG_USAGE, "the tensor name \"%.80s\" is not UTF-8 text", name);
        at += (int64_t)mg_tensor_bytes(order[i]->tensor);
    }
    return MG_OK;
}

/* Writes length and header.
 *
 * The header is padded with spaces to a multiple of 8 bytes, and so the data begins at one. */
static mg_status write_header(mg_file *f, const char *text, size_t n) {
    const size_t padding = (8 - n % 8) % 8;
    unsigned char raw[8];
    for (int i = 0; i < 8; i++) raw[i] = (unsigned char)((uint64_t)(n + padding) >> 8 * i);
    MG_TRY(mg_io_write(f, raw, sizeof raw));
    MG_TRY(mg_io_write(f, text, n));
    return mg_io_write(f, "       ", padding);
}

/* Evaluates the tensor if need be. One tensor at a time is copied to the host. */
static mg_status write_tensor(mg_file *f, mg_tensor *t) {
    void *bytes = mg_alloc(mg_tensor_bytes(t));
    if (!bytes) return MG_OOM;
    mg_status status = mg_tensor_read(t, bytes);
    if (status == MG_OK) status = mg_io_write(f, bytes, mg_tensor_bytes(t));
    mg_free(bytes);
    return status;
}

/* Nothing is seen at `path` before everything is written. */
static mg_status write_safetensors(const mg_store *s, const mg_stored *const *order,
                                   const char *path, const char *header, size_t n) {
    mg_file *f = mg_io_create(path);
    if (!f) return mg_error_code();
    mg_status status = write_header(f, header, n);
    for (size_t i = 0; status == MG_OK && i < s->n_tensors; i++)
        status = write_tensor(f, order[i]->tensor);
    if (status == MG_OK) return mg_io_commit(f);
    mg_io_close(f);
    return status;
}

/* The `save` of the format's row: sorts the tensors, makes the header in memory, then writes.
 *
 * All that can be wrong with the store's names is found before a file is created. */
static mg_status safetensors_save(const mg_store *s, const char *path) {
    size_t n = 0;
    char *text = NULL;
    const mg_stored **order = mg_alloc((s->n_tensors + 1) * sizeof *order);
    json_t *header = json_object();
    mg_status status = order ? MG_OK : MG_OOM;
    if (!header) status = mg_fail(MG_OOM, "out of memory while writing %s", path);
    if (status == MG_OK) {
        for (size_t i = 0; i < s->n_tensors; i++) order[i] = &s->tensors[i];
        qsort(order, s->n_tensors, sizeof *order, compare_for_writing);
        status = make_header(s, order, header);
    }
    if (status == MG_OK) {
        text = mg_json_text(header, 0, &n);
        if (!text) status = MG_OOM;
    }
    if (status == MG_OK && (int64_t)n > MAX_HEADER)
        status = mg_fail(MG_UNSUPPORTED, "%s: a header of %zu bytes is too long", path, n);
    if (status == MG_OK) status = write_safetensors(s, order, path, text, n);
    mg_free(text);
    json_decref(header);
    mg_free(order);
    return status;
}

const mg_store_format mg_safetensors = {
    .name = "safetensors",
    .extension = ".safetensors",
    .recognise = safetensors_recognise,
    .load = safetensors_load,
    .save = safetensors_save,
};

/* Reading safetensors files; safetensors.h describes the format.
 *
 * Reading trusts nothing: each tensor's bytes must match its dtype and shape, and all tensors must
 * tile the data exactly. So no two overlap, no bytes are hidden between them, and no more memory is
 * allocated than the file has bytes. */
#define _GNU_SOURCE
#include "io/safetensors.h"
#include "core/alloc.h"
#include "io/hash.h"
#include "io/json.h"
#include <stdlib.h>
#include <string.h>

/* The limits of a header: the format's own limit, and ours, which is FREE_HEADER bytes or an eighth
 * of the data. */
enum { MAX_HEADER = 100 << 20, FREE_HEADER = 2 << 20, DATA_PER_HEADER = 8 };

/* The names of the dtypes in a file. */
static const struct {
    const char *name;
    mg_dtype dtype;
} dtype_names[] = {{"F64", MG_F64}, {"F32", MG_F32}, {"F16", MG_F16}, {"BF16", MG_BF16},
                   {"I64", MG_I64}, {"I32", MG_I32}, {"U8", MG_U8},   {"BOOL", MG_BOOL}};
enum { N_DTYPES = sizeof dtype_names / sizeof dtype_names[0] };
_Static_assert(N_DTYPES == (int)MG_N_DTYPES, "a file has a name for every dtype");

const char *mg_safetensors_dtype(mg_dtype t) {
    for (int i = 0; i < N_DTYPES; i++)
        if (dtype_names[i].dtype == t) return dtype_names[i].name;
    return "?";
}

/* The state of an open file: f->state. */
typedef struct reader {
    int64_t data_size; /* bytes after the header */
    bool has_checksum;
    uint64_t data_hash;
} reader;

/* ---- the checksum ---- */

void mg_safetensors_put_length(unsigned char raw[SAFETENSORS_LENGTH], uint64_t n) {
    for (int i = 0; i < SAFETENSORS_LENGTH; i++) raw[i] = (unsigned char)(n >> 8 * i);
}

uint64_t mg_safetensors_hash_header(const char *header, size_t n) {
    unsigned char length[SAFETENSORS_LENGTH];
    mg_hash state;
    mg_safetensors_put_length(length, n);
    mg_hash_begin(&state);
    mg_hash_add(&state, length, sizeof length);
    mg_hash_add(&state, header, n);
    return mg_hash_end(&state);
}

uint64_t mg_safetensors_hash_blanked(char *header, size_t n, char *digits) {
    char kept[SAFETENSORS_DIGITS];
    memcpy(kept, digits, sizeof kept);
    memset(digits, '0', sizeof kept);
    const uint64_t hash = mg_safetensors_hash_header(header, n);
    memcpy(digits, kept, sizeof kept);
    return hash;
}

char *mg_safetensors_find_checksum(char *header, size_t n) {
    static const char before[] = "\"" SAFETENSORS_CHECKSUM "\":\"" SAFETENSORS_HASH;
    char *at = memmem(header, n, before, sizeof before - 1);
    if (!at) return NULL;
    at += sizeof before - 1 - strlen(SAFETENSORS_HASH);
    return header + n - at >= SAFETENSORS_CHECKSUM_SIZE ? at : NULL;
}

void mg_safetensors_put_hash(char *digits, uint64_t hash) {
    for (int i = 0; i < SAFETENSORS_DIGITS; i++)
        digits[i] = "0123456789abcdef"[hash >> 4 * (SAFETENSORS_DIGITS - 1 - i) & 15];
}

static mg_status fail_checksum(const mg_store_file *f, const char *part) {
    return mg_fail(MG_DATA, "%s: %s is damaged: its checksum is wrong", f->path, part);
}

/* Verifies the header if its metadata, `notes`, has a checksum. Files of other programs have none.
 * A text that begins like a checksum but has another key is treated as a checksum whose key was
 * damaged. */
static mg_status check_header_hash(mg_store_file *f, char *header, size_t n, const json_t *notes) {
    reader *r = f->state;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)notes, key, value) {
        const char *text = json_string_value(value);
        const bool hash = text && strncmp(text, SAFETENSORS_HASH, strlen(SAFETENSORS_HASH)) == 0;
        if (strcmp(key, SAFETENSORS_CHECKSUM) == 0) r->has_checksum = true;
        if (hash != (strcmp(key, SAFETENSORS_CHECKSUM) == 0)) return fail_checksum(f, "the header");
    }
    if (!r->has_checksum) return MG_OK;
    const char *text = json_string_value(json_object_get(notes, SAFETENSORS_CHECKSUM));
    char *there = mg_safetensors_find_checksum(header, n), expected[SAFETENSORS_DIGITS];
    if (!there || strlen(text) != SAFETENSORS_CHECKSUM_SIZE) return fail_checksum(f, "the header");
    there += strlen(SAFETENSORS_HASH);
    mg_safetensors_put_hash(expected, mg_safetensors_hash_blanked(header, n, there));
    if (memcmp(expected, there, sizeof expected) != 0) return fail_checksum(f, "the header");
    r->data_hash = strtoull(there + SAFETENSORS_DIGITS + 1, NULL, 16);
    return MG_OK;
}

/* ---- reading the header ---- */

mg_status mg_safetensors_check_header(const char *path, uint64_t n, int64_t data) {
    if (n > MAX_HEADER)
        return mg_fail(MG_DATA, "%s: not a safetensors file: a header of %llu bytes is too long",
                       path, (unsigned long long)n);
    if (n <= FREE_HEADER || (int64_t)n <= data / DATA_PER_HEADER) return MG_OK;
    return mg_fail(MG_UNSUPPORTED,
                   "%s: a header of %llu bytes is too long for %lld bytes of data: it may have %d "
                   "MiB, or an eighth of the data",
                   path, (unsigned long long)n, (long long)data, FREE_HEADER >> 20);
}

/* Reads and parses the header. Its length is checked against the file's size before memory is
 * allocated. *header: owned by the caller, NULL on failure. */
static mg_status read_json_header(mg_store_file *f, json_t **header) {
    reader *r = f->state;
    unsigned char raw[8];
    uint64_t n = 0;
    MG_TRY(mg_store_file_exactly(f, raw, sizeof raw, "the header's length"));
    for (int i = 7; i >= 0; i--) n = n << 8 | raw[i];
    if (n <= MAX_HEADER && (int64_t)n > f->size - 8)
        return mg_fail(MG_DATA, "%s: the file has %lld bytes, but its header alone needs %lld",
                       f->path, (long long)f->size, (long long)n + 8);
    r->data_size = f->size - 8 - (int64_t)n;
    MG_TRY(mg_safetensors_check_header(f->path, n, r->data_size));
    char *text = mg_alloc(n + 1);
    if (!text) return MG_OOM;
    mg_status status = mg_store_file_exactly(f, text, n, "the header");
    if (status == MG_OK) {
        *header = mg_json_parse(text, n, f->path);
        if (!*header) status = mg_error_code();
    }
    if (status == MG_OK && !json_is_object(*header))
        status = mg_fail(MG_DATA, "%s: the header is not a JSON object", f->path);
    if (status == MG_OK)
        status = check_header_hash(f, text, n, json_object_get(*header, SAFETENSORS_METADATA));
    mg_free(text);
    return status;
}

/* Adds the strings of "__metadata__", except the checksum, to the store's notes. Notes are C
 * strings: one with a zero byte inside is refused. */
static mg_status read_metadata(mg_store_file *f, json_t *map) {
    const char *key;
    json_t *value;
    if (!json_is_object(map))
        return mg_fail(MG_DATA, "%s: %s is not a map of strings", f->path, SAFETENSORS_METADATA);
    json_object_foreach(map, key, value) {
        if (!json_is_string(value))
            return mg_fail(MG_DATA, "%s: %s: \"%.80s\" is not a string", f->path,
                           SAFETENSORS_METADATA, key);
        if (strlen(json_string_value(value)) != json_string_length(value))
            return mg_fail(MG_DATA, "%s: %s: \"%.80s\" contains a zero byte", f->path,
                           SAFETENSORS_METADATA, key);
        if (strcmp(key, SAFETENSORS_CHECKSUM) != 0)
            MG_TRY(mg_store_add_note(f->store, key, json_string_value(value)));
    }
    return MG_OK;
}

/* Types of the format that are not read, and why. */
static const struct {
    const char *name, *why;
} refused[] = {
    {"C64", "complex numbers: save the real and the imaginary parts as two tensors"},
    {"F4", "several elements share a byte: convert it to F16"},
    {"F6_E2M3", "several elements share a byte: convert it to F16"},
    {"F6_E3M2", "several elements share a byte: convert it to F16"},
};
enum { N_REFUSED = sizeof refused / sizeof refused[0] };

/* MG_UNSUPPORTED, because the file is not damaged. */
static mg_status refuse_dtype(const mg_store_file *f, const mg_store_entry *e, const char *name) {
    for (int i = 0; i < N_REFUSED; i++)
        if (strcmp(name, refused[i].name) == 0)
            return mg_fail(MG_UNSUPPORTED, "%s: tensor \"%.80s\" has dtype %s: %s", f->path,
                           e->name, name, refused[i].why);
    if (mg_stored_type_of_safetensors(name))
        return mg_fail(MG_UNSUPPORTED,
                       "%s: tensor \"%.80s\" has dtype %s, which is widened to float32 on request "
                       "only: mgpu.load(path, {widen = true})",
                       f->path, e->name, name);
    return mg_fail(MG_UNSUPPORTED,
                   "%s: tensor \"%.80s\" has dtype %.20s; F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 "
                   "U16 U8 BOOL are known, and on request F8 kinds",
                   f->path, e->name, name);
}

/* The fields of one entry, each checked before the next is read. */
static mg_status parse_dtype(const mg_store_file *f, mg_store_entry *e, const json_t *name) {
    const char *text = json_string_value(name);
    for (int i = 0; text && i < N_DTYPES; i++)
        if (strcmp(text, dtype_names[i].name) == 0) {
            e->dtype = dtype_names[i].dtype;
            return MG_OK;
        }
    if (!text) return mg_fail(MG_DATA, "%s: tensor \"%.80s\" has no dtype", f->path, e->name);
    e->stored = mg_stored_type_of_safetensors(text);
    if (!e->stored || (e->stored->on_request && !f->widen)) return refuse_dtype(f, e, text);
    e->dtype = e->stored->dtype;
    return MG_OK;
}

/* At most MG_MAX_RANK sizes, none negative, with a product that fits. */
static mg_status parse_shape(const mg_store_file *f, mg_store_entry *e, const json_t *shape) {
    if (!json_is_array(shape))
        return mg_fail(MG_DATA, "%s: tensor \"%.80s\" has no shape", f->path, e->name);
    if (json_array_size(shape) > MG_MAX_RANK)
        return mg_fail(MG_UNSUPPORTED, "%s: tensor \"%.80s\" has %zu axes; at most %d are possible",
                       f->path, e->name, json_array_size(shape), MG_MAX_RANK);
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return mg_fail(MG_DATA, "%s: tensor \"%.80s\": entry %zu of its shape is not a size",
                           f->path, e->name, i + 1);
        e->shape.dim[e->shape.rank++] = json_integer_value(size);
    }
    if (mg_shape_check(&e->shape, e->name) == MG_OK) return MG_OK;
    return mg_fail(MG_DATA, "%s: tensor \"%.80s\": shape %s has too many elements", f->path,
                   e->name, MG_SHAPE_TEXT(&e->shape));
}

/* The offsets must lie inside the data and span exactly the bytes of dtype and shape. */
static mg_status parse_offsets(const mg_store_file *f, mg_store_entry *e, const json_t *offsets) {
    const reader *r = f->state;
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return mg_fail(MG_DATA, "%s: tensor \"%.80s\" has no data_offsets", f->path, e->name);
    e->begin = json_integer_value(begin);
    e->end = json_integer_value(end);
    if (e->begin < 0 || e->end < e->begin || e->end > r->data_size)
        return mg_fail(MG_DATA,
                       "%s: tensor \"%.80s\" lies at bytes %lld to %lld of the data, which has "
                       "%lld: the file is truncated or damaged",
                       f->path, e->name, (long long)e->begin, (long long)e->end,
                       (long long)r->data_size);
    const int64_t needed = mg_shape_count(&e->shape) * (int64_t)mg_stored_size(e->stored, e->dtype);
    if (needed != e->end - e->begin)
        return mg_fail(MG_DATA, "%s: tensor \"%.80s\": %s of shape %s takes %lld bytes, not %lld",
                       f->path, e->name, e->stored ? e->stored->name : mg_dtype_name(e->dtype),
                       MG_SHAPE_TEXT(&e->shape), (long long)needed, (long long)(e->end - e->begin));
    return MG_OK;
}

/* Parses the header's entry of one tensor; fields beyond the three known ones are refused. */
static mg_status parse_entry(const mg_store_file *f, mg_store_entry *e, const json_t *value) {
    if (!json_is_object(value))
        return mg_fail(MG_DATA, "%s: the entry of tensor \"%.80s\" is not an object", f->path,
                       e->name);
    MG_TRY(parse_dtype(f, e, json_object_get(value, "dtype")));
    MG_TRY(parse_shape(f, e, json_object_get(value, "shape")));
    MG_TRY(parse_offsets(f, e, json_object_get(value, "data_offsets")));
    if (json_object_size(value) == 3) return MG_OK;
    return mg_fail(MG_DATA, "%s: the entry of tensor \"%.80s\" has unknown fields", f->path,
                   e->name);
}

/* For qsort: by position in the file. An empty tensor goes before one that begins at the same byte.
 */
static int compare_offsets(const void *a, const void *b) {
    const mg_store_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The sorted entries must follow one another from the first byte of the data to the last. */
static mg_status check_tiling(const mg_store_file *f) {
    const reader *r = f->state;
    int64_t at = 0;
    for (int i = 0; i < f->n_entries; i++) {
        const mg_store_entry *e = &f->entries[i];
        if (e->begin != at)
            return mg_fail(MG_DATA, "%s: tensor \"%.80s\" begins at byte %lld of the data, %s",
                           f->path, e->name, (long long)e->begin,
                           e->begin < at ? "inside another tensor" : "after a hole");
        at = e->end;
    }
    if (at == r->data_size) return MG_OK;
    return mg_fail(MG_DATA, "%s: the last %lld bytes of the file belong to no tensor", f->path,
                   (long long)(r->data_size - at));
}

/* Adds and sorts the entries. */
static mg_status parse_header(mg_store_file *f, json_t *header) {
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value) {
        if (strcmp(name, SAFETENSORS_METADATA) == 0) {
            MG_TRY(read_metadata(f, value));
            continue;
        }
        mg_store_entry *e = mg_store_file_add(f, name);
        if (!e) return MG_OOM;
        MG_TRY(parse_entry(f, e, value));
    }
    if (f->n_entries) qsort(f->entries, (size_t)f->n_entries, sizeof *f->entries, compare_offsets);
    return check_tiling(f);
}

/* The `open` of the format's row. */
static mg_status safetensors_open(mg_store_file *f) {
    json_t *header = NULL;
    f->state = mg_alloc_zero(sizeof(reader));
    if (!f->state) return MG_OOM;
    mg_status status = read_json_header(f, &header);
    if (status == MG_OK) status = parse_header(f, header);
    json_decref(header);
    return status;
}

static void safetensors_close(mg_store_file *f) {
    mg_free(f->state);
}

/* ---- the row ---- */

/* The `read` of the format's row.
 *
 * What was read before a failure stays in the store, which mg_store_close frees. */
static mg_status safetensors_read(mg_store_file *f) {
    const reader *r = f->state;
    uint64_t hash;
    MG_TRY(mg_safetensors_read_data(f, f->size - r->data_size, &hash));
    if (!r->has_checksum || hash == r->data_hash) return MG_OK;
    return fail_checksum(f, "the data");
}

/* A plausible header length, followed by a JSON object. */
static bool safetensors_recognise(const unsigned char *head, size_t n, int64_t size) {
    uint64_t length = 0;
    if (n < 9) return false;
    for (int i = 7; i >= 0; i--) length = length << 8 | head[i];
    return length <= MAX_HEADER && (int64_t)length <= size - 8 && head[8] == '{';
}

const mg_store_format mg_safetensors = {
    .name = "safetensors",
    .extension = ".safetensors",
    .recognise = safetensors_recognise,
    .open = safetensors_open,
    .read = safetensors_read,
    .close = safetensors_close,
    .save = mg_safetensors_save,
};

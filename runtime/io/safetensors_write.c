/* Writing safetensors files; safetensors.h describes the format. Equal stores give equal bytes,
 * because tensors and notes are sorted. */
#include "io/safetensors.h"
#include "core/alloc.h"
#include "graph/graph.h"
#include "io/hash.h"
#include "io/json.h"
#include <stdlib.h>
#include <string.h>

/* In bytes: data is hashed and written in blocks that fit into a processor's cache, so that writing
 * reads from the cache. */
enum { BLOCK = 256 << 10 };

/* The checksum until the hashes are known. */
static const char NO_CHECKSUM[] = SAFETENSORS_HASH "0000000000000000:0000000000000000";
_Static_assert(sizeof NO_CHECKSUM - 1 == SAFETENSORS_CHECKSUM_SIZE,
               "the checksum has a fixed size");

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
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", mg_safetensors_dtype((mg_dtype)t->dtype),
                     "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + (int64_t)mg_tensor_bytes(t)));
}

/* For qsort. */
static int compare_notes(const void *a, const void *b) {
    return strcmp((*(const mg_store_note *const *)a)->key, (*(const mg_store_note *const *)b)->key);
}

/* Adds one line of metadata. */
static mg_status put_note(json_t *map, const char *key, const char *text) {
    if (json_object_get(map, key))
        return mg_fail(MG_USAGE, "the metadata \"%.80s\" is given twice", key);
    if (json_object_set_new(map, key, json_string(text)) == 0) return MG_OK;
    return mg_fail(MG_USAGE, "metadata \"%.80s\" is not UTF-8 text", key);
}

/* The store's notes and the checksum, sorted by key. A note must not look like a checksum. */
static mg_status make_metadata(const mg_store *s, json_t *map) {
    const mg_store_note checksum = {(char *)(uintptr_t)SAFETENSORS_CHECKSUM,
                                    (char *)(uintptr_t)NO_CHECKSUM};
    const mg_store_note **order = mg_alloc((s->n_notes + 1) * sizeof *order);
    mg_status status = order ? MG_OK : MG_OOM;
    for (size_t i = 0; order && i < s->n_notes; i++) {
        order[i] = &s->notes[i];
        if (strncmp(order[i]->text, SAFETENSORS_HASH, strlen(SAFETENSORS_HASH)) == 0)
            status =
                mg_fail(MG_USAGE, "the metadata \"%.80s\" begins with \"%s\", which is reserved",
                        order[i]->key, SAFETENSORS_HASH);
    }
    if (order) order[s->n_notes] = &checksum;
    if (order) qsort(order, s->n_notes + 1, sizeof *order, compare_notes);
    for (size_t i = 0; status == MG_OK && i <= s->n_notes; i++)
        status = put_note(map, order[i]->key, order[i]->text);
    mg_free(order);
    return status;
}

/* Fills the header from the store; `order` is the order of the tensors in the file, from which
 * their offsets follow; *data becomes the total number of their bytes.
 *
 * MG_USAGE for names that JSON cannot hold (not UTF-8), names used twice, and a tensor called
 * "__metadata__". */
static mg_status make_header(const mg_store *s, const mg_stored *const *order, json_t *header,
                             int64_t *data) {
    json_t *notes = json_object();
    if (!notes || json_object_set_new(header, SAFETENSORS_METADATA, notes) != 0)
        return mg_fail(MG_OOM, "out of memory while writing a header");
    MG_TRY(make_metadata(s, notes));
    for (size_t i = 0; i < s->n_tensors; i++) {
        const char *name = order[i]->name;
        if (json_object_get(header, name))
            return mg_fail(MG_USAGE, "the tensor name \"%.80s\" is %s", name,
                           strcmp(name, SAFETENSORS_METADATA) ? "given twice" : "reserved");
        if (json_object_set_new(header, name, entry_json(order[i]->tensor, *data)) != 0)
            return mg_fail(MG_USAGE, "the tensor name \"%.80s\" is not UTF-8 text", name);
        *data += (int64_t)mg_tensor_bytes(order[i]->tensor);
    }
    return MG_OK;
}

/* The header as text of *n bytes, padded with spaces so that the data begins at a multiple of 8;
 * *data becomes the number of bytes after it. Owned (mg_free); NULL: as make_header, or
 * MG_UNSUPPORTED for a header that is too long. */
static char *header_text(const mg_store *s, const mg_stored *const *order, const char *path,
                         size_t *n, int64_t *data) {
    json_t *header = json_object();
    if (!header) {
        mg_fail(MG_OOM, "out of memory while writing %s", path);
        return NULL;
    }
    mg_status status = make_header(s, order, header, data);
    char *text = status == MG_OK ? mg_json_text(header, 0, n) : NULL;
    json_decref(header);
    if (!text) return NULL;
    const size_t padding = (8 - *n % 8) % 8;
    char *padded = mg_realloc(text, *n + padding + 1);
    if (padded) {
        memset(padded + *n, ' ', padding);
        *n += padding;
        if (mg_safetensors_check_header(path, *n, *data) == MG_OK) return padded;
        text = padded;
    }
    mg_free(text);
    return NULL;
}

/* Writes length and header. */
static mg_status write_header(mg_file *f, const char *text, size_t n) {
    unsigned char raw[SAFETENSORS_LENGTH];
    mg_safetensors_put_length(raw, n);
    MG_TRY(mg_io_write(f, raw, sizeof raw));
    return mg_io_write(f, text, n);
}

/* The data as it is written. */
typedef struct writing {
    mg_file *file;
    int64_t position; /* in the file */
    mg_hash hash;
} writing;

/* Blocks end at multiples of BLOCK in the file, so that whole pages are written when a file is
 * reused. */
static mg_status write_bytes(writing *w, const char *bytes, size_t n) {
    while (n > 0) {
        const size_t left = BLOCK - (size_t)(w->position % BLOCK), some = n < left ? n : left;
        mg_hash_add(&w->hash, bytes, some);
        MG_TRY(mg_io_write(w->file, bytes, some));
        w->position += (int64_t)some;
        bytes += some;
        n -= some;
    }
    return MG_OK;
}

/* Tensors on other devices are copied to the host one at a time. */
static mg_status write_tensor(writing *w, mg_tensor *t) {
    const void *bytes = NULL;
    void *block = NULL;
    mg_status status = mg_store_view(t, &bytes, &block);
    if (status == MG_OK) status = write_bytes(w, bytes, mg_tensor_bytes(t));
    mg_free(block);
    return status;
}

/* Writes the file; the header of n bytes is written a second time when the hashes are known. */
static mg_status write_all(mg_file *f, const mg_store *s, const mg_stored *const *order,
                           char *header, size_t n, mg_safetensors_sums *sums) {
    writing w = {.file = f, .position = sums->header_bytes};
    mg_hash_begin(&w.hash);
    MG_TRY(mg_io_reserve(f, sums->header_bytes + sums->data_bytes));
    MG_TRY(write_header(f, header, n));
    for (size_t i = 0; i < s->n_tensors; i++) MG_TRY(write_tensor(&w, order[i]->tensor));
    sums->data_hash = mg_hash_end(&w.hash);
    char *digits = mg_safetensors_find_checksum(header, n) + strlen(SAFETENSORS_HASH);
    mg_safetensors_put_hash(digits + SAFETENSORS_DIGITS + 1, sums->data_hash);
    mg_safetensors_put_hash(digits, mg_safetensors_hash_blanked(header, n, digits));
    sums->header_hash = mg_safetensors_hash_header(header, n);
    MG_TRY(mg_io_seek(f, 0));
    return write_header(f, header, n);
}

mg_status mg_safetensors_write(const mg_store *s, const char *path, mg_file *f,
                               mg_safetensors_sums *sums) {
    size_t n = 0;
    *sums = (mg_safetensors_sums){0};
    const mg_stored **order = mg_alloc((s->n_tensors + 1) * sizeof *order);
    for (size_t i = 0; order && i < s->n_tensors; i++) order[i] = &s->tensors[i];
    if (order) qsort(order, s->n_tensors, sizeof *order, compare_for_writing);
    char *header = order ? header_text(s, order, path, &n, &sums->data_bytes) : NULL;
    mg_status status = header ? MG_OK : mg_error_code();
    sums->header_bytes = SAFETENSORS_LENGTH + (int64_t)n;
    if (header && !f) f = mg_io_create(path);
    if (header) status = f ? write_all(f, s, order, header, n, sums) : mg_error_code();
    if (status == MG_OK)
        status = mg_io_commit(f);
    else
        mg_io_close(f);
    mg_free(header);
    mg_free(order);
    return status;
}

mg_status mg_safetensors_save(const mg_store *s, const char *path) {
    mg_safetensors_sums sums;
    return mg_safetensors_write(s, path, NULL, &sums);
}

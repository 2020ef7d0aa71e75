/* The .npz format: a zip archive in which each array is a .npy file, named after the array. */
#include "io/npy.h"
#include "core/alloc.h"
#include "graph/graph.h"
#include "io/zip.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char ENDING[] = ".npy";

/* An entry of the archive as the source of an array; the archive is f->state. */
typedef struct source {
    mg_zip *zip;
    const mg_zip_entry *entry;
    const char *path;
} source;

static mg_status read_entry(void *context, void *dst, size_t n) {
    const source *s = context;
    size_t got;
    MG_TRY(mg_zip_read(s->zip, dst, n, &got));
    if (got == n) return MG_OK;
    return mg_fail(MG_DATA, "%s: the array \"%.80s\" ends too early", s->path, s->entry->name);
}

/* Starts reading an entry of the archive, and reads the array's header. */
static mg_status start_array(mg_store_file *f, source *s, mg_npy_array *a, const mg_zip_entry *e) {
    *s = (source){f->state, e, f->path};
    *a = (mg_npy_array){
        .path = f->path, .name = e->name, .bytes = e->size, .source = read_entry, .context = s};
    MG_TRY(mg_zip_start(s->zip, e));
    return mg_npy_read_header(a);
}

static mg_status add_entry(mg_store_file *f, const mg_zip_entry *entry, size_t index) {
    const size_t n = strlen(entry->name), ending = sizeof ENDING - 1;
    source s;
    mg_npy_array a;
    if (n <= ending || strcmp(entry->name + n - ending, ENDING) != 0)
        return mg_fail(MG_DATA, "%s is not a .npz file: it holds \"%.80s\", which is not an array",
                       f->path, entry->name);
    MG_TRY(start_array(f, &s, &a, entry));
    mg_store_entry *e = mg_store_file_add(f, entry->name);
    if (!e) return MG_OOM;
    e->name[n - ending] = 0;
    e->dtype = a.dtype;
    e->stored = a.stored;
    e->shape = a.shape;
    e->begin = (int64_t)index;
    return MG_OK;
}

static mg_status npz_open(mg_store_file *f) {
    size_t n;
    mg_zip *zip = f->state = mg_zip_from(f->file, f->path);
    if (!zip) return mg_error_code();
    const mg_zip_entry *entries = mg_zip_entries(zip, &n);
    for (size_t i = 0; i < n; i++) MG_TRY(add_entry(f, &entries[i], i));
    return MG_OK;
}

static mg_status npz_read(mg_store_file *f) {
    size_t n;
    source s;
    mg_npy_array a;
    const mg_zip_entry *entries = mg_zip_entries(f->state, &n);
    for (int i = 0; i < f->n_entries; i++) {
        MG_TRY(start_array(f, &s, &a, &entries[f->entries[i].begin]));
        MG_TRY(mg_npy_read_elements(&a, f, &f->entries[i]));
    }
    return MG_OK;
}

static void npz_close(mg_store_file *f) {
    mg_zip_close(f->state);
}

/* Whether the file begins with a local header or, for an empty archive, with the end of the
 * directory. */
static bool npz_recognise(const unsigned char *head, size_t n, int64_t size) {
    (void)size;
    return n >= 4 && (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0);
}

/* ---- writing ---- */

static mg_status write_array(mg_zip_writer *w, const mg_stored *stored, const char *path) {
    char header[MG_NPY_HEADER];
    const size_t size = mg_tensor_bytes(stored->tensor),
                 room = strlen(stored->name) + sizeof ENDING;
    const size_t n = mg_npy_header(stored->tensor, path, stored->name, header);
    const void *bytes = NULL;
    void *block = NULL;
    char *name = n ? mg_alloc(room) : NULL;
    mg_status status = name ? mg_store_view(stored->tensor, &bytes, &block) : mg_error_code();
    if (name) snprintf(name, room, "%s%s", stored->name, ENDING);
    if (status == MG_OK) status = mg_zip_add(w, name, (int64_t)(n + size), false);
    if (status == MG_OK) status = mg_zip_write(w, header, n);
    if (status == MG_OK) status = mg_zip_write(w, bytes, size);
    mg_free(block);
    mg_free(name);
    return status;
}

/* For qsort: by name, so that equal stores give equal files. */
static int compare_names(const void *a, const void *b) {
    return strcmp((*(const mg_stored *const *)a)->name, (*(const mg_stored *const *)b)->name);
}

static mg_status npz_save(const mg_store *s, const char *path) {
    if (s->n_notes) return mg_fail(MG_USAGE, "%s: a .npz file cannot hold metadata", path);
    const mg_stored **order = mg_alloc((s->n_tensors + 1) * sizeof *order);
    if (!order) return MG_OOM;
    for (size_t i = 0; i < s->n_tensors; i++) order[i] = &s->tensors[i];
    qsort(order, s->n_tensors, sizeof *order, compare_names);
    mg_zip_writer *w = mg_zip_create(path);
    mg_status status = w ? MG_OK : mg_error_code();
    for (size_t i = 0; status == MG_OK && i < s->n_tensors; i++)
        status = write_array(w, order[i], path);
    mg_free(order);
    if (status == MG_OK) return mg_zip_commit(w);
    mg_zip_abandon(w);
    return status;
}

const mg_store_format mg_npz = {
    .name = "npz",
    .extension = ".npz",
    .recognise = npz_recognise,
    .open = npz_open,
    .read = npz_read,
    .close = npz_close,
    .save = npz_save,
};

/* Trees of HDF5 entries, and the records in which they are sent to and received from mgpu-h5.
 *
 * The program may be under the control of a hostile file, so its records are checked like a file:
 * every length is compared with the available bytes before memory is allocated. */
#include "core/alloc.h"
#include "core/limits.h"
#include "device/buffer.h"
#include "graph/graph.h"
#include "io/h5.h"
#include "io/h5_protocol.h"
#include <errno.h>
#include <string.h>

/* The dtypes in the order of mg_h5_type. */
static const mg_dtype dtypes[] = {MG_BOOL, MG_U8, MG_I32, MG_I64, MG_BF16, MG_F16, MG_F32, MG_F64};
_Static_assert(sizeof dtypes / sizeof dtypes[0] == MG_N_DTYPES && MG_H5_TEXT == (int)MG_N_DTYPES,
               "a record type for every dtype");
static const char *const stored_names[] = {[MG_H5_FROM_I8] = "int8",
                                           [MG_H5_FROM_I16] = "int16",
                                           [MG_H5_FROM_U16] = "uint16",
                                           [MG_H5_FROM_U32] = "uint32",
                                           [MG_H5_FROM_U64] = "uint64"};
_Static_assert(MG_H5_MAX_RANK == MG_MAX_RANK, "every dataset fits a tensor, and the reverse");

/* ---- trees ---- */

mg_h5_tree *mg_h5_new(void) {
    return mg_alloc_zero(sizeof(mg_h5_tree));
}

static void free_entry(mg_h5_entry *e) {
    for (size_t i = 0; i < e->n_texts; i++) mg_free(e->texts[i]);
    mg_free(e->texts);
    mg_free(e->path);
    mg_free(e->attribute);
    mg_tensor_release(e->tensor);
}

void mg_h5_free(mg_h5_tree *tree) {
    if (!tree) return;
    for (size_t i = 0; i < tree->n; i++) free_entry(&tree->entries[i]);
    mg_free(tree->entries);
    mg_free(tree);
}

mg_h5_entry *mg_h5_add(mg_h5_tree *tree, const char *path, const char *attribute,
                       mg_tensor *tensor) {
    if (strlen(path) > MG_H5_MAX_NAME || (attribute && strlen(attribute) > MG_H5_MAX_NAME)) {
        mg_fail(MG_USAGE, "the name \"%.80s\" is longer than HDF5 files of models allow", path);
        return NULL;
    }
    if (tree->n == tree->room) {
        const size_t room = tree->room ? 2 * tree->room : 64;
        mg_h5_entry *larger = mg_realloc(tree->entries, room * sizeof *larger);
        if (!larger) return NULL;
        tree->entries = larger;
        tree->room = room;
    }
    mg_h5_entry e = {.path = mg_strdup(path), .attribute = attribute ? mg_strdup(attribute) : NULL};
    if (!e.path || (attribute && !e.attribute)) {
        free_entry(&e);
        return NULL;
    }
    e.tensor = tensor ? mg_tensor_retain(tensor) : NULL;
    tree->entries[tree->n] = e;
    return &tree->entries[tree->n++];
}

mg_status mg_h5_add_text(mg_h5_entry *e, const char *text, size_t n) {
    if ((e->n_texts & (e->n_texts - 1)) == 0) { /* doubles at every power of two */
        char **larger = mg_realloc(e->texts, (e->n_texts ? 2 * e->n_texts : 1) * sizeof *larger);
        if (!larger) return MG_OOM;
        e->texts = larger;
    }
    char *copy = mg_alloc(n + 1);
    if (!copy) return MG_OOM;
    memcpy(copy, text, n);
    copy[n] = 0;
    e->texts[e->n_texts++] = copy;
    return MG_OK;
}

/* ---- from records ---- */

typedef struct record {
    mg_h5_header h;
    char path[MG_H5_MAX_NAME + 1], name[MG_H5_MAX_NAME + 1];
    const unsigned char *payload; /* h.bytes of them */
} record;

/* Takes the record at *at, of which n bytes are left. False: it is damaged. */
static bool take_record(record *r, const unsigned char **at, size_t *n) {
    if (*n < sizeof r->h) return false;
    memcpy(&r->h, *at, sizeof r->h);
    const size_t rest = *n - sizeof r->h, paths = (size_t)r->h.path_length + r->h.name_length;
    if (r->h.path_length > MG_H5_MAX_NAME || r->h.name_length > MG_H5_MAX_NAME || paths > rest ||
        r->h.bytes > rest - paths || r->h.rank > MG_H5_MAX_RANK || r->h.type > MG_H5_TEXT ||
        r->h.stored >= MG_H5_N_STORED)
        return false;
    const unsigned char *p = *at + sizeof r->h;
    memcpy(r->path, p, r->h.path_length);
    memcpy(r->name, p + r->h.path_length, r->h.name_length);
    r->path[r->h.path_length] = r->name[r->h.name_length] = 0;
    r->payload = p + paths;
    *at = r->payload + r->h.bytes;
    *n = rest - paths - (size_t)r->h.bytes;
    return strlen(r->path) == r->h.path_length && strlen(r->name) == r->h.name_length;
}

static mg_status damaged(const char *who) {
    const char *limits = mg_reason_limits(ENOMEM);
    return mg_fail(MG_DATA, "%s: mgpu-h5 gave up on the file: it is damaged%s%s", who,
                   *limits ? ", or memory is short" : "", limits);
}

/* The tensor of a record; its bytes must be those of type and shape. Owned, or NULL. */
static mg_tensor *tensor_of(const record *r, const char *who) {
    mg_shape shape = {.rank = (int)r->h.rank};
    for (uint32_t i = 0; i < r->h.rank; i++) {
        if (r->h.shape[i] > INT64_MAX) return damaged(who), NULL;
        shape.dim[i] = (int64_t)r->h.shape[i];
    }
    const mg_dtype dtype = dtypes[r->h.type];
    if (mg_shape_check(&shape, r->path) != MG_OK ||
        (uint64_t)mg_shape_count(&shape) * mg_dtype_size(dtype) != r->h.bytes)
        return damaged(who), NULL;
    for (uint64_t i = 0; dtype == MG_BOOL && i < r->h.bytes; i++)
        if (r->payload[i] > 1) return damaged(who), NULL;
    return mg_tensor_from_host(r->payload, dtype, &shape, NULL);
}

/* Adds the record's texts to the entry. */
static mg_status add_texts(mg_h5_entry *e, const record *r, const char *who) {
    uint32_t length;
    for (uint64_t at = 0; at < r->h.bytes; at += 4 + (uint64_t)length) {
        if (r->h.bytes - at < 4) return damaged(who);
        memcpy(&length, r->payload + at, 4);
        if (length > r->h.bytes - at - 4) return damaged(who);
        MG_TRY(mg_h5_add_text(e, (const char *)r->payload + at + 4, length));
    }
    e->single = r->h.rank == 0;
    return e->single && e->n_texts != 1 ? damaged(who) : MG_OK;
}

/* Adds what the record holds. */
static mg_status add_record(mg_h5_tree *tree, const record *r, const char *who) {
    const bool attribute = r->h.kind == MG_H5_ATTRIBUTE, text = r->h.type == MG_H5_TEXT;
    if (r->h.kind == MG_H5_GROUP)
        return mg_h5_add(tree, r->path, NULL, NULL) ? MG_OK : mg_error_code();
    if (!attribute && (r->h.kind != MG_H5_DATASET || text)) return damaged(who);
    if (text) {
        mg_h5_entry *e = mg_h5_add(tree, r->path, r->name, NULL);
        return e ? add_texts(e, r, who) : mg_error_code();
    }
    mg_tensor *t = tensor_of(r, who);
    if (!t) return mg_error_code();
    mg_h5_entry *e = mg_h5_add(tree, r->path, attribute ? r->name : NULL, t);
    mg_tensor_release(t);
    if (!e) return mg_error_code();
    e->stored = stored_names[r->h.stored];
    return MG_OK;
}

mg_h5_tree *mg_h5_parse_records(const unsigned char *bytes, size_t n, const char *who) {
    mg_h5_tree *tree = mg_h5_new();
    record *r = mg_alloc(sizeof *r);
    mg_status status = tree && r ? MG_OK : MG_OOM;
    bool ended = false;
    while (status == MG_OK && !ended) {
        if (!take_record(r, &bytes, &n)) {
            status = damaged(who);
        } else if (r->h.kind == MG_H5_ERROR) {
            status = mg_fail(MG_DATA, "%s: %.*s", who, (int)(r->h.bytes > 1000 ? 1000 : r->h.bytes),
                             (const char *)r->payload);
        } else if (r->h.kind == MG_H5_END) {
            ended = true;
        } else {
            status = add_record(tree, r, who);
        }
    }
    mg_free(r);
    if (status == MG_OK) return tree;
    mg_h5_free(tree);
    return NULL;
}

/* ---- to records ---- */

/* No signal interrupts a write to a file in memory. */
mg_status mg_h5_put(int fd, const void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t w = mg_write_held(fd, (const char *)bytes + done, n - done);
        if (w <= 0)
            return mg_fail(errno == EFBIG ? MG_IO : MG_OOM,
                           "no room for the contents of an HDF5 file in memory: %s",
                           mg_reason(errno));
        done += (size_t)w;
    }
    return MG_OK;
}

static mg_status put_header(int fd, mg_h5_header h, const char *path, const char *name) {
    h.path_length = (uint32_t)strlen(path);
    h.name_length = (uint32_t)strlen(name);
    MG_TRY(mg_h5_put(fd, &h, sizeof h));
    MG_TRY(mg_h5_put(fd, path, h.path_length));
    return mg_h5_put(fd, name, h.name_length);
}

static mg_status put_tensor(int fd, mg_h5_header h, const mg_h5_entry *e) {
    mg_tensor *t = e->tensor;
    while (dtypes[h.type] != (mg_dtype)t->dtype) h.type++;
    if (e->stored) h.stored = MG_H5_FROM_I8;
    h.rank = (uint32_t)t->shape.rank;
    for (int i = 0; i < t->shape.rank; i++) h.shape[i] = (uint64_t)t->shape.dim[i];
    h.bytes = mg_tensor_bytes(t);
    void *values = mg_alloc(h.bytes);
    if (!values) return MG_OOM;
    mg_status status = mg_tensor_read(t, values);
    if (status == MG_OK) status = put_header(fd, h, e->path, e->attribute ? e->attribute : "");
    if (status == MG_OK) status = mg_h5_put(fd, values, h.bytes);
    mg_free(values);
    return status;
}

static mg_status put_texts(int fd, mg_h5_header h, const mg_h5_entry *e) {
    h.type = MG_H5_TEXT;
    h.rank = e->single ? 0 : 1;
    if (!e->single) h.shape[0] = e->n_texts;
    for (size_t i = 0; i < e->n_texts; i++) h.bytes += 4 + strlen(e->texts[i]);
    MG_TRY(put_header(fd, h, e->path, e->attribute));
    for (size_t i = 0; i < e->n_texts; i++) {
        const uint32_t length = (uint32_t)strlen(e->texts[i]);
        MG_TRY(mg_h5_put(fd, &length, 4));
        MG_TRY(mg_h5_put(fd, e->texts[i], length));
    }
    return MG_OK;
}

mg_status mg_h5_write_records(const mg_h5_tree *tree, int fd) {
    for (size_t i = 0; i < tree->n; i++) {
        const mg_h5_entry *e = &tree->entries[i];
        mg_h5_header h = {.kind = e->attribute ? MG_H5_ATTRIBUTE : MG_H5_GROUP};
        if (e->tensor && !e->attribute) h.kind = MG_H5_DATASET;
        if (e->tensor)
            MG_TRY(put_tensor(fd, h, e));
        else if (e->attribute)
            MG_TRY(put_texts(fd, h, e));
        else
            MG_TRY(put_header(fd, h, e->path, ""));
    }
    return put_header(fd, (mg_h5_header){.kind = MG_H5_END}, "", "");
}

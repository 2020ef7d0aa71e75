/* Stores in memory, and the choice of the file format. */
#include "io/store.h"
#include "core/alloc.h"
#include "core/isa.h"
#include "device/buffer.h"
#include "device/device.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "io/npy.h"
#include "io/onnx.h"
#include "io/safetensors.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The formats, in the order in which they are tried. */
static const mg_store_format *const formats[] = {&mg_safetensors, &mg_npy, &mg_npz};
enum {
    N_FORMATS = sizeof formats / sizeof formats[0],
    HEAD = 16
}; /* bytes read to recognise a format */

/* ---- stores in memory ---- */

/* store.h describes each of these functions. */
mg_store *mg_store_new(void) {
    return mg_alloc_zero(sizeof(mg_store));
}

/* Tensors that others retain stay alive. */
void mg_store_free(mg_store *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_tensors; i++) {
        mg_free(s->tensors[i].name);
        mg_tensor_release(s->tensors[i].tensor);
    }
    for (size_t i = 0; i < s->n_notes; i++) {
        mg_free(s->notes[i].key);
        mg_free(s->notes[i].text);
    }
    mg_free(s->tensors);
    mg_free(s->notes);
    mg_free(s);
}

/* The list with room for one entry more; *room is the number of entries allocated, which doubles.
 *
 * NULL if memory is short: the list is unchanged then. */
static void *grow_list(void *list, size_t n, size_t *room, size_t entry) {
    if (n < *room) return list;
    const size_t more = 2 * n + 8;
    void *moved = mg_realloc(list, more * entry);
    if (moved) *room = more;
    return moved;
}

/* On failure the store is unchanged. */
mg_status mg_store_add(mg_store *s, const char *name, mg_tensor *tensor) {
    mg_stored *list = grow_list(s->tensors, s->n_tensors, &s->tensor_room, sizeof *list);
    if (!list) return MG_OOM;
    s->tensors = list;
    char *copy = mg_strdup(name);
    if (!copy) return MG_OOM;
    list[s->n_tensors++] = (mg_stored){copy, mg_tensor_retain(tensor)};
    return MG_OK;
}

mg_status mg_store_add_note(mg_store *s, const char *key, const char *text) {
    mg_store_note *list = grow_list(s->notes, s->n_notes, &s->note_room, sizeof *list);
    if (!list) return MG_OOM;
    s->notes = list;
    char *key_copy = mg_strdup(key), *text_copy = key_copy ? mg_strdup(text) : NULL;
    if (!text_copy) {
        mg_free(key_copy);
        return MG_OOM;
    }
    list[s->n_notes++] = (mg_store_note){key_copy, text_copy};
    return MG_OK;
}

/* Linear: callers look up few names. */
mg_tensor *mg_store_find(const mg_store *s, const char *name) {
    for (size_t i = 0; i < s->n_tensors; i++)
        if (strcmp(s->tensors[i].name, name) == 0) return s->tensors[i].tensor;
    return NULL;
}

/* ---- formats ---- */

/* The format whose extension the path has, upper or lower case; NULL if none has. */
static const mg_store_format *format_by_extension(const char *path) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    for (int i = 0; dot && i < N_FORMATS; i++)
        if (strcasecmp(dot, formats[i]->extension) == 0) return formats[i];
    return NULL;
}

/* For messages: ".safetensors, .other", written to `text`. */
static char *known_extensions(char *text, size_t size) {
    size_t n = 0;
    for (int i = 0; i < N_FORMATS && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", formats[i]->extension);
    return text;
}

/* Nothing is evaluated or created before the format is known. */
mg_status mg_store_save(const mg_store *s, const char *path) {
    const mg_store_format *format = format_by_extension(path);
    if (format) return format->save(s, path);
    char list[128];
    return mg_fail(MG_USAGE, "%s: cannot tell the file format: give the name one of the endings %s",
                   path, known_extensions(list, sizeof list));
}

mg_status mg_store_save_as(const mg_store *s, const char *path, const char *format) {
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i]->name, format) == 0) return formats[i]->save(s, path);
    return mg_fail(MG_USAGE, "%s: there is no format \"%s\"", path, format);
}

/* The format of an open file, which is left at its beginning; NULL with an error if it has none.
 *
 * Contents count before the extension, so renamed files can be read. HDF5, which is no format of
 * stores (io/h5.h), gets a message of its own. */
static const mg_store_format *recognise_format(mg_store_file *f) {
    unsigned char head[HEAD] = {0};
    size_t n;
    const char *path = f->path;
    if (mg_io_size(f->file, &f->size) != MG_OK || mg_io_read(f->file, head, HEAD, &n) != MG_OK ||
        mg_io_seek(f->file, 0) != MG_OK)
        return NULL;
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i]->recognise(head, n, f->size)) return formats[i];
    if (format_by_extension(path)) return format_by_extension(path);
    char list[128];
    if (n >= 8 && memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0)
        mg_fail(MG_UNSUPPORTED, "%s is an HDF5 file: give its name the ending .h5", path);
    else
        mg_fail(MG_DATA, "%s is in no known file format (known: %s)", path,
                known_extensions(list, sizeof list));
    return NULL;
}

/* ---- open files ---- */

/* The format: of the contents, or the one that is given. */
static mg_store_file *open_as(const char *path, bool widen, const mg_store_format *format) {
    mg_store_file *f = mg_alloc_zero(sizeof *f);
    if (!f) return NULL;
    f->widen = widen;
    f->path = mg_strdup(path);
    f->file = f->path ? mg_io_open(path) : NULL;
    f->store = f->file ? mg_store_new() : NULL;
    if (f->store && format)
        f->format = mg_io_size(f->file, &f->size) == MG_OK ? format : NULL;
    else
        f->format = f->store ? recognise_format(f) : NULL;
    if (f->format && f->format->open(f) == MG_OK) return f;
    mg_store_close(f);
    return NULL;
}

mg_store_file *mg_store_open(const char *path, bool widen) {
    return open_as(path, widen, NULL);
}

mg_store_file *mg_store_open_onnx(const char *path) {
    return open_as(path, false, &mg_onnx);
}

mg_status mg_store_read(mg_store_file *f) {
    return f->format->read(f);
}

void mg_store_close(mg_store_file *f) {
    if (!f) return;
    if (f->format) f->format->close(f);
    for (int i = 0; i < f->n_entries; i++) mg_free(f->entries[i].name);
    mg_free(f->entries);
    mg_store_free(f->store);
    mg_io_close(f->file);
    mg_free(f->path);
    mg_free(f);
}

mg_store *mg_store_load(const char *path) {
    mg_store *s = NULL;
    mg_store_file *f = mg_store_open(path, false);
    if (f && mg_store_read(f) == MG_OK) {
        s = f->store;
        f->store = NULL;
    }
    mg_store_close(f);
    return s;
}

/* ---- for the formats ---- */

mg_store_entry *mg_store_file_add(mg_store_file *f, const char *name) {
    const size_t size = sizeof *f->entries;
    if (mg_reserve((void **)&f->entries, f->n_entries, &f->entry_room, size) != MG_OK) return NULL;
    char *copy = mg_strdup(name);
    if (!copy) return NULL;
    f->entries[f->n_entries] = (mg_store_entry){.name = copy};
    return &f->entries[f->n_entries++];
}

mg_status mg_store_file_exactly(mg_store_file *f, void *dst, size_t n, const char *what) {
    size_t got;
    MG_TRY(mg_io_read(f->file, dst, n, &got));
    if (got == n) return MG_OK;
    return mg_fail(MG_DATA, "%s: the file ends within %.80s: %zu of %zu bytes are there", f->path,
                   what, got, n);
}

/* Other bytes than 0 and 1 in a bool tensor would break kernels. */
static mg_status check_booleans(const mg_store_file *f, const mg_store_entry *e,
                                const unsigned char *bytes) {
    const int64_t n = e->dtype == MG_BOOL ? mg_shape_count(&e->shape) : 0;
    for (int64_t i = 0; i < n; i++)
        if (bytes[i] > 1)
            return mg_fail(MG_DATA, "%s: tensor \"%.80s\": byte %lld is %d, which is not a boolean",
                           f->path, e->name, (long long)i, bytes[i]);
    return MG_OK;
}

/* All bits of the exponent are set. One loop for each width, so that the compiler can vectorize
 * them. */
static inline __attribute__((always_inline)) bool find_nonfinite(mg_dtype dtype, const void *bytes,
                                                                 size_t n) {
    const uint16_t *h = bytes, half = dtype == MG_F16 ? 0x7c00 : 0x7f80;
    const uint32_t *f = bytes;
    const uint64_t *d = bytes, wide = (uint64_t)0x7ff << 52;
    unsigned found = 0;
    if (dtype == MG_F32)
        for (size_t i = 0; i < n; i++) found |= (f[i] & 0x7f800000) == 0x7f800000;
    else if (dtype == MG_F64)
        for (size_t i = 0; i < n; i++) found |= (d[i] & wide) == wide;
    else if (dtype == MG_F16 || dtype == MG_BF16)
        for (size_t i = 0; i < n; i++) found |= (h[i] & half) == half;
    return found;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static bool find_with_avx2(mg_dtype dtype, const void *bytes,
                                                           size_t n) {
    return find_nonfinite(dtype, bytes, n);
}

bool mg_store_has_nonfinite(mg_dtype dtype, const void *bytes, size_t n) {
    if (mg_isa_used() >= MG_ISA_AVX2) return find_with_avx2(dtype, bytes, n);
    return find_nonfinite(dtype, bytes, n);
}
#else
bool mg_store_has_nonfinite(mg_dtype dtype, const void *bytes, size_t n) {
    return find_nonfinite(dtype, bytes, n);
}
#endif

mg_status mg_store_room_new(mg_store_room *room, const mg_store_entry *e) {
    mg_device *d = mg_device_default();
    const size_t n = (size_t)mg_shape_count(&e->shape) * mg_dtype_size(e->dtype);
    *room = (mg_store_room){0};
    room->buffer = d ? mg_buffer_new(d, n) : NULL;
    if (!room->buffer) return mg_error_code();
    const bool visible = n && mg_device_kind_is_host_visible(d->api);
    if (!visible) room->block = mg_alloc(n);
    room->bytes = visible ? room->buffer->data : room->block;
    mg_alloc_prefer_huge(room->bytes, n);
    return room->bytes ? MG_OK : MG_OOM;
}

void *mg_store_room_end(const mg_store_room *room, const mg_store_entry *e) {
    const size_t more = mg_dtype_size(e->dtype) - mg_stored_size(e->stored, e->dtype);
    return (char *)room->bytes + (size_t)mg_shape_count(&e->shape) * more;
}

mg_status mg_store_room_widen(const mg_store_room *room, mg_store_entry *e, const char *path) {
    const size_t n = (size_t)mg_shape_count(&e->shape);
    if (!e->stored) return MG_OK;
    MG_TRY(mg_stored_widen(e->stored, room->bytes, n, path, e->name));
    e->nonfinite = mg_store_has_nonfinite(e->dtype, room->bytes, n);
    return MG_OK;
}

void mg_store_room_free(mg_store_room *room) {
    mg_buffer_release(room->buffer);
    mg_free(room->block);
}

mg_status mg_store_file_take(mg_store_file *f, const mg_store_entry *e, const mg_store_room *room) {
    mg_buffer *b = room->buffer;
    MG_TRY(check_booleans(f, e, room->bytes));
    if (room->block && b->bytes)
        MG_TRY(b->device->api->copy_in(b->device, b->data, room->block, b->bytes));
    mg_tensor *t = mg_tensor_from_buffer(b, e->dtype, &e->shape);
    const mg_status status = t ? mg_store_add(f->store, e->name, t) : mg_error_code();
    mg_tensor_release(t);
    return status;
}

mg_status mg_store_view(mg_tensor *t, const void **bytes, void **block) {
    *block = NULL;
    MG_TRY(mg_eval(&t, 1));
    if (mg_device_kind_is_host_visible(t->buffer->device->api)) {
        *bytes = t->buffer->data;
        return mg_value_wait(t);
    }
    *bytes = *block = mg_alloc(mg_tensor_bytes(t));
    return *block ? mg_tensor_read(t, *block) : MG_OOM;
}

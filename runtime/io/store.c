/* Stores in memory, and the choice of the file format. */
#include "io/store.h"
#include "core/alloc.h"
#include "io/safetensors.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The formats, in the order in which they are tried. */
static const mg_store_format *const formats[] = {&mg_safetensors};
enum { N_FORMATS = sizeof formats / sizeof formats[0], HEAD = 16 }; /* bytes looked at */

/* ---- stores in memory ---- */

/* See store.h for what each of these promises. */
mg_store *mg_store_new(void) {
    return mg_alloc_zero(sizeof(mg_store));
}

/* Tensors of a loaded model live on if somebody else retains them. */
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

/* The format of an open file, which is left at its beginning; NULL with an error if it has none.
 *
 * Contents count before the extension, so renamed files can be read. HDF5, which Keras writes, gets
 * a message of its own. */
static const mg_store_format *recognise_format(mg_file *f, const char *path) {
    unsigned char head[HEAD] = {0};
    int64_t size;
    size_t n;
    if (mg_io_size(f, &size) != MG_OK || mg_io_read(f, head, HEAD, &n) != MG_OK ||
        mg_io_seek(f, 0) != MG_OK)
        return NULL;
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i]->recognise(head, n, size)) return formats[i];
    if (format_by_extension(path)) return format_by_extension(path);
    char list[128];
    if (n >= 8 && memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0)
        mg_fail(MG_UNSUPPORTED, "%s is an HDF5 file, which cannot be read: convert it to one of %s",
                path, known_extensions(list, sizeof list));
    else
        mg_fail(MG_DATA, "%s is in no known file format (known: %s)", path,
                known_extensions(list, sizeof list));
    return NULL;
}

/* Opens, recognises, loads and closes.
 *
 * A store that was read in part is freed again. */
mg_store *mg_store_load(const char *path) {
    mg_file *f = mg_io_open(path);
    if (!f) return NULL;
    const mg_store_format *format = recognise_format(f, path);
    mg_store *s = format ? mg_store_new() : NULL;
    if (s && format->load(f, path, s) != MG_OK) {
        mg_store_free(s);
        s = NULL;
    }
    mg_io_close(f);
    return s;
}

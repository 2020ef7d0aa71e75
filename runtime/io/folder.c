/* Walking through folders. */
#define _GNU_SOURCE /* qsort_r */
#include "io/folder.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static mg_status grow(mg_path_list *l, size_t bytes) {
    if (l->n_text + bytes > l->text_room) {
        const size_t room = 2 * (l->n_text + bytes) + 256;
        char *text = mg_realloc(l->text, room);
        if (!text) return MG_OOM;
        l->text = text;
        l->text_room = room;
    }
    if (l->n == l->room) {
        const int64_t room = 2 * l->n + 32;
        int64_t *begin = mg_realloc(l->begin, (size_t)room * sizeof *begin);
        if (!begin) return MG_OOM;
        l->begin = begin;
        l->room = room;
    }
    return MG_OK;
}

mg_status mg_path_list_add(mg_path_list *l, const char *folder, const char *name) {
    const size_t head = folder ? strlen(folder) : 0, tail = strlen(name) + 1;
    const bool slash = head && folder[head - 1] != '/';
    MG_TRY(grow(l, head + slash + tail));
    l->begin[l->n++] = (int64_t)l->n_text;
    if (head) memcpy(l->text + l->n_text, folder, head);
    if (slash) l->text[l->n_text + head] = '/';
    memcpy(l->text + l->n_text + head + slash, name, tail);
    l->n_text += head + slash + tail;
    return MG_OK;
}

const char *mg_path_list_get(const mg_path_list *l, int64_t i) {
    return l->text + l->begin[i];
}

static int compare_texts(const void *a, const void *b, void *text) {
    return strcmp((const char *)text + *(const int64_t *)a,
                  (const char *)text + *(const int64_t *)b);
}

void mg_path_list_sort(mg_path_list *l) {
    if (l->n > 1) qsort_r(l->begin, (size_t)l->n, sizeof *l->begin, compare_texts, l->text);
}

void mg_path_list_clear(mg_path_list *l) {
    mg_free(l->text);
    mg_free(l->begin);
    *l = (mg_path_list){0};
}

/* ---- one folder ---- */

typedef struct collecting {
    mg_path_list *names;
    mg_folder_wanted *wanted; /* NULL: all */
    void *context;
} collecting;

static mg_status collect(void *context, const char *name, int64_t bytes, int64_t changed) {
    const collecting *c = context;
    (void)bytes, (void)changed;
    if (*name == '.' || (c->wanted && !c->wanted(c->context, name))) return MG_OK;
    return mg_path_list_add(c->names, NULL, name);
}

mg_status mg_folder_folders(const char *folder, mg_path_list *names) {
    collecting c = {.names = names};
    MG_TRY(mg_io_each_folder(folder, collect, &c));
    mg_path_list_sort(names);
    return MG_OK;
}

/* ---- all below a folder ---- */

/* The folders of a walk; the last ones are still to be visited. */
typedef struct walk {
    bool follow_links;
    mg_path_list folders;
    mg_io_identity *identity; /* owned: of each folder */
    int64_t room;
} walk;

/* Whether to skip the newest folder: it is a link that is not followed, or was found before. */
static bool is_left_out(const walk *w, const mg_io_identity *id) {
    const int64_t n = w->folders.n - 1;
    if (!w->follow_links) return id->is_link && n > 0;
    for (int64_t i = 0; i < n; i++)
        if (w->identity[i].device == id->device && w->identity[i].file == id->file) return true;
    return false;
}

static mg_status add_folder(walk *w, const char *parent, const char *name) {
    const int64_t n = w->folders.n;
    if (n == w->room) {
        const int64_t room = 2 * n + 32;
        void *moved = mg_realloc(w->identity, (size_t)room * sizeof *w->identity);
        if (!moved) return MG_OOM;
        w->identity = moved;
        w->room = room;
    }
    MG_TRY(mg_path_list_add(&w->folders, parent, name));
    MG_TRY(mg_io_identify(mg_path_list_get(&w->folders, n), &w->identity[n]));
    if (!is_left_out(w, &w->identity[n])) return MG_OK;
    w->folders.n_text = (size_t)w->folders.begin[n];
    w->folders.n = n;
    return MG_OK;
}

/* Adds the folders in folder i. */
static mg_status add_folders_in(walk *w, int64_t i) {
    mg_path_list names = {0};
    char *parent = mg_strdup(mg_path_list_get(&w->folders, i)); /* the list moves */
    mg_status status = parent ? mg_folder_folders(parent, &names) : MG_OOM;
    if (status == MG_OK && mg_interrupt_take()) status = mg_fail(MG_INTERRUPTED, "interrupted");
    for (int64_t k = 0; k < names.n && status == MG_OK; k++)
        status = add_folder(w, parent, mg_path_list_get(&names, k));
    mg_path_list_clear(&names);
    mg_free(parent);
    return status;
}

/* Adds the wanted files in one folder. */
static mg_status add_files_in(const char *folder, mg_folder_wanted *wanted, void *context,
                              mg_path_list *paths) {
    mg_path_list names = {0};
    collecting c = {&names, wanted, context};
    mg_status status = mg_io_each(folder, collect, &c);
    if (status == MG_OK && mg_interrupt_take()) status = mg_fail(MG_INTERRUPTED, "interrupted");
    mg_path_list_sort(&names);
    for (int64_t k = 0; k < names.n && status == MG_OK; k++)
        status = mg_path_list_add(paths, folder, mg_path_list_get(&names, k));
    mg_path_list_clear(&names);
    return status;
}

mg_status mg_folder_files(const char *folder, bool follow_links, mg_folder_wanted *wanted,
                          void *context, mg_path_list *paths) {
    walk w = {.follow_links = follow_links};
    mg_status status = add_folder(&w, NULL, folder);
    for (int64_t i = 0; i < w.folders.n && status == MG_OK; i++) status = add_folders_in(&w, i);
    mg_path_list_sort(&w.folders);
    for (int64_t i = 0; i < w.folders.n && status == MG_OK; i++)
        status = add_files_in(mg_path_list_get(&w.folders, i), wanted, context, paths);
    mg_path_list_clear(&w.folders);
    mg_free(w.identity);
    return status;
}

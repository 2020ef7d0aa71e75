/* The files below a folder, in an order that does not depend on the file system. */
#ifndef MG_IO_FOLDER_H
#define MG_IO_FOLDER_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Paths, or names, one after another in one block. Starts as zeros. */
typedef struct mg_path_list {
    int64_t n;
    char *text;     /* owned */
    int64_t *begin; /* owned: where each begins in text */
    int64_t room;
    size_t n_text, text_room;
} mg_path_list;

/* Appends "folder/name", or the name if folder is NULL. MG_OOM. */
mg_status mg_path_list_add(mg_path_list *l, const char *folder, const char *name);
/* Borrowed until the next addition. */
const char *mg_path_list_get(const mg_path_list *l, int64_t i);
/* In the order of their bytes. */
void mg_path_list_sort(mg_path_list *l);
/* Frees what the list owns, and empties it. */
void mg_path_list_clear(mg_path_list *l);

/* Adds the names of the folders in a folder, sorted; names that begin with a dot are left out, and
 * links count as their targets. MG_IO, MG_OOM. */
mg_status mg_folder_folders(const char *folder, mg_path_list *names);

/* Whether a file of this name is wanted. */
typedef bool mg_folder_wanted(void *context, const char *name);
/* Adds the paths of the wanted files in a folder and the folders below it: sorted by folder, then
 * by name. Names that begin with a dot are left out. Links to files are followed, links to folders
 * only with `follow_links`; each folder is visited once, so that cycles of links end. MG_IO,
 * MG_OOM, MG_INTERRUPTED. */
mg_status mg_folder_files(const char *folder, bool follow_links, mg_folder_wanted *wanted,
                          void *context, mg_path_list *paths);

#endif

/* Files inside of the program: a packed program (pack/) and a model as a library carry files in
 * memory, and the functions of core/io.h find them by their names as if they lay on the disk. They
 * come before files on the disk, and cannot be written, replaced or removed.
 *
 * A name is relative: "data/words.txt". Paths are compared with it after "." and ".." and repeated
 * slashes are taken out of them; paths below `folder` are compared with their rest. */
#ifndef MG_CORE_IO_PACKED_H
#define MG_CORE_IO_PACKED_H

#include "core/io.h"

typedef struct mg_packed_file {
    const char *name;
    int64_t size; /* bytes of its contents */
} mg_packed_file;

typedef struct mg_packed_set {
    const mg_packed_file *files; /* sorted by the bytes of their names */
    size_t n;
    const char *folder; /* "/opt/bin", or NULL */
    /* The contents of a file, which stay where they are. May be called from any thread. */
    mg_status (*contents)(size_t file, const void **bytes);
} mg_packed_set;

/* Makes these the files inside of the program, before the first file is opened. The set and what it
 * points to must stay. NULL: there are none any more. */
void mg_packed_use(const mg_packed_set *set);
/* The number of the file that the path leads to; -1 if there is none. */
int64_t mg_packed_find(const char *path);
/* The file with this number, from 0; NULL behind the last. */
const mg_packed_file *mg_packed_at(int64_t file);
/* Whether the path is a folder that holds such files. */
bool mg_packed_is_folder(const char *path);
/* A file for reading over bytes in memory, which must stay while it is open; `path` is for
 * messages. Owned (mg_io_close). NULL: MG_OOM. */
mg_file *mg_io_memory(const void *bytes, int64_t size, const char *path);
/* Calls visit for each file (or, with `folders`, each folder) in a folder of packed files, as
 * mg_io_each does. */
mg_status mg_packed_each(const char *folder, bool folders, mg_io_visit *visit, void *context);

#endif

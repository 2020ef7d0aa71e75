/* The files of a data set: several threads may read bytes at any position of any file.
 *
 * At most MG_FILE_SET_OPEN files are open at a time: the one that was read longest ago is
 * closed for the next. Compressed files are unpacked when the set is opened, all of them into one
 * temporary file without a name. */
#ifndef MG_IO_FILE_SET_H
#define MG_IO_FILE_SET_H

#include "io/unpack.h"

/* Threads that read at the same moment may open a few more. */
enum { MG_FILE_SET_OPEN = 64 };

typedef struct mg_file_set mg_file_set;

/* Returns how a file is packed, from its first n bytes: MG_FILE_SET_HEAD, or fewer if the file is
 * shorter. */
enum { MG_FILE_SET_HEAD = 16 };
typedef mg_packing mg_file_set_tell(const unsigned char *head, size_t n);

/* Opens n files. With MG_PACKED_AUTO, `tell` says how each is packed; NULL: gzip is recognised.
 * Owned. NULL: MG_IO, MG_OOM, MG_INTERRUPTED; MG_DATA: damaged compressed data. */
mg_file_set *mg_file_set_open(const char *const *paths, int n, mg_packing packing,
                              mg_file_set_tell *tell);
/* Accepts NULL. */
void mg_file_set_close(mg_file_set *s);

int mg_file_set_count(const mg_file_set *s);
const char *mg_file_set_path(const mg_file_set *s, int file);
/* The bytes of a file, unpacked. */
int64_t mg_file_set_size(const mg_file_set *s, int file);

/* Reads n bytes at a position within the size of a file. Any thread. MG_IO, also if the
 * file has changed since the set was opened. */
mg_status mg_file_set_read(mg_file_set *s, int file, void *dst, size_t n, int64_t position);

#endif

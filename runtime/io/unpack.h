/* Reading compressed files like plain ones: gzip, or the bare zlib format that TFRecord files use.
 *
 * Several gzip members, one after another, are read as one text; checksums are verified. A small
 * file can unpack to any size, so the unpacked bytes are limited: to MG_UNPACK_FREE plus
 * MG_UNPACK_RATIO times the size of the file. */
#ifndef MG_IO_UNPACK_H
#define MG_IO_UNPACK_H

#include "core/io.h"
#include <stdbool.h>

enum { MG_UNPACK_FREE = 1 << 30, MG_UNPACK_RATIO = 200 };

typedef enum mg_packing {
    MG_PACKED_AUTO, /* gzip if the first two bytes say so, whatever the name; else plain */
    MG_PACKED_NONE,
    MG_PACKED_GZIP,
    MG_PACKED_ZLIB
} mg_packing;

/* A file that is read from its start. */
typedef struct mg_unpacked mg_unpacked;

/* Owned. NULL: MG_IO, MG_OOM. */
mg_unpacked *mg_unpacked_open(const char *path, mg_packing packing);
/* Reads up to n bytes; *got < n only at the end. MG_IO; MG_DATA, with the path, for damaged and
 * truncated data and for more bytes than the limit; MG_OOM. */
mg_status mg_unpacked_read(mg_unpacked *u, void *dst, size_t n, size_t *got);
/* Whether the file is compressed, and the size of the file itself. */
bool mg_unpacked_is_packed(const mg_unpacked *u);
int64_t mg_unpacked_file_size(const mg_unpacked *u);
/* The state of the file itself when it was opened; and MG_IO if the file has changed since that
 * state. */
mg_io_state mg_unpacked_state(const mg_unpacked *u);
mg_status mg_unpacked_check_unchanged(const mg_unpacked *u, const mg_io_state *before);
/* Accepts NULL. */
void mg_unpacked_close(mg_unpacked *u);

/* A file to be read at any position (mg_io_read_at), also by several threads: the file itself or,
 * if it is compressed, an unnamed temporary file with the unpacked bytes, which leaves some of the
 * disk free. Sets *size to their number. Owned (mg_io_close). NULL: as mg_unpacked_read. */
mg_file *mg_unpack(const char *path, mg_packing packing, int64_t *size);

/* Writes the unpacked bytes to `out`, a file of mg_io_unnamed, at its current position, so that
 * many files can be unpacked into one. MG_INTERRUPTED: Ctrl-C; else as mg_unpack. */
mg_status mg_unpack_into(const char *path, mg_packing packing, mg_file *out, int64_t *size);

#endif

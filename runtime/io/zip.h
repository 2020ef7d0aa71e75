/* Zip archives: read and written entry by entry, without ever holding one in memory.
 *
 *     mg_zip *z = mg_zip_open(path);                    mg_zip_writer *w = mg_zip_create(path);
 *     const mg_zip_entry *e = mg_zip_find(z, "a.txt");  mg_zip_add(w, "a.txt", n, false);
 *     mg_zip_start(z, e);                               mg_zip_write(w, bytes, n);
 *     mg_zip_read(z, bytes, e->size, &got);             mg_zip_commit(w);
 *     mg_zip_close(z);
 *
 * Stored and deflated entries and the zip64 extensions are known; encryption, other methods and
 * archives of several parts are MG_UNSUPPORTED. Reading trusts nothing. The directory must fill the
 * space between the entries and the end of the file exactly, entries must not overlap, and each
 * local header must agree with the directory. Sizes are checked against the file before memory can
 * be taken for them: a stored entry has its own size, and all entries together may inflate to at
 * most MG_ZIP_FREE_BYTES plus MG_ZIP_MAX_RATIO times the file's size. The CRC-32 of an entry is
 * checked when its last byte is read. Damaged archives are MG_DATA.
 *
 * Written by hand rather than with libzip or libarchive: see "Formats" in runtime/README.md.
 *
 * In Lua: core.zip_read and core.zip_write (bind/zip.c). */
#ifndef MG_IO_ZIP_H
#define MG_IO_ZIP_H

#include "core/io.h"
#include <stdbool.h>

/* The limit against decompression bombs. */
enum { MG_ZIP_FREE_BYTES = 64 << 20, MG_ZIP_MAX_RATIO = 32 };

/* ---- reading ---- */

typedef struct mg_zip mg_zip;

typedef struct mg_zip_entry {
    char *name;           /* owned by the archive; folders end with a slash */
    int64_t size, packed; /* bytes of the contents, and in the file */
    int64_t offset;       /* of the local header */
    uint32_t crc;         /* of the contents */
    bool deflated;        /* else stored */
    bool streamed;        /* the local header has no sizes: they follow the data */
} mg_zip_entry;

/* Opens an archive and reads its directory. Owned. NULL: MG_IO, MG_OOM, MG_DATA, MG_UNSUPPORTED. */
mg_zip *mg_zip_open(const char *path);
/* The same for an open file, which is borrowed until mg_zip_close; `path` is for messages. */
mg_zip *mg_zip_from(mg_file *file, const char *path);
/* Accepts NULL. */
void mg_zip_close(mg_zip *z);

/* The entries, sorted by name; names are unique. Borrowed. */
const mg_zip_entry *mg_zip_entries(const mg_zip *z, size_t *n);
/* The entry of that name, or NULL. Borrowed. */
const mg_zip_entry *mg_zip_find(const mg_zip *z, const char *name);

/* Makes `e` the entry that mg_zip_read reads, from its first byte. */
mg_status mg_zip_start(mg_zip *z, const mg_zip_entry *e);
/* Reads up to n bytes; *got < n only at the end of the entry. MG_DATA if the contents do not have
 * the size and the checksum of the directory: then what was read is not to be used. */
mg_status mg_zip_read(mg_zip *z, void *dst, size_t n, size_t *got);

/* Where the next byte of the entry is in the file; -1 if the entry is compressed. */
int64_t mg_zip_position(const mg_zip *z);

/* ---- writing ---- */

typedef struct mg_zip_writer mg_zip_writer;

/* A new archive, which replaces the file at `path` on commit. Equal entries give equal bytes: no
 * time is stored. Owned. NULL: MG_IO, MG_OOM. */
mg_zip_writer *mg_zip_create(const char *path);
/* The same behind the first `bytes` bytes that `before` has from its current position on, which the
 * new file begins with; it becomes executable. Offsets count from the archive's first byte. */
mg_zip_writer *mg_zip_create_behind(const char *path, mg_file *before, int64_t bytes);
/* Begins an entry of `size` bytes, which mg_zip_write must give. MG_USAGE for a name that is empty
 * or longer than 65,535 bytes. */
mg_status mg_zip_add(mg_zip_writer *w, const char *name, int64_t size, bool deflated);
mg_status mg_zip_write(mg_zip_writer *w, const void *bytes, size_t n);
/* Writes the directory and puts the file in place. Frees the writer, also on failure; then the old
 * file stays. MG_USAGE if a name was given twice. */
mg_status mg_zip_commit(mg_zip_writer *w);
/* Gives the archive up and frees the writer. Accepts NULL. */
void mg_zip_abandon(mg_zip_writer *w);

#endif

/* Tar archives, plain or gzipped, read from their start to their end without unpacking them onto
 * the disk: for data sets that are published as one.
 *
 *     mg_tar *t = mg_tar_open(path);
 *     while (mg_tar_next(t, &entry) == MG_OK && entry)
 *         if (strcmp(entry->name, "data.bin") == 0) mg_tar_read(t, bytes, n, &got);
 *     mg_tar_close(t);
 *
 * Names are only compared, never used as paths. Entries that are not regular files are skipped, and
 * so are the extended headers of GNU and pax: names are those of the ustar header, at most 255
 * bytes. Damaged archives are MG_DATA; the unpacked size of a gzipped archive is limited
 * (io/unpack.h).
 *
 * Written by hand rather than with libarchive: see "Formats" in runtime/README.md. */
#ifndef MG_IO_TAR_H
#define MG_IO_TAR_H

#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct mg_tar mg_tar;

/* A regular file in the archive. */
typedef struct mg_tar_entry {
    char name[257]; /* without a leading "./" */
    int64_t size;   /* bytes */
} mg_tar_entry;

/* Owned. NULL: MG_IO, MG_OOM. */
mg_tar *mg_tar_open(const char *path);
/* Sets *entry to the next file, NULL after the last; borrowed until the next call. MG_IO, MG_OOM,
 * MG_DATA, MG_INTERRUPTED. */
mg_status mg_tar_next(mg_tar *t, const mg_tar_entry **entry);
/* Reads up to n bytes of the entry; *got < n only at its end. MG_DATA if the archive ends before.
 */
mg_status mg_tar_read(mg_tar *t, void *dst, size_t n, size_t *got);
/* Accepts NULL. */
void mg_tar_close(mg_tar *t);

#endif

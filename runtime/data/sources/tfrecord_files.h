/* The TFRecord files of a data set: bytes at any position of any file, for several threads at once.
 *
 * At most MG_RECORD_FILES_OPEN files are open at a time: the one that was read longest ago is
 * closed for the next. Compressed files are unpacked when the set is opened, all of them into one
 * temporary file without a name. */
#ifndef MG_DATA_SOURCES_TFRECORD_FILES_H
#define MG_DATA_SOURCES_TFRECORD_FILES_H

#include "io/unpack.h"

/* Threads that read at the same moment may open a few more. */
enum { MG_RECORD_FILES_OPEN = 64 };

typedef struct mg_record_files mg_record_files;

/* Opens n files. packing: MG_PACKED_AUTO for what the first bytes of each file tell: a record, gzip
 * or zlib data. Owned. NULL: MG_IO, MG_OOM, MG_INTERRUPTED; MG_DATA: damaged compressed data. */
mg_record_files *mg_record_files_open(const char *const *paths, int n, mg_packing packing);
/* Accepts NULL. */
void mg_record_files_close(mg_record_files *s);

int mg_record_files_count(const mg_record_files *s);
const char *mg_record_files_path(const mg_record_files *s, int file);
/* The bytes of a file, unpacked. */
int64_t mg_record_files_size(const mg_record_files *s, int file);

/* Reads n bytes at a position within the size of a file. Any thread. MG_IO, also if the
 * file has changed since the set was opened. */
mg_status mg_record_files_read(mg_record_files *s, int file, void *dst, size_t n, int64_t position);

#endif

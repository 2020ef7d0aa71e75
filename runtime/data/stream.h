/* The bytes of a file, plain or gzipped: which of the two, its first bytes say. */
#ifndef MG_DATA_STREAM_H
#define MG_DATA_STREAM_H

#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct mg_stream mg_stream;

/* Owned; NULL with MG_IO or MG_OOM. */
mg_stream *mg_stream_open(const char *path);
/* *got < n only at the end. Damaged gzip data is MG_DATA naming path and place. */
mg_status mg_stream_read(mg_stream *s, void *dst, size_t n, size_t *got);
/* How many bytes have been read so far. */
int64_t mg_stream_offset(const mg_stream *s);
/* All there is to read: exact for a plain file; for a gzipped one no more than that (deflate packs
 * at most 1032 bytes into one). */
int64_t mg_stream_most(const mg_stream *s);
/* Whether mg_stream_most() is exact. */
int mg_stream_is_plain(const mg_stream *s);
/* Accepts NULL. */
void mg_stream_close(mg_stream *s);

#endif

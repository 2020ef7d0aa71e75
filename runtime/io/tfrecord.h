/* TFRecord files: records of bytes one after another, each with its length and checksums. Event
 * files of TensorBoard are TFRecord files of protobuf messages.
 *
 * A record: its length n (uint64), the masked CRC-32C of these 8 bytes (uint32), n bytes, and their
 * masked CRC-32C, all little-endian. A file cut off anywhere is readable up to its last whole
 * record, so files are appended to without a temporary copy. */
#ifndef MG_IO_TFRECORD_H
#define MG_IO_TFRECORD_H

#include "io/unpack.h"

/* The bytes of a record's frame before and after its contents. */
enum { MG_TFRECORD_HEAD = 12, MG_TFRECORD_TAIL = 4 };

/* crc32c.c: CRC-32C (Castagnoli), by the CPU's instruction for it (SSE 4.2, ARMv8 CRC) if there is
 * one: several bytes a cycle. */
uint32_t mg_crc32c(const void *bytes, size_t n);
/* The same by a table, on any CPU: several cycles a byte. */
uint32_t mg_crc32c_by_table(const void *bytes, size_t n);
/* The masked CRC-32C of n bytes. The mask makes the checksum differ from plain CRCs that the data
 * may contain. */
uint32_t mg_tfrecord_checksum(const void *bytes, size_t n);
/* Fills in the frame of a record of n bytes: its head and its tail. */
void mg_tfrecord_frame(const void *bytes, size_t n, unsigned char head[MG_TFRECORD_HEAD],
                       unsigned char tail[MG_TFRECORD_TAIL]);

/* Reading: sets *n to the length in a record's head and returns whether it matches its checksum. */
bool mg_tfrecord_length(const unsigned char head[MG_TFRECORD_HEAD], uint64_t *n);
/* Whether the n bytes of a record match the checksum that follows them, bytes n to n + 3. */
bool mg_tfrecord_intact(const unsigned char *bytes, size_t n);

typedef struct mg_tfrecord {
    const void *bytes; /* borrowed */
    size_t n;
} mg_tfrecord;

/* Writes records after the first *size bytes of a file, which is created if it is missing, and adds
 * their length to *size: see mg_io_append. */
mg_status mg_tfrecord_append(const char *path, int64_t *size, const mg_tfrecord *records, size_t n);

/* ---- whole files ---- */

/* A new file. It appears at its path only on commit (core/io.h). */
typedef struct mg_tfrecord_writer mg_tfrecord_writer;

/* packing: MG_PACKED_GZIP, MG_PACKED_ZLIB, or another for a plain file. Owned. NULL: MG_IO, MG_OOM.
 */
mg_tfrecord_writer *mg_tfrecord_writer_open(const char *path, mg_packing packing);
/* MG_IO; MG_UNSUPPORTED: 2 GiB or more. */
mg_status mg_tfrecord_writer_add(mg_tfrecord_writer *w, const void *bytes, size_t n);
/* Writes the rest, after the last record. A full disk is thus found before any of several files is
 * committed. */
mg_status mg_tfrecord_writer_finish(mg_tfrecord_writer *w);
/* To be called after finish: puts the file at its path. */
mg_status mg_tfrecord_writer_commit(mg_tfrecord_writer *w);
/* Throws the file away unless it was committed. Accepts NULL. */
void mg_tfrecord_writer_free(mg_tfrecord_writer *w);

#endif

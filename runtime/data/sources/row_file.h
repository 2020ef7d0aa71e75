/* Files of rows, as caches write them: rows as blocks of bytes, a table of where each one is, with
 * its XXH3, the fields, and a trailer that finds all of it. Numbers are in the byte order of the
 * machine. */
#ifndef MG_DATA_SOURCES_ROW_FILE_H
#define MG_DATA_SOURCES_ROW_FILE_H

#include "data/source.h"

/* ---- packed_row.c: a row as one block of bytes, in a file or in the cache in memory ---- */

/* The block holds, for each field, the values of its cell, after the sizes where they differ from
 * row to row. This is how many bytes it has for a row of s. */
size_t mg_packed_bytes(const mg_source *s, const mg_cell cell[]);
/* Writes that many bytes to dst. */
void mg_pack_row(const mg_source *s, const mg_cell cell[], char *dst);
/* Fills cells as mg_source_read does, from a block that need not be one of mg_pack_row's. MG_DATA:
 * it is none. MG_OOM. */
mg_status mg_unpack_row(const mg_source *s, const char *src, size_t bytes, mg_cell cell[]);

/* ---- row_file.c: writing ---- */

typedef struct mg_row_writer mg_row_writer;

/* A new file for rows with the fields of s; nothing is at the path before mg_row_writer_commit.
 * Owned. NULL: MG_IO (also if the disk has too little space), MG_OOM. */
mg_row_writer *mg_row_writer_new(const char *path, const mg_source *s);
/* Appends a row. */
mg_status mg_row_writer_add(mg_row_writer *w, const mg_cell cell[]);
/* After s->n_rows rows: MG_IO leaves nothing behind. */
mg_status mg_row_writer_commit(mg_row_writer *w);
/* Accepts NULL; without a commit nothing stays. */
void mg_row_writer_free(mg_row_writer *w);

/* ---- row_file.c: reading ---- */

typedef struct mg_row_file mg_row_file;

/* Opens a file for rows with the fields of s. Owned. NULL: MG_IO, MG_OOM, MG_DATA (damaged, or no
 * file of rows), MG_USAGE (other fields, or another number of rows). */
mg_row_file *mg_row_file_open(const char *path, const mg_source *s);
/* Reads a row, as mg_source_read; several threads may. The first time, its hash is checked:
 * MG_DATA.
 */
mg_status mg_row_file_read(mg_row_file *f, const mg_source *s, int64_t row, mg_cell cell[]);
/* Accepts NULL. */
void mg_row_file_close(mg_row_file *f);

#endif

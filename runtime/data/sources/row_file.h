/* Files of rows, as caches write them: rows as blocks of bytes, a table with the position and the
 * XXH3 hash of each row, the fields, and a trailer with the positions of all these. Numbers are in
 * the byte order of the machine. */
#ifndef MG_DATA_SOURCES_ROW_FILE_H
#define MG_DATA_SOURCES_ROW_FILE_H

#include "data/source.h"

/* ---- packed_row.c: a row as one block of bytes, in a file or in the cache in memory ---- */

/* The number of bytes of a row of s as a block. The block holds for each field the values of its
 * cell, preceded by the sizes that differ from row to row. */
size_t mg_packed_bytes(const mg_source *s, const mg_cell cell[]);
/* Writes that many bytes to dst. */
void mg_pack_row(const mg_source *s, const mg_cell cell[], char *dst);
/* Fills cells as mg_source_read does, from an untrusted block. MG_DATA: it is not a block of
 * mg_pack_row. MG_OOM. */
mg_status mg_unpack_row(const mg_source *s, const char *src, size_t bytes, mg_cell cell[]);

/* ---- row_file.c: writing ---- */

typedef struct mg_row_writer mg_row_writer;

/* A new file for rows with the fields of s. It appears at the path only on mg_row_writer_commit.
 * Owned. NULL: MG_IO (also if the disk has too little space), MG_OOM. */
mg_row_writer *mg_row_writer_new(const char *path, const mg_source *s);
/* Appends a row. */
mg_status mg_row_writer_add(mg_row_writer *w, const mg_cell cell[]);
/* To be called after s->n_rows rows. After MG_IO no file is left. */
mg_status mg_row_writer_commit(mg_row_writer *w);
/* Accepts NULL. Without a commit the file is removed. */
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

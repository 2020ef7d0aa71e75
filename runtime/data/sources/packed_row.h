/* The cells of a row as one block of bytes, in which caches keep it: for each field its values,
 * after the sizes where they differ from row to row. */
#ifndef MG_DATA_SOURCES_PACKED_ROW_H
#define MG_DATA_SOURCES_PACKED_ROW_H

#include "data/source.h"

/* The bytes of a row of s. */
size_t mg_packed_bytes(const mg_source *s, const mg_cell cell[]);
/* Writes that many bytes to dst. */
void mg_pack_row(const mg_source *s, const mg_cell cell[], char *dst);
/* Fills cells as mg_source_read does, from a block that need not be one of mg_pack_row's. MG_DATA:
 * it is none. MG_OOM. */
mg_status mg_unpack_row(const mg_source *s, const char *src, size_t bytes, mg_cell cell[]);

#endif

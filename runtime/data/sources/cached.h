/* Rows of another source that are read once and kept, in memory or in a file.
 *
 * They are kept after the transforms so far, as those of epoch 0: random choices before a cache are
 * the same in every pass. */
#ifndef MG_DATA_SOURCES_CACHED_H
#define MG_DATA_SOURCES_CACHED_H

#include "data/source.h"

/* Keeps each row in memory when it is read for the first time; where reading is cheap, it is the
 * source itself. Retains the source. Owned. NULL: MG_OOM. A read fails with MG_OOM if there is no
 * room for a row. */
mg_source *mg_cached_source(mg_source *inner);

/* Keeps all rows in the file at `path`. Where there is none, mg_source_prepare writes it, whole or
 * not at all, reading `inner` with several threads; then the rows are read from there. Retains the
 * source. Owned. NULL: MG_OOM.
 *
 * mg_source_prepare fails with MG_IO, with what reading `inner` fails with, or MG_INTERRUPTED; with
 * MG_DATA for a file that is damaged or of another kind, with MG_USAGE for the rows of another data
 * set. A read fails with MG_DATA for a damaged row. The file must not be cut while it is in use; it
 * may be removed. */
mg_source *mg_cache_file_source(mg_source *inner, const char *path);

#endif

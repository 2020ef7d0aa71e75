/* Sources made of several: side by side, or one behind the other. */
#ifndef MG_DATA_SOURCES_JOINED_H
#define MG_DATA_SOURCES_JOINED_H

#include "data/source.h"

/* Row i has the cells of row i of each of the n sources, as many rows as the shortest has. Retains
 * them. Owned. NULL: MG_OOM, or MG_USAGE for more fields than MG_SOURCE_FIELDS. */
mg_source *mg_zipped_source(mg_source *const *sources, int n);
/* The rows of the first source, then those of the second, and so on. A size that is not the same in
 * all differs from row to row. Retains them. Owned. NULL: MG_OOM, or MG_USAGE for sources whose
 * fields differ in number, dtype or rank. */
mg_source *mg_concatenated_source(mg_source *const *sources, int n);

#endif

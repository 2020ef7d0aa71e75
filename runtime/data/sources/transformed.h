/* Rows of another source with transforms applied. */
#ifndef MG_DATA_SOURCES_TRANSFORMED_H
#define MG_DATA_SOURCES_TRANSFORMED_H

#include "data/transform.h"

/* The source with a transform of one field (from 0) added behind those that it has. Retains both.
 * Owned. NULL: MG_OOM, or MG_USAGE, as the transform's infer says. */
mg_source *mg_transformed_source(mg_source *inner, int field, mg_transform *transform);

#endif

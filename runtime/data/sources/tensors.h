/* Rows of tensors in host memory. */
#ifndef MG_DATA_SOURCES_TENSORS_H
#define MG_DATA_SOURCES_TENSORS_H

#include "core/tensor.h"
#include "data/source.h"

/* A source of the rows (entries of the first axis) of n evaluated tensors, which it retains. Owned.
 * NULL: MG_OOM, or MG_USAGE for tensors that have no rows, different numbers of rows or no values
 * in host memory. */
mg_source *mg_tensors_source(mg_tensor *const *tensors, int n);

#endif

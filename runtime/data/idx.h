/* IDX files, the format of MNIST: one array each, plain or gzipped. */
#ifndef MG_DATA_IDX_H
#define MG_DATA_IDX_H

#include "core/tensor.h"

/* The array in the file, on the default device: uint8, int32 (8- and 16-bit integers are widened),
 * float32 or float64. Owned. NULL: MG_IO, MG_OOM, or MG_DATA, whose message names the file, the
 * byte and the error. */
mg_tensor *mg_idx_load(const char *path);

#endif

/* IDX files (the format of MNIST), plain or gzipped. */
#ifndef MG_DATA_IDX_H
#define MG_DATA_IDX_H

#include "core/tensor.h"

/* The array in the file, on the default device: uint8, int32 (also from 8 and 16 bits), float32 or
 * float64. MG_DATA names the file, the byte and what is wrong there. Owned. */
mg_tensor *mg_idx_load(const char *path);

#endif

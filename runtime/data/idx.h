/* IDX files: the format of MNIST. */
#ifndef MG_DATA_IDX_H
#define MG_DATA_IDX_H

#include "core/tensor.h"

/* A plain or gzipped IDX file as a tensor on `device` (NULL: the default). int8 and int16 become
 * int32. Owned; NULL with a message that names the path, what is wrong and where. */
mg_tensor *mg_idx_load(const char *path, mg_device *device);

#endif

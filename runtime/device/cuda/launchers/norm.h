/* Statistics of the columns of {rows, channels}, in parts that are joined: see kernels/norm.cu. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_NORM_H
#define MG_DEVICE_CUDA_LAUNCHERS_NORM_H

#include "device/cuda/kernels/norm_params.h"
#include "device/cuda/context/context.h"

typedef struct mg_columns {
    struct mg_column_form { /* by columns, and by vectors where there are such */
        CUfunction partial;
        int width, chunks;
        int64_t piece;
    } one, vector;
    CUfunction join, add; /* one of them */
    column_params p;      /* without addresses and form */
} mg_columns;

/* Fills it for x, for its moments or for sums. Gives the bytes of scratch for the partials. */
mg_status mg_cuda_columns_prepare(mg_device *d, bool moments, const mg_value *x,
                                  mg_columns *columns, size_t *scratch);
/* Both launches; p.x, dy, moments, partials and out are set, of elements of `size` bytes. */
mg_status mg_cuda_columns_run(const mg_device *d, const mg_columns *columns, size_t size,
                              column_params p);
/* The columns of a block: a power of two, not more than there are. */
int mg_cuda_column_width(int64_t channels);

#endif

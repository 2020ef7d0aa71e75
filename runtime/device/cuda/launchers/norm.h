/* Statistics of the columns of a matrix {rows, channels} (kernels/norm.cu): moments, or weighted
 * sums.
 *
 * Blocks compute partial results over chunks of rows, and a second kernel combines them. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_NORM_H
#define MG_DEVICE_CUDA_LAUNCHERS_NORM_H

#include "device/cuda/kernels/norm_params.h"
#include "device/cuda/context/context.h"

typedef struct mg_columns {
    struct mg_column_form { /* how the work is divided */
        CUfunction partial; /* NULL if this form is not possible */
        int width, chunks;  /* columns of a block; chunks of rows */
        int64_t piece;      /* rows of a chunk */
    } one, vector;          /* a thread takes one channel, or VECTOR of them */
    CUfunction join,
        add;         /* the second kernel: `join` for moments, `add` for sums; the other is NULL */
    column_params p; /* without addresses and form */
} mg_columns;

/* Fills *columns for x: for its moments, or for sums. *scratch: bytes of the partial results. */
mg_status mg_cuda_columns_prepare(mg_device *d, bool moments, const mg_value *x,
                                  mg_columns *columns, size_t *scratch);
/* Enqueues both kernels. The caller has set p.x, dy, moments, partials and out; elements have
 * `size` bytes. */
mg_status mg_cuda_columns_run(const mg_device *d, const mg_columns *columns, size_t size,
                              column_params p);
/* How many columns a block takes: the smallest power of two that covers all channels, at most 32.
 */
int mg_cuda_column_width(int64_t channels);

#endif

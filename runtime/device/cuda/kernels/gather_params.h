/* The parameters of kernels/gather.cu and kernels/scatter.cu. */
#ifndef MG_DEVICE_CUDA_GATHER_PARAMS_H
#define MG_DEVICE_CUDA_GATHER_PARAMS_H

#include "device/cuda/kernels/divisor.h"

typedef struct gather_params {
    const void *x, *ids;
    void *out;
    int id_bytes;
    unsigned count, first; /* units of the result, whose first is that of this row of it */
    mg_divisor inner, n;   /* units of a slice; ids */
    long long rows;        /* of x, along the axis */
    /* A unit of what lies outside; aligned because kernels read it by units of up to 16 bytes. */
    unsigned long long value[2] __attribute__((aligned(16)));
} gather_params;

enum { MG_DIGITS = 256, MG_SORT_THREADS = 256, MG_SORT_BLOCKS = 512 };

/* One pass of a sort of entries (id << 32 | position) by the digit at `shift`. The first pass reads
 * ids; what lies outside 0 .. size - 1 gets the id `size`. */
typedef struct sort_params {
    const void *ids; /* or NULL */
    const unsigned long long *in;
    unsigned long long *out;
    unsigned *counts; /* of digits, per block */
    long long size;
    unsigned n, per_block, shift;
    int id_bytes;
} sort_params;

/* dy {outer, n, inner} by entries into dx {outer, size, inner}; columns = outer * inner. */
typedef struct scatter_params {
    const void *dy, *ids;
    void *dx, *partial; /* partial {pieces, 2, columns} */
    const unsigned long long *entries;
    long long n, size, inner, columns;
    long long piece, pieces; /* entries of a piece; how many pieces there are */
    int id_bytes;
    int width; /* columns of a block that joins */
} scatter_params;

#endif

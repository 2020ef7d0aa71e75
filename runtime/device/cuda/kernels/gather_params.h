/* The parameters of kernels/gather.cu and kernels/scatter.cu. */
#ifndef MG_DEVICE_CUDA_GATHER_PARAMS_H
#define MG_DEVICE_CUDA_GATHER_PARAMS_H

#include "device/cuda/kernels/divisor.h"

typedef struct gather_params {
    const void *x, *ids;
    void *out;
    int id_bytes;        /* size of an id */
    unsigned count;      /* units that this launch writes */
    unsigned first;      /* the slice of the whole result that `out` begins with */
    mg_divisor inner, n; /* units of a slice; number of ids */
    long long rows;      /* size of x along the axis */
    /* One unit, written where an id is out of range; aligned because kernels read up to 16 bytes at
     * once. */
    unsigned long long value[2] __attribute__((aligned(16)));
} gather_params;

/* The sort of scatter.cu: values of a digit of 8 bits, threads of a block, blocks at most. */
enum { MG_DIGITS = 256, MG_SORT_THREADS = 256, MG_SORT_BLOCKS = 512 };

/* One pass of a radix sort of entries (id << 32 | position) by the digit at bit `shift`. The first
 * pass makes the entries from ids; ids outside 0 .. size - 1 become `size`, which sorts last. */
typedef struct sort_params {
    const void *ids;              /* first pass; else NULL */
    const unsigned long long *in; /* later passes */
    unsigned long long *out;
    unsigned *counts; /* {blocks, MG_DIGITS} */
    long long size;
    unsigned n, per_block, shift; /* entries; entries of a block; bits below the digit */
    int id_bytes;
} sort_params;

/* Adds dy {outer, n, inner} into dx {outer, size, inner} by sorted entries. A column is one of the
 * outer * inner positions of a slice. */
typedef struct scatter_params {
    const void *dy, *ids;
    void *dx, *partial; /* partial: sums {pieces, 2, columns} of runs that cross pieces */
    const unsigned long long *entries;
    long long n, size, inner, columns;
    long long piece, pieces; /* entries of a piece; how many pieces there are */
    int id_bytes;
    int width; /* columns of a block of scatter_join, a power of two */
} scatter_params;

#endif

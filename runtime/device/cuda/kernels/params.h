/* The parameters of kernels/<file>.cu: plain structs that the host fills and a kernel takes by
 * value. */
#ifndef MG_DEVICE_CUDA_PARAMS_H
#define MG_DEVICE_CUDA_PARAMS_H

/* The random state of a run, in device memory: filled before a program that draws is started. */
typedef struct mg_rng_cell {
    unsigned long long base;
    unsigned int seed, unused;
} mg_rng_cell;

/* Key and ordinal of a draw: absolute, or relative to the cell's. */
typedef struct mg_draw {
    const mg_rng_cell *cell; /* or NULL */
    unsigned long long ordinal;
    unsigned int seed, stream;
} mg_draw;

enum { MG_MOST_RANKS = 64 };

typedef struct reduce_ranks_params {
    const void *in[MG_MOST_RANKS];
    void *out[MG_MOST_RANKS];
    long long first, last; /* elements */
    int n, op;             /* ranks; enum mg_reduce_kind */
    int from, to;          /* ranks that get the result */
} reduce_ranks_params;

#endif

/* The parameters of kernels/<file>.cu: plain structs that the host fills and a kernel takes by
 * value. */
#ifndef MG_DEVICE_CUDA_PARAMS_H
#define MG_DEVICE_CUDA_PARAMS_H

/* The random state of a run, in device memory: right before a program that draws is started. */
typedef struct mg_rng_cell {
    unsigned long long base;
    unsigned int seed, unused;
} mg_rng_cell;

typedef struct rng_advance_params {
    mg_rng_cell *cell;
    unsigned long long by;
} rng_advance_params;

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

typedef struct cumsum_params { /* see scan.h */
    const void *in;
    void *out;   /* or NULL: only the pieces' sums are wanted */
    void *carry; /* {outer, pieces, inner}: sums of the pieces, up to each; NULL if there is one */
    long long outer, n, inner, pieces, across;
} cumsum_params;

typedef struct prod_grad_params {
    const void *x, *dy;
    void *dx;
    double *before; /* of each element: the product of those before it in its group */
    long long groups, n;
} prod_grad_params;

enum { MG_FINITE_TENSORS = 64 };

typedef struct finite_tensor {
    const void *in;
    long long n, vectors; /* elements; vectors that may be read as such */
} finite_tensor;

typedef struct finite_params {
    unsigned char *out;
    long long tensors;
    finite_tensor t[MG_FINITE_TENSORS];
} finite_params;

#endif

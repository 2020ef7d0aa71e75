/* Parameter structs of several kernels: the host fills one and the kernel takes it by value. This
 * header is also carried as text for generated kernels (scan.h, finite.h). Its types have the same
 * size and layout for the host's compiler and for CUDA's, which is why it has no size_t and no
 * bool. */
#ifndef MG_DEVICE_CUDA_PARAMS_H
#define MG_DEVICE_CUDA_PARAMS_H

/* The random state of a run, in device memory, so that a recorded graph draws new numbers each time
 * it is replayed. The host writes it before a program that draws starts; rng_advance advances
 * it. */
typedef struct mg_rng_cell {
    unsigned long long base; /* the ordinal of the run's first draw */
    unsigned int seed, unused;
} mg_rng_cell;

typedef struct rng_advance_params {
    mg_rng_cell *cell;
    unsigned long long by;
} rng_advance_params;

/* Key and ordinal of a draw: with a cell, its seed, and `ordinal` counts from its base; without
 * one, both are given here. */
typedef struct mg_draw {
    const mg_rng_cell *cell; /* NULL: none */
    unsigned long long ordinal;
    unsigned int seed, stream;
} mg_draw;

enum { MG_MOST_RANKS = 64 };

/* reduce_ranks of comm.cu. */
typedef struct reduce_ranks_params {
    const void *in[MG_MOST_RANKS];
    void *out[MG_MOST_RANKS];
    long long first, last; /* elements [first, last) */
    int n, op;             /* how many ranks; an enum mg_reduce_kind */
    int from, to;          /* ranks [from, to) get the result */
} reduce_ranks_params;

/* The cumsum kernel of scan.h: running sums along the middle axis of {outer, n, inner}. */
typedef struct cumsum_params {
    const void *in;
    void *out; /* NULL: write only the sum of each piece, to carry */
    void
        *carry; /* {outer, pieces, inner}: running sums of the pieces; NULL if there is one piece */
    long long outer, n, inner;
    long long pieces, across; /* pieces of the axis; columns of a block */
} cumsum_params;

/* The gradient of a product over groups of n elements (scan.h). */
typedef struct prod_grad_params {
    const void *x, *dy; /* {groups, n}; {groups} */
    void *dx;           /* {groups, n} */
    double *before;     /* scratch {groups, n}: the product of the elements before each */
    long long groups, n;
} prod_grad_params;

enum { MG_FINITE_TENSORS = 64 }; /* tensors of one launch of all_finite (finite.h) */

typedef struct finite_tensor {
    const void *in;
    unsigned char *out; /* one byte, the same for all tensors of a check */
    long long n,
        vectors; /* elements; whole vectors, 0 if the address does not allow vector access */
} finite_tensor;

typedef struct finite_params {
    /* One check: NULL; out is 1 until a kernel finds an element that is not finite. A check for
     * each tensor: the number of blocks that are done, and a byte for each tensor that is not
     * finite, all 0 at first. */
    unsigned *done;
    unsigned char *bad;
    long long tensors;
    finite_tensor t[MG_FINITE_TENSORS];
} finite_params;

#endif

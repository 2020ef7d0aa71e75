/* Parameter structs of several kernels: the host fills one and the kernel takes it by value. This
 * header is also carried as text for generated kernels (scan.h). Its types have the same
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

/* ---- finite.cu ---- */

enum {
    MG_FINITE_TENSORS = 64, /* tensors of one launch, and results */
    MG_FINITE_CELLS = 1024  /* launches that may run at the same time */
};

typedef struct __attribute__((aligned(16))) finite_words {
    unsigned at[4];
} finite_words;

typedef struct finite_tensor {
    const void *in;
    long long n, vectors; /* elements; accesses of 16 bytes, 0 if the address does not allow them */
    int size;             /* bytes of an element */
    /* Bits of the exponents in a word; low: 0 if there is one. Of float64: of every other word. */
    unsigned high, low;
} finite_tensor;

typedef struct finite_result {
    unsigned char *out; /* whether all elements of tensors first .. end - 1 are finite */
    int first, end;
} finite_result;

typedef struct finite_params {
    int cell; /* its number: another launch has it only after this one */
    int tensors, results;
    int continues; /* the launch before has written the first result for other tensors */
    finite_tensor t[MG_FINITE_TENSORS];
    finite_result r[MG_FINITE_TENSORS];
} finite_params;

#endif

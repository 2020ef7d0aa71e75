/* The frame of a fused group's kernel: loops and indexing around a generated expression.
 *
 * Generated text (source.c) defines the constants in capitals (INPUTS, OUTPUTS, RANK, VECTOR ...),
 * includes this header, and then defines the functions declared below: load_scalars, element and
 * vector, which load inputs, compute, and store outputs.
 *
 * There are two kinds of groups. In a flat group (RANK 0) each input either has the shape of the
 * outputs or is a scalar. One kernel can then serve many tensors (multi-tensor apply, as in an
 * optimizer's update): each is divided into chunks, which are distributed over the blocks. In any
 * other group some inputs are broadcast or have strides: the kernel walks the axes of the iteration
 * space, the last one in vectors. With SUMS it also sums a result's columns: see fused_sums.h. */
#include "device/cuda/kernels/elements.h"

typedef struct tensor { /* one set of inputs and outputs; a flat group has several */
    int64_t n;          /* elements of a flat group, else vectors */
    int64_t first;      /* the number of its first chunk */
    int64_t aligned;    /* whether the addresses of all tensors allow vector access */
    const void *in[INPUTS];
    void *out[OUTPUTS];
} tensor;

typedef struct params {
    double immediate[IMMEDIATES];
#if RANK > 0
    axis axes[RANK];               /* the iteration space; the last axis counts vectors */
    int64_t stride[STRIDED][RANK]; /* of the inputs with strides, in elements */
    int64_t beside[STRIDED];       /* the stride from one element of a vector to the next */
#endif
#if SUMS
    int64_t rows, columns; /* columns in vectors; a row may hold a few rows of the result */
    int64_t chunks, tiles; /* the grid: chunks of rows times tiles of columns */
    int64_t across;        /* columns of a tile */
    void *parts;           /* partial sums {chunks, columns, VECTOR} */
#else
    int64_t chunk, chunks, tensors; /* elements of a chunk; how many chunks and tensors */
#endif
    tensor t[TENSORS];
} params;

typedef struct place { /* where an element is */
    INDEX i;           /* in the outputs, and in the inputs of their shape */
#if RANK > 0
    INDEX in[STRIDED]; /* in the inputs with strides */
#endif
} place;

typedef struct scalars { /* operands that are the same for all elements */
    REAL immediate[IMMEDIATES], in[SCALARS];
} scalars;

typedef struct results {
    REAL at[OUTPUTS];
} results;

/* Generated. vector computes VECTOR elements with vector accesses; element computes one. With SUMS
 * they also add the summed result to *sum, or to one sum for each element of the vector. */
DEVICE scalars load_scalars(const params *p, const tensor *t);
#if SUMS
DEVICE void element(const tensor *t, place at, scalars s, SUM *sum);
DEVICE void vector(const tensor *t, place at, scalars s, SUM *sum);
#else
DEVICE void element(const tensor *t, place at, scalars s);
DEVICE void vector(const tensor *t, place at, scalars s);
#endif

/* The place of the first element of vector i: divides i by the axes from the last to the first. */
DEVICE place place_of(const params *p, INDEX i) {
#if RANK == 0
    place at = {i * VECTOR};
#else
    place at = {i * VECTOR, {0}};
    UNROLL
    for (int a = RANK - 1; a >= 0; a--) {
        const INDEX rest = divide(i, p->axes[a]), k = i - rest * (INDEX)p->axes[a].size;
        UNROLL
        for (int s = 0; s < STRIDED; s++) at.in[s] += k * (INDEX)p->stride[s][a];
        i = rest;
    }
#endif
    return at;
}

/* The place of the next element of the same vector. */
DEVICE place next_to(const params *p, place at) {
    at.i++;
#if RANK > 0
    UNROLL
    for (int s = 0; s < STRIDED; s++) at.in[s] += (INDEX)p->beside[s];
#endif
    return at;
}

#if SUMS

#include "device/cuda/kernels/fused_sums.h"

#elif RANK == 0

/* The tensor that a chunk belongs to, by binary search: the last one whose first chunk is not after
 * it.
 */
DEVICE const tensor *tensor_of_chunk(const params *p, int64_t chunk) {
    int low = 0;
    for (int high = (int)p->tensors; TENSORS > 1 && high - low > 1;) {
        const int middle = (low + high) / 2;
        if (p->t[middle].first <= chunk)
            low = middle;
        else
            high = middle;
    }
    return &p->t[low];
}

/* Flat: a block takes one chunk of one tensor at a time, a thread vectors of it. */
KERNEL(fused, params) {
    for (int64_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const tensor *t = tensor_of_chunk(&p, chunk);
        const int64_t from = (chunk - t->first) * p.chunk;
        const int64_t to = from + p.chunk < t->n ? from + p.chunk : t->n;
        const scalars s = load_scalars(&p, t);
        for (int64_t i = from + (int64_t)threadIdx.x * VECTOR; i < to; i += THREADS * VECTOR) {
            place at = {(INDEX)i};
            if (t->aligned && i + VECTOR <= to) {
                vector(t, at, s);
                continue;
            }
            ROLLED
            for (int64_t k = i; k < to && k < i + VECTOR; k++) {
                at.i = (INDEX)k;
                element(t, at, s);
            }
        }
    }
}

#else

/* With axes: a thread takes one vector of the iteration space at a time. */
KERNEL(fused, params) {
    const tensor *t = &p.t[0];
    const scalars s = load_scalars(&p, t);
    for (int64_t i = FIRST; i < t->n; i += STEP) {
        place at = place_of(&p, (INDEX)i);
        if (t->aligned) {
            vector(t, at, s);
            continue;
        }
        ROLLED
        for (int k = 0; k < VECTOR; k++, at = next_to(&p, at)) element(t, at, s);
    }
}

#endif

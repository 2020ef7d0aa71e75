/* The kernel of a fused group: what surrounds its expression. Generated text (source.c) defines the
 * numbers, includes this, and then defines the four functions declared here.
 *
 * A flat group (RANK 0) steps through each input as through its outputs, or not at all, so one
 * kernel can do the same to many tensors: their elements, in chunks, are dealt out to the blocks.
 * Any other group goes through the axes of its iteration space, the last one in vectors. With SUMS
 * it also adds up a result's columns: fused_sums.h. */
#include "device/cuda/kernels/elements.h"

typedef struct tensor { /* what is computed; for a flat group, one of several */
    int64_t n, first;   /* elements (else vectors); its first chunk */
    int64_t aligned;    /* whether all that is accessed in vectors may be */
    const void *in[INPUTS];
    void *out[OUTPUTS];
} tensor;

typedef struct params {
    double immediate[IMMEDIATES];
#if RANK > 0
    axis axes[RANK];               /* the last in vectors */
    int64_t stride[STRIDED][RANK]; /* of the inputs with strides, in elements */
    int64_t beside[STRIDED];       /* how far the next element is */
#endif
#if SUMS
    int64_t rows, columns; /* of vectors; a row is one of the result's, or a few */
    int64_t chunks, tiles; /* blocks: of rows, and of columns */
    int64_t across;        /* columns of a tile */
    void *parts;           /* {chunks, columns, VECTOR} */
#else
    int64_t chunk, chunks, tensors; /* elements of a chunk */
#endif
    tensor t[TENSORS];
} params;

typedef struct place {
    INDEX i; /* the element in the outputs, and in inputs of their shape */
#if RANK > 0
    INDEX in[STRIDED]; /* in the others */
#endif
} place;

typedef struct scalars { /* what is the same for all elements */
    REAL immediate[IMMEDIATES], in[SCALARS];
} scalars;

typedef struct results {
    REAL at[OUTPUTS];
} results;

DEVICE scalars load_scalars(const params *p, const tensor *t);
#if SUMS
DEVICE void element(const tensor *t, place at, scalars s, SUM *sum);
DEVICE void vector(const tensor *t, place at, scalars s, SUM *sum); /* one for each element */
#else
DEVICE void element(const tensor *t, place at, scalars s);
DEVICE void vector(const tensor *t, place at, scalars s);
#endif

/* Where vector i begins. */
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

/* The element beside that, of the same vector. */
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

/* The tensor that has a chunk: the last one that begins no later. */
DEVICE const tensor *owner(const params *p, int64_t chunk) {
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

KERNEL(fused, params) {
    for (int64_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const tensor *t = owner(&p, chunk);
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

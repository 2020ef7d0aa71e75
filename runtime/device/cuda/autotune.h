/* The autotuner: chooses the fastest of several candidates that compute the same result.
 *
 * The same procedure is used for every kind of candidate (our own and library kernels, algorithms
 * of cuBLASLt, execution plans of cuDNN). The caller describes a tuning problem by four functions;
 * the tuner owns the trial memory, the timing, the checks and the entry in the disk cache.
 *
 * - The winner is kept in the cache under the tuning's key, which must therefore name everything
 *   that the choice depends on: shapes, dtypes, precision, the library's version, the GPU's name.
 * - A candidate is out if it fails, if it returns NaN for inputs of zeros, or (must_keep_nan) if
 *   it returns a number for inputs of NaN.
 * - Under mgpu.deterministic(true) nothing is timed, read from the cache or written to it: the
 *   first candidate that is not out is taken, so the order of the candidates is the rule. */
#ifndef MG_DEVICE_CUDA_AUTOTUNE_H
#define MG_DEVICE_CUDA_AUTOTUNE_H

#include "device/cuda/context/context.h"

enum { MG_AUTOTUNE_CANDIDATES = 8, MG_AUTOTUNE_BUFFERS = 6 };

typedef struct mg_autotune mg_autotune;
struct mg_autotune {
    /* Set by the caller: */
    mg_device *device;
    void *problem;          /* data of the functions below */
    const char *what;       /* for the dispatch log, such as "conv2d" */
    const char *kind;       /* prefix of the cache entry's file name */
    const char *key;        /* the problem in full; NULL: nothing is cached */
    bool must_keep_nan;     /* NaN inputs must give a NaN result (a fused relu may return 0) */
    const mg_value *result; /* its dtype and shape: one element of it is checked */
    int result_buffer;      /* which of the buffers holds it */

    /* Makes the candidates, the one preferred without timing first: sets n (at least 1), their
     * names if they have some, and the buffers' sizes. The candidates belong to the caller. */
    mg_status (*list)(mg_autotune *t);
    /* Enqueues candidate i once, over t->buffers and t->workspace. */
    mg_status (*run)(mg_autotune *t, int i);
    /* Candidate i as bytes for the cache: a block from mg_alloc, or NULL if it has no such form. */
    void *(*save)(mg_autotune *t, int i, size_t *bytes);
    /* Takes what `save` once wrote as the choice; false if it cannot be used any more. */
    bool (*load)(mg_autotune *t, const void *data, size_t bytes);

    /* Set by `list`: */
    int n;
    const char *names[MG_AUTOTUNE_CANDIDATES]; /* for the log; NULL: it has only its number */
    size_t buffer_bytes[MG_AUTOTUNE_BUFFERS];  /* operands and results; 0: not used */
    size_t workspace_bytes;                    /* the largest workspace of a candidate */

    /* Set by the tuner while candidates run: */
    void *buffers[MG_AUTOTUNE_BUFFERS];
    void *workspace;
};

/* *best: the number of the chosen candidate, or -1 if `load` has taken the choice of an earlier
 * run. If there is no memory for a trial, the first candidate is taken and nothing is cached; but
 * with must_keep_nan, which cannot be checked then, the result is MG_UNSUPPORTED. If no candidate
 * passes the checks, the result is the error of the last one that failed, or MG_UNSUPPORTED if none
 * failed. After MG_INTERRUPTED nothing is cached. The calling thread must not hold the device's
 * turn. */
mg_status mg_cuda_autotune(mg_autotune *t, int *best);

#endif

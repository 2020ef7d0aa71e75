/* The parameters of parts.cu: adding partial sums. */
#ifndef MG_DEVICE_CUDA_PARTS_PARAMS_H
#define MG_DEVICE_CUDA_PARTS_PARAMS_H

/* A block takes MG_PARTS_WIDTH neighbouring elements and MG_PARTS_THREADS / MG_PARTS_WIDTH parts at
 * a time. */
enum { MG_PARTS_WIDTH = 32, MG_PARTS_THREADS = 1024 };

typedef struct parts_params {
    const void *parts; /* {n, count} of float, or of double for f64 */
    void *out;         /* {count} of the dtype */
    long long n, count;
} parts_params;

#endif

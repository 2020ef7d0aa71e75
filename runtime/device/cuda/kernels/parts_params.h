/* The parameters of parts.cu. */
#ifndef MG_DEVICE_CUDA_PARTS_PARAMS_H
#define MG_DEVICE_CUDA_PARTS_PARAMS_H

/* A block takes MG_PARTS_WIDTH neighbours, and as many parts at once as it has threads for. */
enum { MG_PARTS_WIDTH = 32, MG_PARTS_THREADS = 1024 };

typedef struct parts_params {
    const void *parts; /* {n, count} of the numbers that are computed with */
    void *out;         /* {count} */
    long long n, count;
} parts_params;

#endif

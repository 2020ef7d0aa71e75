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

#endif

/* Positions from linear indices, and elements by their size alone. */
#ifndef MG_DEVICE_CUDA_INDEX_H
#define MG_DEVICE_CUDA_INDEX_H

#include "device/cuda/kernels/divisor.h"
#include "device/cuda/kernels/kernel.h"

/* i / d.n, for i < 2^31. */
DEVICE uint32_t mg_divide(uint32_t i, mg_divisor d) {
    return ((uint32_t)(((uint64_t)i * d.multiplier) >> 32) + i) >> d.shift;
}

/* What is moved: so many bytes at once, aligned to as many. */
typedef uint8_t unit_1;
typedef uint16_t unit_2;
typedef uint32_t unit_4;
typedef uint64_t unit_8;
typedef struct __attribute__((aligned(16))) unit_16 {
    uint64_t low, high;
} unit_16;

/* A thread moves so many units at a time: reads that are under way together hide their latency. */
enum { MG_AT_ONCE = 4 };

/* The units i of a thread: at most MG_AT_ONCE a round. */
#define ROUNDS(count)                                                                              \
    for (uint32_t first = blockIdx.x * blockDim.x * MG_AT_ONCE + threadIdx.x; first < (count);     \
         first += gridDim.x * blockDim.x * MG_AT_ONCE)
#define EACH(i, k, count)                                                                          \
    for (uint32_t k = 0, i = first; k < MG_AT_ONCE; k++, i += blockDim.x)                          \
        if (i < (count))

#endif

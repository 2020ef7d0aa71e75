/* Index arithmetic and data movement: division by known sizes, units of 1 to 16 bytes, loops in
 * which a thread moves several units, and ids of any integer dtype. */
#ifndef MG_DEVICE_CUDA_INDEX_H
#define MG_DEVICE_CUDA_INDEX_H

#include "device/cuda/kernels/divisor.h"
#include "device/cuda/kernels/kernel.h"

/* i / d.n, for i < 2^31. */
DEVICE uint32_t mg_divide(uint32_t i, mg_divisor d) {
    return ((uint32_t)(((uint64_t)i * d.multiplier) >> 32) + i) >> d.shift;
}

/* Id i of an array of uint8, int32 or int64, which `bytes` (1, 4 or 8) tells apart. */
DEVICE int64_t mg_id(const void *ids, int bytes, int64_t i) {
    if (bytes == 4) return ((const int32_t *)ids)[i];
    if (bytes == 8) return ((const int64_t *)ids)[i];
    return ((const uint8_t *)ids)[i];
}

/* Units of movement: the number of bytes in one access, aligned to their size. Kernels that only
 * move data are compiled per unit, not per dtype. */
typedef uint8_t unit_1;
typedef uint16_t unit_2;
typedef uint32_t unit_4;
typedef uint64_t unit_8;
typedef struct __attribute__((aligned(16))) unit_16 {
    uint64_t low, high;
} unit_16;

/* Units that a thread moves in a round: several reads in flight hide the latency of memory. */
enum { MG_AT_ONCE = 4 };

/* ROUNDS loops over a thread's rounds, EACH over the units i of a round (k = 0 .. MG_AT_ONCE - 1).
 * Within a round the threads of a block take neighbouring units, so that accesses coalesce. */
#define ROUNDS(count)                                                                              \
    for (uint32_t first = blockIdx.x * blockDim.x * MG_AT_ONCE + threadIdx.x; first < (count);     \
         first += gridDim.x * blockDim.x * MG_AT_ONCE)
#define EACH(i, k, count)                                                                          \
    for (uint32_t k = 0, i = first; k < MG_AT_ONCE; k++, i += blockDim.x)                          \
        if (i < (count))

#endif

/* Dividing by the size of an axis. */
#include "device/cuda/launchers/axes.h"

/* Hacker's Delight, 10-9: n / size = (n * magic / 2^32 + n) / 2^shift. */
mg_axis mg_axis_of(int64_t size) {
    mg_axis a = {.size = size};
    if (size <= 0 || size > INT32_MAX) return a;
    while (((int64_t)1 << a.shift) < size) a.shift++;
    const uint64_t excess = ((uint64_t)1 << a.shift) - (uint64_t)size;
    a.magic = (uint32_t)((excess << 32) / (uint64_t)size + 1);
    return a;
}

/* What the rooms of the cpu plug-in share: threads, memory, and the list of kernels.
 *
 * A room is a folder with a header of its name, which declares the room's kernels: conv, products,
 * norm, reduce, movement, images, spectra, int8, fused. simd/ has the inner loops of all, compiled
 * once for each instruction set; onednn/ has the kernels that use the library. */
#ifndef MG_DEVICE_CPU_CPU_H
#define MG_DEVICE_CPU_CPU_H

#include "device/cpu/simd/simd.h"
#include "device/program/program.h"

/* Elements up to which one thread is faster than several. */
enum { MG_SERIAL_BELOW = 20000 };
/* About the size of the last-level cache, in bytes. */
enum { MG_LAST_CACHE = 32 << 20 };
/* Element-wise steps and copies that read and write more bytes than this use non-temporal stores
 * (MG_STREAM), which go past the caches. Half of the last-level cache, because others use it too:
 * on two cores of a processor with 32 MB for eight, a chain of steps that each double the values of
 * an 8 MB tensor took 2.8 ms through the caches and 2.1 ms past them; over 4 MB 0.8 and 1.1 ms. */
enum { MG_STREAM_ABOVE = MG_LAST_CACHE / 2 };

static inline int64_t mg_divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}
static inline int64_t mg_smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t mg_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Threads of a parallel region. */
int mg_cpu_threads(void);
/* Threads for a region over n elements: 1 if it is too small to share. */
static inline int mg_cpu_team(int64_t n) {
    return n > MG_SERIAL_BELOW ? mg_cpu_threads() : 1;
}
/* Each of `places` groups of n > 0 rows is cut into units of work, which the threads of a team
 * share. Returns the rows of a unit: the largest number from `least` to `most` for which the
 * busiest thread has at most about 6 % more rows than the mean; if there is none, the number that
 * comes closest; with one thread, `most`. Never more than n. */
int64_t mg_even_share(int64_t places, int64_t n, int64_t most, int64_t least, int64_t team);
/* The dimensions of a port, and its number of elements. */
static inline const int64_t *mg_dims(const mg_port *port) {
    return port->value->shape.dim;
}
static inline int64_t mg_count(const mg_port *port) {
    return mg_shape_count(&port->value->shape);
}
/* Whether every operand and result is float32. */
bool mg_all_f32(const mg_kernel_plan *plan);
/* Allocates and frees memory of the cpu devices. Large blocks are kept for reuse when they are
 * freed; mg_cpu_free_kept frees the kept ones, and returns whether there were any. */
mg_status mg_cpu_alloc(mg_device *d, size_t bytes, void **data);
void mg_cpu_free(mg_device *d, void *data, size_t bytes);
bool mg_cpu_free_kept(void);

extern const mg_kernel mg_cpu_random, mg_cpu_upcast;
/* Fastest first per op, NULL at the end. */
extern const mg_kernel *const mg_cpu_kernels[];

#endif

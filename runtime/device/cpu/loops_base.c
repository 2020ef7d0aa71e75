/* The tile loops for any x86-64 (or other) processor, and the choice among the tables. */
#define TABLE mg_loops_base
#include "device/cpu/loops_body.h"

#ifdef __x86_64__
#include <cpuid.h>

static bool converts_halves; /* F16C, which not all compilers know by name */

__attribute__((constructor)) static void look(void) {
    unsigned a, b, c, d;
    converts_halves = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const mg_loops *mg_loops_best(void) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &mg_loops_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_halves)
        return &mg_loops_avx2;
#endif
    return &mg_loops_base;
}

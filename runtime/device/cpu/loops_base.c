/* The tile loops for any x86-64 (or other) processor, and the choice among the tables. */
#define TABLE mg_loops_base
#include "device/cpu/loops_body.h"

const mg_loops *mg_loops_best(void) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &mg_loops_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &mg_loops_avx2;
#endif
    return &mg_loops_base;
}

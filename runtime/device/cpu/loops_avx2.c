/* The tile loops for AVX2. */
#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC target("avx2,fma,bmi2,f16c")
#endif
#define TABLE mg_loops_avx2
#include "device/cpu/loops_body.h"

/* The steps of chains for AVX2. */
#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC target("avx2,fma,bmi2")
#endif
#define TABLE mg_chains_avx2
#include "device/cpu/chains_body.h"

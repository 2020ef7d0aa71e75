/* The steps of chains for AVX-512. */
#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC target("avx2,fma,bmi2,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")
#endif
#define TABLE mg_chains_avx512
#include "device/cpu/chains_body.h"

/* The choice of an instruction set, made when the plug-in is opened: the widest that the processor
 * has, or the one that MGPU_ISA names. onednn.c limits oneDNN to the same. */
#include "device/cpu/simd/simd.h"
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

/* The set that every processor of this kind runs. */
#ifdef __aarch64__
#define NARROWEST &mg_simd_neon
#else
#define NARROWEST &mg_simd_baseline
#endif

/* Never NULL, so that a kernel need not ask. */
const mg_simd *mg_simd_used = NARROWEST;

#ifdef __x86_64__
/* Whether the processor has F16C, by its bit: not all compilers know it by name. */
static bool converts_halves(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

/* AVX-512 needs the four parts that the build compiles for; the AVX2 set includes FMA and F16C. */
int mg_simd_available(const mg_simd *sets[3]) {
    int n = 0;
#ifdef __x86_64__
    const bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_halves();
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        sets[n++] = &mg_simd_avx512;
    if (avx2) sets[n++] = &mg_simd_avx2;
#endif
    sets[n++] = NARROWEST;
    return n;
}

/* The only write to mg_simd_used. A later call finds the same set and leaves it alone, because
 * programs on other devices may be running. */
static mg_status use(const mg_simd *set) {
    if (mg_simd_used != set) mg_simd_used = set;
    return MG_OK;
}

/* An unknown name and an instruction set that the processor lacks are different mistakes, with
 * different messages. */
mg_status mg_simd_choose(void) {
    static const char *const names[] = {"avx512", "avx2", "baseline", "neon"};
    const mg_simd *sets[3];
    const int n = mg_simd_available(sets);
    const char *wanted = getenv("MGPU_ISA");
    if (!wanted || !*wanted) return use(sets[0]);
    for (int i = 0; i < n; i++)
        if (strcmp(wanted, sets[i]->name) == 0) return use(sets[i]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(wanted, names[i]) == 0)
            return mg_fail(MG_USAGE,
                           "MGPU_ISA=%s: this processor lacks that instruction set; the widest it "
                           "has is %s",
                           wanted, sets[0]->name);
    return mg_fail(MG_USAGE,
                   "MGPU_ISA=%s: unknown instruction set; choose avx512, avx2 or baseline (on "
                   "aarch64 neon)",
                   wanted);
}

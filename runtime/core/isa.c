/* The choice of an instruction set. */
#include "core/isa.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>

/* Whether the processor has F16C. Reads the CPUID bit, because not all compilers know the name. */
static bool converts_halves(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static mg_isa widest;

static void find_widest(void) {
    widest = MG_ISA_NARROWEST;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !converts_halves())
        return;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    widest = wide ? MG_ISA_AVX512 : MG_ISA_AVX2;
}

/* CPUID is executed once only: in a virtual machine it takes microseconds. */
mg_isa mg_isa_widest(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_widest);
    return widest;
}
#else
mg_isa mg_isa_widest(void) {
    return MG_ISA_NARROWEST;
}
#endif

/* The names of the sets in MGPU_ISA, on this kind of processor. */
#ifdef __aarch64__
static const char *const names[] = {"neon"};
#else
static const char *const names[] = {"baseline", "avx2", "avx512"};
#endif

/* The set that MGPU_ISA names, or the widest if it is not set. *wanted: the name. False: the
 * processor has no set of that name; *isa is the narrowest. */
static bool find_wanted(const char **wanted, mg_isa *isa) {
    const mg_isa most = mg_isa_widest();
    *wanted = getenv("MGPU_ISA");
    *isa = most;
    if (!*wanted || !**wanted) return true;
    for (*isa = MG_ISA_NARROWEST; *isa <= most; ++*isa)
        if (strcmp(*wanted, names[*isa]) == 0) return true;
    *isa = MG_ISA_NARROWEST;
    return false;
}

/* An unknown name and an instruction set that the processor lacks are different mistakes, with
 * different messages. */
mg_status mg_isa_choose(mg_isa *isa) {
    static const char *const known[] = {"avx512", "avx2", "baseline", "neon"};
    const char *wanted;
    if (find_wanted(&wanted, isa)) return MG_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(wanted, known[i]) == 0)
            return mg_fail(MG_USAGE,
                           "MGPU_ISA=%s: this processor lacks that instruction set; the widest it "
                           "has is %s",
                           wanted, names[mg_isa_widest()]);
    return mg_fail(MG_USAGE,
                   "MGPU_ISA=%s: unknown instruction set; choose avx512, avx2 or baseline (on "
                   "aarch64 neon)",
                   wanted);
}

static mg_isa used;

static void find_used(void) {
    const char *wanted;
    find_wanted(&wanted, &used);
}

mg_isa mg_isa_used(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_used);
    return used;
}

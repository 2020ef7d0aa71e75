/* The tables of the instruction set that core/isa.h chooses, picked when the plug-in is opened.
 * onednn.c limits oneDNN to the same set. */
#include "core/isa.h"
#include "device/cpu/simd/simd.h"

/* The tables by mg_isa; NARROWEST: those of the set that every processor of this kind runs. */
#if defined(__x86_64__)
#define NARROWEST &mg_simd_baseline
static const mg_simd *const tables[] = {NARROWEST, &mg_simd_avx2, &mg_simd_avx512};
#elif defined(__aarch64__)
#define NARROWEST &mg_simd_neon
static const mg_simd *const tables[] = {NARROWEST};
#else
#define NARROWEST &mg_simd_baseline
static const mg_simd *const tables[] = {NARROWEST};
#endif

/* Never NULL, so that a kernel need not ask. */
const mg_simd *mg_simd_used = NARROWEST;

int mg_simd_available(const mg_simd *sets[3]) {
    int n = 0;
    for (int isa = (int)mg_isa_widest(); isa >= MG_ISA_NARROWEST; isa--) sets[n++] = tables[isa];
    return n;
}

/* The only write to mg_simd_used. A later call finds the same set and leaves it alone, because
 * programs on other devices may be running. */
mg_status mg_simd_choose(void) {
    mg_isa isa;
    MG_TRY(mg_isa_choose(&isa));
    if (mg_simd_used != tables[isa]) mg_simd_used = tables[isa];
    return MG_OK;
}

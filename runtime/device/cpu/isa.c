/* Chooses the tables of loops for an instruction set, when the plug-in is opened: core/isa.h
 * decides which set. onednn.c limits oneDNN to the same one. */
#include "core/isa.h"
#include "device/cpu/simd/simd.h"

/* The tables, in the order of mg_isa. NARROWEST: the set that every processor of this architecture
 * runs. */
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

/* Never NULL: kernels use it without a check. */
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

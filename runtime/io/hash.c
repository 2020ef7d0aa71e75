/* Chooses the instruction set for XXH3 at run time, because its header uses only the instruction
 * set of the build. */
#include "io/hash.h"
#include "core/isa.h"

#if defined(__x86_64__)
void mg_hash_add(mg_hash *h, const void *bytes, size_t n) {
    if (mg_isa_used() >= MG_ISA_AVX2)
        mg_hash_add_avx2(h, bytes, n);
    else
        XXH3_64bits_update(h, bytes, n);
}
#else
void mg_hash_add(mg_hash *h, const void *bytes, size_t n) {
    XXH3_64bits_update(h, bytes, n);
}
#endif

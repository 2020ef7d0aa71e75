/* Counter-based random words: Philox4x32-10 (Salmon et al., SC 2011).
 *
 * Key = (seed, stream). Counter words 0-1 = element index / 4, words 2-3 = the draw's ordinal. One
 * block gives four 32-bit words: element i of a tensor uses word i % 4 of block i / 4. Any device
 * can therefore make any part of a tensor, and eager, jitted and sharded runs get the same numbers.
 * Device kernels include this text too, with MG_FORMULA defined as the qualifiers of a device
 * function. */
#ifndef MG_CORE_PHILOX_H
#define MG_CORE_PHILOX_H

#include <stdint.h>

#ifndef MG_FORMULA
#define MG_FORMULA static inline
#endif

MG_FORMULA void mg_philox(uint32_t out[4], uint64_t index, uint64_t ordinal, uint32_t seed,
                          uint32_t stream) {
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)ordinal, c3 = (uint32_t)(ordinal >> 32);
    uint32_t k0 = seed, k1 = stream;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

#endif

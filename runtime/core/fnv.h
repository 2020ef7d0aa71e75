/* FNV-1a, a hash for short keys, and for values that are compared between processes. */
#ifndef MG_CORE_FNV_H
#define MG_CORE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define MG_FNV_START 0xcbf29ce484222325u
#define MG_FNV_PRIME 0x100000001b3u

/* The hash of n bytes; `hash` is the start above, or the hash of what comes before. */
static inline uint64_t mg_fnv(uint64_t hash, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * MG_FNV_PRIME;
    return hash;
}

#endif

/* Walks: elements copied from one place to another, with a stride per axis in the source and in the
 * destination. Nearly every op that moves elements is one (movement.c). */
#ifndef MG_DEVICE_CPU_WALK_H
#define MG_DEVICE_CPU_WALK_H

#include "device/cpu/cpu.h"

/* n[i] elements of `size` bytes along axis i, from[i] apart in the source and to[i] in the
 * destination. Strides and offsets are in elements. */
typedef struct mg_walk {
    const void *src;
    void *dst;
    int64_t size;
    int rank;
    int64_t n[MG_MAX_RANK], from[MG_MAX_RANK], to[MG_MAX_RANK];
    int64_t from_first, to_first; /* offsets of the first element */
} mg_walk;

/* Runs independent walks with all threads; changes them. Walks that differ in their last axis only
 * advance side by side, so that what they read or write next to each other is in the cache once:
 * the parts of a concatenation, or slices of one tensor. */
void mg_walks_run(mg_walk *walks, int n);

#endif

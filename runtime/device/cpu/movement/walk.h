/* Walks are strided copies: elements are copied with a stride for each axis in the source and in
 * the destination. Nearly every op that moves elements is one (movement/movement.c). */
#ifndef MG_DEVICE_CPU_MOVEMENT_WALK_H
#define MG_DEVICE_CPU_MOVEMENT_WALK_H

#include "device/cpu/cpu.h"

/* n[i] elements of `size` bytes along axis i, from[i] apart in the source and to[i] apart in the
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
 * advance together, so that memory which they read or write side by side (the parts of a
 * concatenation, slices of one tensor) is brought into the cache once. */
void mg_walks_run(mg_walk *walks, int n);

#endif

/* Giving blocks with known life spans their places in one arena. */
#ifndef MG_DEVICE_PROGRAM_ARENA_H
#define MG_DEVICE_PROGRAM_ARENA_H

#include "core/status.h"
#include <stddef.h>

enum { MG_ARENA_ALIGNMENT = 256 }; /* libraries for GPUs want their workspace so */

typedef struct mg_block {
    size_t bytes;
    int first, last; /* times of first and last use, both included */
    size_t offset;   /* result, a multiple of MG_ARENA_ALIGNMENT */
} mg_block;

/* Blocks whose life spans overlap get disjoint places. *total is the arena's size. */
mg_status mg_arena_assign(mg_block **blocks, int n, size_t *total);

#endif

/* Arena planning: offsets for memory blocks of known life spans, such that blocks that are never
 * alive at the same time may share bytes. */
#ifndef MG_DEVICE_PROGRAM_ARENA_H
#define MG_DEVICE_PROGRAM_ARENA_H

#include "core/status.h"
#include <stddef.h>

enum { MG_ARENA_ALIGNMENT = 256 }; /* bytes; what cuDNN and cuBLAS ask of workspaces */

typedef struct mg_block {
    size_t bytes;
    int first, last; /* numbers of the first and last call that use it */
    size_t offset;   /* the result, a multiple of MG_ARENA_ALIGNMENT */
} mg_block;

/* Sets the offset of each block, so that blocks whose life spans overlap are disjoint, and *total
 * to the bytes of the arena. Sorts `blocks`. MG_OOM. */
mg_status mg_arena_assign(mg_block **blocks, int n, size_t *total);

#endif

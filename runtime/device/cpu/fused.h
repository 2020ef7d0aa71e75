/* A fused element-wise group as the cpu device runs it: its iteration space cut into tiles, where
 * its operands lie, and the passes over a tile.
 *
 * There are two ways to run instructions over a tile. A loop applies one instruction to the whole
 * tile (simd/elementwise.h); its operands and its result are registers, which here are pieces of
 * scratch memory as long as a tile. Threaded code runs several instructions on a strip that stays
 * in vector registers (simd/fused_threaded.h). Both stay, since each is the faster one somewhere,
 * measured with AVX-512 and one thread. With loops only, RMSprop and Adam over 2.35 million weights
 * take 2 to 3.5 times as long. With threaded code only, a row added to each row of a matrix takes
 * 1.0 to 1.2 times as long, relu over 3 million floats 1.2, results that are rounded to halves or
 * integers 1.2 to 1.6 times. Not tried: typed stores in threaded code that round once.
 */
#ifndef MG_DEVICE_CPU_FUSED_H
#define MG_DEVICE_CPU_FUSED_H

#include "device/cpu/cpu.h"

enum {
    MG_FUSED_AXES = MG_MAX_RANK + 1, /* cutting tiles may add an axis */
    MG_FUSED_OPERANDS = MG_FUSE_MAX_INPUTS + 2 * MG_FUSE_MAX_INSTRS,
    MG_FUSED_STEPS = 5 * MG_FUSE_MAX_INSTRS /* load, an op of two steps, store, end */
};

/* One pass over a tile: the loop of one instruction, or threaded code for several. */
typedef struct mg_fused_pass {
    int from, to;    /* instructions from .. to - 1 */
    int step, steps; /* threaded code: its first step, and how many; 0 steps: a loop */
} mg_fused_pass;

/* A step of threaded code before a tile is known: the operand's address is filled in per tile. */
typedef struct mg_fused_step {
    mg_threaded_code *code;
    int16_t operand;
    int16_t pad; /* buffer in which the operand's last, partial strip is completed; -1: the operand
                    is the same in every strip */
    bool stores;
} mg_fused_step;

typedef struct mg_fused_state {
    /* the iteration space after axes are merged; strides in elements of the input */
    int rank;
    int64_t dim[MG_FUSED_AXES];
    int64_t stride[MG_FUSE_MAX_INPUTS][MG_FUSED_AXES];
    int64_t count;         /* elements */
    int64_t outer;         /* combinations of the axes outside the tile */
    int64_t rows, columns; /* of a full tile */
    int64_t pieces;        /* tiles per combination */
    int64_t length;        /* elements of a register */
    int n_passes;
    mg_fused_pass pass[MG_FUSE_MAX_INSTRS]; /* in the order of their instructions */
    bool single_pass;                       /* threaded code runs the whole group */
    int n_steps, n_pads;
    mg_fused_step step[MG_FUSED_STEPS];
    int n_registers;
    /* Each operand's register. -1: an input that is read where it lies, or a result that only the
     * next instruction of the same threaded code reads. */
    int16_t reg[MG_FUSED_OPERANDS];
    size_t width;        /* bytes of a register's element: float or double */
    size_t thread_bytes; /* scratch per thread */
    bool past_caches;    /* float32 results are stored past the caches */
    const mg_simd_elementwise *loops;
    const mg_simd_threaded *threaded;
} mg_fused_state;

/* Chooses passes, tiles and registers: the prepare function of the kernel. */
mg_status mg_fused_prepare(mg_kernel_plan *plan);

#endif

/* A fused group as the cpu device runs it: its iteration space, cut into tiles, and the places of
 * its operands. */
#ifndef MG_DEVICE_CPU_FUSED_H
#define MG_DEVICE_CPU_FUSED_H

#include "device/cpu/cpu.h"
#include "device/cpu/loops.h"

enum {
    MG_FUSED_AXES = MG_MAX_RANK + 1,
    MG_FUSED_OPERANDS = MG_FUSE_MAX_INPUTS + 2 * MG_FUSE_MAX_INSTRS
};

/* One loop over a tile: an instruction, or two. */
typedef struct mg_fused_loop {
    mg_loop_f32 *pair; /* NULL: the instruction's own */
    int instr;         /* whose result it makes */
    int n_args;
    int16_t arg[3]; /* operands */
} mg_fused_loop;

typedef struct mg_fused_state {
    int rank; /* of the iteration space, after merging */
    int64_t dim[MG_FUSED_AXES];
    int64_t stride[MG_FUSE_MAX_INPUTS][MG_FUSED_AXES]; /* in elements of the input */
    int64_t count, outer;  /* elements; tiles' origins outside the tile */
    int64_t rows, columns; /* of a full tile */
    int64_t pieces;        /* tiles per origin */
    int64_t length;        /* elements of a register */
    int n_loops;
    mg_fused_loop loop[MG_FUSE_MAX_INSTRS]; /* in the order of their instructions */
    int n_registers;
    int16_t reg[MG_FUSED_OPERANDS]; /* each operand's register; -1: an input read where it lies */
    size_t width, thread_bytes;     /* of a register's element; of scratch */
    bool past_caches; /* float32 results that are too large to be found in a cache later */
    const mg_loops *loops;
} mg_fused_state;

/* Chooses layouts, tiles and registers. */
mg_status mg_fused_prepare(mg_kernel_plan *plan);

#endif

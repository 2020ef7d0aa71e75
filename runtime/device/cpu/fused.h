/* A fused group as the cpu device runs it: its iteration space, cut into tiles, and the places of
 * its operands. */
#ifndef MG_DEVICE_CPU_FUSED_H
#define MG_DEVICE_CPU_FUSED_H

#include "device/cpu/simd/simd.h"
#include "device/cpu/cpu.h"

enum {
    MG_FUSED_AXES = MG_MAX_RANK + 1,
    MG_FUSED_OPERANDS = MG_FUSE_MAX_INPUTS + 2 * MG_FUSE_MAX_INSTRS,
    MG_FUSED_STEPS = 5 * MG_FUSE_MAX_INSTRS /* load, do in two steps, store, end */
};

/* What goes over a tile at once: an instruction, or several that follow one another, as a chain. */
typedef struct mg_fused_loop {
    int from, to;    /* instructions: up to, but without, `to` */
    int step, steps; /* of the chain, the first and how many; none: the loop of one instruction */
} mg_fused_loop;

typedef struct mg_fused_step {
    mg_threaded_code *code;
    int16_t operand;
    int16_t pad; /* where the last strip of an operand that moves is made whole; -1: moves not */
    bool stores;
} mg_fused_step;

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
    bool chained;                           /* one chain does it all */
    int n_steps, n_pads;
    mg_fused_step step[MG_FUSED_STEPS];
    int n_registers;
    /* each operand's register; -1: an input read where it lies, a result handed on only */
    int16_t reg[MG_FUSED_OPERANDS];
    size_t width, thread_bytes; /* of a register's element; of scratch */
    bool past_caches; /* float32 results that are too large to be found in a cache later */
    const mg_simd_elementwise *loops;
    const mg_simd_threaded *threaded;
} mg_fused_state;

/* Whether not every value of an op is one its result type can hold, given that its operands are. */
bool mg_fused_rounds(const mg_instr *instr, bool wide);

/* Chooses layouts, tiles and registers. */
mg_status mg_fused_prepare(mg_kernel_plan *plan);

#endif

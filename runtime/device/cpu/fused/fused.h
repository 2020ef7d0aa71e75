/* A fused element-wise group as the cpu device runs it: its iteration space cut into tiles
 * (fused/space.c), where its operands lie, and the threaded code for a strip
 * (simd/fused_threaded.h, written by fused/program.c). A group computes in float32 or float64,
 * which is called the registers' dtype.
 *
 * All groups run as threaded code, whatever their dtypes and broadcasting, except for groups of one
 * unary or binary instruction whose operands and result have the registers' dtype and are not too
 * large for the caches: these run as a plain loop. As threaded code they would take longer,
 * measured with AVX2 and one thread over 2,000 and 32,000 elements: an addition or relu 1.0 to 1.7
 * times, exp and sigmoid 1.2 to 1.4 times, because each strip loads the polynomial's constants
 * again.
 *
 * Steps that read a row again and again need a second offset. As a part of every address it made
 * groups of two or three instructions 4 to 8 % slower; so `run` moves the addresses of these steps
 * instead. */
#ifndef MG_DEVICE_CPU_FUSED_FUSED_H
#define MG_DEVICE_CPU_FUSED_FUSED_H

#include "device/cpu/cpu.h"

/* Operands are numbered: inputs, immediates and the instructions' results as in fused_expr.h, then
 * the outputs, then inputs that have been converted to the registers' dtype. */
enum {
    MG_FUSED_AXES = MG_MAX_RANK + 1, /* cutting tiles may add an axis */
    MG_FUSED_OPERANDS = 2 * MG_FUSE_MAX_INPUTS + 2 * MG_FUSE_MAX_INSTRS + MG_FUSE_MAX_OUTPUTS,
    /* steps of an instruction: load, an op of two steps, round, two stores; of an input: load and
     * store; of an output: load and store; the end */
    MG_FUSED_STEPS = 6 * MG_FUSE_MAX_INSTRS + 2 * MG_FUSE_MAX_INPUTS + 2 * MG_FUSE_MAX_OUTPUTS + 1
};

/* How a tile reads an input. */
typedef enum mg_fused_access {
    MG_READ_IN_PLACE, /* element by element, in memory order */
    MG_READ_ROW,      /* a row of the innermost axis, again and again */
    MG_READ_ONE,      /* one element for the whole tile */
    MG_READ_GATHERED  /* copied for each tile, in its dtype */
} mg_fused_access;

/* A step of threaded code before a tile is known: the operand's address is filled in per tile. */
typedef struct mg_fused_step {
    mg_threaded_code *code;
    int16_t operand;
    /* 0: always taken; o + 1: only if output o is stored early (right after its instruction); -(o +
     * 1): only if it is stored late (at the end of the strip) */
    int8_t when;
    bool may_stream; /* a store of an output that no later step reads */
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
    int64_t row;           /* elements of a row (MG_READ_ROW) */
    /* elements of a whole number of rows, at least a strip: the length of repeated rows in
     * scratch */
    int64_t period;
    mg_fused_access access[MG_FUSE_MAX_INPUTS];
    mg_threaded_loop *loop; /* runs a group of one instruction instead of steps, or NULL */
    int64_t copies;         /* copies of a single number in scratch memory */
    int n_steps;
    mg_fused_step step[MG_FUSED_STEPS];
    /* Offsets in scratch, in bytes, of the operand's place and of its pad, a strip that completes
     * its last elements; -1: none. */
    int32_t place[MG_FUSED_OPERANDS], pad[MG_FUSED_OPERANDS];
    size_t thread_bytes; /* scratch per thread */
    /* whether the output's memory may be that of an input which a later instruction reads */
    bool late[MG_FUSE_MAX_OUTPUTS];
    bool past_caches; /* results are stored past the caches */
    mg_dtype real;    /* of the registers: float32 or float64 */
    size_t width;     /* bytes of an element of it */
    const mg_simd_threaded *threaded;
} mg_fused_state;

/* The operand numbers of the result of instruction i, of output o, and of converted input i. */
static inline int mg_fused_result(const mg_fused *e, int i) {
    return e->n_inputs + e->n_imms + i;
}
static inline int mg_fused_output(const mg_fused *e, int o) {
    return mg_fused_result(e, e->n_instrs) + o;
}
static inline int mg_fused_converted(const mg_fused *e, int i) {
    return mg_fused_output(e, e->n_outputs) + i;
}

/* Cuts the iteration space into tiles and chooses how inputs are read: fused/space.c. */
void mg_fused_cut(mg_fused_state *s, const mg_kernel_plan *plan);

/* Writes the steps, and gives operands their places: fused/program.c. */
void mg_fused_write(mg_fused_state *s, const mg_kernel_plan *plan);

extern const mg_kernel mg_cpu_fused;

#endif

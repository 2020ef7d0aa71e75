/* Fused element-wise groups: a straight-line expression over one iteration shape. */
#ifndef MG_GRAPH_FUSE_H
#define MG_GRAPH_FUSE_H

#include "core/dtype.h"

#define MG_FUSE_MAX_INPUTS 24
#define MG_FUSE_MAX_INSTRS 64
#define MG_FUSE_MAX_OUTPUTS 8

/* Operands are numbered: inputs, then immediates, then the results of the instructions in order. */
typedef struct mg_instr {
    uint8_t op;    /* index in elementwise.def */
    uint8_t dtype; /* of the result: the value is rounded to it */
    uint8_t n_args;
    int16_t arg[3]; /* operand numbers, all smaller than the result's own */
} mg_instr;

typedef struct mg_fused {
    int32_t n_inputs, n_imms, n_instrs, n_outputs;
    /* Registers hold double if true, float otherwise. A group is wide if any dtype in it (inputs
     * and results) is f64, i32 or i64; fusing never joins wide and narrow operations. */
    int32_t wide;
    uint8_t in_dtype[MG_FUSE_MAX_INPUTS];
    double imm[MG_FUSE_MAX_INSTRS];
    mg_instr instr[MG_FUSE_MAX_INSTRS];
    int16_t output[MG_FUSE_MAX_OUTPUTS]; /* operand numbers */
} mg_fused;

#endif

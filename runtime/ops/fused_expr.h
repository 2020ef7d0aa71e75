/* The expression of a fused element-wise step: straight-line code over one iteration shape.
 *
 * graph/fuse.c makes expressions out of chains of element-wise ops, and every device runs or
 * compiles them. For each index of the iteration shape the instructions run once, in order; there
 * are no jumps. An input whose shape is smaller than the iteration shape is broadcast. */
#ifndef MG_OPS_FUSED_EXPR_H
#define MG_OPS_FUSED_EXPR_H

#include "core/dtype.h"
#include "ops/elementwise.h"

#define MG_FUSE_MAX_INPUTS 24
#define MG_FUSE_MAX_INSTRS 64
#define MG_FUSE_MAX_OUTPUTS 8

/* Operands are numbered: inputs first, then immediates, then the instructions' results in order. */
typedef struct mg_instr {
    uint8_t op;     /* the row of elementwise.def */
    uint8_t dtype;  /* of the result, which is rounded to it */
    uint8_t n_args; /* how many entries of arg are used */
    int16_t arg[3]; /* operand numbers, each smaller than the number of this result */
} mg_instr;

typedef struct mg_fused {
    int32_t n_inputs, n_imms, n_instrs, n_outputs;
    /* Registers hold double if true, float otherwise. An expression is wide if any dtype in it
     * (inputs and results) is f64, i32 or i64; fusing never joins wide and narrow operations. */
    int32_t wide;
    uint8_t in_dtype[MG_FUSE_MAX_INPUTS];
    double imm[MG_FUSE_MAX_INSTRS];      /* the immediates: literals of the graph */
    mg_instr instr[MG_FUSE_MAX_INSTRS];  /* n_instrs of them */
    int16_t output[MG_FUSE_MAX_OUTPUTS]; /* operand numbers of the values that are stored */
} mg_fused;

/* Whether an instruction's result must be rounded to its dtype. `wide`: see mg_fused. False if the
 * registers have that dtype, and for ops of the rule BOOL, whose value is 0 or 1. */
static inline bool mg_fused_rounds(const mg_instr *instr, bool wide) {
    if (instr->dtype == (wide ? MG_F64 : MG_F32)) return false;
    return instr->dtype != MG_BOOL || !mg_elementwise_is_bool((enum mg_elementwise)instr->op);
}

#endif

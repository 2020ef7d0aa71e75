/* Chains: instructions of a fused group that follow one another, run strip by strip in one pass.
 *
 * A strip is what a few vector registers hold. It goes from step to step in them: each step does
 * one thing to it, with a strip of its operand where it has one, and jumps to the next. So what an
 * instruction makes for the next one is never stored. The bits are those of the loops of loops.h
 * one after another. */
#ifndef MG_DEVICE_CPU_CHAINS_H
#define MG_DEVICE_CPU_CHAINS_H

#include "ops/elementwise.h"
#include <stddef.h>

enum { MG_STRIP = 64 }; /* the most elements of a strip */

typedef void mg_chain_code(void); /* of a type that the table knows */

typedef struct mg_chain_step {
    mg_chain_code *code;
    char *at;        /* the operand */
    ptrdiff_t moves; /* -1: on with the strips; 0: one strip serves all */
} mg_chain_step;

/* The forms of a step: x becomes op(x, operand) or op(operand, x), the operand a strip or what lies
 * first there, a number throughout. An op of three operands takes two steps, and its forms say
 * which of them x is. */
enum { MG_WITH, MG_FROM, MG_WITH_ONE, MG_FROM_ONE, MG_CHAIN_FORMS };

typedef struct mg_chains {
    int strip; /* elements */
    /* a unary op has one form and no operand */
    mg_chain_code *op[MG_N_ELEMENTWISE][MG_CHAIN_FORMS];
    /* `stream` stores past the caches, at a multiple of 64 bytes */
    mg_chain_code *load, *store, *stream, *end;
    /* To the step `end`. What follows in the arrays, read from their first elements on, is asked
     * for ahead. */
    void (*run)(const mg_chain_step *steps, int strips, const char *const *arrays, int n_arrays);
} mg_chains;

extern const mg_chains mg_chains_base, mg_chains_avx2, mg_chains_avx512;
/* The best that this processor runs. */
const mg_chains *mg_chains_best(void);

#endif

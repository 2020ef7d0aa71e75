/* Chains: instructions of a fused group that follow one another, run strip by strip in one pass.
 *
 * A strip is what a few vector registers hold. It goes from step to step in them: each step does
 * one thing to it, with a strip of its operand where it has one, and jumps to the next. So what an
 * instruction makes for the next one is never stored. The bits are those of the loops of loops.h
 * one after another. */
#ifndef MG_DEVICE_CPU_SIMD_FUSED_THREADED_H
#define MG_DEVICE_CPU_SIMD_FUSED_THREADED_H

#include "ops/elementwise.h"
#include <stddef.h>

enum { MG_STRIP = 64 }; /* the most elements of a strip */

typedef void mg_threaded_code(void); /* of a type that the table knows */

typedef struct mg_threaded_step {
    mg_threaded_code *code;
    char *at;        /* the operand */
    ptrdiff_t moves; /* -1: on with the strips; 0: one strip serves all */
} mg_threaded_step;

/* The forms of a step: x becomes op(x, operand) or op(operand, x), the operand a strip or what lies
 * first there, a number throughout. An op of three operands takes two steps, and its forms say
 * which of them x is. */
enum { MG_WITH, MG_FROM, MG_WITH_ONE, MG_FROM_ONE, MG_THREADED_FORMS };

typedef struct mg_simd_threaded {
    int strip; /* elements */
    /* a unary op has one form and no operand */
    mg_threaded_code *op[MG_N_ELEMENTWISE][MG_THREADED_FORMS];
    /* `stream` stores past the caches, at a multiple of 64 bytes */
    mg_threaded_code *load, *store, *stream, *end;
    /* To the step `end`. What follows in the arrays, read from their first elements on, is asked
     * for ahead. */
    void (*run)(const mg_threaded_step *steps, int strips, const char *const *arrays, int n_arrays);
} mg_simd_threaded;

#endif

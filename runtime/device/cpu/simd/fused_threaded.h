/* Threaded code for fused groups: consecutive instructions run strip by strip, in one pass over
 * memory.
 *
 * A strip is as many floats as a few vector registers hold. It is passed from step to step in those
 * registers: each step applies one operation to it, with a strip of an operand from memory if it
 * has one, and jumps to the code of the next step. So a result that only the next instruction reads
 * never goes through memory. The results have the bits of the loops of elementwise.h. */
#ifndef MG_DEVICE_CPU_SIMD_FUSED_THREADED_H
#define MG_DEVICE_CPU_SIMD_FUSED_THREADED_H

#include "ops/elementwise.h"
#include <stddef.h>

enum { MG_STRIP = 64 }; /* floats of the longest strip of any instruction set */

/* The code of a step. Its true type has vectors as parameters, which only simd/fused_threaded.c
 * knows. */
typedef void mg_threaded_code(void);

typedef struct mg_threaded_step {
    mg_threaded_code *code;
    char *at; /* the operand in memory */
    ptrdiff_t
        moves; /* a mask: -1: the operand advances with the strips; 0: all read the same one */
} mg_threaded_step;

/* The forms of an operation on the strip x: op(x, operand) and op(operand, x), where the operand is
 * a strip or (ONE) a single number. A unary operation has one form and no operand. One with three
 * operands takes two steps, and its forms 0, 1 and 2 say which of them x is. */
enum { MG_WITH, MG_FROM, MG_WITH_ONE, MG_FROM_ONE, MG_THREADED_FORMS };

typedef struct mg_simd_threaded {
    int strip; /* floats */
    mg_threaded_code *op[MG_N_ELEMENTWISE][MG_THREADED_FORMS];
    /* moves between the strip and memory; `stream` stores past the caches, at a multiple of 64
     * bytes */
    mg_threaded_code *load, *store, *stream, *end;
    /* Runs the steps up to `end` for each of `strips` strips, and prefetches the arrays, of which
     * the first strip is at the given addresses. */
    void (*run)(const mg_threaded_step *steps, int strips, const char *const *arrays, int n_arrays);
} mg_simd_threaded;

#endif

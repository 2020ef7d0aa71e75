/* Threaded code: the instructions of a fused group run strip by strip, in one pass over memory.
 *
 * A strip is as many elements as a few vector registers hold. It is passed from step to step in
 * those registers: each step applies one operation to it, with a strip of an operand from memory if
 * it has one, and jumps to the code of the next step. So a result that only the next instruction
 * reads never goes through memory. A load converts from the dtype in memory to float or double, and
 * a store rounds to the dtype in memory. */
#ifndef MG_DEVICE_CPU_SIMD_FUSED_THREADED_H
#define MG_DEVICE_CPU_SIMD_FUSED_THREADED_H

#include "core/dtype.h"
#include "ops/elementwise.h"
#include <stddef.h>
#include <stdint.h>

/* Bytes of the longest strip of any instruction set, and the elements of it in float. */
enum { MG_STRIP_BYTES = 256, MG_STRIP = MG_STRIP_BYTES / 4 };

/* The code of a step. Its true type has vectors as parameters, which only simd/fused_steps.h
 * knows. */
typedef void mg_threaded_code(void);

typedef struct mg_threaded_step {
    mg_threaded_code *code;
    char *at;        /* the operand in memory */
    ptrdiff_t moves; /* a mask: -1: the operand advances with the strips; 0: it does not */
} mg_threaded_step;

/* The strips over which `run` runs the steps. */
typedef struct mg_threaded_strips {
    ptrdiff_t n;
    /* Steps whose operand is a row that is read again and again: `run` moves the addresses of these
     * steps. In memory, the row is repeated until it is at least a strip long; that length is the
     * period. Then follows a strip of its beginning, so that a strip can begin anywhere in the
     * period. In bytes: where in the period the first strip begins, and the length of the
     * period. */
    const int16_t *row_step;
    int n_row_steps;
    ptrdiff_t row, period;
    /* arrays to prefetch: the addresses of their first strips, and their number */
    const char *const *arrays;
    int n_arrays;
} mg_threaded_strips;

/* The forms of an operation on the strip x: op(x, operand) and op(operand, x), where the operand is
 * a strip or (ONE) a single number. A unary operation has one form and no operand. One with three
 * operands takes two steps, and its forms 0, 1 and 2 say which of them x is. */
enum { MG_WITH, MG_FROM, MG_WITH_ONE, MG_FROM_ONE, MG_THREADED_FORMS };

typedef void mg_threaded_loop(void *out, const void *a, const void *b, int n);

/* Threaded code on strips of float, or of double. */
typedef struct mg_simd_threaded {
    int strip; /* elements */
    mg_threaded_code *op[MG_N_ELEMENTWISE][MG_THREADED_FORMS];
    /* A unary or binary operation on n elements in memory, for groups of a single instruction: no
     * strip, no jumps. `out` may be one of the operands. */
    mg_threaded_loop *loop[MG_N_ELEMENTWISE];
    /* Steps between the strip and memory of a dtype; NULL for dtypes that need strips of double.
     * `round` rounds each element to a value that the dtype can hold. */
    mg_threaded_code *load[MG_N_DTYPES], *store[MG_N_DTYPES], *round[MG_N_DTYPES];
    /* stores strips of the registers' own type past the caches, at a multiple of 64 bytes */
    mg_threaded_code *stream;
    mg_threaded_code *end;
    /* runs the steps up to `end` for each strip */
    void (*run)(mg_threaded_step *steps, const mg_threaded_strips *strips);
} mg_simd_threaded;

#endif

/* Inner loops of matrix products in float and double: see products/gemm.c one folder up. The second
 * factor is packed into strips of columns as wide as two vectors (micro-panels, in the terms of
 * BLIS). */
#ifndef MG_DEVICE_CPU_SIMD_GEMM_H
#define MG_DEVICE_CPU_SIMD_GEMM_H

#include "core/dtype.h"
#include <stdbool.h>
#include <stdint.h>

/* c[r * rc + column] = the sum over d of a[r * ra + d * da] * b[d][column], for a strip of columns.
 * Either ra or da is 1. The first factor's terms may lie in several runs with gaps between them. */
typedef struct mg_gemm_product {
    const void *a;
    int64_t ra, da, depth;
    int64_t run, gap; /* terms of a run; elements skipped between two runs */
    const void *b;    /* {depth, strip} */
    /* columns of the strip that are wanted; one or both of its vectors are computed */
    int64_t columns;
    void *c;
    int64_t rc;
    mg_dtype stored;  /* float16 or bfloat16: c is rounded to it; any other: c has b's dtype */
    const void *sums; /* {rows, strip} to be added, which may be c, or NULL */
    const void *bias; /* to be added, per column, or NULL */
    bool relu;        /* comes last; NaN stays NaN */
    /* terms of a partial sum; the partial sums are then added up. Shorter ones lose less to
     * rounding */
    int64_t chain;
    /* memory that the next product reads, or NULL: the loops prefetch it, a little in each turn */
    const void *next;
    int64_t next_bytes;
} mg_gemm_product;

/* Sums to be written: `rows` rows of `columns`, in strips that lie `apart` elements from each
 * other. */
typedef struct mg_gemm_sums {
    const void *at; /* {strips, rows, strip} */
    int64_t apart, rows, columns;
    const void *bias; /* per column, or NULL */
    bool relu;        /* NaN stays NaN */
    /* float16 or bfloat16: results are rounded to it; any other: results have the sums' dtype */
    mg_dtype dtype;
} mg_gemm_sums;

typedef struct mg_simd_gemm {
    int strip; /* columns */
    int tile;  /* rows that are summed in registers at a time; products of a multiple are fastest */
    void (*multiply)(const mg_gemm_product *p, int64_t rows);
    /* Packs a strip from a matrix {lanes, depth} of this dtype whose rows lie `row` elements apart
     * (of halves, an even number): to {depth, strip} is its transpose. Missing lanes are 0. */
    void (*pack_lanes)(const void *from, mg_dtype dtype, int64_t row, int64_t lanes, int64_t depth,
                       void *to);
    /* Packs strips, `apart` elements from each other, from the rows {steps, columns} of a matrix of
     * this dtype. Missing columns of the last strip are 0. */
    void (*pack_steps)(const void *from, mg_dtype dtype, int64_t row, int64_t steps,
                       int64_t columns, void *to, int64_t apart);
    /* Writes the sums to rows that lie y_row elements of the result apart. */
    void (*write)(const mg_gemm_sums *s, void *y, int64_t y_row);
    void (*add)(void *to, const void *from, int64_t n);
} mg_simd_gemm;

#endif

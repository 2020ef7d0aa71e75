/* Products of float64 matrices, which oneDNN does not offer.
 *
 * A factor comes with a function that reads it, so that the windows of a convolution can be
 * multiplied without being written to memory first. The order of additions depends on the shape
 * only. */
#ifndef MG_DEVICE_CPU_GEMM_H
#define MG_DEVICE_CPU_GEMM_H

#include "device/cpu/cpu.h"

/* A factor of a product. Its lanes are the rows of a, or the columns of b; its steps are the terms
 * of the sums. */
typedef struct mg_factor mg_factor;
struct mg_factor {
    /* Reads lanes [first, first + n) at the steps [from, end): to[(step - from) * width + lane -
     * first]. */
    void (*read)(const mg_factor *f, int64_t first, int n, int64_t from, int64_t end, int width,
                 double *to);
    const double *at;
    int64_t lane, step; /* distances in elements, for mg_read_matrix */
    const void *how;    /* other readers' own data */
};

void mg_read_matrix(const mg_factor *f, int64_t first, int n, int64_t from, int64_t end, int width,
                    double *to);

/* y {m, n} = a {m, k} b {k, n}; rows of y lie y_row elements apart. `scratch` has mg_gemm_scratch
 * bytes; with NULL the sums are not cut into parts, so that fewer threads may find work. */
void mg_gemm(int64_t m, int64_t n, int64_t k, const mg_factor *a, const mg_factor *b, double *y,
             int64_t y_row, double *scratch);
size_t mg_gemm_scratch(int64_t m, int64_t n, int64_t k);

/* Adds the bias (NULL: none) to each row of n, then relu if wanted. NaN stays. */
void mg_finish_rows(double *y, int64_t rows, int64_t n, const double *bias, bool relu);

#endif

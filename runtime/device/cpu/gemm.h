/* Products of float64 matrices, which oneDNN does not have.
 *
 * A factor says how it is read, so that what a convolution multiplies need not be written down
 * first. The order of additions depends on the shape only. */
#ifndef MG_DEVICE_CPU_GEMM_H
#define MG_DEVICE_CPU_GEMM_H

#include "device/cpu/cpu.h"

typedef struct mg_factor mg_factor;
struct mg_factor {
    /* Lanes are the rows of a, or the columns of b. Lanes [first, first + n), each at the steps
     * [from, end) of the sum: to[(step - from) * width + lane - first]. */
    void (*read)(const mg_factor *f, int64_t first, int n, int64_t from, int64_t end, int width,
                 double *to);
    const double *at;
    int64_t lane, step; /* strides, of mg_read_matrix */
    const void *how;    /* what other readers want to know */
};

void mg_read_matrix(const mg_factor *f, int64_t first, int n, int64_t from, int64_t end, int width,
                    double *to);

/* y {m, n} = a {m, k} b {k, n}; y's rows are y_row apart. Scratch: mg_gemm_scratch bytes; NULL:
 * less is shared among threads. */
void mg_gemm(int64_t m, int64_t n, int64_t k, const mg_factor *a, const mg_factor *b, double *y,
             int64_t y_row, double *scratch);
size_t mg_gemm_scratch(int64_t m, int64_t n, int64_t k);

/* y + bias, then relu; bias may be NULL. NaN stays. */
void mg_finish_rows(double *y, int64_t rows, int64_t n, const double *bias, bool relu);

#endif

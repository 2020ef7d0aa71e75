/* The float64 matrix product's inner loop, and what follows a product of either type.
 *
 * The tile of sums is MG_GEMM_ROWS x 2 vectors, which fit into the registers of every instruction
 * set beside the two vectors of b and a broadcast element of a. */
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/simd.h"

typedef double doubles __attribute__((vector_size(MG_VECTOR)));
typedef doubles loose_doubles __attribute__((aligned(sizeof(double)), may_alias));

enum { DOUBLES = MG_VECTOR / 8, VECTORS = 2, COLUMNS = VECTORS * DOUBLES };
_Static_assert((int)COLUMNS <= (int)MG_GEMM_MAX_COLUMNS, "the callers' buffers hold a strip of b");

/* The sums stay in registers for all of `depth`; the tile is loaded before and stored after. */
static void multiply_strips(const double *restrict a, const double *restrict b, int64_t depth,
                            double *restrict tile) {
    doubles sum[MG_GEMM_ROWS][VECTORS];
    for (int i = 0; i < MG_GEMM_ROWS; i++)
        for (int v = 0; v < VECTORS; v++)
            sum[i][v] = *(const loose_doubles *)(tile + i * COLUMNS + v * DOUBLES);
    for (int64_t k = 0; k < depth; k++) {
        const doubles left = *(const loose_doubles *)(b + k * COLUMNS);
        const doubles right = *(const loose_doubles *)(b + k * COLUMNS + DOUBLES);
        for (int i = 0; i < MG_GEMM_ROWS; i++) {
            sum[i][0] += a[k * MG_GEMM_ROWS + i] * left;
            sum[i][1] += a[k * MG_GEMM_ROWS + i] * right;
        }
    }
    for (int i = 0; i < MG_GEMM_ROWS; i++)
        for (int v = 0; v < VECTORS; v++)
            *(loose_doubles *)(tile + i * COLUMNS + v * DOUBLES) = sum[i][v];
}

/* Two passes over a row, which is in the cache by then. The comparison lets NaN pass. */
#define FINISH_ROWS(name, T)                                                                       \
    static void name(T *restrict y, int64_t rows, int64_t n, const T *restrict bias, bool relu) {  \
        for (int64_t i = 0; i < rows; i++, y += n) {                                               \
            if (bias)                                                                              \
                for (int64_t j = 0; j < n; j++) y[j] += bias[j];                                   \
            if (relu)                                                                              \
                for (int64_t j = 0; j < n; j++) y[j] = y[j] < 0 ? 0 : y[j];                        \
        }                                                                                          \
    }
FINISH_ROWS(finish_rows_f32, float)
FINISH_ROWS(finish_rows_f64, double)

const mg_simd_matmul MG_ISA_NAME(mg_simd_matmul) = {
    .gemm_columns = COLUMNS,
    .multiply_strips = multiply_strips,
    .finish_rows_f32 = finish_rows_f32,
    .finish_rows_f64 = finish_rows_f64,
};

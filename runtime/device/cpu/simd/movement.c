/* Loops that move 4-byte words or add slices: copies past the caches, transpositions,
 * scatter_add. */
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/simd.h"
#include "device/cpu/simd/square.h"
#include <string.h>

/* ---- streams ---- */

/* Copies with plain stores if dst is not aligned. dst may be src. */
static void stream(float *dst, const float *src, int64_t n) {
    int64_t i = 0;
    if ((uintptr_t)dst % MG_VECTOR == 0)
        for (; i + MG_WIDTH <= n; i += MG_WIDTH)
            MG_STREAM(dst + i, *(const mg_loose_floats *)(src + i));
    if (dst != src) memcpy(dst + i, src + i, (size_t)(n - i) * sizeof *dst);
}

/* Non-temporal stores are not ordered with other stores; the fence makes them visible first. */
static void end_stream(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* ---- transpositions ---- */

static void transpose_block(const float *x, float *y, int64_t m, int64_t n, mg_matrix_part b) {
    for (int64_t j = b.column; j < b.end_column; j += MG_SQUARE)
        for (int64_t i = b.row; i < b.end_row; i += MG_SQUARE) {
            if (i + MG_SQUARE <= b.end_row && j + MG_SQUARE <= b.end_column) {
                mg_transpose_square((const uint32_t *)x + i * n + j, n, (uint32_t *)y + j * m + i,
                                    m);
                continue;
            }
            for (int64_t c = j; c < b.end_column && c < j + MG_SQUARE; c++)
                for (int64_t r = i; r < b.end_row && r < i + MG_SQUARE; r++)
                    y[c * m + r] = x[r * n + c];
        }
}

/* ---- scatter_add ---- */

/* Clears the part of the result, then adds the slices in the order of the ids. */
#define SCATTER(name, T)                                                                           \
    static void name(const mg_scatter *s, const mg_matrix_part *p, const T *dy, T *dx) {           \
        const int64_t width = p->end_column - p->column;                                           \
        for (int64_t r = p->row; r < p->end_row; r++)                                              \
            memset(dx + r * s->inner + p->column, 0, (size_t)width * sizeof(T));                   \
        for (int64_t i = 0; i < s->n; i++) {                                                       \
            const int64_t id = s->ids ? s->ids[i] : s->long_ids[i];                                \
            if (id < p->row || id >= p->end_row) continue;                                         \
            const T *from = dy + i * s->inner + p->column;                                         \
            T *to = dx + id * s->inner + p->column;                                                \
            _Pragma("omp simd") for (int64_t j = 0; j < width; j++) to[j] += from[j];              \
        }                                                                                          \
    }
SCATTER(scatter_f32, float)
SCATTER(scatter_f64, double)

const mg_simd_movement MG_ISA_NAME(mg_simd_movement) = {
    .stream = stream,
    .end_stream = end_stream,
    .transpose_square = mg_transpose_square,
    .transpose_block = transpose_block,
    .scatter_f32 = scatter_f32,
    .scatter_f64 = scatter_f64,
};

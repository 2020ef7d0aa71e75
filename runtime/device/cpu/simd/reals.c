/* The loops that exist in float and in double: reductions over lanes, matrix products, pools,
 * resized images, layer norms, softmax and cross-entropy.
 *
 * Each *_loops.h below is included twice, with REAL set to the type, NAME(x) to a name with the
 * type's suffix and EXP to the type's exponential, and ends with a table. */
#include "device/cpu/simd/elements.h"
#include "device/cpu/simd/fma.h"
#include "device/cpu/simd/gemm_halves.h"
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/simd.h"
#include "device/cpu/simd/vectormath.h"
#include "device/cpu/simd/square.h"
#include <math.h>
#include <string.h>

/* ---- the part of a window that lies inside the image ---- */

typedef struct span { /* pixels low .. high - 1 along one axis */
    int64_t low, high;
} span;

/* The span of window number o along an axis. */
static inline span span_of(const mg_pool_plane *p, int axis, int64_t o) {
    const int64_t first = o * p->stride[axis] - p->before[axis], end = first + p->size[axis];
    const int64_t image = axis == 0 ? p->h : p->w;
    return (span){.low = first > 0 ? first : 0, .high = end < image ? end : image};
}

#undef UNROLL
#define UNROLL _Pragma("GCC unroll 16")

/* ---- squares that are transposed in registers ---- */

enum { square_f32 = MG_SQUARE, square_f64 = 4 };

static inline void exchange_f32(const float *from, int64_t from_row, float *to, int64_t to_row) {
    mg_transpose_square((const uint32_t *)from, from_row, (uint32_t *)to, to_row);
}

static inline void exchange_f64(const double *from, int64_t from_row, double *to, int64_t to_row) {
    UNROLL for (int i = 0; i < square_f64; i++) UNROLL for (int j = 0; j < square_f64; j++)
        to[j * to_row + i] = from[i * from_row + j];
}

/* ---- the loops, in float and in double ---- */

/* NAME(vec): a vector at any address; VEC: its elements; VECTOR_AT(p): the one at address p. */
#define ANYWHERE __attribute__((vector_size(MG_VECTOR), aligned(sizeof(REAL)), may_alias))
#define VEC ((int64_t)(MG_VECTOR / sizeof(REAL)))
#define VECTOR_AT(p) (*(const NAME(vec) *)(const void *)(p))

/* For fold_loops.h. */
#define ELEMENT REAL
#define VALUE(v) (v)
#define SUM REAL
#define PRODUCT double
#define TOTAL double
#define MEMBER real
#define RUNNING REAL
#define PLUS(a, b) ((a) + (b))
#define TIMES(a, b) ((a) * (b))
#define LEAST (REAL) - INFINITY
#define MOST (REAL) INFINITY
#define IS_NAN(v) ((v) != (v))

#define REAL float
#define NAME(x) x##_f32
#define EXP vm_exp
typedef REAL NAME(vec) ANYWHERE;
#include "device/cpu/simd/fold_loops.h"
#include "device/cpu/simd/channel_view_loops.h"
#include "device/cpu/simd/gemm_loops.h"
#include "device/cpu/simd/layer_norm_loops.h"
#include "device/cpu/simd/pool_loops.h"
#include "device/cpu/simd/resize_loops.h"
#include "device/cpu/simd/softmax_loops.h"
#undef REAL
#undef NAME
#undef EXP
#define REAL double
#define NAME(x) x##_f64
#define EXP exp
typedef REAL NAME(vec) ANYWHERE;
#include "device/cpu/simd/fold_loops.h"
#include "device/cpu/simd/channel_view_loops.h"
#include "device/cpu/simd/gemm_loops.h"
#include "device/cpu/simd/layer_norm_loops.h"
#include "device/cpu/simd/pool_loops.h"
#include "device/cpu/simd/resize_loops.h"
#include "device/cpu/simd/softmax_loops.h"

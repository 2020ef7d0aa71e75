/* The arithmetic of reductions between devices and processes: see reduce.h. */
#include "comm/reduce.h"

/* NaN is the only number unlike itself. Sums are made in the type `sum`: those of integers wrap
 * around, as unsigned numbers do. */
#define REDUCER(name, type, sum)                                                                   \
    static void name(type *restrict acc, const type *restrict in, int64_t n, int op) {             \
        if (op == MG_REDUCE_SUM)                                                                   \
            for (int64_t i = 0; i < n; i++) acc[i] = (type)((sum)acc[i] + (sum)in[i]);             \
        else if (op == MG_REDUCE_MAX)                                                              \
            for (int64_t i = 0; i < n; i++)                                                        \
                acc[i] = acc[i] >= in[i] || acc[i] != acc[i] ? acc[i] : in[i];                     \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                acc[i] = acc[i] <= in[i] || acc[i] != acc[i] ? acc[i] : in[i];                     \
    }
REDUCER(reduce_f32, float, float)
REDUCER(reduce_f64, double, double)
REDUCER(reduce_i32, int32_t, uint32_t)
REDUCER(reduce_i64, int64_t, uint64_t)
REDUCER(reduce_u8, uint8_t, unsigned)

/* bool and the 16-bit floats: computed in double, a piece at a time. */
static void reduce_any(char *acc, const char *in, int64_t n, mg_dtype t, int op) {
    enum { PIECE = 64 };
    const int64_t size = (int64_t)mg_dtype_size(t);
    double a[PIECE], b[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
        const size_t some = (size_t)(n - i < PIECE ? n - i : PIECE);
        mg_to_double(a, acc + i * size, t, some);
        mg_to_double(b, in + i * size, t, some);
        reduce_f64(a, b, (int64_t)some, op);
        mg_from_double(acc + i * size, a, t, some);
    }
}

void mg_reduce(void *acc, const void *in, int64_t n, mg_dtype t, enum mg_reduce_kind op) {
    switch (t) {
    case MG_F32: reduce_f32(acc, in, n, (int)op); return;
    case MG_F64: reduce_f64(acc, in, n, (int)op); return;
    case MG_I32: reduce_i32(acc, in, n, (int)op); return;
    case MG_I64: reduce_i64(acc, in, n, (int)op); return;
    case MG_U8: reduce_u8(acc, in, n, (int)op); return;
    default: reduce_any(acc, in, n, t, (int)op); return;
    }
}

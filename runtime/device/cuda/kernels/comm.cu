/* All-reduce and reduce among virtual devices on one GPU, where NCCL cannot be used: reads elements
 * [first, last) of every rank's `in`, combines them from the first rank to the last (a fixed order,
 * so the bits are the same every time), and writes the result to the `out` of ranks [from, to). */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/params.h"

#define SAME(v) (v)

/* TO makes a number of an element, FROM an element of a number. op: 0 sum, 1 max, 2 min. A sum is
 * made in the type `sum` and rounded to the dtype after each rank; max and min propagate NaN. */
#define REDUCE(name, type, real, sum, TO, FROM)                                                    \
    KERNEL(reduce_ranks_##name, reduce_ranks_params) {                                             \
        for (int64_t i = p.first + FIRST; i < p.last; i += STEP) {                                 \
            real v = TO(((const type *)p.in[0])[i]);                                               \
            for (int r = 1; r < p.n; r++) {                                                        \
                const real w = TO(((const type *)p.in[r])[i]);                                     \
                if (p.op == 0)                                                                     \
                    v = TO(FROM((sum)v + (sum)w));                                                 \
                else if (p.op == 1)                                                                \
                    v = v >= w || v != v ? v : w;                                                  \
                else                                                                               \
                    v = v <= w || v != v ? v : w;                                                  \
            }                                                                                      \
            for (int r = p.from; r < p.to; r++) ((type *)p.out[r])[i] = FROM(v);                   \
        }                                                                                          \
    }

/* Sums of integers wrap around, as unsigned numbers do; a sum of bools is "any". */
REDUCE(bool, uint8_t, int, int, SAME, 0 !=)
REDUCE(u8, uint8_t, int, int, SAME, (uint8_t))
REDUCE(i32, int32_t, int32_t, uint32_t, SAME, (int32_t))
REDUCE(i64, int64_t, int64_t, uint64_t, SAME, (int64_t))
REDUCE(bf16, uint16_t, float, float, mg_bf16_to_float, mg_float_to_bf16)
REDUCE(f16, uint16_t, float, float, mg_f16_to_float, mg_float_to_f16)
REDUCE(f32, float, float, float, SAME, SAME)
REDUCE(f64, double, double, double, SAME, SAME)

/* Random tensors: uniform, normal, truncated normal, bernoulli and randint.
 *
 * Philox is counter-based: block i of a draw is a function of (seed, stream, ordinal, i), so
 * threads need no state, and any split of a tensor over devices gives the same numbers. A thread
 * makes the four elements of one Philox block, with the formulas that the reference device uses
 * too. This file is compiled without contraction of a * b + c to a fused multiply-add, so that the
 * bits are equal. */
#include "device/cuda/kernels/movement_params.h"
#include "device/cuda/kernels/kernel.h"

#define MG_FORMULA DEVICE
#include "ops/random_formulas.h"

/* The four random words of a block of the draw. */
DEVICE void draw_words(const mg_draw *d, int64_t block, uint32_t words[4]) {
    const mg_rng_cell *const cell = d->cell;
    mg_philox(words, (uint64_t)block, cell ? cell->base + d->ordinal : d->ordinal,
              cell ? cell->seed : d->seed, d->stream);
}

/* The kernel of one distribution and dtype. MAKE prepares what the four elements share, NUMBER is
 * the expression of element i, FROM converts it to the dtype. `alignment`: of four elements in one
 * store. */
#define DRAW(name, type, alignment, MAKE, NUMBER, FROM)                                            \
    typedef struct __attribute__((aligned(alignment))) four_##name {                               \
        type v[4];                                                                                 \
    } four_##name;                                                                                 \
    KERNEL(random_##name, random_params) {                                                         \
        type *const out = (type *)p.out;                                                           \
        const int64_t first = p.first / 4, end = (p.first + p.count + 3) / 4;                      \
        for (int64_t block = first + FIRST; block < end; block += STEP) {                          \
            const int64_t at = block * 4 - p.first;                                                \
            uint32_t words[4];                                                                     \
            four_##name four;                                                                      \
            draw_words(&p.draw, block, words);                                                     \
            MAKE;                                                                                  \
            for (int i = 0; i < 4; i++) four.v[i] = FROM(NUMBER);                                  \
            if (p.aligned && at + 4 <= p.count)                                                    \
                *(four_##name *)(out + at) = four;                                                 \
            else                                                                                   \
                for (int i = 0; i < 4; i++)                                                        \
                    if (at + i >= 0 && at + i < p.count) out[at + i] = four.v[i];                  \
        }                                                                                          \
    }

/* float64 numbers have a second word each. */
#define LOW_WORDS                                                                                  \
    uint32_t low[4];                                                                               \
    draw_words(&p.draw, (int64_t)((uint64_t)block | MG_RANDOM_LOW), low)

/* Numbers in [a, b). float16 and bfloat16 are rounded from the float32 number. */
#define UNIFORM_F mg_random_uniform_f(words[i], (float)p.a, (float)p.b)
#define UNIFORM_HALF(bits) mg_random_uniform_half(words[i], (float)p.a, (float)p.b, bits)
#define UNIFORM_D mg_random_uniform_d(words[i], low[i], p.a, p.b)
DRAW(uniform_bf16, uint16_t, 8, , UNIFORM_HALF(8), mg_float_to_bf16)
DRAW(uniform_f16, uint16_t, 8, , UNIFORM_HALF(11), mg_float_to_f16)
DRAW(uniform_f32, float, 16, , UNIFORM_F, )
DRAW(uniform_f64, double, 16, LOW_WORDS, UNIFORM_D, )

/* Box-Muller: two words give two normal numbers. */
#define PAIRS                                                                                      \
    double pairs[4];                                                                               \
    mg_random_normal_pair(words, pairs);                                                           \
    mg_random_normal_pair(words + 2, pairs + 2)
#define PAIRS_D                                                                                    \
    LOW_WORDS;                                                                                     \
    double pairs[4];                                                                               \
    mg_random_normal_pair_d(words, low, pairs);                                                    \
    mg_random_normal_pair_d(words + 2, low + 2, pairs + 2)
#define NORMAL p.a + p.b *pairs[i]
DRAW(normal_bf16, uint16_t, 8, PAIRS, NORMAL, mg_double_to_bf16)
DRAW(normal_f16, uint16_t, 8, PAIRS, NORMAL, mg_double_to_f16)
DRAW(normal_f32, float, 16, PAIRS, NORMAL, (float))
DRAW(normal_f64, double, 16, PAIRS_D, NORMAL, )

#define TRUNCATED p.a + p.b *mg_random_truncated_normal(mg_random_inside(words[i]))
#define TRUNCATED_D p.a + p.b *mg_random_truncated_normal(mg_random_inside_d(words[i], low[i]))
DRAW(truncated_normal_bf16, uint16_t, 8, , TRUNCATED, mg_double_to_bf16)
DRAW(truncated_normal_f16, uint16_t, 8, , TRUNCATED, mg_double_to_f16)
DRAW(truncated_normal_f32, float, 16, , TRUNCATED, (float))
DRAW(truncated_normal_f64, double, 16, LOW_WORDS, TRUNCATED_D, )

DRAW(bernoulli_bool, uint8_t, 4, , (words[i] >> 8) < p.threshold, (uint8_t))

/* Integers a, a + 1, ... a + range - 1, in any dtype. */
#define BELOW p.a + (double)mg_random_below(words[i], p.range)
DRAW(randint_bool, uint8_t, 4, , BELOW, 0 !=)
DRAW(randint_u8, uint8_t, 4, , BELOW, mg_to_u8)
DRAW(randint_i32, int32_t, 16, , BELOW, mg_to_i32)
DRAW(randint_i64, int64_t, 16, , BELOW, mg_to_i64)
DRAW(randint_bf16, uint16_t, 8, , BELOW, mg_double_to_bf16)
DRAW(randint_f16, uint16_t, 8, , BELOW, mg_double_to_f16)
DRAW(randint_f32, float, 16, , BELOW, (float))
DRAW(randint_f64, double, 16, , BELOW, )

/* Advances the ordinal of the run by the number of draws of a step. One thread works. */
KERNEL(rng_advance, rng_advance_params) {
    if (FIRST == 0) p.cell->base += p.by;
}

/* From four Philox words to the four elements of a block, for every distribution: shared by the
 * reference kernel and the cpu device, so that both give the same bits. */
#ifndef MG_OPS_RANDOM_H
#define MG_OPS_RANDOM_H

#include "core/rng.h"
#include "ops/attrs.h"
#include "ops/random_formulas.h"

/* Whether the elements of a block need a second block of words, `low`. */
static inline bool mg_random_takes_low(const mg_random_attrs *a) {
    return a->dtype == MG_F64 && a->kind != MG_RANDOM_RANDINT;
}

static inline double mg_random_uniform(const mg_random_attrs *a, uint32_t word) {
    const float low = (float)a->a, high = (float)a->b;
    if (a->dtype == MG_F16) return mg_random_uniform_half(word, low, high, 11);
    if (a->dtype == MG_BF16) return mg_random_uniform_half(word, low, high, 8);
    return mg_random_uniform_f(word, low, high);
}

/* The four elements of one block, before rounding to the dtype. float32 and narrower dtypes use the
 * formulas in float where there are such (random_formulas.h). `low` is read only if
 * mg_random_takes_low is true. */
static inline void mg_random_block(const mg_random_attrs *a, const uint32_t words[4],
                                   const uint32_t low[4], double out[4]) {
    const bool wide = mg_random_takes_low(a);
    switch ((enum mg_random_kind)a->kind) {
    case MG_RANDOM_UNIFORM:
        for (int i = 0; i < 4; i++)
            out[i] = wide ? mg_random_uniform_d(words[i], low[i], a->a, a->b)
                          : mg_random_uniform(a, words[i]);
        break;
    case MG_RANDOM_NORMAL: /* Box-Muller makes two numbers from two words */
        for (int i = 0; i < 4; i += 2)
            if (wide)
                mg_random_normal_pair_d(words + i, low + i, out + i);
            else
                mg_random_normal_pair(words + i, out + i);
        for (int i = 0; i < 4; i++) out[i] = a->a + a->b * out[i];
        break;
    case MG_RANDOM_TRUNCATED_NORMAL:
        for (int i = 0; i < 4; i++) {
            const double inside =
                wide ? mg_random_inside_d(words[i], low[i]) : mg_random_inside(words[i]);
            out[i] = a->a + a->b * mg_random_truncated_normal(inside);
        }
        break;
    case MG_RANDOM_BERNOULLI: /* 24 bits of the word against the probability */
        for (int i = 0; i < 4; i++) out[i] = (words[i] >> 8) < mg_random_threshold(a->a);
        break;
    case MG_RANDOM_RANDINT:
        for (int i = 0; i < 4; i++)
            out[i] = a->a + (double)mg_random_below(words[i], (uint64_t)(a->b - a->a));
        break;
    }
}

#endif

/* From four Philox words to the four elements of a block, for every distribution: shared by the
 * reference kernel and the cpu device, so that both give the same bits. */
#ifndef MG_OPS_RANDOM_H
#define MG_OPS_RANDOM_H

#include "core/rng.h"
#include "ops/attrs.h"
#include "ops/random_formulas.h"

/* The four elements of one block, before rounding to the dtype. float32 and narrower kinds are
 * computed in float where the formula is, see random_formulas.h. */
static inline void mg_random_block(const mg_random_attrs *a, const uint32_t words[4],
                                   double out[4]) {
    const bool wide = a->dtype == MG_F64; /* computed in double, else in float */
    switch ((enum mg_random_kind)a->kind) {
    case MG_RANDOM_UNIFORM:
        for (int i = 0; i < 4; i++)
            out[i] = wide ? mg_random_uniform_d(words[i], a->a, a->b)
                          : (double)mg_random_uniform_f(words[i], (float)a->a, (float)a->b);
        break;
    case MG_RANDOM_NORMAL: /* Box-Muller makes two numbers of two words */
        mg_random_normal_pair(words, out);
        mg_random_normal_pair(words + 2, out + 2);
        for (int i = 0; i < 4; i++) out[i] = a->a + a->b * out[i];
        break;
    case MG_RANDOM_TRUNCATED_NORMAL:
        for (int i = 0; i < 4; i++) out[i] = a->a + a->b * mg_random_truncated_normal(words[i]);
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

/* From Philox words to numbers: the formulas every device uses, so that all draw the same.
 *
 * One block of four words serves elements 4i .. 4i+3 of the row-major tensor, a word each; the
 * normal kind turns two words into two elements (Box & Muller 1958). */
#ifndef MG_OPS_RANDOM_H
#define MG_OPS_RANDOM_H

#include "core/rng.h"
#include "ops/attrs.h"
#include <math.h>

/* The normal quantile (Wichura 1988, algorithm AS 241, PPND16). 0 < p < 1; about 1e-16 relative. */
static inline double mg_normal_quantile(double p) {
    const double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q *
               (((((((2509.0809287301226727 * r + 33430.575583588128105) * r +
                     67265.770927008700853) * r + 45921.953931549871457) * r +
                   13731.693765509461125) * r + 1971.5909503065514427) * r +
                 133.14166789178437745) * r + 3.387132872796366608) /
               (((((((5226.495278852545925 * r + 28729.085735721942674) * r +
                     39307.89580009271061) * r + 21213.794301586595867) * r +
                   5394.1960214247511077) * r + 687.1870074920579083) * r +
                 42.313330701600911252) * r + 1.0);
    }
    const double r = sqrt(-log(q < 0 ? p : 1 - p)) - 1.6;
    /* Truncation at two deviations keeps r below 5, the branch for far tails is not needed. */
    const double x =
        (((((((7.7454501427834140764e-4 * r + 0.0227238449892691845833) * r +
              0.24178072517745061177) * r + 1.27045825245236838258) * r +
            3.64784832476320460504) * r + 5.7694972214606914055) * r +
          4.6303378461565452959) * r + 1.42343711074968357734) /
        (((((((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r +
              0.0151986665636164571966) * r + 0.14810397642748007459) * r +
            0.68976733498510000455) * r + 1.6763848301838038494) * r +
          2.05319162663775882187) * r + 1.0);
    return q < 0 ? -x : x;
}

/* P(Z < -2) for a standard normal Z. */
#define MG_NORMAL_TAIL 0.022750131948179209

/* The four numbers of one block, before rounding to the dtype. */
static inline void mg_random_block(const mg_random_attrs *a, const uint32_t word[4], double out[4]) {
    switch ((enum mg_random_kind)a->kind) {
    case MG_RANDOM_UNIFORM:
        for (int i = 0; i < 4; i++) out[i] = a->a + (a->b - a->a) * mg_uniform_of(word[i]);
        break;
    case MG_RANDOM_NORMAL:
        for (int i = 0; i < 4; i += 2) {
            const double radius = sqrt(-2 * log(((double)word[i] + 0.5) * 0x1p-32));
            const double angle = 6.283185307179586 * ((double)word[i + 1] * 0x1p-32);
            out[i] = a->a + a->b * radius * cos(angle);
            out[i + 1] = a->a + a->b * radius * sin(angle);
        }
        break;
    case MG_RANDOM_TRUNCATED_NORMAL:
        for (int i = 0; i < 4; i++) {
            const double u = ((double)word[i] + 0.5) * 0x1p-32;
            const double p = MG_NORMAL_TAIL + u * (1 - 2 * MG_NORMAL_TAIL);
            out[i] = a->a + a->b * mg_normal_quantile(p);
        }
        break;
    case MG_RANDOM_BERNOULLI:
        for (int i = 0; i < 4; i++) out[i] = mg_uniform_of(word[i]) < a->a;
        break;
    case MG_RANDOM_RANDINT:
        for (int i = 0; i < 4; i++) {
            const uint64_t range = (uint64_t)(a->b - a->a);
            out[i] = a->a + (double)((range * word[i]) >> 32);
        }
        break;
    }
}

#endif

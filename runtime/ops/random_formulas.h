/* From Philox words to numbers: the formulas that every device's random kernel uses.
 *
 * Element i of a tensor takes lane i % 4 of block i / 4 (core/philox.h). Results of float32 and
 * narrower use the _f formulas where there are two, float64 the _d ones; normal numbers are made in
 * double and rounded. float64 takes a second word, lane i % 4 of block i / 4 + MG_RANDOM_LOW, for
 * the digits that the first one lacks. Compile without contraction to fused multiply-add, or bits
 * differ. */
#ifndef MG_OPS_RANDOM_FORMULAS_H
#define MG_OPS_RANDOM_FORMULAS_H

#include "core/philox.h"
#include <math.h>

#define MG_RANDOM_LOW ((uint64_t)1 << 63) /* tensors have fewer blocks */

/* [a, b): a + (b - a) * u with 24 bits of u. A sum that rounds up to b becomes a. */
MG_FORMULA float mg_random_uniform_f(uint32_t word, float a, float b) {
    const float v = a + (b - a) * ((float)(word >> 8) * 0x1p-24f);
    return v < b ? v : a;
}

/* The float32 number rounded to `bits` significant bits: 11 are float16, 8 bfloat16. A result that
 * is rounded up to b becomes a. */
MG_FORMULA float mg_random_uniform_half(uint32_t word, float a, float b, int bits) {
    const double v = mg_random_uniform_f(word, a, b);
    const double scaled = v * ((double)((uint64_t)1 << (53 - bits)) + 1);
    const float rounded = (float)(scaled - (scaled - v)); /* Veltkamp's splitting */
    return rounded < b ? rounded : a;
}

/* 53 bits of u. */
MG_FORMULA double mg_random_uniform_d(uint32_t word, uint32_t low, double a, double b) {
    const uint64_t u = (uint64_t)word << 21 | low >> 11;
    const double v = a + (b - a) * ((double)u * 0x1p-53);
    return v < b ? v : a;
}

/* The middle of the word's interval of (0, 1), so that the result is neither 0 nor 1. */
MG_FORMULA double mg_random_inside(uint32_t word) {
    return ((double)word + 0.5) * 0x1p-32;
}

MG_FORMULA double mg_random_inside_d(uint32_t word, uint32_t low) {
    const uint64_t u = (uint64_t)word << 20 | low >> 12;
    return ((double)u + 0.5) * 0x1p-52;
}

/* Standard normal by Box-Muller: words 0, 1 make lanes 0, 1; words 2, 3 make lanes 2, 3. */
MG_FORMULA void mg_random_normal_pair(const uint32_t words[2], double out[2]) {
    const double radius = sqrt(-2 * log(mg_random_inside(words[0])));
    const double angle = 6.283185307179586 * ((double)words[1] * 0x1p-32);
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

/* The same with two low words. */
MG_FORMULA void mg_random_normal_pair_d(const uint32_t words[2], const uint32_t low[2],
                                        double out[2]) {
    const double radius = sqrt(-2 * log(mg_random_inside_d(words[0], low[0])));
    const double turns = (double)((uint64_t)words[1] << 21 | low[1] >> 11) * 0x1p-53;
    const double angle = 6.283185307179586 * turns;
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

/* The standard normal's inverse distribution for p in [0.02, 0.98]: Acklam's rational
 * approximation (relative error 2e-9), then one step of Halley's method to double precision. */
MG_FORMULA double mg_random_inverse_normal(double p) {
    const double q = p - 0.5, r = q * q;
    const double above =
        ((((-39.69683028665376 * r + 220.9460984245205) * r - 275.9285104469687) * r +
          138.3577518672690) *
             r -
         30.66479806614716) *
            r +
        2.506628277459239;
    const double below =
        ((((-54.47609879822406 * r + 161.5858368580409) * r - 155.6989798598866) * r +
          66.80131188771972) *
             r -
         13.28068155288572) *
            r +
        1;
    const double x = q * above / below;
    const double error = 0.5 * erfc(-x * 0.7071067811865476) - p;
    const double step = error * 2.5066282746310002 * exp(0.5 * x * x);
    return x - step / (1 + 0.5 * x * step);
}

/* Standard normal cut off at two deviations: the inverse distribution at p, where `inside` in (0,
 * 1) interpolates p between Phi(-2) and Phi(2). */
MG_FORMULA double mg_random_truncated_normal(double inside) {
    return mg_random_inverse_normal(0.022750131948179207 + 0.9544997361036416 * inside);
}

/* True with probability p: where (word >> 8) < threshold(p), which is exact for multiples of
 * 2^-24 and rounds p up otherwise. */
MG_FORMULA uint32_t mg_random_threshold(double p) {
    return (uint32_t)ceil(p * 0x1p24);
}

/* 0 .. range - 1, range <= 2^32: the high word of a product; no value is likelier than another by
 * more than range * 2^-32. */
MG_FORMULA int64_t mg_random_below(uint32_t word, uint64_t range) {
    return (int64_t)(((uint64_t)word * range) >> 32);
}

#endif

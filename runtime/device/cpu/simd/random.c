/* Random words and numbers, in batches of 64, with the bits of ops/random.h. */
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/simd.h"
#include <math.h>

/* Ten rounds of Philox over 16 counters side by side, which differ in the block's index only. The
 * compiler turns the 64-bit products into vector multiplications. Last, the words are put in the
 * order of the blocks. */
static void philox16(uint32_t *words, uint64_t index, uint64_t ordinal, uint32_t seed,
                     uint32_t stream) {
    uint32_t c0[16], c1[16], c2[16], c3[16], k0 = seed, k1 = stream;
    for (int i = 0; i < 16; i++) {
        c0[i] = (uint32_t)(index + (uint64_t)i);
        c1[i] = (uint32_t)((index + (uint64_t)i) >> 32);
        c2[i] = (uint32_t)ordinal, c3[i] = (uint32_t)(ordinal >> 32);
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        _Pragma("omp simd") for (int i = 0; i < 16; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1, c3[i] = (uint32_t)p0, c0[i] = n0, c2[i] = n2;
        }
    }
    for (int i = 0; i < 16; i++) {
        words[4 * i] = c0[i], words[4 * i + 1] = c1[i];
        words[4 * i + 2] = c2[i], words[4 * i + 3] = c3[i];
    }
}

/* The logarithm of x in [2^-33, 1): 2 atanh((m - 1) / (m + 1)) of the mantissa m in [0.7, 1.42), by
 * its series, plus the exponent's part. */
static inline double log_inside(double x) {
    union {
        double d;
        uint64_t u;
    } v = {.d = x};
    const uint64_t shifted = v.u - 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    const double e = (double)((int32_t)(shifted >> 32) >> 20);
    v.u = (shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu;
    const double s = (v.d - 1) / (v.d + 1), z = s * s;
    /* the series of atanh: s + s^3 / 3 + s^5 / 5 ... */
    double p = 1.0 / 23;
    p = p * z + 1.0 / 21, p = p * z + 1.0 / 19, p = p * z + 1.0 / 17, p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13, p = p * z + 1.0 / 11, p = p * z + 1.0 / 9, p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5, p = p * z + 1.0 / 3;
    return e * 0.6931471805599453 + (2 * s + 2 * s * z * p);
}

/* Box-Muller as in mg_random_normal_pair, in double, with logarithm, sine and cosine by series:
 * rounded to float, the numbers are the same. The angle is word / 2^32 turns. Its nearest quarter
 * turn is taken off exactly, which leaves at most an eighth. */
static void normal64(const uint32_t *words, float *out, double mean, double deviation) {
    _Pragma("omp simd") for (int i = 0; i < 32; i++) {
        const double inside = ((double)words[2 * i] + 0.5) * 0x1p-32;
        const double radius = sqrt(-2 * log_inside(inside));
        const uint32_t quarter = (words[2 * i + 1] + 0x20000000u) >> 30;
        const int32_t rest = (int32_t)(words[2 * i + 1] - (quarter << 30));
        const double a = (double)rest * (6.283185307179586 * 0x1p-32), z = a * a;
        /* the Taylor series of cosine and sine: 1 / 16!, 1 / 17! and so on */
        double c = 1.0 / 20922789888000, s = 1.0 / 355687428096000;
        c = c * z - 1.0 / 87178291200, s = s * z - 1.0 / 1307674368000;
        c = c * z + 1.0 / 479001600, s = s * z + 1.0 / 6227020800;
        c = c * z - 1.0 / 3628800, s = s * z - 1.0 / 39916800;
        c = c * z + 1.0 / 40320, s = s * z + 1.0 / 362880;
        c = c * z - 1.0 / 720, s = s * z - 1.0 / 5040;
        c = c * z + 1.0 / 24, s = s * z + 1.0 / 120;
        c = c * z - 0.5, s = s * z - 1.0 / 6;
        c = c * z + 1, s = s * z * a + a;
        /* turns back by whole quarters: (cos, sin) becomes (-sin, cos), and so on */
        const double x = quarter & 1 ? s : c, y = quarter & 1 ? c : s;
        out[2 * i] = (float)(mean + deviation * (radius * (quarter == 1 || quarter == 2 ? -x : x)));
        out[2 * i + 1] = (float)(mean + deviation * (radius * (quarter & 2 ? -y : y)));
    }
}

const mg_simd_random MG_ISA_NAME(mg_simd_random) = {.philox16 = philox16, .normal64 = normal64};

/* Colors and normalization of images.
 *
 * Sums are computed in lanes, which the compiler vectorizes, and accumulated in double over blocks,
 * so that large images lose no precision. */
#include "data/transforms/color.h"
#include <math.h>
#include <stdbool.h>

enum { BLOCK = 256 }; /* pixels, summed in float32 */

/* Channels that are colors. */
static int64_t colors(int64_t c) {
    return c == 4 ? 3 : c;
}

/* ---- sums ---- */

/* Sum of `count` values, or of their squared distances from `center`. */
static double sum_all(const float *x, int64_t count, bool squares, float center) {
    enum { LANES = 16 };
    double sum = 0;
    int64_t i = 0;
    while (i + LANES <= count) {
        float lane[LANES] = {0};
        const int64_t end = i + LANES * BLOCK < count ? i + LANES * BLOCK : count;
        for (; i + LANES <= end; i += LANES)
            for (int k = 0; k < LANES; k++) {
                const float v = x[i + k] - center;
                lane[k] += squares ? v * v : v;
            }
        for (int k = 0; k < LANES; k++) sum += lane[k];
    }
    for (; i < count; i++) {
        const double v = x[i] - center;
        sum += squares ? v * v : v;
    }
    return sum;
}

/* Sum of the channel c0 of c: a vector holds the same channel of several pixels only for c = 1 and
 * 4, so the loop is over groups of four pixels, 4 c lanes, for the usual numbers of channels. */
static inline void sum_lanes(const float *x, int64_t n, const int64_t c, double *sum) {
    float lane[16] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int64_t k = 0; k < 4 * c; k++) lane[k] += x[i * c + k];
    for (; i < n; i++)
        for (int64_t k = 0; k < c; k++) lane[k] += x[i * c + k];
    for (int64_t k = 0; k < 4 * c; k++) sum[k % c] += lane[k];
}

/* The mean of each of at most four channels. */
static void channel_means(const float *x, int64_t n, int64_t c, double *mean) {
    for (int64_t k = 0; k < c; k++) mean[k] = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t m = n - i < BLOCK ? n - i : BLOCK;
        switch (c) {
        case 1: sum_lanes(x + i * c, m, 1, mean); break;
        case 3: sum_lanes(x + i * c, m, 3, mean); break;
        default: sum_lanes(x + i * c, m, c, mean);
        }
    }
    for (int64_t k = 0; k < c; k++) mean[k] /= (double)n;
}

static void extremes(const float *x, int64_t count, float *least, float *most) {
    float lo = x[0], hi = x[0];
    for (int64_t i = 1; i < count; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    *least = lo, *most = hi;
}

/* ---- x * a[channel] + b[channel] ---- */

/* The pattern of the channels is repeated to a multiple of four numbers, for vectors. */
static inline void scale_add_pattern(float *x, int64_t n, const int64_t c, const float *a,
                                     const float *b) {
    float pa[16], pb[16];
    for (int64_t k = 0; k < 4 * c; k++) pa[k] = a[k % c], pb[k] = b[k % c];
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int64_t k = 0; k < 4 * c; k++) x[i * c + k] = x[i * c + k] * pa[k] + pb[k];
    for (; i < n; i++)
        for (int64_t k = 0; k < c; k++) x[i * c + k] = x[i * c + k] * pa[k] + pb[k];
}

static void scale_add(float *x, int64_t n, int64_t c, const float *a, const float *b) {
    switch (c) {
    case 1: scale_add_pattern(x, n, 1, a, b); break;
    case 3: scale_add_pattern(x, n, 3, a, b); break;
    case 4: scale_add_pattern(x, n, 4, a, b); break;
    default:
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < c; k++) x[i * c + k] = x[i * c + k] * a[k] + b[k];
    }
}

void mg_color_brightness(float *x, int64_t n, int64_t c, float delta) {
    if (c != 4) {
        for (int64_t i = 0; i < n * c; i++) x[i] += delta;
        return;
    }
    const float a[4] = {1, 1, 1, 1}, b[4] = {delta, delta, delta, 0};
    scale_add(x, n, c, a, b);
}

/* The contrast of one channel, for images of many channels. */
static void contrast_of(float *x, int64_t n, int64_t c, float factor) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i * c];
    const float mean = (float)(sum / (double)n);
    for (int64_t i = 0; i < n; i++) x[i * c] = (x[i * c] - mean) * factor + mean;
}

void mg_color_contrast(float *x, int64_t n, int64_t c, float factor) {
    if (c > 4) {
        for (int64_t k = 0; k < c; k++) contrast_of(x + k, n, c, factor);
        return;
    }
    double mean[4];
    float a[4], b[4];
    channel_means(x, n, c, mean);
    for (int64_t k = 0; k < c; k++) {
        a[k] = k < colors(c) ? factor : 1;
        b[k] = k < colors(c) ? (float)(mean[k] * (1 - (double)factor)) : 0;
    }
    scale_add(x, n, c, a, b);
}

/* ---- brightness and channel shift of Keras ---- */

void mg_color_channel_shift(float *x, int64_t n, int64_t c, float amount) {
    float lo, hi;
    extremes(x, n * c, &lo, &hi);
    for (int64_t i = 0; i < n * c; i++) {
        const float v = x[i] + amount;
        x[i] = v < lo ? lo : v > hi ? hi : v;
    }
}

void mg_color_brightness_factor(float *x, int64_t n, int64_t c, float factor) {
    float lo, hi;
    extremes(x, n * c, &lo, &hi);
    const bool scaled = lo < 0 || hi > 255;
    const float range = hi - lo;
    for (int64_t i = 0; i < n * c; i++) {
        float v = x[i];
        if (scaled) v = range > 0 ? (v - lo) / range * 255 : 0;
        v = truncf(v);
        if (c != 4 || i % 4 != 3) {
            v *= factor;
            v = v <= 0 ? 0 : v >= 255 ? 255 : truncf(v);
        }
        x[i] = scaled ? v / 255 * range + lo : v;
    }
}

/* ---- saturation and hue ---- */

static inline float least3(float a, float b, float c) {
    const float ab = a < b ? a : b;
    return ab < c ? ab : c;
}

static inline float most3(float a, float b, float c) {
    const float ab = a > b ? a : b;
    return ab > c ? ab : c;
}

/* With hue and value fixed, the distance of each color from the value is proportional to the
 * saturation, (value - least) / value, which stays at most 1. */
void mg_color_saturation(float *x, int64_t n, int64_t c, float factor) {
    for (int64_t i = 0; i < n; i++, x += c) {
        const float value = most3(x[0], x[1], x[2]), least = least3(x[0], x[1], x[2]);
        const float range = value - least;
        const float ratio = value > 0 && range * factor > value ? value / range : factor;
        if (!(value > 0)) continue; /* black has no saturation */
        for (int k = 0; k < 3; k++) x[k] = value - (value - x[k]) * ratio;
    }
}

/* The hue as a number from 0 to 6: red 0, green 2, blue 4. */
static inline float hue_of(const float *x, float value, float range) {
    if (x[0] == value) {
        const float h = (x[1] - x[2]) / range;
        return h < 0 ? h + 6 : h;
    }
    return x[1] == value ? 2 + (x[2] - x[0]) / range : 4 + (x[0] - x[1]) / range;
}

/* The share (0 to 1) of a color channel above the smallest value, at a given distance from its own
 * hue. */
static inline float share(float distance) {
    const float v = 2 - distance;
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

void mg_color_hue(float *x, int64_t n, int64_t c, float delta) {
    for (int64_t i = 0; i < n; i++, x += c) {
        const float value = most3(x[0], x[1], x[2]), least = least3(x[0], x[1], x[2]);
        const float range = value - least;
        if (!(range > 0)) continue; /* gray has no hue */
        float h = hue_of(x, value, range) + 6 * delta;
        h -= 6 * floorf(h / 6);
        x[0] = least + range * share(3 - fabsf(h - 3));
        x[1] = least + range * share(fabsf(h - 2));
        x[2] = least + range * share(fabsf(h - 4));
    }
}

/* ---- normalization ---- */

void mg_color_scale(float *x, int64_t count, float factor) {
    for (int64_t i = 0; i < count; i++) x[i] *= factor;
}

void mg_color_standardize(float *x, int64_t count, mg_sample_norm how) {
    /* The first value as a provisional center keeps the sum of a bright image small. */
    const float first = x[0];
    const float mean = (float)((double)first + sum_all(x, count, false, first) / (double)count);
    double deviation = 1;
    if (!how.only_center) {
        deviation = sqrt(sum_all(x, count, true, mean) / (double)count);
        deviation = (deviation > how.least ? deviation : how.least) + how.more;
    }
    const float inverse = (float)(1 / deviation);
    for (int64_t i = 0; i < count; i++) x[i] = (x[i] - mean) * inverse;
}

/* One channel at a time: for more than four channels. */
static void normalize_channel(float *x, int64_t n, int64_t c, float a, float b) {
    for (int64_t i = 0; i < n; i++) x[i * c] = x[i * c] * a + b;
}

void mg_color_normalize(float *x, int64_t n, int64_t c, const double *mean,
                        const double *deviation) {
    float a[4], b[4];
    for (int64_t k = 0; k < c; k++) {
        const double scale = deviation ? 1 / deviation[k] : 1;
        const double offset = mean ? -mean[k] * scale : 0;
        if (c > 4) normalize_channel(x + k, n, c, (float)scale, (float)offset);
        if (c <= 4) a[k] = (float)scale, b[k] = (float)offset;
    }
    if (c <= 4) scale_add(x, n, c, a, b);
}

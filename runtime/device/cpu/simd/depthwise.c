/* Depthwise convolutions, and the gradient of their filters. */
#include "device/cpu/simd/depthwise.h"
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/simd.h"

/* Taps that are summed side by side, and results, whose sums then do not wait for each other: 9
 * weights and 4 sums, or 9 sums and a vector of dy, fit into 16 registers. */
enum { TAPS = 9, RESULTS = 4 };

MG_INLINE void add_taps(const mg_depthwise_run *r, int first, int64_t c, const float *dy,
                        float *sums, const int taps) {
    const float *x = r->at[first] + c, *d = dy + c;
    const int64_t step = r->step, d_step = r->result_step;
    int64_t offset[TAPS];
    vec sum[TAPS];
    UNROLL for (int t = 0; t < taps; t++) {
        sum[t] = load(sums + r->weight[first + t] + c);
        offset[t] = r->at[first + t] - r->at[first];
    }
    for (int64_t i = 0; i < r->results; i++, x += step, d += d_step) {
        const vec now = load(d);
        UNROLL for (int t = 0; t < taps; t++) sum[t] += load(x + offset[t]) * now;
    }
    UNROLL for (int t = 0; t < taps; t++) store(sums + r->weight[first + t] + c, sum[t]);
}

/* Taps of the next call, the first of which is number t, so that calls are as even as can be: 25
 * taps are 9, 8 and 8. */
static int taps_of_call(const mg_depthwise_run *r, int t) {
    const int left = r->taps - t, calls = (left + TAPS - 1) / TAPS;
    return (left + calls - 1) / calls;
}

#define EACH_COUNT(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9)

/* Channels that do not fill a vector are added one by one. */
static void add_gradient(const mg_depthwise_run *r, const float *dy, float *sums) {
    int64_t c = 0;
#define CASE(taps)                                                                                 \
    case taps: add_taps(r, t, c, dy, sums, taps); break;
    for (; c + LANES <= r->c; c += LANES)
        for (int t = 0, n; t < r->taps; t += n) {
            n = taps_of_call(r, t);
            switch (n) { EACH_COUNT(CASE) }
        }
#undef CASE
    for (; c < r->c; c++)
        for (int t = 0; t < r->taps; t++) {
            const float *x = r->at[t] + c;
            float *to = sums + r->weight[t] + c;
            for (int64_t i = 0; i < r->results; i++)
                *to += x[i * r->step] * dy[i * r->result_step + c];
        }
}

/* Adds `taps` taps to `n` neighbouring results that have the earlier ones, or begin with `begin`.
 */
MG_INLINE void sum_few(const float *x, int64_t step, const int64_t *offset, const vec *weight,
                       bool first, vec begin, bool relu, float *to, int64_t to_step, const int taps,
                       const int n) {
    vec sum[RESULTS];
    UNROLL for (int i = 0; i < n; i++) sum[i] = first ? begin : load(to + i * to_step);
    UNROLL for (int t = 0; t < taps; t++) UNROLL for (int i = 0; i < n; i++) sum[i] +=
        load(x + i * step + offset[t]) * weight[t];
    UNROLL for (int i = 0; i < n; i++) store(to + i * to_step, relu ? clamp(sum[i]) : sum[i]);
}

/* The taps from number `t` on, for all results. */
MG_INLINE void sum_some(const mg_depthwise_run *r, int t, int64_t c, const float *w,
                        const float *bias, bool relu, float *y, const int taps) {
    const float *x = r->at[t] + c;
    const bool last = t + taps == r->taps;
    const vec begin = bias ? load(bias + c) : (vec){0};
    int64_t offset[TAPS], i = 0;
    vec weight[TAPS];
    UNROLL for (int k = 0; k < taps; k++) {
        weight[k] = load(w + r->weight[t + k] + c);
        offset[k] = r->at[t + k] - r->at[t];
    }
    const int64_t step = r->step, to_step = r->result_step;
    float *to = y + c;
    for (; i + RESULTS <= r->results; i += RESULTS, x += RESULTS * step, to += RESULTS * to_step)
        sum_few(x, step, offset, weight, t == 0, begin, relu && last, to, to_step, taps, RESULTS);
    for (; i < r->results; i++, x += step, to += to_step)
        sum_few(x, step, offset, weight, t == 0, begin, relu && last, to, to_step, taps, 1);
}

/* One channel of a result. */
static float sum_one(const mg_depthwise_run *r, const float *w, int64_t i, int64_t c, float sum) {
    for (int t = 0; t < r->taps; t++) sum += r->at[t][i * r->step + c] * w[r->weight[t] + c];
    return sum;
}

/* Results that meet no tap are the bias. */
static void sum_taps(const mg_depthwise_run *r, const float *w, const float *bias, bool relu,
                     float *y) {
    int64_t c = 0;
#define CASE(taps)                                                                                 \
    case taps: sum_some(r, t, c, w, bias, relu, y, taps); break;
    for (; r->taps > 0 && c + LANES <= r->c; c += LANES)
        for (int t = 0, n; t < r->taps; t += n) {
            n = taps_of_call(r, t);
            switch (n) { EACH_COUNT(CASE) }
        }
#undef CASE
    for (; c < r->c; c++)
        for (int64_t i = 0; i < r->results; i++) {
            const float sum = sum_one(r, w, i, c, bias ? bias[c] : 0);
            y[i * r->result_step + c] = relu && sum < 0 ? 0 : sum;
        }
}

const mg_simd_depthwise MG_ISA_NAME(mg_simd_depthwise) = {.sum_taps = sum_taps,
                                                          .add_gradient = add_gradient};

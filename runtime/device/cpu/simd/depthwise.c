/* Depthwise convolutions, and the gradient of their filters. */
#include "device/cpu/simd/depthwise.h"
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/simd.h"

/* Taps that are summed side by side; they and two vectors more fit into 16 registers. */
enum { TAPS = 9 };

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

/* Channels that do not fill a vector are added one by one. */
static void add_gradient(const mg_depthwise_run *r, const float *dy, float *sums) {
    int64_t c = 0;
    for (; c + LANES <= r->c; c += LANES)
        for (int t = 0; t < r->taps;) {
            const int left = r->taps - t, taps = left >= TAPS ? TAPS : left >= 4 ? 4 : 1;
            if (taps == TAPS) add_taps(r, t, c, dy, sums, TAPS);
            if (taps == 4) add_taps(r, t, c, dy, sums, 4);
            if (taps == 1) add_taps(r, t, c, dy, sums, 1);
            t += taps;
        }
    for (; c < r->c; c++)
        for (int t = 0; t < r->taps; t++) {
            const float *x = r->at[t] + c;
            float *to = sums + r->weight[t] + c;
            for (int64_t i = 0; i < r->results; i++)
                *to += x[i * r->step] * dy[i * r->result_step + c];
        }
}

/* Adds `taps` taps to results that have the earlier ones, or begin with the bias. */
MG_INLINE void sum_some(const mg_depthwise_run *r, int first, int64_t c, const float *w,
                        const float *bias, bool relu, float *y, const int taps) {
    const float *x = r->at[first] + c;
    const bool last = first + taps == r->taps;
    const vec begin = bias ? load(bias + c) : (vec){0};
    int64_t offset[TAPS];
    vec weight[TAPS];
    UNROLL for (int t = 0; t < taps; t++) {
        weight[t] = load(w + r->weight[first + t] + c);
        offset[t] = r->at[first + t] - r->at[first];
    }
    float *to = y + c;
    for (int64_t i = 0; i < r->results; i++, x += r->step, to += r->result_step) {
        vec sum = first == 0 ? begin : load(to);
        UNROLL for (int t = 0; t < taps; t++) sum += load(x + offset[t]) * weight[t];
        store(to, relu && last ? clamp(sum) : sum);
    }
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
    for (; r->taps > 0 && c + LANES <= r->c; c += LANES)
        for (int t = 0; t < r->taps;) {
            const int left = r->taps - t, taps = left >= TAPS ? TAPS : left >= 4 ? 4 : 1;
            if (taps == TAPS) sum_some(r, t, c, w, bias, relu, y, TAPS);
            if (taps == 4) sum_some(r, t, c, w, bias, relu, y, 4);
            if (taps == 1) sum_some(r, t, c, w, bias, relu, y, 1);
            t += taps;
        }
    for (; c < r->c; c++)
        for (int64_t i = 0; i < r->results; i++) {
            const float sum = sum_one(r, w, i, c, bias ? bias[c] : 0);
            y[i * r->result_step + c] = relu && sum < 0 ? 0 : sum;
        }
}

const mg_simd_depthwise MG_ISA_NAME(mg_simd_depthwise) = {.sum_taps = sum_taps,
                                                          .add_gradient = add_gradient};

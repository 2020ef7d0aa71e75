/* The filters' gradient of a depthwise convolution. */
#include "device/cpu/simd/depthwise.h"
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/simd.h"

/* Taps that are summed side by side; they and two vectors more fit into 16 registers. */
enum { TAPS = 9 };

MG_INLINE void add_taps(const mg_depthwise_run *r, int first, int64_t c, const float *dy,
                        float *sums, const int taps) {
    const float *x = r->at[first] + c, *d = dy + c;
    const int64_t step = r->step, d_step = r->c;
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
            for (int64_t i = 0; i < r->results; i++) *to += x[i * r->step] * dy[i * r->c + c];
        }
}

const mg_simd_depthwise MG_ISA_NAME(mg_simd_depthwise) = {.add_gradient = add_gradient};

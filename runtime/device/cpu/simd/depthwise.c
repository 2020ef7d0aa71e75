/* Depthwise convolutions, and the gradient of their filters.
 *
 * A tile of neighbouring results is computed at a time, one vector of channels after the other. Its
 * sums, or its part of dy, stay in registers while all taps are added. A pixel that several taps of
 * a group read is loaded once for all of them. */
#include "device/cpu/simd/depthwise.h"
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/simd.h"

/* TILE: the most results of a tile; together with the weights of a group and a pixel they fit into
 * 16 registers. CHANNELS: all tiles of a run are computed for so many channels before the next
 * channels, so that their weights stay in the L1 cache and neighbouring cache lines are read
 * together. */
enum { TILE = 8, CHANNELS = 128, WIDTH = MG_DEPTHWISE_WIDTH };

/* Keeps a pixel in a register: gcc would load it again for each tap. */
#if MG_VECTOR >= 32
#define KEEP(v) __asm__("" : "+v"(v))
#else
#define KEEP(v) (void)(v)
#endif

#define EACH_SIZE(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)

/* Results of the tile that begins with result i, so that tiles are as even as can be: 26 results
 * are 7, 7, 6 and 6. */
static int64_t tile_size(const mg_depthwise_run *r, int64_t i) {
    const int64_t left = r->results - i, tiles = (left + TILE - 1) / TILE;
    return (left + tiles - 1) / tiles;
}

static int64_t channels_end(int64_t c, int64_t channels) {
    return channels - c < CHANNELS ? channels : c + CHANNELS;
}

/* ---- sums ---- */

/* Adds a group of `width` taps to the sums of n results; x: of the first result. */
MG_INLINE void add_group(const float *x, int64_t step, const float *w, int64_t apart, vec *sum,
                         const int width, const int n) {
    vec weight[WIDTH];
    UNROLL for (int t = 0; t < width; t++) weight[t] = load(w + t * apart);
    UNROLL for (int i = 0; i < n + width - 1; i++, x += step) {
        vec pixel = load(x);
        KEEP(pixel);
        UNROLL for (int t = 0; t < width; t++) if (i >= t && i - t < n) sum[i - t] +=
            pixel * weight[t];
    }
}

/* The operands of a run's results. */
typedef struct sum_operands {
    const float *w, *bias;
    bool relu;
    float *y;
} sum_operands;

/* Computes one vector of channels of the n results from result `first` on. */
MG_INLINE void sum_tile(const mg_depthwise_run *r, const sum_operands *o, int64_t first, int64_t c,
                        const int n) {
    const int64_t step = r->step, skip = first * step + c;
    const mg_depthwise_group *g = r->groups;
    const vec begin = o->bias ? load(o->bias + c) : (vec){0};
    vec sum[TILE];
    UNROLL for (int i = 0; i < n; i++) sum[i] = begin;
#define GROUPS(width)                                                                              \
    for (int k = r->count[width]; k > 0; k--, g++)                                                 \
        add_group(g->x + skip, step, o->w + g->weight + c, g->apart, sum, width, n);
    GROUPS(3)
    GROUPS(2)
    GROUPS(1)
#undef GROUPS
    const int64_t y_step = r->result_step;
    float *y = o->y + first * y_step + c;
    UNROLL for (int i = 0; i < n; i++) store(y + i * y_step, o->relu ? clamp(sum[i]) : sum[i]);
}

/* The last vector of channels may overlap with the one before it. */
MG_INLINE void sum_tiles(const mg_depthwise_run *r, const sum_operands *o, int64_t first,
                         int64_t from, int64_t end, const int n) {
    for (int64_t c = from; c < end; c += LANES)
        sum_tile(r, o, first, c + LANES > r->c ? r->c - LANES : c, n);
}

/* One channel of a result. */
static float sum_one(const mg_depthwise_run *r, const float *w, int64_t i, int64_t c, float sum) {
    const mg_depthwise_group *g = r->groups;
    for (int width = WIDTH; width > 0; width--)
        for (int k = r->count[width]; k > 0; k--, g++)
            for (int t = 0; t < width; t++)
                sum += g->x[(i + t) * r->step + c] * w[g->weight + t * g->apart + c];
    return sum;
}

/* Results without a tap inside the image get the bias. */
static void sum_taps(const mg_depthwise_run *r, const float *w, const float *bias, bool relu,
                     float *y) {
    const sum_operands o = {w, bias, relu, y};
#define CASE(n)                                                                                    \
    case n: sum_tiles(r, &o, i, c, end, n); break;
    for (int64_t c = 0, end; r->c >= LANES && c < r->c; c = end) {
        end = channels_end(c, r->c);
        for (int64_t i = 0, n; i < r->results; i += n) {
            n = tile_size(r, i);
            switch (n) { EACH_SIZE(CASE) }
        }
    }
#undef CASE
    for (int64_t i = 0; r->c < LANES && i < r->results; i++)
        for (int64_t c = 0; c < r->c; c++) {
            const float sum = sum_one(r, w, i, c, bias ? bias[c] : 0);
            y[i * r->result_step + c] = relu && sum < 0 ? 0 : sum;
        }
}

/* ---- the filters' gradient ---- */

/* Adds the products of n vectors of dy to the sums of a group of `width` taps. */
MG_INLINE void add_to_group(const float *x, int64_t step, const vec *dy, float *sums, int64_t apart,
                            const int width, const int n) {
    vec sum[WIDTH];
    UNROLL for (int t = 0; t < width; t++) sum[t] = load(sums + t * apart);
    UNROLL for (int i = 0; i < n + width - 1; i++, x += step) {
        vec pixel = load(x);
        KEEP(pixel);
        UNROLL for (int t = 0; t < width; t++) if (i >= t && i - t < n) sum[t] += pixel * dy[i - t];
    }
    UNROLL for (int t = 0; t < width; t++) store(sums + t * apart, sum[t]);
}

/* Adds the channels [from, end) of n results. */
MG_INLINE void gradient_tiles(const mg_depthwise_run *r, const float *dy, float *sums,
                              int64_t first, int64_t from, int64_t end, const int n) {
    const int64_t step = r->step, skip = first * step, dy_step = r->result_step;
    for (int64_t c = from; c < end; c += LANES) {
        const mg_depthwise_group *g = r->groups;
        const float *d = dy + first * dy_step + c;
        vec now[TILE];
        UNROLL for (int i = 0; i < n; i++) now[i] = load(d + i * dy_step);
#define GROUPS(width)                                                                              \
    for (int k = r->count[width]; k > 0; k--, g++)                                                 \
        add_to_group(g->x + skip + c, step, now, sums + g->weight + c, g->apart, width, n);
        GROUPS(3) GROUPS(2) GROUPS(1)
#undef GROUPS
    }
}

/* Adds one channel of all results. */
static void add_one(const mg_depthwise_run *r, const float *dy, int64_t c, float *sums) {
    const mg_depthwise_group *g = r->groups;
    for (int width = WIDTH; width > 0; width--)
        for (int k = r->count[width]; k > 0; k--, g++)
            for (int t = 0; t < width; t++)
                for (int64_t i = 0; i < r->results; i++)
                    sums[g->weight + t * g->apart + c] +=
                        g->x[(i + t) * r->step + c] * dy[i * r->result_step + c];
}

/* Adds the channels [from, end), in whole vectors. */
static void add_channels(const mg_depthwise_run *r, const float *dy, float *sums, int64_t from,
                         int64_t end) {
    for (int64_t i = 0, n; i < r->results; i += n) {
        n = tile_size(r, i);
#define CASE(n)                                                                                    \
    case n: gradient_tiles(r, dy, sums, i, from, end, n); break;
        switch (n) { EACH_SIZE(CASE) }
#undef CASE
    }
}

/* Copies n sums of each tap, from `from` on, to `kept`, or back. */
static void keep_sums(const mg_depthwise_run *r, float *sums, int64_t from, int64_t n,
                      float kept[MG_DEPTHWISE_TAPS][LANES], bool back) {
    const mg_depthwise_group *g = r->groups;
    for (int width = WIDTH, tap = 0; width > 0; width--)
        for (int k = r->count[width]; k > 0; k--, g++)
            for (int t = 0; t < width; t++, tap++) {
                float *at = sums + g->weight + t * g->apart + from;
                memcpy(back ? at : kept[tap], back ? kept[tap] : at, (size_t)n * sizeof *at);
            }
}

/* The last vector of channels may overlap with the one before it, whose sums must not change again.
 * Channels that are fewer than a vector are added one by one. */
static void add_gradient(const mg_depthwise_run *r, const float *dy, float *sums) {
    const int64_t whole = r->c / LANES * LANES, last = r->c - LANES;
    for (int64_t c = 0, end; c < whole; c = end) {
        end = channels_end(c, whole);
        add_channels(r, dy, sums, c, end);
    }
    if (whole == r->c) return;
    if (whole == 0) {
        for (int64_t c = 0; c < r->c; c++) add_one(r, dy, c, sums);
        return;
    }
    float kept[MG_DEPTHWISE_TAPS][LANES];
    keep_sums(r, sums, last, whole - last, kept, false);
    add_channels(r, dy, sums, last, r->c);
    keep_sums(r, sums, last, whole - last, kept, true);
}

const mg_simd_depthwise MG_ISA_NAME(mg_simd_depthwise) = {.sum_taps = sum_taps,
                                                          .add_gradient = add_gradient};

/* The loops of depthwise.c for images of one type: it sets ELEMENT to the type, DTYPE to its dtype,
 * and NAME(x) to a name with the type's suffix, for which elements.h has mg_get and mg_put. Sums
 * and weights are floats. */

/* One element as a float, and back. */
MG_INLINE float NAME(get_one)(const ELEMENT *p) {
    float v;
    mg_load_f32(&v, p, DTYPE, 1);
    return v;
}
MG_INLINE void NAME(put_one)(ELEMENT *p, float sum) {
    mg_store_f32(p, &sum, DTYPE, 1);
}

/* ---- sums ---- */

/* Adds a group of `width` taps to the sums of n results; x: of the first result. */
MG_INLINE void NAME(add_group)(const ELEMENT *x, int64_t step, const float *w, int64_t apart,
                               vec *sum, const int width, const int n) {
    vec weight[WIDTH];
    UNROLL for (int t = 0; t < width; t++) weight[t] = load(w + t * apart);
    UNROLL for (int i = 0; i < n + width - 1; i++, x += step) {
        vec pixel = NAME(mg_get)(x);
        KEEP(pixel);
        UNROLL for (int t = 0; t < width; t++) if (i >= t && i - t < n) sum[i - t] =
            add_product(sum[i - t], pixel, weight[t]);
    }
}

/* Computes one vector of channels of the n results from result `first` on. */
MG_INLINE void NAME(sum_tile)(const mg_depthwise_run *r, const sum_operands *o, int64_t first,
                              int64_t c, const int n) {
    const int64_t step = r->step, skip = first * step + c;
    const mg_depthwise_group *g = r->groups;
    const vec begin = o->bias ? load(o->bias + c) : (vec){0};
    vec sum[TILE];
    UNROLL for (int i = 0; i < n; i++) sum[i] = begin;
#define GROUPS(width)                                                                              \
    for (int k = r->count[width]; k > 0; k--, g++) NAME(add_group)                                 \
    ((const ELEMENT *)g->x + skip, step, o->w + g->weight + c, g->apart, sum, width, n);
    GROUPS(3)
    GROUPS(2)
    GROUPS(1)
#undef GROUPS
    const int64_t y_step = r->result_step;
    ELEMENT *y = (ELEMENT *)o->y + first * y_step + c;
    UNROLL for (int i = 0; i < n; i++)
        NAME(mg_put)(y + i * y_step, o->relu ? clamp(sum[i]) : sum[i]);
}

/* The last vector of channels may overlap with the one before it. */
MG_INLINE void NAME(sum_tiles)(const mg_depthwise_run *r, const sum_operands *o, int64_t first,
                               int64_t from, int64_t end, const int n) {
    for (int64_t c = from; c < end; c += LANES)
        NAME(sum_tile)(r, o, first, c + LANES > r->c ? r->c - LANES : c, n);
}

/* One channel of a result. */
static float NAME(sum_one)(const mg_depthwise_run *r, const float *w, int64_t i, int64_t c,
                           float sum) {
    const mg_depthwise_group *g = r->groups;
    for (int width = WIDTH; width > 0; width--)
        for (int k = r->count[width]; k > 0; k--, g++)
            for (int t = 0; t < width; t++)
                sum = mg_fma_f32(NAME(get_one)((const ELEMENT *)g->x + (i + t) * r->step + c),
                                 w[g->weight + t * g->apart + c], sum);
    return sum;
}

/* Results without a tap inside the image get the bias. */
static void NAME(sum_taps)(const mg_depthwise_run *r, const float *w, const float *bias, bool relu,
                           void *y) {
    const sum_operands o = {w, bias, relu, y};
#define CASE(n)                                                                                    \
    case n: NAME(sum_tiles)(r, &o, i, c, end, n); break;
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
            const float sum = NAME(sum_one)(r, w, i, c, bias ? bias[c] : 0);
            NAME(put_one)((ELEMENT *)y + i * r->result_step + c, relu && sum < 0 ? 0 : sum);
        }
}

/* ---- the filters' gradient ---- */

/* Adds the products of n vectors of dy to the sums of a group of `width` taps. */
MG_INLINE void NAME(add_to_group)(const ELEMENT *x, int64_t step, const vec *dy, float *sums,
                                  int64_t apart, const int width, const int n) {
    vec sum[WIDTH];
    UNROLL for (int t = 0; t < width; t++) sum[t] = load(sums + t * apart);
    UNROLL for (int i = 0; i < n + width - 1; i++, x += step) {
        vec pixel = NAME(mg_get)(x);
        KEEP(pixel);
        UNROLL for (int t = 0; t < width; t++) if (i >= t && i - t < n) sum[t] =
            add_product(sum[t], pixel, dy[i - t]);
    }
    UNROLL for (int t = 0; t < width; t++) store(sums + t * apart, sum[t]);
}

/* Adds the channels [from, end) of n results. */
MG_INLINE void NAME(gradient_tiles)(const mg_depthwise_run *r, const ELEMENT *dy, float *sums,
                                    int64_t first, int64_t from, int64_t end, const int n) {
    const int64_t step = r->step, skip = first * step, dy_step = r->result_step;
    for (int64_t c = from; c < end; c += LANES) {
        const mg_depthwise_group *g = r->groups;
        const ELEMENT *d = dy + first * dy_step + c;
        vec now[TILE];
        UNROLL for (int i = 0; i < n; i++) now[i] = NAME(mg_get)(d + i * dy_step);
#define GROUPS(width)                                                                              \
    for (int k = r->count[width]; k > 0; k--, g++) NAME(add_to_group)                              \
    ((const ELEMENT *)g->x + skip + c, step, now, sums + g->weight + c, g->apart, width, n);
        GROUPS(3) GROUPS(2) GROUPS(1)
#undef GROUPS
    }
}

/* Adds one channel of all results. */
static void NAME(add_one)(const mg_depthwise_run *r, const ELEMENT *dy, int64_t c, float *sums) {
    const mg_depthwise_group *g = r->groups;
    for (int width = WIDTH; width > 0; width--)
        for (int k = r->count[width]; k > 0; k--, g++)
            for (int t = 0; t < width; t++)
                for (int64_t i = 0; i < r->results; i++) {
                    float *sum = sums + g->weight + t * g->apart + c;
                    *sum = mg_fma_f32(NAME(get_one)((const ELEMENT *)g->x + (i + t) * r->step + c),
                                      NAME(get_one)(dy + i * r->result_step + c), *sum);
                }
}

/* Adds the channels [from, end), in whole vectors. */
static void NAME(add_channels)(const mg_depthwise_run *r, const ELEMENT *dy, float *sums,
                               int64_t from, int64_t end) {
    for (int64_t i = 0, n; i < r->results; i += n) {
        n = tile_size(r, i);
#define CASE(n)                                                                                    \
    case n: NAME(gradient_tiles)(r, dy, sums, i, from, end, n); break;
        switch (n) { EACH_SIZE(CASE) }
#undef CASE
    }
}

/* The last vector of channels may overlap with the one before it, whose sums must not change again.
 * Channels that are fewer than a vector are added one by one. */
static void NAME(add_gradient)(const mg_depthwise_run *r, const void *slope, float *sums) {
    const ELEMENT *dy = slope;
    const int64_t whole = r->c / LANES * LANES, last = r->c - LANES;
    for (int64_t c = 0, end; c < whole; c = end) {
        end = channels_end(c, whole);
        NAME(add_channels)(r, dy, sums, c, end);
    }
    if (whole == r->c) return;
    if (whole == 0) {
        for (int64_t c = 0; c < r->c; c++) NAME(add_one)(r, dy, c, sums);
        return;
    }
    float kept[MG_DEPTHWISE_TAPS][LANES];
    keep_sums(r, sums, last, whole - last, kept, false);
    NAME(add_channels)(r, dy, sums, last, r->c);
    keep_sums(r, sums, last, whole - last, kept, true);
}

const mg_simd_depthwise MG_ISA_NAME(NAME(mg_simd_depthwise)) = {.sum_taps = NAME(sum_taps),
                                                                .add_gradient = NAME(add_gradient)};

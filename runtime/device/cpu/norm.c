/* moments, batch_norm and batch_norm_reduce: one pass over the images each.
 *
 * For each lane of a unit, moments sums the differences from a number near the lane's values. These
 * differences are exact or nearly so, however far the mean is from 0. Means and variances of the
 * units are combined in double. batch_norm subtracts the mean before it multiplies, for the same
 * reason. */
#include "device/cpu/channel_view.h"
#include "ops/attrs.h"
#include <math.h>

/* ---- shared ---- */

/* Scratch in doubles: two results per lane and unit, then up to three numbers per channel. */
static mg_status norm_prepare(mg_kernel_plan *plan) {
    const mg_port *x = &plan->in[0];
    const mg_channel_view s = mg_channel_view_of(x->value);
    const int64_t lanes = s.tiles * s.width;
    const int64_t doubles = mg_channel_view_units(&s) * 2 * s.width + 3 * lanes + 2 * s.channels;
    plan->scratch = (size_t)doubles * sizeof(double);
    return MG_OK;
}

/* Input 0 as rows of lanes. */
static mg_channel_view view_of(const mg_call *call) {
    return mg_channel_view_of(call->plan->in[0].value);
}

/* The loops for the dtype of input 0. */
static const mg_simd_folds *folds_of(const mg_call *call) {
    return mg_folds_of(call->plan->in[0].value->dtype);
}

/* Whether the work is worth several threads. */
static bool is_large(const mg_call *call) {
    return mg_shape_count(&call->plan->in[0].value->shape) > MG_SERIAL_BELOW;
}

/* Element i of a tensor of float32 or float64. */
static double get_number(const void *p, int64_t i, const mg_simd_folds *f) {
    return f->size == sizeof(float) ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

/* Writes element i, rounded to its dtype. */
static void put_number(void *p, int64_t i, double v, const mg_simd_folds *f) {
    if (f->size == sizeof(float))
        ((float *)p)[i] = (float)v;
    else
        ((double *)p)[i] = v;
}

/* The address of element i. */
static const char *element_at(const void *p, int64_t i, const mg_simd_folds *f) {
    return (const char *)p + i * f->size;
}

/* Adds each lane of a tile to its channel; padding lanes have none. */
static void add_lanes(const mg_channel_view *s, int64_t tile, const double *lanes,
                      double *channels) {
    for (int64_t j = 0; j < s->width; j++) {
        const int64_t c = mg_channel_view_channel(s, tile, j);
        if (c >= 0) channels[c] += lanes[j];
    }
}

/* 1 / sqrt(variance + epsilon) of a channel; input 1 holds {mean, variance}. */
static double inverse_deviation(const mg_call *call, int64_t c, int64_t channels) {
    const double epsilon = ((const mg_norm_attrs *)call->plan->step->attrs)->epsilon;
    return 1 / sqrt(get_number(call->in[1], channels + c, folds_of(call)) + epsilon);
}

/* ---- moments ---- */

/* Per lane, a number near the piece's values: the median of the first, middle and last row, so that
 * one outlier cannot spoil it. */
static void choose_shift(const mg_channel_view *s, const mg_simd_folds *f, const void *x,
                         const mg_piece *p, double *shift) {
    for (int j = 0; j < p->width; j++) {
        const int64_t first = p->offset + j;
        const double a = get_number(x, first, f),
                     b = get_number(x, first + p->rows / 2 * s->row_step, f);
        const double c = get_number(x, first + (p->rows - 1) * s->row_step, f);
        const double median = fmax(fmin(a, b), fmin(fmax(a, b), c));
        shift[j] = isfinite(median) ? median : 0;
    }
}

/* Per lane of the unit: its mean, and the sum of squared distances from that mean. */
static void unit_moments(const mg_channel_view *s, const mg_simd_folds *f, const void *x,
                         int64_t unit, double *mean, double *square) {
    const double rows = (double)mg_channel_view_unit_rows(s, unit);
    double shift[MG_TILE], sum[MG_TILE];
    const mg_piece p = mg_channel_view_piece(s, unit);
    for (int64_t j = 0; j < s->width; j++) shift[j] = sum[j] = square[j] = 0;
    if (p.rows > 0) {
        choose_shift(s, f, x, &p, shift);
        f->moments(element_at(x, p.offset, f), p.rows, s->row_step, p.width, shift, sum, square);
    }
    for (int j = 0; j < p.width; j++) {
        /* sum is that of x - shift: the mean is off the shift by d, and the squares are around the
         * shift, not the mean */
        const double d = sum[j] / rows;
        mean[j] = shift[j] + d;
        square[j] -= sum[j] * d;
        if (square[j] < 0) square[j] = 0;
    }
}

/* Per lane of a tile: the sum of x over all units. */
static void tile_sums(const mg_channel_view *s, int64_t tile, const double *parts, double *total) {
    for (int64_t j = 0; j < s->width; j++) total[j] = 0;
    for (int64_t u = tile; u < mg_channel_view_units(s); u += s->tiles) {
        const double *mean = parts + u * 2 * s->width,
                     rows = (double)mg_channel_view_unit_rows(s, u);
        const int64_t width = mg_channel_view_unit_width(s, u);
        for (int64_t j = 0; j < width; j++) total[j] += rows * mean[j];
    }
}

/* Per lane of a tile: the sum of squared distances from `center`, over all units. */
static void tile_squares(const mg_channel_view *s, int64_t tile, const double *parts,
                         const double *center, double *total) {
    for (int64_t j = 0; j < s->width; j++) total[j] = 0;
    for (int64_t u = tile; u < mg_channel_view_units(s); u += s->tiles) {
        const double *mean = parts + u * 2 * s->width, *square = mean + s->width;
        const double rows = (double)mg_channel_view_unit_rows(s, u);
        const int64_t width = mg_channel_view_unit_width(s, u);
        for (int64_t j = 0; j < width; j++) {
            const double d = mean[j] - center[j];
            total[j] += square[j] + rows * d * d;
        }
    }
}

/* Combines the units: first the means of the channels, then the squared distances around them. A
 * channel has n elements; mean {2, channels} receives mean and variance. */
static void join_moments(const mg_channel_view *s, const double *parts, double n, int64_t channels,
                         double *mean) {
    double total[MG_TILE], center[MG_TILE], *variance = mean + channels;
    for (int64_t c = 0; c < 2 * channels; c++) mean[c] = 0;
    for (int64_t t = 0; t < s->tiles; t++) {
        tile_sums(s, t, parts, total);
        add_lanes(s, t, total, mean);
    }
    for (int64_t c = 0; c < channels; c++) mean[c] /= n;
    for (int64_t t = 0; t < s->tiles; t++) {
        for (int64_t j = 0; j < s->width; j++) {
            const int64_t c = mg_channel_view_channel(s, t, j);
            center[j] = c < 0 ? 0 : mean[c];
        }
        tile_squares(s, t, parts, center, total);
        add_lanes(s, t, total, variance);
    }
    for (int64_t c = 0; c < channels; c++) variance[c] /= n;
}

/* Threads share the units; the result is {2, channels}. */
static mg_status moments_run(const mg_call *call) {
    const mg_channel_view s = view_of(call);
    const mg_simd_folds *f = folds_of(call);
    const int64_t units = mg_channel_view_units(&s),
                  channels = call->plan->out[0].value->shape.dim[1];
    const int64_t count = mg_shape_count(&call->plan->in[0].value->shape);
    double *parts = call->scratch, *mean = parts + units * 2 * s.width;
#pragma omp parallel for schedule(static) if (is_large(call))
    for (int64_t u = 0; u < units; u++) {
        double *part = parts + u * 2 * s.width;
        unit_moments(&s, f, call->in[0], u, part, part + s.width);
    }
    join_moments(&s, parts, channels ? (double)(count / channels) : 0, channels, mean);
    for (int64_t c = 0; c < 2 * channels; c++) put_number(call->out[0], c, mean[c], f);
    return MG_OK;
}

/* ---- batch_norm ---- */

/* y = (x - mean) * gamma / deviation + beta, with the three factors laid out by lane first. */
static mg_status batch_norm_run(const mg_call *call) {
    const mg_channel_view s = view_of(call);
    const mg_simd_folds *f = folds_of(call);
    const int64_t lanes = s.tiles * s.width, units = mg_channel_view_units(&s);
    const bool past_caches = 2 * s.rows * s.lanes * f->size > MG_STREAM_ABOVE;
    /* the factors of each lane, as several lanes of a row may belong to one channel */
    double *mean = call->scratch, *scale = mean + lanes, *beta = scale + lanes;
    for (int64_t k = 0; k < lanes; k++) {
        const int64_t c = mg_channel_view_channel(&s, k / s.width, k % s.width);
        mean[k] = c < 0 ? 0 : get_number(call->in[1], c, f);
        scale[k] =
            c < 0 ? 0 : get_number(call->in[2], c, f) * inverse_deviation(call, c, s.channels);
        beta[k] = c < 0 ? 0 : get_number(call->in[3], c, f);
    }
#pragma omp parallel for schedule(static) if (is_large(call))
    for (int64_t i = 0; i < units; i++) {
        /* moments has read the last units of a large tensor last: they may lie in the caches */
        const int64_t u = past_caches ? units - 1 - i : i;
        const int64_t first = u % s.tiles * s.width;
        const mg_piece p = mg_channel_view_piece(&s, u);
        if (p.rows > 0)
            f->normalise(element_at(call->in[0], p.offset, f),
                         (char *)call->out[0] + p.offset * f->size, p.rows, s.row_step, p.width,
                         mean + first, scale + first, beta + first, past_caches);
        if (past_caches) mg_simd_used->movement->end_stream();
    }
    return MG_OK;
}

/* ---- batch_norm_reduce ---- */

/* Per lane of the unit: the sums of dy and of dy * (x - mean). */
static void unit_products(const mg_call *call, const mg_channel_view *s, int64_t unit,
                          double *sum) {
    const mg_simd_folds *f = folds_of(call);
    double mean[MG_TILE], *product = sum + s->width;
    for (int64_t j = 0; j < s->width; j++) {
        const int64_t c = mg_channel_view_channel(s, unit % s->tiles, j);
        mean[j] = c < 0 ? 0 : get_number(call->in[1], c, f);
        sum[j] = product[j] = 0;
    }
    const mg_piece p = mg_channel_view_piece(s, unit);
    if (p.rows > 0)
        f->products(element_at(call->in[0], p.offset, f), element_at(call->in[2], p.offset, f),
                    p.rows, s->row_step, p.width, mean, sum, product);
}

/* The result {2, channels}: the sums of dy, and of dy * xhat. */
static mg_status batch_norm_reduce_run(const mg_call *call) {
    const mg_channel_view s = view_of(call);
    const mg_simd_folds *f = folds_of(call);
    const int64_t units = mg_channel_view_units(&s),
                  channels = call->plan->out[0].value->shape.dim[1];
    double *parts = call->scratch, *sum = parts + units * 2 * s.width, *product = sum + channels;
#pragma omp parallel for schedule(static) if (is_large(call))
    for (int64_t u = 0; u < units; u++) unit_products(call, &s, u, parts + u * 2 * s.width);
    for (int64_t c = 0; c < 2 * channels; c++) sum[c] = 0;
    for (int64_t u = 0; u < units; u++) {
        add_lanes(&s, u % s.tiles, parts + u * 2 * s.width, sum);
        add_lanes(&s, u % s.tiles, parts + (u * 2 + 1) * s.width, product);
    }
    for (int64_t c = 0; c < channels; c++) {
        put_number(call->out[0], c, sum[c], f);
        put_number(call->out[0], channels + c, product[c] * inverse_deviation(call, c, channels),
                   f);
    }
    return MG_OK;
}

#define NORM(id) .op = #id, .name = #id, .accepts = mg_folds_refuse

const mg_kernel mg_cpu_moments = {NORM(moments), .prepare = norm_prepare, .run = moments_run};
const mg_kernel mg_cpu_batch_norm = {NORM(batch_norm), .prepare = norm_prepare,
                                     .run = batch_norm_run};
const mg_kernel mg_cpu_batch_norm_reduce = {NORM(batch_norm_reduce), .prepare = norm_prepare,
                                            .run = batch_norm_reduce_run};

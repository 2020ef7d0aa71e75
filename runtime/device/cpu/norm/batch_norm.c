/* moments, batch_norm and batch_norm_reduce: one pass over the images each.
 *
 * For each lane of a unit, moments sums the differences from a number near the lane's values. These
 * differences are exact or nearly so, however far the mean is from 0. The units' means and squares
 * are combined in double. batch_norm subtracts the mean before it multiplies, for the same
 * reason. Units of float16 and bfloat16 are converted to float when they are computed. */
#include "device/cpu/halves.h"
#include "device/cpu/norm/norm.h"
#include "device/cpu/reduce/channel_view.h"
#include "ops/attrs.h"
#include <math.h>

enum {
    JOINED = 4, /* channels whose units a thread joins at a time; a whole tile has several such */
    MANY = 8    /* threads from which on they share that: with fewer, waiting for each other takes
                   longer than joining */
};

/* ---- shared ---- */

/* The statistics and the parameters are float32 if the images are halves. */
static const char *norm_accepts(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->in[0].value->dtype) ? NULL : "not floating point";
}

/* Scratch in doubles: two results per lane and unit, and three numbers per lane. */
static int64_t doubles_of(const mg_channel_view *s) {
    return mg_channel_view_units(s) * 2 * s->width + 3 * s->tiles * s->width;
}

/* Behind them, a copy of a unit per thread if the images are halves: moments reads a unit's rows
 * more than once. */
static mg_status norm_prepare(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const mg_channel_view s = mg_channel_view_of(x);
    plan->scratch = (size_t)doubles_of(&s) * sizeof(double) +
                    mg_copies_bytes(x->dtype, s.chunk_rows * s.width, mg_cpu_threads());
    return MG_OK;
}

/* Input 0 as rows of lanes. */
static mg_channel_view view_of(const mg_call *call) {
    return mg_channel_view_of(call->plan->in[0].value);
}

/* The loops for the images, input 0. All other operands have the dtype in which they compute. */
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

/* The two results per lane of a unit. */
static double *part_of(const mg_channel_view *s, double *parts, int64_t unit) {
    return parts + unit * 2 * s->width;
}

/* 1 / sqrt(variance + epsilon) of a channel; input 1 holds {mean, variance}. */
static double inverse_deviation(const mg_call *call, int64_t c, int64_t channels) {
    const double epsilon = ((const mg_norm_attrs *)call->plan->step->attrs)->epsilon;
    return 1 / sqrt(get_number(call->in[1], channels + c, folds_of(call)) + epsilon);
}

/* ---- moments ---- */

/* Per lane of the unit: its mean, and the sum of squared distances from that mean. */
static void unit_moments(const mg_call *call, const mg_channel_view *s, int64_t unit,
                         double *mean) {
    const mg_piece p = mg_channel_view_piece(s, unit);
    if (p.rows == 0) return;
    const mg_dtype t = call->plan->in[0].value->dtype;
    void *copies = (double *)call->scratch + doubles_of(s);
    float *own = mg_own_copy(copies, t, s->chunk_rows * s->width);
    const mg_unit_rows x = mg_channel_view_read(s, p, call->in[0], t, own);
    folds_of(call)->moments(x.at, p.rows, x.step, p.width, mean, mean + s->width);
}

/* Where the units' results of a lane are: those of the first chunk. */
static const double *parts_of_lane(const mg_channel_view *s, const double *parts, int64_t lane) {
    return parts + lane / s->width * 2 * s->width + lane % s->width;
}

/* Chunks of whole rows, and how many rows chunk k of them has. */
static int64_t whole_chunks(const mg_channel_view *s) {
    return s->chunks - (s->tail > 0);
}
static double rows_of_chunk(const mg_channel_view *s, int64_t k) {
    const int64_t left = s->rows - k * s->chunk_rows;
    return (double)(left < s->chunk_rows ? left : s->chunk_rows);
}

/* Adds the sum of x over all units to the total of each of n neighbouring lanes. The left-over row
 * has a lane if it is below s->tail. */
static inline __attribute__((always_inline)) void
add_sums_of(const mg_channel_view *s, const double *parts, int64_t lane, int64_t n, double *total) {
    const double *mean = parts_of_lane(s, parts, lane);
    for (int64_t k = 0; k < whole_chunks(s); k++, mean += s->tiles * 2 * s->width) {
        const double rows = rows_of_chunk(s, k);
        for (int64_t j = 0; j < n; j++) total[j] += rows * mean[j];
    }
    for (int64_t j = 0; j < n && lane + j < s->tail; j++) total[j] += mean[j];
}

/* Adds the sum of squared distances from `center` in the same way. */
static inline __attribute__((always_inline)) void add_squares_of(const mg_channel_view *s,
                                                                 const double *parts, int64_t lane,
                                                                 int64_t n, const double *center,
                                                                 double *total) {
    const double *mean = parts_of_lane(s, parts, lane), *square = mean + s->width;
    const int64_t step = s->tiles * 2 * s->width;
    for (int64_t k = 0; k < whole_chunks(s); k++, mean += step, square += step) {
        const double rows = rows_of_chunk(s, k);
        for (int64_t j = 0; j < n; j++) {
            const double d = mean[j] - center[j];
            total[j] += square[j] + rows * d * d;
        }
    }
    for (int64_t j = 0; j < n && lane + j < s->tail; j++)
        total[j] += (mean[j] - center[j]) * (mean[j] - center[j]);
}

/* The same with the usual n as a constant, so that the loops over lanes need no branches. */
static void add_sums(const mg_channel_view *s, const double *parts, int64_t lane, int64_t n,
                     double *total) {
    if (n == JOINED)
        add_sums_of(s, parts, lane, JOINED, total);
    else
        add_sums_of(s, parts, lane, n, total);
}
static void add_squares(const mg_channel_view *s, const double *parts, int64_t lane, int64_t n,
                        const double *center, double *total) {
    if (n == JOINED)
        add_squares_of(s, parts, lane, JOINED, center, total);
    else
        add_squares_of(s, parts, lane, n, center, total);
}

/* Combines the units for JOINED channels from c on: first their means, then the squared distances
 * around them. A channel has `count` elements. */
static void join_moments(const mg_call *call, const mg_channel_view *s, const double *parts,
                         int64_t c, double count) {
    const mg_simd_folds *f = folds_of(call);
    const int64_t n = mg_smaller(JOINED, s->channels - c);
    double mean[JOINED] = {0}, variance[JOINED] = {0};
    for (int64_t lane = c; lane < s->lanes; lane += s->channels) add_sums(s, parts, lane, n, mean);
    for (int64_t j = 0; j < n; j++) mean[j] /= count;
    for (int64_t lane = c; lane < s->lanes; lane += s->channels)
        add_squares(s, parts, lane, n, mean, variance);
    for (int64_t j = 0; j < n; j++) {
        put_number(call->out[0], c + j, mean[j], f);
        put_number(call->out[0], s->channels + c + j, variance[j] / count, f);
    }
}

/* Threads share the units, and then the channels. The left-over row is a unit besides those that
 * they share evenly. The result is {2, channels}. */
static mg_status moments_run(const mg_call *call) {
    const mg_channel_view s = view_of(call);
    const int64_t units = mg_channel_view_units(&s), rest = s.tail > 0 ? s.tiles : 0;
    const int64_t count = mg_shape_count(&call->plan->in[0].value->shape);
    double *parts = call->scratch;
#pragma omp parallel if (is_large(call))
    {
#pragma omp for schedule(static) nowait
        for (int64_t u = 0; u < units - rest; u++) unit_moments(call, &s, u, part_of(&s, parts, u));
#pragma omp single nowait
        for (int64_t u = units - rest; u < units; u++)
            unit_moments(call, &s, u, part_of(&s, parts, u));
    }
#pragma omp parallel for schedule(static) if (is_large(call) && mg_cpu_threads() >= MANY)
    for (int64_t c = 0; c < s.channels; c += JOINED)
        join_moments(call, &s, parts, c, (double)count / (double)s.channels);
    return MG_OK;
}

/* ---- batch_norm ---- */

/* Normalises unit u; the three factors are those of each lane of a row. */
static void normalise_unit(const mg_call *call, const mg_channel_view *s, int64_t u,
                           const double *factors, bool past_caches) {
    const mg_dtype t = call->plan->in[0].value->dtype;
    const mg_simd_folds *f = folds_of(call);
    const int64_t lanes = s->tiles * s->width;
    const double *mean = factors + u % s->tiles * s->width;
    const mg_piece unit = mg_channel_view_piece(s, u);
    const bool halves = mg_dtype_is_half(t);
    float copy[MG_HALVES_PART], result[MG_HALVES_PART];
    for (mg_piece p = mg_first_part(unit, t); p.rows > 0; p = mg_next_part(s, unit, p)) {
        const mg_unit_rows x = mg_channel_view_read(s, p, call->in[0], t, copy);
        void *y = halves ? (void *)result : (char *)call->out[0] + p.offset * f->size;
        f->normalise(x.at, y, p.rows, x.step, p.width, mean, mean + lanes, mean + 2 * lanes,
                     past_caches && !halves);
        if (halves) mg_channel_view_write(s, p, result, call->out[0], t);
    }
}

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
        normalise_unit(call, &s, past_caches ? units - 1 - i : i, mean, past_caches);
        if (past_caches) mg_simd_used->movement->end_stream();
    }
    return MG_OK;
}

/* ---- batch_norm_reduce ---- */

/* Per lane of the unit: the sums of dy and of dy * (x - mean). `mean` is that of each lane of a
 * row.
 */
static void unit_products(const mg_call *call, const mg_channel_view *s, const double *mean,
                          int64_t unit, double *sum) {
    for (int64_t j = 0; j < 2 * s->width; j++) sum[j] = 0;
    const mg_dtype t = call->plan->in[0].value->dtype;
    const mg_piece all = mg_channel_view_piece(s, unit);
    float x_copy[MG_HALVES_PART], dy_copy[MG_HALVES_PART];
    for (mg_piece p = mg_first_part(all, t); p.rows > 0; p = mg_next_part(s, all, p)) {
        const mg_unit_rows x = mg_channel_view_read(s, p, call->in[0], t, x_copy);
        const mg_unit_rows dy = mg_channel_view_read(s, p, call->in[2], t, dy_copy);
        folds_of(call)->products(x.at, dy.at, p.rows, x.step, p.width,
                                 mean + unit % s->tiles * s->width, sum, sum + s->width);
    }
}

/* Adds up the units for JOINED channels from c on. */
static void join_products(const mg_call *call, const mg_channel_view *s, const double *parts,
                          int64_t c) {
    const mg_simd_folds *f = folds_of(call);
    const int64_t n = mg_smaller(JOINED, s->channels - c);
    double sum[JOINED] = {0}, product[JOINED] = {0};
    for (int64_t lane = c; lane < s->lanes; lane += s->channels) {
        const double *part = parts_of_lane(s, parts, lane);
        for (int64_t k = 0; k < s->chunks; k++, part += s->tiles * 2 * s->width)
            for (int64_t j = 0; j < n; j++) {
                sum[j] += part[j];
                product[j] += part[s->width + j];
            }
    }
    for (int64_t j = 0; j < n; j++) {
        put_number(call->out[0], c + j, sum[j], f);
        put_number(call->out[0], s->channels + c + j,
                   product[j] * inverse_deviation(call, c + j, s->channels), f);
    }
}

/* Threads share the work as for the moments. The result is {2, channels}: the sums of dy, and of
 * dy * xhat. */
static mg_status batch_norm_reduce_run(const mg_call *call) {
    const mg_channel_view s = view_of(call);
    const int64_t units = mg_channel_view_units(&s), rest = s.tail > 0 ? s.tiles : 0;
    double *parts = call->scratch, *mean = part_of(&s, parts, units);
    for (int64_t k = 0, c = 0; k < s.lanes; k++) {
        mean[k] = get_number(call->in[1], c, folds_of(call));
        if (++c == s.channels) c = 0;
    }
#pragma omp parallel if (is_large(call))
    {
#pragma omp for schedule(static) nowait
        for (int64_t u = 0; u < units - rest; u++)
            unit_products(call, &s, mean, u, part_of(&s, parts, u));
#pragma omp single nowait
        for (int64_t u = units - rest; u < units; u++)
            unit_products(call, &s, mean, u, part_of(&s, parts, u));
    }
#pragma omp parallel for schedule(static) if (is_large(call) && mg_cpu_threads() >= MANY)
    for (int64_t c = 0; c < s.channels; c += JOINED) join_products(call, &s, parts, c);
    return MG_OK;
}

#define NORM(id) .op = #id, .name = #id, .accepts = norm_accepts

const mg_kernel mg_cpu_moments = {NORM(moments), .prepare = norm_prepare, .run = moments_run};
const mg_kernel mg_cpu_batch_norm = {NORM(batch_norm), .prepare = norm_prepare,
                                     .run = batch_norm_run};
const mg_kernel mg_cpu_batch_norm_reduce = {NORM(batch_norm_reduce), .prepare = norm_prepare,
                                            .run = batch_norm_reduce_run};

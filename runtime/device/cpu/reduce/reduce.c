/* sum, prod, max, min, any and all over axes; argmax, argmin and cumsum along one; all_finite.
 *
 * Neighbouring axes that are reduced alike are merged. If then everything is reduced, or all but a
 * short last axis, the tensor is a channel view (reduce/channel_view.h) whose units threads share.
 * Otherwise each result, or each tile of 64 neighbouring results, is made by one thread. Either way
 * the order of additions depends on the shape only. */
#include "device/axes.h"
#include "device/cpu/halves.h"
#include "device/cpu/reduce/reduce.h"
#include "device/cpu/reduce/channel_view.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <math.h>
#include <string.h>

enum {
    WIDE = 4096,   /* the longest last axis that is reduced as a view */
    PIECE = 65536, /* elements that a thread checks at a time in all_finite */
    FEW = 16,      /* terms up to which float32 sums are made in float32 */
    SUMS = 64,     /* such sums, of a row each, that a thread makes at a time */
    JOINED = 16,   /* lanes whose units a thread joins at a time, */
    UNIT = 2048    /* and elements of a unit that are worth a thread */
};

/* The loops of the call's op. */
static const mg_folding *reduction_of(const mg_call *call) {
    const mg_folding *r = mg_folds_of(call->plan->in[0].value->dtype)->reductions;
    while (strcmp(r->op, call->plan->step->op->name) != 0) r++;
    return r;
}

/* Writes result i in the dtype of the output. */
static void put_result(const mg_call *call, int64_t i, mg_partial v) {
    const mg_dtype t = call->plan->out[0].value->dtype;
    void *place = (char *)call->out[0] + i * (int64_t)mg_dtype_size(t);
    if (mg_dtype_is_float(call->plan->in[0].value->dtype))
        mg_from_double(place, &v.real, t, 1);
    else
        mg_from_int64(place, &v.integer, t, 1);
}

/* The address of element i of the input. */
static const char *element_at(const mg_call *call, int64_t i) {
    return (const char *)call->in[0] + i * (int64_t)mg_dtype_size(call->plan->in[0].value->dtype);
}

/* ---- the shape of a reduction ---- */

/* The merged axes, outermost first. */
typedef struct groups {
    int n;
    mg_reduce_axis at[MG_MAX_RANK];
} groups;

/* The merged axes of input 0. */
static groups groups_of(const mg_kernel_plan *plan) {
    const mg_ints *axes = &((const mg_reduce_attrs *)plan->step->attrs)->axes;
    bool reduced[MG_MAX_RANK] = {0};
    groups g;
    for (int i = 0; i < axes->n; i++) reduced[axes->v[i]] = true;
    g.n = mg_axes_of_reduction(&plan->in[0].value->shape, reduced, g.at);
    return g;
}

/* The view of a reduction that has one; otherwise a view without lanes. */
static mg_channel_view view_of(const mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const int64_t count = mg_shape_count(&x->shape);
    const groups g = groups_of(plan);
    if (g.n == 1 && g.at[0].reduced) return mg_channel_view_of_rows(count, 1, UNIT);
    if (g.n == 2 && g.at[0].reduced && g.at[1].n <= WIDE)
        return mg_channel_view_of_rows(count, g.at[1].n, UNIT);
    return (mg_channel_view){.lanes = 0};
}

/* ---- running ---- */

/* Reduces the lanes of unit u to `part`. */
static void reduce_unit(const mg_call *call, const mg_channel_view *s, const mg_folding *r,
                        int64_t u, mg_partial *part) {
    const mg_dtype t = call->plan->in[0].value->dtype;
    const mg_piece unit = mg_channel_view_piece(s, u);
    float copy[MG_HALVES_PART];
    for (int64_t j = 0; j < s->width; j++) part[j] = r->start;
    for (mg_piece p = mg_first_part(unit, t); p.rows > 0; p = mg_next_part(s, unit, p)) {
        const mg_unit_rows x = mg_channel_view_read(s, p, call->in[0], t, copy);
        r->fold(x.at, p.rows, x.step, p.width, part);
    }
}

/* Joins the units' results of the lanes from `lane` on, at most JOINED, in the order of the units.
 */
static void join_units(const mg_channel_view *s, const mg_folding *r, const mg_partial *parts,
                       int64_t lane, mg_partial *total) {
    const int64_t row = s->tiles * s->width, n = mg_smaller(JOINED, row - lane);
    for (int64_t j = lane; j < lane + n; j++) total[j] = r->start;
    r->fold(parts + lane, s->chunks, row, (int)n, total + lane);
}

/* The result of a channel from those of its lanes. */
static mg_partial join_lanes(const mg_channel_view *s, const mg_folding *r, const mg_partial *total,
                             int64_t channel) {
    mg_partial v = total[channel];
    for (int64_t j = channel + s->channels; j < s->lanes; j += s->channels)
        v = r->join(v, total[j]);
    return v;
}

/* Threads share the units, then the lanes, then the channels. The left-over row is a unit besides
 * those that they share evenly. */
static void reduce_view(const mg_call *call, const mg_channel_view *s, const mg_folding *r) {
    const int64_t units = mg_channel_view_units(s), rest = s->tail > 0 ? s->tiles : 0;
    const mg_dtype t = call->plan->in[0].value->dtype;
    const mg_folding *wide = mg_folds_of(mg_dtype_is_float(t) ? MG_F64 : MG_I64)->reductions;
    wide += r - mg_folds_of(t)->reductions;
    mg_partial *parts = call->scratch, *total = parts + units * s->width;
#pragma omp parallel num_threads(units > 1 ? mg_cpu_team(mg_count(&call->plan->in[0])) : 1)
    {
#pragma omp for schedule(static) nowait
        for (int64_t u = 0; u < units - rest; u++) reduce_unit(call, s, r, u, parts + u * s->width);
#pragma omp single
        for (int64_t u = units - rest; u < units; u++)
            reduce_unit(call, s, r, u, parts + u * s->width);
#pragma omp for schedule(static)
        for (int64_t lane = 0; lane < s->lanes; lane += JOINED)
            join_units(s, wide, parts, lane, total);
#pragma omp for schedule(static)
        for (int64_t c = 0; c < s->channels; c++) put_result(call, c, join_lanes(s, r, total, c));
    }
}

/* The offset of combination i of the kept (or reduced) groups up to number `last`, counted in
 * row-major order. */
static int64_t offset_of(const groups *g, bool reduced, int last, int64_t i) {
    int64_t offset = 0;
    for (int k = last; k >= 0; k--) {
        if (g->at[k].reduced != reduced) continue;
        offset += i % g->at[k].n * g->at[k].stride;
        i /= g->at[k].n;
    }
    return offset;
}

/* The number of such combinations. */
static int64_t combinations(const groups *g, bool reduced, int last) {
    int64_t n = 1;
    for (int k = 0; k <= last; k++)
        if (g->at[k].reduced == reduced) n *= g->at[k].n;
    return n;
}

/* The reduction of n neighbouring elements from element `first` on; halves are converted in parts.
 */
static mg_partial reduce_run_of(const mg_call *call, const mg_folding *r, int64_t first,
                                int64_t n) {
    const mg_dtype t = call->plan->in[0].value->dtype;
    if (!mg_dtype_is_half(t)) return r->run(element_at(call, first), n);
    float copy[MG_HALVES_PART];
    mg_partial v = r->start;
    for (int64_t at = 0; at < n; at += MG_HALVES_PART) {
        const int64_t some = mg_smaller(MG_HALVES_PART, n - at);
        v = r->join(v, r->run(mg_read_elements(call->in[0], t, first + at, some, copy), some));
    }
    return v;
}

/* The innermost group is reduced: each result is joined from contiguous runs. */
static void reduce_runs(const mg_call *call, const groups *g, const mg_folding *r) {
    const int64_t run = g->at[g->n - 1].n, count = mg_shape_count(&call->plan->in[0].value->shape);
    const int64_t outputs = combinations(g, false, g->n - 2);
    const int64_t runs = combinations(g, true, g->n - 2);
#pragma omp parallel for schedule(static) if (count > MG_SERIAL_BELOW)
    for (int64_t o = 0; o < outputs; o++) {
        const int64_t first = offset_of(g, false, g->n - 2, o);
        mg_partial v = r->start;
        for (int64_t i = 0; i < runs; i++)
            v = r->join(v, reduce_run_of(call, r, first + offset_of(g, true, g->n - 2, i), run));
        put_result(call, o, v);
    }
}

/* The offset of result i, from that of result i - 1: mostly one step along the innermost kept group
 * but the last, without a division. */
static int64_t next_offset(const groups *g, int64_t offset, int64_t i) {
    const int inner = g->n - 3;
    if (inner >= 0 && i % g->at[inner].n) return offset + g->at[inner].stride;
    return offset_of(g, false, g->n - 2, i);
}

/* Row o of the results, the sums of the n rows of terms at first + offset[k]; halves are converted
 * in parts. */
static void sum_row(const mg_call *call, int64_t first, const int64_t *offset, int n, int64_t run,
                    int64_t o) {
    enum { WIDTH = MG_HALVES_PART / FEW };
    const mg_dtype t = call->plan->in[0].value->dtype;
    const mg_simd_folds *f = mg_folds_of(t);
    float copy[MG_HALVES_PART], sums[WIDTH];
    int64_t at[FEW];
    if (!mg_dtype_is_half(t)) {
        f->sum_runs((const float *)call->in[0] + first, offset, n, run,
                    (float *)call->out[0] + o * run);
        return;
    }
    for (int64_t column = 0; column < run; column += WIDTH) {
        const int64_t width = mg_smaller(WIDTH, run - column);
        for (int k = 0; k < n; k++) {
            at[k] = k * width;
            mg_read_elements(call->in[0], t, first + offset[k] + column, width, copy + at[k]);
        }
        f->sum_runs(copy, at, n, width, sums);
        mg_round_elements(call->out[0], t, o * run + column, width, sums);
    }
}

/* Sums of few float32 terms per result (the gradient of repeating pixels, for one) are made in
 * float32, which is exact enough then; those of halves too. Returns whether this is such a sum. */
static bool sum_few(const mg_call *call, const groups *g) {
    const int64_t run = g->at[g->n - 1].n, n = combinations(g, true, g->n - 2);
    const int64_t outputs = combinations(g, false, g->n - 2);
    const int64_t count = mg_count(&call->plan->in[0]);
    const mg_dtype t = call->plan->in[0].value->dtype;
    int64_t offset[FEW];
    if (n > FEW || (t != MG_F32 && !mg_dtype_is_half(t)) || call->plan->out[0].value->dtype != t ||
        strcmp(call->plan->step->op->name, "sum") != 0)
        return false;
    for (int64_t k = 0; k < n; k++) offset[k] = offset_of(g, true, g->n - 2, k);
    const int64_t pieces = (outputs + SUMS - 1) / SUMS;
#pragma omp parallel for schedule(static) if (count > MG_SERIAL_BELOW)
    for (int64_t piece = 0; piece < pieces; piece++) {
        const int64_t end = piece + 1 < pieces ? (piece + 1) * SUMS : outputs;
        int64_t first = offset_of(g, false, g->n - 2, piece * SUMS);
        for (int64_t o = piece * SUMS; o < end; first = next_offset(g, first, ++o))
            sum_row(call, first, offset, (int)n, run, o);
    }
    return true;
}

/* Folds rows of `width` <= MG_TILE elements, `step` apart, into v; halves are converted in parts.
 */
static void fold_rows(const mg_call *call, const mg_folding *r, int64_t first, int64_t rows,
                      int64_t step, int width, mg_partial *v) {
    const mg_dtype t = call->plan->in[0].value->dtype;
    if (!mg_dtype_is_half(t)) {
        r->fold(element_at(call, first), rows, step, width, v);
        return;
    }
    float copy[MG_HALVES_PART];
    for (int64_t i = 0; i < rows; i += MG_FOLD_ROWS) {
        const int64_t some = mg_smaller(MG_FOLD_ROWS, rows - i);
        const uint16_t *at = (const uint16_t *)call->in[0] + first + i * step;
        mg_simd_used->conversions->load_rows(copy, at, step, some, width, t);
        r->fold(copy, some, width, width, v);
    }
}

/* The innermost group is kept and the one before it reduced: results are made a tile at a time. */
static void reduce_columns(const mg_call *call, const groups *g, const mg_folding *r) {
    const int64_t run = g->at[g->n - 1].n, count = mg_shape_count(&call->plan->in[0].value->shape);
    const int64_t tiles = (run + MG_TILE - 1) / MG_TILE;
    const int64_t units = combinations(g, false, g->n - 2) * tiles;
    const int64_t rows = g->at[g->n - 2].n, times = combinations(g, true, g->n - 3);
#pragma omp parallel for schedule(static) if (count > MG_SERIAL_BELOW)
    for (int64_t u = 0; u < units; u++) {
        const int64_t column = u % tiles * MG_TILE, o = u / tiles;
        const int64_t first = offset_of(g, false, g->n - 2, o) + column;
        const int width = (int)(run - column < MG_TILE ? run - column : MG_TILE);
        mg_partial v[MG_TILE];
        for (int j = 0; j < width; j++) v[j] = r->start;
        for (int64_t i = 0; i < times; i++)
            fold_rows(call, r, first + offset_of(g, true, g->n - 3, i), rows, run, width, v);
        for (int j = 0; j < width; j++) put_result(call, o * run + column + j, v[j]);
    }
}

/* Scratch: the lanes of each unit, then those of all. */
static mg_status reduce_prepare(mg_kernel_plan *plan) {
    const mg_channel_view s = view_of(plan);
    plan->scratch = (size_t)((s.chunks + 1) * s.tiles * s.width) * sizeof(mg_partial);
    return MG_OK;
}

/* Picks the way that suits the merged axes. */
static mg_status reduce_run(const mg_call *call) {
    const mg_folding *r = reduction_of(call);
    const mg_channel_view s = view_of(call->plan);
    const groups g = groups_of(call->plan);
    const mg_shape *y = &call->plan->out[0].value->shape;
    if (mg_shape_count(&call->plan->in[0].value->shape) == 0)
        for (int64_t i = 0; i < mg_shape_count(y); i++) put_result(call, i, r->start);
    else if (s.lanes)
        reduce_view(call, &s, r);
    else if (g.n == 0 || (g.n == 1 && !g.at[0].reduced)) /* nothing but axes of one element */
        for (int64_t i = 0; i < mg_shape_count(y); i++)
            put_result(call, i, reduce_run_of(call, r, i, 1));
    else if (g.at[g.n - 1].reduced)
        reduce_runs(call, &g, r);
    else if (!sum_few(call, &g))
        reduce_columns(call, &g, r);
    return MG_OK;
}

/* ---- argmax, cumsum, all_finite ---- */

/* Each result is one thread's. The first of equal elements wins. */
static mg_status argmax_run(const mg_call *call) {
    const mg_value *x = call->plan->in[0].value;
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_axis_view v = mg_axis_view_of(&x->shape, axis);
    const mg_simd_folds *f = mg_folds_of(x->dtype);
    const bool largest = strcmp(call->plan->step->op->name, "argmax") == 0;
    const bool wide = call->plan->out[0].value->dtype == MG_I64;
#pragma omp parallel for schedule(static) if (v.outer * v.n * v.inner > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < v.outer * v.inner; i++) {
        const void *first = element_at(call, i / v.inner * v.n * v.inner + i % v.inner);
        const int64_t at = f->extreme(first, v.n, v.inner, largest);
        if (wide)
            ((int64_t *)call->out[0])[i] = at;
        else
            ((int32_t *)call->out[0])[i] = (int32_t)at;
    }
    return MG_OK;
}

/* Running sums in double or int64. A unit is a tile of up to MG_TILE neighbouring columns; threads
 * share the units. */
static mg_status cumsum_run(const mg_call *call) {
    const mg_value *x = call->plan->in[0].value;
    const mg_axis_view v =
        mg_axis_view_of(&x->shape, ((const mg_axis_attrs *)call->plan->step->attrs)->axis);
    const mg_simd_folds *f = mg_folds_of(x->dtype);
    const int64_t tiles = (v.inner + MG_TILE - 1) / MG_TILE;
    const int64_t out_size = (int64_t)mg_dtype_size(call->plan->out[0].value->dtype);
#pragma omp parallel for schedule(static) num_threads(mg_cpu_team(v.outer *v.n *v.inner))
    for (int64_t unit = 0; unit < v.outer * tiles; unit++) {
        const int64_t column = unit % tiles * MG_TILE, left = v.inner - column;
        const int64_t first = unit / tiles * v.n * v.inner + column;
        const int64_t width = left < MG_TILE ? left : MG_TILE;
        f->cumsum(element_at(call, first), (char *)call->out[0] + first * out_size, v.n, v.inner,
                  width);
    }
    return MG_OK;
}

/* Whether the elements [first, end) are finite. */
static bool are_finite(const void *x, mg_dtype t, int64_t first, int64_t end) {
    const mg_simd_folds *f = mg_folds_of(t);
    float copy[MG_HALVES_PART];
    bool good = true;
    if (!mg_dtype_is_half(t)) return f->finite((const char *)x + first * f->size, end - first);
    for (; first < end && good; first += MG_HALVES_PART) {
        const int64_t n = mg_smaller(MG_HALVES_PART, end - first);
        mg_simd_used->conversions->load_rows(copy, (const uint16_t *)x + first, n, 1, n, t);
        good = f->finite(copy, n);
    }
    return good;
}

/* Whether one operand is finite, as integers always are. */
static bool all_finite(const mg_port *in, const void *x) {
    const int64_t n = mg_count(in);
    const mg_dtype t = in->value->dtype;
    bool good = true;
    if (!mg_dtype_is_float(t)) return true;
#pragma omp parallel for schedule(static) reduction(&& : good) if (n > MG_SERIAL_BELOW)
    for (int64_t first = 0; first < n; first += PIECE)
        good = are_finite(x, t, first, mg_smaller(first + PIECE, n)) && good;
    return good;
}

/* Stops at the first operand that is not finite. */
static mg_status all_finite_run(const mg_call *call) {
    bool good = true;
    for (int i = 0; i < call->plan->step->n_in && good; i++)
        good = all_finite(&call->plan->in[i], call->in[i]);
    *(uint8_t *)call->out[0] = good;
    return MG_OK;
}

#define REDUCTION(id) .op = #id, .name = #id, .prepare = reduce_prepare, .run = reduce_run

#define CHOICE(id) .op = #id, .name = #id, .accepts = mg_folds_refuse, .run = argmax_run

const mg_kernel mg_cpu_sum = {REDUCTION(sum)};
const mg_kernel mg_cpu_prod = {REDUCTION(prod)};
const mg_kernel mg_cpu_max = {REDUCTION(max)};
const mg_kernel mg_cpu_min = {REDUCTION(min)};
const mg_kernel mg_cpu_any = {REDUCTION(any)};
const mg_kernel mg_cpu_all = {REDUCTION(all)};
const mg_kernel mg_cpu_argmax = {CHOICE(argmax)};
const mg_kernel mg_cpu_argmin = {CHOICE(argmin)};
const mg_kernel mg_cpu_all_finite = {
    .op = "all_finite", .name = "all_finite", .run = all_finite_run};
const mg_kernel mg_cpu_cumsum = {
    .op = "cumsum", .name = "columns", .accepts = mg_folds_refuse, .run = cumsum_run};

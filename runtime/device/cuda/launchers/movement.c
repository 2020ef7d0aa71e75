/* Movement: elements placed elsewhere, whatever their type.
 *
 * Nearly all ops are one walk over the result in row-major order, with a stride in x per axis.
 * Neighbouring axes are merged where possible, and elements that are contiguous on both sides are
 * moved in units of up to 16 bytes. If x is contiguous along another axis than the result, squares
 * are transposed instead (kernels/movement.cu). The units are chosen when a call runs, because
 * addresses are known only then. */
#include "core/alloc.h"
#include "device/axes.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/movement_params.h"
#include "device/cuda/context/context.h"
#include "ops/attrs.h"
#include <stddef.h>
#include <stdio.h>

enum { THREADS = 256, UNITS = 5, WORTH_TURNING = 16 /* lines of a square */ };
#define MOST ((int64_t)1 << 30) /* units of a launch */

_Static_assert(offsetof(pad_params, value) % 16 == 0, "it is loaded 16 bytes at once");

/* Strides in elements, later in units. A padded axis holds element (at - before) / gap of x, if
 * that is one of its `inside`. */
typedef struct walk {
    int rank;
    int64_t n[MG_MAX_RANK], from[MG_MAX_RANK];
    int64_t before[MG_MAX_RANK], inside[MG_MAX_RANK], gap[MG_MAX_RANK];
} walk;

typedef struct state {
    walk walk;
    int64_t first; /* where the walk begins in x */
    bool padded;
    uint64_t value[2]; /* of padding, repeated */
    CUfunction walks[UNITS], turns[UNITS], pads[UNITS];
} state;

/* ---- walks ---- */

/* A row-major walk over s, without strides in x. */
static walk walk_over(const mg_shape *s) {
    walk w = {.rank = s->rank};
    for (int i = 0; i < s->rank; i++) w.n[i] = w.inside[i] = s->dim[i], w.gap[i] = 1;
    return w;
}

static int64_t count_of(const walk *w) {
    int64_t count = 1;
    for (int i = 0; i < w->rank; i++) count *= w->n[i];
    return count;
}

static bool is_plain(const walk *w, int axis) {
    return w->before[axis] == 0 && w->gap[axis] == 1 && w->inside[axis] == w->n[axis];
}

/* Sets strides by which mg_axes_merge joins axis i with axis i + 1 only if that is possible: the
 * inner axis is not padded, and the outer one has no gaps. */
static void strides_of_mergeable(const walk *w, int64_t stride[MG_MAX_RANK]) {
    stride[w->rank - 1] = 1;
    for (int i = w->rank - 2; i >= 0; i--)
        stride[i] = stride[i + 1] * w->n[i + 1] + (is_plain(w, i + 1) && w->gap[i] == 1 ? 0 : 1);
}

/* Whether all axes of size 1 are without padding, so that they may be dropped. */
static bool may_merge(const walk *w) {
    for (int i = 0; i < w->rank; i++)
        if (w->n[i] == 1 && !is_plain(w, i)) return false;
    return w->rank > 0 && count_of(w) > 0;
}

/* At least one axis is left. A merged axis has the padding of its outermost one. */
static void merge_axes(walk *w) {
    int64_t mergeable[MG_MAX_RANK];
    walk m = *w;
    if (may_merge(w)) {
        strides_of_mergeable(w, mergeable);
        m.rank = mg_axes_merge(w->rank, m.n, (int64_t *const[]){m.from, mergeable}, 2);
    }
    for (int i = 0, outer = 0; i < m.rank && m.rank < w->rank; i++) {
        while (w->n[outer] == 1) outer++;
        const int64_t inside = m.n[i] / w->n[outer]; /* elements of the axes that joined it */
        m.before[i] = inside * w->before[outer];
        m.inside[i] = inside * w->inside[outer];
        m.gap[i] = w->gap[outer];
        for (int64_t n = 1; n < m.n[i];) n *= w->n[outer++];
    }
    *w = m.rank > 0 ? m : (walk){.rank = 1, .n = {1}, .from = {1}, .inside = {1}, .gap = {1}};
}

/* ---- units ---- */

static bool is_multiple(const void *address, int64_t bytes) {
    return (uintptr_t)address % (uintptr_t)bytes == 0;
}

/* Whether k neighbouring elements of the result are always contiguous in x. */
static bool moves_by(const walk *w, int64_t k) {
    const int last = w->rank - 1;
    if (k == 1) return true;
    if (w->from[last] != 1 || w->gap[last] != 1 || w->n[last] % k || w->before[last] % k ||
        w->inside[last] % k)
        return false;
    for (int i = 0; i < last; i++)
        if (w->from[i] % k) return false;
    return true;
}

/* Changes the walk to units as wide as possible; returns their size in bytes. */
static int64_t widen(walk *w, int64_t size, const void *x, const void *y) {
    const int last = w->rank - 1;
    int64_t bytes = 16;
    while (!(moves_by(w, bytes / size) && is_multiple(x, bytes) && is_multiple(y, bytes)))
        bytes /= 2;
    const int64_t k = bytes / size;
    if (k == 1) return bytes;
    w->n[last] /= k, w->before[last] /= k, w->inside[last] /= k;
    for (int i = 0; i < last; i++) w->from[i] /= k;
    merge_axes(w);
    return bytes;
}

static int index_of(int64_t bytes) {
    return __builtin_ctzll((unsigned long long)bytes);
}

/* ---- launches ---- */

static mg_status launch_walk(const mg_device *d, const state *s, const walk *w, const char *x,
                             char *y, int64_t bytes) {
    pad_params p = {.walk = {.in = x, .out = y, .rank = w->rank}};
    const int64_t count = count_of(w);
    p.walk.count = (unsigned)count;
    for (int i = 0; i < w->rank; i++) {
        p.walk.n[i] = mg_divisor_of(w->n[i]);
        p.walk.from[i] = w->from[i];
        p.before[i] = w->before[i];
        p.inside[i] = w->inside[i];
        p.gap[i] = mg_divisor_of(w->gap[i]);
    }
    p.value[0] = s->value[0], p.value[1] = s->value[1];
    const int64_t blocks = mg_cuda_blocks(d, (count + 3) / 4, THREADS);
    if (s->padded) return mg_cuda_launch(d, s->pads[index_of(bytes)], blocks, THREADS, 0, &p);
    return mg_cuda_launch(d, s->walks[index_of(bytes)], blocks, THREADS, 0, &p.walk);
}

/* The axis along which x is contiguous, if this axis and the result's last axis are long; else
 * -1. */
static int turned_axis(const walk *w) {
    const int last = w->rank - 1;
    if (w->from[last] == 0 || w->from[last] == 1 || w->n[last] < WORTH_TURNING) return -1;
    for (int i = 0; i < last; i++)
        if (w->from[i] == 1 && w->n[i] >= WORTH_TURNING) return i;
    return -1;
}

static mg_status launch_turn(const mg_device *d, const state *s, const walk *w, const char *x,
                             char *y, int64_t bytes) {
    const int axis = turned_axis(w), last = w->rank - 1, side = MG_TURN_SIDE(bytes);
    const int64_t down = (w->n[last] + side - 1) / side, across = (w->n[axis] + side - 1) / side;
    turn_params p = {.in = x,
                     .out = y,
                     .rows = (unsigned)w->n[last],
                     .columns = (unsigned)w->n[axis],
                     .from_row = w->from[last],
                     .down = mg_divisor_of(down),
                     .across = mg_divisor_of(across)};
    int64_t tiles = down * across, to[MG_MAX_RANK] = {0};
    to[last] = 1;
    for (int i = last; i > 0; i--) to[i - 1] = to[i] * w->n[i];
    p.to_column = to[axis];
    for (int i = 0; i < last; i++) {
        if (i == axis) continue;
        p.n[p.rank] = mg_divisor_of(w->n[i]);
        p.from[p.rank] = w->from[i];
        p.to[p.rank++] = to[i];
        tiles *= w->n[i];
    }
    p.tiles = (unsigned)tiles;
    return mg_cuda_launch(d, s->turns[index_of(bytes)], mg_cuda_blocks(d, tiles * THREADS, THREADS),
                          THREADS, 0, &p);
}

/* Divides the outermost axis in halves if there are too many units for a launch. */
static mg_status launch(const mg_device *d, const state *s, const walk *w, const char *x, char *y,
                        int64_t bytes) {
    const int64_t half = w->n[0] / 2;
    if (count_of(w) > MOST && half > 0) {
        walk part = *w;
        part.n[0] = half;
        const char *x_rest = s->padded ? x : x + half * w->from[0] * bytes;
        char *y_rest = y + count_of(&part) * bytes;
        MG_TRY(launch(d, s, &part, x, y, bytes));
        part.n[0] = w->n[0] - half;
        if (s->padded) part.before[0] -= half;
        return launch(d, s, &part, x_rest, y_rest, bytes);
    }
    if (!s->padded && turned_axis(w) >= 0) return launch_turn(d, s, w, x, y, bytes);
    return launch_walk(d, s, w, x, y, bytes);
}

static mg_status run(const mg_call *call) {
    const state *s = call->plan->state;
    const int64_t size = (int64_t)mg_dtype_size(call->plan->out[0].value->dtype);
    const char *x = (const char *)call->in[0] + s->first * size;
    walk w = s->walk;
    if (count_of(&w) == 0) return MG_OK;
    const int64_t bytes = widen(&w, size, x, call->out[0]);
    return launch(call->plan->device, s, &w, x, call->out[0], bytes);
}

/* ---- preparing ---- */

/* The kernel's variants for units from an element to 16 bytes. */
static mg_status find(mg_device *d, const char *name, int64_t size, CUfunction *functions) {
    char full[32];
    for (int64_t bytes = size; bytes <= 16; bytes *= 2) {
        snprintf(full, sizeof full, "%s_unit_%d", name, (int)bytes);
        MG_TRY(mg_cuda_find(d, full, &functions[index_of(bytes)]));
    }
    return MG_OK;
}

static mg_status keep(mg_kernel_plan *plan, const state *made) {
    const int64_t size = (int64_t)mg_dtype_size(plan->out[0].value->dtype);
    state *s = mg_alloc(sizeof *s);
    if (!s) return MG_OOM;
    plan->state = s;
    *s = *made;
    merge_axes(&s->walk);
    if (s->padded) return find(plan->device, "pad", size, s->pads);
    MG_TRY(find(plan->device, "walk", size, s->walks));
    return find(plan->device, "turn", size, s->turns);
}

static state begin(const mg_kernel_plan *plan) {
    return (state){.walk = walk_over(&plan->out[0].value->shape)};
}

static mg_status prepare_permute(mg_kernel_plan *plan) {
    const mg_ints *order = &((const mg_ints_attrs *)plan->step->attrs)->list;
    state s = begin(plan);
    int64_t stride[MG_MAX_RANK];
    mg_shape_strides(&plan->in[0].value->shape, NULL, stride);
    for (int i = 0; i < order->n; i++) s.walk.from[i] = stride[order->v[i]];
    return keep(plan, &s);
}

static mg_status prepare_slice(mg_kernel_plan *plan) {
    const mg_slice_attrs *a = plan->step->attrs;
    state s = begin(plan);
    int64_t stride[MG_MAX_RANK];
    mg_shape_strides(&plan->in[0].value->shape, NULL, stride);
    for (int i = 0; i < s.walk.rank; i++) {
        s.walk.from[i] = stride[i] * a->step.v[i];
        s.first += stride[i] * a->start.v[i];
    }
    return keep(plan, &s);
}

static mg_status prepare_broadcast_to(mg_kernel_plan *plan) {
    state s = begin(plan);
    mg_shape_strides(&plan->in[0].value->shape, &plan->out[0].value->shape, s.walk.from);
    return keep(plan, &s);
}

static mg_status prepare_reverse(mg_kernel_plan *plan) {
    const int64_t axis = ((const mg_axis_attrs *)plan->step->attrs)->axis;
    state s = begin(plan);
    mg_shape_strides(&plan->in[0].value->shape, NULL, s.walk.from);
    s.first = s.walk.from[axis] * (s.walk.n[axis] - 1);
    s.walk.from[axis] *= -1;
    return keep(plan, &s);
}

/* ---- pad ---- */

static const char *accepts_pad(const mg_kernel_plan *plan) {
    const mg_shape *y = &plan->out[0].value->shape;
    for (int i = 0; i < y->rank; i++)
        if (y->dim[i] > INT32_MAX) return "an axis of 2^31 elements";
    return NULL;
}

static mg_status prepare_pad(mg_kernel_plan *plan) {
    const mg_pad_attrs *a = plan->step->attrs;
    const mg_value *x = plan->in[0].value;
    const size_t size = mg_dtype_size(x->dtype);
    state s = begin(plan);
    s.padded = true;
    mg_shape_strides(&x->shape, NULL, s.walk.from);
    for (int i = 0; i < x->shape.rank; i++) {
        s.walk.before[i] = a->before.v[i];
        s.walk.inside[i] = x->shape.dim[i];
        s.walk.gap[i] = x->shape.dim[i] > 1 ? a->interior.v[i] + 1 : 1;
    }
    for (size_t at = 0; at < sizeof s.value; at += size)
        mg_from_double((char *)s.value + at, &a->value, x->dtype, 1);
    return keep(plan, &s);
}

/* ---- reshape, and the layouts of convolution kernels ---- */

static mg_status copy(const mg_call *call) {
    return mg_cuda_copy(call->plan->device, call->out[0], call->in[0],
                        mg_value_bytes(call->plan->out[0].value));
}

/* Between {KH, KW, C, K} and {K, KH, KW, C}: a transposition. */
static mg_status prepare_reorder(mg_kernel_plan *plan) {
    const int from = plan->in[0].layout, to = plan->out[0].layout;
    const mg_shape *y = &plan->in[0].value->shape;
    const int64_t k = y->dim[3], others = y->dim[0] * y->dim[1] * y->dim[2];
    const mg_shape matrix = to == MG_KRSC ? MG_SHAPE(k, others) : MG_SHAPE(others, k);
    state s = {.walk = walk_over(&matrix)};
    s.walk.from[0] = from == to ? matrix.dim[1] : 1;
    s.walk.from[1] = from == to ? 1 : matrix.dim[0];
    return keep(plan, &s);
}

#define MOVEMENT(id) .op = #id, .name = #id, .prepare = prepare_##id, .run = run, .release = mg_free

const mg_kernel mg_cuda_permute = {MOVEMENT(permute)};
const mg_kernel mg_cuda_slice = {MOVEMENT(slice)};
const mg_kernel mg_cuda_broadcast_to = {MOVEMENT(broadcast_to)};
const mg_kernel mg_cuda_reverse = {MOVEMENT(reverse)};
const mg_kernel mg_cuda_pad = {MOVEMENT(pad), .accepts = accepts_pad};
const mg_kernel mg_cuda_reshape = {.op = "reshape", .name = "copy", .run = copy};
const mg_kernel mg_cuda_reorder = {
    .name = "reorder", .prepare = prepare_reorder, .run = run, .release = mg_free};

/* Movement: ops that place elements elsewhere, whatever their dtype; only the size of an element
 * counts.
 *
 * Nearly all of them are one walk over a shape, with a stride per axis in the source and in the
 * destination. Axes that run on into one another are merged first; then threads share the outer
 * axes in blocks of rows. Where the source is contiguous along another axis than the destination,
 * that axis is made the second innermost, so that a block becomes a transposition in small squares.
 */
#include "core/alloc.h"
#include "device/axes.h"
#include "device/cpu/cpu.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <math.h>
#include <string.h>

enum {
    BLOCK = 32,   /* rows of a unit of work, and columns of a square */
    PIECE = 16384 /* elements that a thread fills at a time */
};

/* n[i] elements along axis i, from[i] apart in the source and to[i] in the destination. Strides and
 * offsets are in elements. */
typedef struct walk {
    int rank;
    int64_t n[MG_MAX_RANK], from[MG_MAX_RANK], to[MG_MAX_RANK];
    int64_t from_first, to_first; /* offsets of the first element */
    int64_t others;               /* elements that the other walks of the same op move */
} walk;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- preparing a walk ---- */

/* Inserts an axis of size 1. */
static void insert_axis(walk *w, int at) {
    for (int i = w->rank++; i > at; i--)
        w->n[i] = w->n[i - 1], w->from[i] = w->from[i - 1], w->to[i] = w->to[i - 1];
    w->n[at] = 1, w->from[at] = w->to[at] = 0;
}

/* Moves an outer axis next to the innermost one. */
static void make_second_innermost(walk *w, int axis) {
    const int64_t n = w->n[axis], from = w->from[axis], to = w->to[axis];
    for (int i = axis; i < w->rank - 2; i++)
        w->n[i] = w->n[i + 1], w->from[i] = w->from[i + 1], w->to[i] = w->to[i + 1];
    w->n[w->rank - 2] = n, w->from[w->rank - 2] = from, w->to[w->rank - 2] = to;
}

/* Leaves at least two axes. A single long axis is cut in two where its length allows, so that
 * threads can share it. The axis along which the source is contiguous becomes the second innermost.
 */
static void prepare_walk(walk *w) {
    w->rank = mg_axes_merge(w->rank, w->n, (int64_t *const[]){w->from, w->to}, 2);
    while (w->rank < 2) insert_axis(w, 0);
    const int last = w->rank - 1;
    if (w->rank == 2 && w->n[0] == 1)
        for (int64_t pieces = 64; pieces > 1; pieces /= 2) { /* the most that divide it */
            if (w->n[1] < MG_SERIAL_BELOW || w->n[1] % pieces) continue;
            w->n[0] = pieces, w->n[1] /= pieces;
            w->from[0] = w->from[1] * w->n[1], w->to[0] = w->to[1] * w->n[1];
            break;
        }
    if (w->from[last] != 1 && w->to[last] == 1)
        for (int i = 0; i < last; i++)
            if (w->from[i] == 1) {
                make_second_innermost(w, i);
                break;
            }
}

/* ---- inner loops: rows x n elements, one function a size ---- */

/* A block of rows x n elements with the strides of its two axes. */
typedef struct block {
    int64_t rows, n, from_row, from, to_row, to;
} block;

/* One pair of loops per element size: copies of a block, by columns of BLOCK, and fills. */
#define COPY_BLOCK(type)                                                                           \
    static void copy_##type(const block *b, const void *src, void *dst) {                          \
        for (int64_t first = 0; first < b->n; first += BLOCK) {                                    \
            const int64_t end = smaller(first + BLOCK, b->n);                                      \
            for (int64_t r = 0; r < b->rows; r++) {                                                \
                const type *x = (const type *)src + r * b->from_row;                               \
                type *y = (type *)dst + r * b->to_row;                                             \
                for (int64_t i = first; i < end; i++) y[i * b->to] = x[i * b->from];               \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void fill_##type(const void *value, void *dst, int64_t n) {                             \
        const type v = *(const type *)value;                                                       \
        for (int64_t i = 0; i < n; i++) ((type *)dst)[i] = v;                                      \
    }
COPY_BLOCK(uint8_t)
COPY_BLOCK(uint16_t)
COPY_BLOCK(uint32_t)
COPY_BLOCK(uint64_t)

/* Copies rows of whole cache lines past the caches, for results too large to be found there later.
 */
static void stream_block(const block *b, const char *src, char *dst, int64_t size) {
    const mg_simd_movement *loops = mg_simd_used->movement;
    for (int64_t r = 0; r < b->rows; r++)
        loops->stream((float *)(void *)(dst + r * b->to_row * size),
                      (const float *)(const void *)(src + r * b->from_row * size),
                      (int)(b->n * size / 4));
}

/* Whether both sides are contiguous, in whole cache lines, and the op moves more than the last
 * cache holds. */
static bool is_streamed(const walk *w, int64_t count, int64_t size) {
    const int last = w->rank - 1;
    const int64_t run = w->n[last] * size;
    return w->from[last] == 1 && w->to[last] == 1 && size >= 4 && run % MG_LINE == 0 &&
           run < INT32_MAX && 2 * (count + w->others) * size > MG_LAST_CACHE;
}

/* Transposes 4-byte elements: squares of MG_SQUARE in registers, within squares of BLOCK in the
 * caches. The edges are copied one by one. */
static void transpose_block(const block *b, const uint32_t *src, uint32_t *dst) {
    const mg_simd_movement *loops = mg_simd_used->movement;
    const int64_t rows = b->rows / MG_SQUARE * MG_SQUARE, n = b->n / MG_SQUARE * MG_SQUARE;
    for (int64_t first = 0; first < n; first += BLOCK)
        for (int64_t r = 0; r < rows; r += MG_SQUARE)
            for (int64_t i = first; i < smaller(first + BLOCK, n); i += MG_SQUARE)
                loops->transpose_square(src + r + i * b->from, b->from, dst + r * b->to_row + i,
                                        b->to_row);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t i = r < rows ? n : 0; i < b->n; i++)
            dst[r * b->to_row + i] = src[r + i * b->from];
}

/* Picks the loop for the block: rows of bytes, a transposition, or single elements. */
static void copy_block(const block *b, const char *src, char *dst, int64_t size) {
    if (b->from == 1 && b->to == 1 && b->n * size >= 16) {
        for (int64_t r = 0; r < b->rows; r++)
            memcpy(dst + r * b->to_row * size, src + r * b->from_row * size, (size_t)(b->n * size));
        return;
    }
    if (b->to == 1 && b->from_row == 1 && size == 4) {
        transpose_block(b, (const uint32_t *)(const void *)src, (uint32_t *)(void *)dst);
        return;
    }
    switch (size) {
    case 1: copy_uint8_t(b, src, dst); break;
    case 2: copy_uint16_t(b, src, dst); break;
    case 4: copy_uint32_t(b, src, dst); break;
    default: copy_uint64_t(b, src, dst); break;
    }
}

/* Prepares the walk and runs it with all threads. `size` is the bytes of an element. */
static void run_walk(walk w, const void *src, void *dst, int64_t size) {
    int64_t outer = 1;
    for (int i = 0; i < w.rank; i++)
        if (w.n[i] == 0) return;
    prepare_walk(&w);
    const int row = w.rank - 2, last = w.rank - 1;
    for (int i = 0; i < row; i++) outer *= w.n[i];
    /* a unit is BLOCK rows of the second innermost axis, at one place of the outer axes */
    const int64_t cuts = (w.n[row] + BLOCK - 1) / BLOCK, count = outer * w.n[row] * w.n[last];
    const bool streamed = is_streamed(&w, count, size);
#pragma omp parallel if (count > MG_SERIAL_BELOW)
    {
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < outer * cuts; unit++) {
            const int64_t first = unit % cuts * BLOCK;
            int64_t from = w.from_first + first * w.from[row], to = w.to_first + first * w.to[row];
            int64_t rest = unit / cuts; /* the outer axes' indices, innermost fastest */
            for (int i = row - 1; i >= 0; rest /= w.n[i--]) {
                from += rest % w.n[i] * w.from[i];
                to += rest % w.n[i] * w.to[i];
            }
            const block b = {.rows = smaller(BLOCK, w.n[row] - first),
                             .n = w.n[last],
                             .from_row = w.from[row],
                             .from = w.from[last],
                             .to_row = w.to[row],
                             .to = w.to[last]};
            (streamed ? stream_block : copy_block)(&b, (const char *)src + from * size,
                                                   (char *)dst + to * size, size);
        }
        if (streamed) mg_simd_used->movement->end_stream();
    }
}

/* Sets n elements of dst to the one at `value`. */
static void fill_elements(const void *value, void *dst, int64_t n, int64_t size) {
#pragma omp parallel for schedule(static) if (n > MG_SERIAL_BELOW)
    for (int64_t first = 0; first < n; first += PIECE) {
        const int64_t count = smaller(PIECE, n - first);
        char *to = (char *)dst + first * size;
        switch (size) {
        case 1: fill_uint8_t(value, to, count); break;
        case 2: fill_uint16_t(value, to, count); break;
        case 4: fill_uint32_t(value, to, count); break;
        default: fill_uint64_t(value, to, count); break;
        }
    }
}

/* Fills a whole result with a number. */
static void fill_number(const mg_port *out, void *dst, double value) {
    uint64_t element[1];
    mg_from_double(element, &value, out->value->dtype, 1);
    fill_elements(element, dst, mg_shape_count(&out->value->shape),
                  (int64_t)mg_dtype_size(out->value->dtype));
}

/* ---- the ops ---- */

/* Bytes of an element of the result. */
static int64_t element_size(const mg_call *call) {
    return (int64_t)mg_dtype_size(call->plan->out[0].value->dtype);
}

/* A walk over s that is row-major in the destination; the caller sets the source's strides. */
static walk walk_over(const mg_shape *s) {
    walk w = {.rank = s->rank};
    for (int i = 0; i < s->rank; i++) w.n[i] = s->dim[i];
    mg_shape_strides(s, NULL, w.to);
    return w;
}

/* Axis i of the result is axis order[i] of the source. */
static mg_status permute_run(const mg_call *call) {
    const mg_ints *order = &((const mg_ints_attrs *)call->plan->step->attrs)->list;
    int64_t stride[MG_MAX_RANK];
    walk w = walk_over(&call->plan->out[0].value->shape);
    mg_shape_strides(&call->plan->in[0].value->shape, NULL, stride);
    for (int i = 0; i < order->n; i++) w.from[i] = stride[order->v[i]];
    run_walk(w, call->in[0], call->out[0], element_size(call));
    return MG_OK;
}

/* Steps multiply the source's strides; a negative one walks backwards. */
static mg_status slice_run(const mg_call *call) {
    const mg_slice_attrs *a = call->plan->step->attrs;
    int64_t stride[MG_MAX_RANK];
    walk w = walk_over(&call->plan->out[0].value->shape);
    mg_shape_strides(&call->plan->in[0].value->shape, NULL, stride);
    for (int i = 0; i < w.rank; i++) {
        w.from[i] = stride[i] * a->step.v[i];
        w.from_first += stride[i] * a->start.v[i];
    }
    run_walk(w, call->in[0], call->out[0], element_size(call));
    return MG_OK;
}

/* Starts at the last element of the axis and steps backwards. */
static mg_status reverse_run(const mg_call *call) {
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    walk w = walk_over(&call->plan->out[0].value->shape);
    memcpy(w.from, w.to, sizeof w.from);
    w.from_first = (w.n[axis] - 1) * w.from[axis];
    w.from[axis] = -w.from[axis];
    run_walk(w, call->in[0], call->out[0], element_size(call));
    return MG_OK;
}

/* A broadcast axis has stride 0 in the source. */
static mg_status broadcast_to_run(const mg_call *call) {
    const mg_shape *y = &call->plan->out[0].value->shape;
    walk w = walk_over(y);
    mg_shape_strides(&call->plan->in[0].value->shape, y, w.from);
    run_walk(w, call->in[0], call->out[0], element_size(call));
    return MG_OK;
}

/* Fills the result with the padding, then copies x between it. */
static mg_status pad_run(const mg_call *call) {
    const mg_pad_attrs *a = call->plan->step->attrs;
    const mg_shape *x = &call->plan->in[0].value->shape;
    int64_t stride[MG_MAX_RANK];
    walk w = {.rank = x->rank};
    mg_shape_strides(x, NULL, w.from);
    mg_shape_strides(&call->plan->out[0].value->shape, NULL, stride);
    for (int i = 0; i < x->rank; i++) {
        w.n[i] = x->dim[i];
        w.to[i] = stride[i] * (a->interior.v[i] + 1);
        w.to_first += stride[i] * a->before.v[i];
    }
    fill_number(&call->plan->out[0], call->out[0], a->value);
    run_walk(w, call->in[0], call->out[0], element_size(call));
    return MG_OK;
}

/* One walk per operand, over rows of its part of the axis. */
static mg_status concat_run(const mg_call *call) {
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_axis_view out = mg_axis_view_of(&call->plan->out[0].value->shape, axis);
    int64_t first = 0;
    for (int k = 0; k < call->plan->step->n_in; k++) {
        const int64_t run = call->plan->in[k].value->shape.dim[axis] * out.inner;
        const walk w = {.rank = 2,
                        .n = {out.outer, run},
                        .from = {run, 1},
                        .to = {out.n * out.inner, 1},
                        .to_first = first,
                        .others = out.outer * (out.n * out.inner - run)};
        run_walk(w, call->in[k], call->out[0], element_size(call));
        first += run;
    }
    return MG_OK;
}

/* A copy: row-major tensors of the same elements differ in their shape only. */
static mg_status reshape_run(const mg_call *call) {
    const walk w = {
        .rank = 1, .n = {mg_shape_count(&call->plan->out[0].value->shape)}, .from = {1}, .to = {1}};
    run_walk(w, call->in[0], call->out[0], element_size(call));
    return MG_OK;
}

/* Ids have 4 or 8 bytes; smaller ones are upcast first (upcast.c). */
static const char *gather_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[1].value->dtype;
    return t == MG_I32 || t == MG_I64 ? NULL : "ids are neither int32 nor int64";
}

/* An id out of range gives NaN, or 0 in integers. */
static mg_status gather_run(const mg_call *call) {
    const mg_port *in = call->plan->in;
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_dtype dtype = in[0].value->dtype;
    const mg_axis_view v = mg_axis_view_of(&in[0].value->shape, axis);
    const int64_t n = mg_shape_count(&in[1].value->shape), bytes = v.inner * element_size(call);
    const bool wide = in[1].value->dtype == MG_I64;
    /* what an id out of range gives */
    const double nothing = mg_dtype_is_float(dtype) ? NAN : 0;
    uint64_t element[1];
    mg_from_double(element, &nothing, dtype, 1);
#pragma omp parallel for schedule(static) if (v.outer * n * v.inner > MG_SERIAL_BELOW)
    for (int64_t k = 0; k < v.outer * n; k++) {
        const int64_t i = k % n;
        const int64_t id =
            wide ? ((const int64_t *)call->in[1])[i] : ((const int32_t *)call->in[1])[i];
        char *to = (char *)call->out[0] + k * bytes;
        if (id >= 0 && id < v.n) {
            const char *from = (const char *)call->in[0] + (k / n * v.n + id) * bytes;
            memcpy(to, from, (size_t)bytes);
        } else {
            for (int64_t j = 0; j < v.inner; j++)
                memcpy(to + j * element_size(call), element, (size_t)element_size(call));
        }
    }
    return MG_OK;
}

static mg_status full_run(const mg_call *call) {
    const mg_full_attrs *a = call->plan->step->attrs;
    fill_number(&call->plan->out[0], call->out[0], a->value);
    return MG_OK;
}

/* ---- iota: a row 0, 1, 2, ... in scratch, repeated along the other axes ---- */

/* The result as {outer, n, inner} around the axis that counts. */
static mg_axis_view iota_view(const mg_kernel_plan *plan) {
    const mg_iota_attrs *a = plan->step->attrs;
    return mg_axis_view_of(&plan->out[0].value->shape, a->axis);
}

static mg_status iota_prepare(mg_kernel_plan *plan) {
    size_t bytes;
    if (!mg_size_mul((size_t)iota_view(plan).n, sizeof(uint64_t), &bytes))
        return mg_fail(MG_OOM, "iota: axis too long");
    plan->scratch = bytes;
    return MG_OK;
}

/* The row is computed once; a walk with stride 0 repeats it. */
static mg_status iota_run(const mg_call *call) {
    const mg_axis_view v = iota_view(call->plan);
    const mg_dtype t = call->plan->out[0].value->dtype;
    const walk w = {.rank = 3,
                    .n = {v.outer, v.n, v.inner},
                    .from = {0, 1, 0},
                    .to = {v.n * v.inner, v.inner, 1}};
    for (int64_t i = 0; i < v.n; i++) {
        const double at = (double)i;
        mg_from_double((char *)call->scratch + i * element_size(call), &at, t, 1);
    }
    run_walk(w, call->scratch, call->out[0], element_size(call));
    return MG_OK;
}

#define MOVEMENT(id) .op = #id, .name = #id, .run = id##_run

const mg_kernel mg_cpu_permute = {MOVEMENT(permute)};
const mg_kernel mg_cpu_slice = {MOVEMENT(slice)};
const mg_kernel mg_cpu_reverse = {MOVEMENT(reverse)};
const mg_kernel mg_cpu_pad = {MOVEMENT(pad)};
const mg_kernel mg_cpu_concat = {MOVEMENT(concat)};
const mg_kernel mg_cpu_broadcast_to = {MOVEMENT(broadcast_to)};
const mg_kernel mg_cpu_gather = {MOVEMENT(gather), .accepts = gather_accepts};
const mg_kernel mg_cpu_reshape = {MOVEMENT(reshape)};
const mg_kernel mg_cpu_full = {MOVEMENT(full)};
const mg_kernel mg_cpu_iota = {MOVEMENT(iota), .prepare = iota_prepare};

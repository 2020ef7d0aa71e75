/* concat: inputs one after another along an axis, in one launch; split: the parts of an axis.
 *
 * The kernel's parameter is a table of sources; when it is full, the kernel is launched and the
 * table starts again. A source is a number of rows, contiguous on one side (in the input of a
 * concat, in the results of a split) and a fixed pitch apart on the other. It is copied in the
 * widest units (1 to 16 bytes) that its own addresses and row length allow. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/movement_params.h"
#include "ops/attrs.h"
#include "ops/loops.h"

/* PIECE: units that a block moves at once. */
enum { THREADS = 256, PIECE = 4 * THREADS };
/* Units of one source: the kernel counts them in 32 bits. Larger ones are split. */
#define MOST ((int64_t)1 << 30)

typedef struct state {
    CUfunction few, many; /* kernels with a small and with a large table */
} state;

typedef struct table { /* of the next launch */
    const mg_kernel_plan *plan;
    concat_many_params p;
} table;

/* Launches the table, if it holds anything, and empties it. */
static mg_status flush_table(table *t) {
    const state *s = t->plan->state;
    const mg_device *d = t->plan->device;
    if (t->p.head.n == 0) return MG_OK;
    const int64_t pieces = t->p.source[t->p.head.n - 1].end;
    const CUfunction kernel = t->p.head.n <= MG_FEW_SOURCES ? s->few : s->many;
    MG_TRY(
        mg_cuda_launch(d, kernel, mg_cuda_blocks(d, pieces * THREADS, THREADS), THREADS, 0,
                       &t->p)); /* a concat_few_params is the beginning of a concat_many_params */
    t->p.head.n = 0;
    return MG_OK;
}

/* Adds `rows` rows of `run` bytes, as far apart as the head says; in halves if there are too many
 * units. */
static mg_status add_source(table *t, const char *in, char *out, int64_t rows, int64_t run) {
    const concat_head *h = &t->p.head;
    const int64_t from = h->from_pitch ? h->from_pitch : run, to = h->to_pitch ? h->to_pitch : run;
    uint64_t unit = 16;
    while (
        ((uintptr_t)in | (uintptr_t)out | (uint64_t)run | (rows > 1 ? (uint64_t)(from | to) : 0)) %
        unit)
        unit /= 2;
    const int64_t count = rows * run / (int64_t)unit;
    if (count == 0) return MG_OK;
    if (count > MOST && rows > 1) {
        MG_TRY(add_source(t, in, out, rows / 2, run));
        return add_source(t, in + rows / 2 * from, out + rows / 2 * to, rows - rows / 2, run);
    }
    if (count > MOST) {
        const int64_t half = run / 2 / 16 * 16;
        MG_TRY(add_source(t, in, out, 1, half));
        return add_source(t, in + half, out + half, 1, run - half);
    }
    if (t->p.head.n == MG_MANY_SOURCES) MG_TRY(flush_table(t));
    concat_source *s = &t->p.source[t->p.head.n++];
    *s = (concat_source){.in = in,
                         .out = out,
                         .run = mg_divisor_of(run / (int64_t)unit),
                         .count = (unsigned)count,
                         .unit = (unsigned)unit,
                         .end = (unsigned)((count + PIECE - 1) / PIECE)};
    if (t->p.head.n > 1) s->end += s[-1].end;
    return MG_OK;
}

/* The result is seen as {outer, n, inner}: each input has `outer` rows of its own part of n *
 * inner elements. */
static mg_status run_concat(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const int64_t axis = ((const mg_axis_attrs *)plan->step->attrs)->axis;
    const mg_axis_view v = mg_axis_view_of(&plan->out[0].value->shape, axis);
    const int64_t slice = v.inner * (int64_t)mg_dtype_size(plan->out[0].value->dtype);
    table t;
    char *out = call->out[0];
    t.plan = plan;
    t.p.head = (concat_head){.to_pitch = v.n * slice};
    for (int k = 0; k < plan->step->n_in; k++) {
        const int64_t run = plan->in[k].value->shape.dim[axis] * slice;
        MG_TRY(add_source(&t, call->in[k], out, v.outer, run));
        out += run;
    }
    return flush_table(&t);
}

/* The same the other way round: the input is seen as {outer, parts, run}. */
static mg_status run_split(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const mg_split_attrs *a = plan->step->attrs;
    const mg_axis_view v = mg_axis_view_of(&plan->in[0].value->shape, a->axis);
    const int64_t run = v.n / a->parts * v.inner * (int64_t)mg_dtype_size(plan->in[0].value->dtype);
    table t;
    t.plan = plan;
    t.p.head = (concat_head){.from_pitch = a->parts * run};
    for (int k = 0; k < plan->step->n_out; k++)
        MG_TRY(add_source(&t, (const char *)call->in[0] + k * run, call->out[k], v.outer, run));
    return flush_table(&t);
}

static mg_status prepare_concat(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    MG_TRY(mg_cuda_find(plan->device, "concat_few", &s->few));
    return mg_cuda_find(plan->device, "concat_many", &s->many);
}

const mg_kernel mg_cuda_concat = {.op = "concat",
                                  .name = "concat",
                                  .prepare = prepare_concat,
                                  .run = run_concat,
                                  .release = mg_free};
const mg_kernel mg_cuda_split = {.op = "split",
                                 .name = "split",
                                 .prepare = prepare_concat,
                                 .run = run_split,
                                 .release = mg_free};

/* concat: inputs one after another along an axis, by one launch: a kernel's parameters hold the
 * table of sources. Each source moves by the widest units that its own rows allow. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/movement_params.h"
#include "ops/attrs.h"
#include "ops/loops.h"

enum { THREADS = 256, PIECE = 4 * THREADS /* units */ };
#define MOST ((int64_t)1 << 30) /* units of a source */

typedef struct state {
    CUfunction few, many;
} state;

typedef struct table {
    const mg_kernel_plan *plan;
    concat_many_params p;
} table;

static mg_status flush(table *t) {
    const state *s = t->plan->state;
    const mg_device *d = t->plan->device;
    if (t->p.head.n == 0) return MG_OK;
    const int64_t pieces = t->p.source[t->p.head.n - 1].end;
    const CUfunction kernel = t->p.head.n <= MG_FEW_SOURCES ? s->few : s->many;
    MG_TRY(mg_cuda_launch(d, kernel, mg_cuda_blocks(d, pieces * THREADS, THREADS), THREADS, 0,
                          &t->p)); /* concat_few_params is how it begins */
    t->p.head.n = 0;
    return MG_OK;
}

/* `rows` rows of `run` bytes, one after another at `in`, the head's pitch apart at `out`. */
static mg_status add(table *t, const char *in, char *out, int64_t rows, int64_t run) {
    uint64_t unit = 16;
    while (((uintptr_t)in | (uintptr_t)out | (uint64_t)run |
            (rows > 1 ? (uint64_t)t->p.head.pitch : 0)) %
           unit)
        unit /= 2;
    const int64_t count = rows * run / (int64_t)unit;
    if (count == 0) return MG_OK;
    if (count > MOST && rows > 1) {
        MG_TRY(add(t, in, out, rows / 2, run));
        return add(t, in + rows / 2 * run, out + rows / 2 * t->p.head.pitch, rows - rows / 2, run);
    }
    if (count > MOST) {
        const int64_t half = run / 2 / 16 * 16;
        MG_TRY(add(t, in, out, 1, half));
        return add(t, in + half, out + half, 1, run - half);
    }
    if (t->p.head.n == MG_MANY_SOURCES) MG_TRY(flush(t));
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

static mg_status run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const int64_t axis = ((const mg_axis_attrs *)plan->step->attrs)->axis;
    const mg_axis_view v = mg_axis_view_of(&plan->out[0].value->shape, axis);
    const int64_t slice = v.inner * (int64_t)mg_dtype_size(plan->out[0].value->dtype);
    table t;
    char *out = call->out[0];
    t.plan = plan;
    t.p.head = (concat_head){.pitch = v.n * slice};
    for (int k = 0; k < plan->step->n_in; k++) {
        const int64_t run = plan->in[k].value->shape.dim[axis] * slice;
        MG_TRY(add(&t, call->in[k], out, v.outer, run));
        out += run;
    }
    return flush(&t);
}

static mg_status prepare(mg_kernel_plan *plan) {
    for (int i = 0; i < plan->step->n_in; i++) plan->in[i].layout = MG_ROW_MAJOR;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    MG_TRY(mg_cuda_find(plan->device, "concat_few", &s->few));
    return mg_cuda_find(plan->device, "concat_many", &s->many);
}

const mg_kernel mg_cuda_concat = {
    .op = "concat", .name = "concat", .prepare = prepare, .run = run, .release = mg_free};

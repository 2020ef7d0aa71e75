/* Fused element-wise groups: one generated kernel each, see source.h.
 *
 * What a kernel's parameters say is settled when the call is prepared, but for the addresses. They
 * are words of 8 bytes, in the order of `params` in kernels/fused.h. */
#include "core/alloc.h"
#include "device/cuda/axes.h"
#include "device/cuda/kernels.h"
#include "device/cuda/module.h"
#include "device/cuda/source.h"
#include <string.h>

enum {
    ACCESS = 16,   /* bytes that a thread reads or writes at once, at best */
    MOST_WIDE = 4, /* elements of a vector where registers are doubles */
    MOST_NARROW = 8,
    TURNS = 4, /* vectors of a chunk for each thread, where there are enough of them */
    TENSOR_WORDS = 3 + MG_FUSE_MAX_INPUTS + MG_FUSE_MAX_OUTPUTS,
    HEAD_WORDS = MG_FUSE_MAX_INSTRS + MG_MAX_RANK * (2 + MG_FUSE_MAX_INPUTS) + MG_FUSE_MAX_INPUTS,
    CHUNK_WORDS = 3
};
_Static_assert((HEAD_WORDS + CHUNK_WORDS + MG_MAX_TOGETHER * TENSOR_WORDS) * 8 < 32764,
               "what a kernel may have as parameters");

typedef struct state {
    const mg_cuda_module *kernel;
    int64_t n, items; /* elements; vectors, of a group that is not flat */
    mg_fused_form form;
    int n_head;
    uint64_t head[HEAD_WORDS]; /* the parameters before the chunks' */
} state;

/* ---- the form ---- */

static size_t out_size(const mg_kernel_plan *plan, int o) {
    return mg_dtype_size(plan->out[o].value->dtype);
}

static size_t in_size(const mg_kernel_plan *plan, int i) {
    return mg_dtype_size(plan->in[i].value->dtype);
}

/* So many that what the smallest elements take is one access. */
static int most_together(const mg_kernel_plan *plan) {
    const mg_fused *e = plan->step->fused;
    const int most = e->wide ? MOST_WIDE : MOST_NARROW;
    size_t smallest = sizeof(double);
    for (int i = 0; i < e->n_inputs; i++)
        if (in_size(plan, i) < smallest) smallest = in_size(plan, i);
    for (int o = 0; o < e->n_outputs; o++)
        if (out_size(plan, o) < smallest) smallest = out_size(plan, o);
    return (int)(ACCESS / smallest) < most ? (int)(ACCESS / smallest) : most;
}

static enum mg_way way_of(const mg_kernel_plan *plan, int i, const mg_axes *axes,
                          const int64_t *stride) {
    const mg_shape *in = &plan->in[i].value->shape, *out = &plan->out[0].value->shape;
    if (mg_shape_equal(in, out)) return MG_WAY_WHOLE;
    if (mg_shape_count(in) == 1) return MG_WAY_ONE;
    if (mg_shape_count(in) == mg_shape_count(out)) return MG_WAY_WHOLE;
    return stride[axes->rank - 1] == 0 ? MG_WAY_ACROSS : MG_WAY_ALONG;
}

/* Whether vectors of this length lie whole in rows, at multiples of it. */
static bool fits(const state *s, const mg_axes *axes, int64_t (*stride)[MG_MAX_RANK], int n_in,
                 int vector) {
    const int last = axes->rank - 1;
    if (axes->dim[last] % vector != 0) return false;
    for (int i = 0; i < n_in; i++) {
        if (s->form.way[i] != MG_WAY_ALONG) continue;
        for (int k = 0; k < last; k++)
            if (stride[i][k] % vector != 0) return false;
        if (stride[i][last] != 1) return false;
    }
    return true;
}

static uint64_t *put(state *s, const void *words, size_t n) {
    uint64_t *at = &s->head[s->n_head];
    memcpy(at, words, n * sizeof *at);
    s->n_head += (int)n;
    return at;
}

/* The axes and strides of a group that is not flat. */
static void put_axes(state *s, const mg_axes *axes, int64_t (*stride)[MG_MAX_RANK], int n_in) {
    const int last = axes->rank - 1;
    for (int k = 0; k < axes->rank; k++) {
        const mg_axis a = mg_axis_of(k < last ? axes->dim[k] : axes->dim[k] / s->form.vector);
        put(s, &a, 2);
    }
    for (int i = 0; i < n_in; i++) {
        if (s->form.way[i] < MG_WAY_ALONG) continue;
        int64_t *own = (int64_t *)put(s, stride[i], (size_t)axes->rank);
        own[last] *= s->form.vector;
    }
    for (int i = 0; i < n_in; i++)
        if (s->form.way[i] >= MG_WAY_ALONG) put(s, &stride[i][last], 1);
}

static void settle(const mg_kernel_plan *plan, state *s) {
    const mg_fused *e = plan->step->fused;
    const mg_shape *shape = &plan->out[0].value->shape;
    int64_t stride[MG_FUSE_MAX_INPUTS + 1][MG_MAX_RANK];
    mg_axes axes = {.rank = shape->rank};
    bool flat = true;
    memcpy(axes.dim, shape->dim, sizeof axes.dim);
    for (int i = 0; i < e->n_inputs; i++)
        mg_shape_strides(&plan->in[i].value->shape, shape, stride[i]);
    mg_axes_merge(&axes, stride, e->n_inputs);
    for (int i = 0; i < e->n_inputs; i++) {
        s->form.way[i] = (uint8_t)way_of(plan, i, &axes, stride[i]);
        flat &= s->form.way[i] < MG_WAY_ALONG;
    }
    for (int o = 0; o < e->n_outputs; o++)
        s->form.out_dtype[o] = (uint8_t)plan->out[o].value->dtype;
    s->form.rank = flat ? 0 : axes.rank;
    s->form.wide_index = flat || s->n > INT32_MAX;
    s->form.vector = most_together(plan);
    while (!flat && !fits(s, &axes, stride, e->n_inputs, s->form.vector) && s->form.vector > 1)
        s->form.vector /= 2;
    s->items = s->n / s->form.vector;
    put(s, e->imm, (size_t)(e->n_imms > 0 ? e->n_imms : 1));
    if (!flat) put_axes(s, &axes, stride, e->n_inputs);
}

/* ---- preparing ---- */

static mg_status prepare(mg_kernel_plan *plan) {
    mg_text text = {0};
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->n = mg_shape_count(&plan->out[0].value->shape);
    if (s->n == 0) return MG_OK;
    settle(plan, s);
    s->form.tensors = plan->step->alike != 1 && s->form.rank == 0 ? MG_MAX_TOGETHER : 1;
    mg_fused_source(&text, plan->step->fused, &s->form);
    MG_TRY(mg_text_status(&text));
    const mg_status status = mg_cuda_want(plan->device, "fused", text.s, &s->kernel);
    mg_free(text.s);
    return status;
}

/* ---- running ---- */

/* The parameters of a launch as they grow. */
typedef struct launch {
    int64_t chunk, chunks;
    int tensors, n_words;
    uint64_t words[HEAD_WORDS + CHUNK_WORDS + MG_MAX_TOGETHER * TENSOR_WORDS];
} launch;

static bool is_aligned(const void *p, size_t size, int vector) {
    const size_t bytes = size * (size_t)vector;
    return (uintptr_t)p % (bytes < ACCESS ? bytes : ACCESS) == 0;
}

static bool all_aligned(const mg_call *call) {
    const state *s = call->plan->state;
    bool good = true;
    for (int i = 0; i < call->plan->step->n_in; i++)
        if (s->form.way[i] == MG_WAY_WHOLE || s->form.way[i] == MG_WAY_ALONG)
            good &= is_aligned(call->in[i], in_size(call->plan, i), s->form.vector);
    for (int o = 0; o < call->plan->step->n_out; o++)
        good &= is_aligned(call->out[o], out_size(call->plan, o), s->form.vector);
    return good;
}

static void begin(launch *l, const state *s, int64_t chunk) {
    memcpy(l->words, s->head, (size_t)s->n_head * sizeof *s->head);
    l->n_words = s->n_head + CHUNK_WORDS;
    l->chunk = chunk;
    l->chunks = l->tensors = 0;
}

static void add(launch *l, const mg_call *call) {
    const state *s = call->plan->state;
    const int n_in = call->plan->step->n_in, n_out = call->plan->step->n_out;
    uint64_t *t = l->words + l->n_words;
    if (s->n == 0) return;
    *t++ = (uint64_t)(s->form.rank ? s->items : s->n);
    *t++ = (uint64_t)l->chunks;
    *t++ = all_aligned(call);
    for (int i = 0; i < n_in; i++) *t++ = (uint64_t)(uintptr_t)call->in[i];
    if (n_in == 0) *t++ = 0;
    for (int o = 0; o < n_out; o++) *t++ = (uint64_t)(uintptr_t)call->out[o];
    l->n_words = (int)(t - l->words);
    l->chunks += (s->n + l->chunk - 1) / l->chunk;
    l->tensors++;
}

static mg_status start(launch *l, const state *s, const mg_device *d) {
    const int64_t threads = s->form.rank ? s->items : l->chunks * MG_FUSED_THREADS;
    uint64_t *at = l->words + s->n_head;
    at[0] = (uint64_t)l->chunk;
    at[1] = (uint64_t)l->chunks;
    at[2] = (uint64_t)l->tensors;
    return mg_cuda_launch(d, s->kernel->function, mg_cuda_blocks(d, threads, MG_FUSED_THREADS),
                          MG_FUSED_THREADS, 0, l->words);
}

/* A chunk is one vector for each thread of a block; a few, when there are more than blocks. */
static int64_t chunk_of(const mg_device *d, const state *s, int64_t n) {
    const int64_t chunk = (int64_t)MG_FUSED_THREADS * s->form.vector;
    const int64_t blocks = mg_cuda_blocks(d, INT64_MAX / 2, MG_FUSED_THREADS);
    return n / chunk > TURNS * blocks ? TURNS * chunk : chunk;
}

/* Calls of one kernel. */
static mg_status run_row(const mg_call *calls, int n) {
    const mg_device *d = calls->plan->device;
    const state *s = calls->plan->state;
    int64_t elements = 0;
    launch l;
    for (int i = 0; i < n; i++) elements += ((const state *)calls[i].plan->state)->n;
    if (elements == 0) return MG_OK;
    begin(&l, s, chunk_of(d, s, elements));
    for (int i = 0; i < n; i++) add(&l, &calls[i]);
    return start(&l, s, d);
}

static mg_status run(const mg_call *call) {
    return run_row(call, 1);
}

/* Whether one launch may do both: the same kernel, for many tensors, and the same immediates. What
 * has no elements goes along with everything. */
static bool same_kernel(const mg_call *a, const mg_call *b) {
    const state *x = a->plan->state, *y = b->plan->state;
    if (y->n == 0) return true;
    return x->form.tensors > 1 && x->kernel == y->kernel &&
           memcmp(x->head, y->head, (size_t)x->n_head * sizeof *x->head) == 0;
}

static mg_status run_many(const mg_call *calls, int n) {
    for (int i = 0, row; i < n; i += row) {
        for (row = 1; i + row < n && same_kernel(&calls[i], &calls[i + row]);) row++;
        MG_TRY(run_row(calls + i, row));
    }
    return MG_OK;
}

static size_t scratch_many(const mg_kernel_plan *const *plans, int n) {
    (void)plans;
    (void)n;
    return 0;
}

const mg_kernel mg_cuda_fused = {.op = "fused",
                                 .name = "generated",
                                 .prepare = prepare,
                                 .run = run,
                                 .run_many = run_many,
                                 .scratch_many = scratch_many,
                                 .release = mg_free};

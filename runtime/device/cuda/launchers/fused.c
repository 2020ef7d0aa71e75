/* Fused element-wise groups: one generated kernel each, see source.h. */
#include "core/alloc.h"
#include "device/cuda/launchers/fused_params.h"
#include "device/cuda/kernels.h"
#include <string.h>

enum {
    TURNS = 4, /* vectors of a chunk for each thread, where there are enough of them */
    CHUNK_WORDS = 3,
    WORDS = MG_HEAD_WORDS + CHUNK_WORDS + MG_MAX_LAUNCH * MG_TENSOR_WORDS
};
_Static_assert(WORDS * 8 < 32764, "what a kernel may have as parameters");

typedef struct state {
    const mg_cuda_module *kernel;
    int64_t items; /* vectors, of a group that is not flat */
    mg_fused_params group;
} state;

/* ---- preparing ---- */

static const char *accepts(const mg_kernel_plan *plan) {
    return plan->step->n_out == plan->step->fused->n_outputs ? NULL : "columns to add up";
}

static mg_status prepare(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    if (mg_shape_count(&plan->out[0].value->shape) == 0) return MG_OK;
    mg_fused_params_init(plan, 0, &s->group);
    s->items = s->group.n / s->group.form.vector;
    if (plan->step->batch_count != 1 && s->group.form.rank == 0)
        s->group.form.tensors = MG_MAX_LAUNCH;
    return mg_fused_kernel_want(plan, &s->group, &s->kernel);
}

/* ---- running ---- */

/* The parameters of a launch as they grow. */
typedef struct launch {
    int64_t chunk, chunks;
    int tensors, n_words;
    uint64_t words[WORDS];
} launch;

static void begin(launch *l, const mg_fused_params *g, int64_t chunk) {
    memcpy(l->words, g->head, (size_t)g->n_head * sizeof *g->head);
    l->n_words = g->n_head + CHUNK_WORDS;
    l->chunk = chunk;
    l->chunks = l->tensors = 0;
}

static void add(launch *l, const mg_call *call) {
    const state *s = call->plan->state;
    const mg_fused_params *g = &s->group;
    if (g->n == 0) return;
    const uint64_t *end = mg_fused_put_tensor(g, call, g->form.rank ? s->items : g->n, l->chunks,
                                              l->words + l->n_words);
    l->n_words = (int)(end - l->words);
    l->chunks += (g->n + l->chunk - 1) / l->chunk;
    l->tensors++;
}

static mg_status start(launch *l, const state *s, const mg_device *d) {
    const int64_t threads = s->group.form.rank ? s->items : l->chunks * MG_FUSED_THREADS;
    uint64_t *at = l->words + s->group.n_head;
    at[0] = (uint64_t)l->chunk;
    at[1] = (uint64_t)l->chunks;
    at[2] = (uint64_t)l->tensors;
    return mg_cuda_launch(d, s->kernel->function, mg_cuda_blocks(d, threads, MG_FUSED_THREADS),
                          MG_FUSED_THREADS, 0, l->words);
}

/* A chunk is one vector for each thread of a block; a few, when there are more than blocks. */
static int64_t chunk_of(const mg_device *d, const mg_fused_params *g, int64_t n) {
    const int64_t chunk = (int64_t)MG_FUSED_THREADS * g->form.vector;
    const int64_t blocks = mg_cuda_blocks(d, INT64_MAX / 2, MG_FUSED_THREADS);
    return n / chunk > TURNS * blocks ? TURNS * chunk : chunk;
}

/* Calls of one kernel. */
static mg_status run_row(const mg_call *calls, int n) {
    const mg_device *d = calls->plan->device;
    const state *s = calls->plan->state;
    int64_t elements = 0;
    launch l;
    for (int i = 0; i < n; i++) elements += ((const state *)calls[i].plan->state)->group.n;
    if (elements == 0) return MG_OK;
    begin(&l, &s->group, chunk_of(d, &s->group, elements));
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
    const mg_fused_params *g = &x->group;
    if (y->group.n == 0) return true;
    return g->form.tensors > 1 && x->kernel == y->kernel &&
           memcmp(g->head, y->group.head, (size_t)g->n_head * sizeof *g->head) == 0;
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
                                 .accepts = accepts,
                                 .prepare = prepare,
                                 .run = run,
                                 .run_many = run_many,
                                 .scratch_many = scratch_many,
                                 .batched_only = true,
                                 .release = mg_free};

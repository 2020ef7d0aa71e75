/* Fused element-wise groups: one generated kernel each (codegen/source.c).
 *
 * The updates of many parameters are groups with the same source. If such a group is flat, one
 * launch runs it for up to MG_MAX_LAUNCH tensors: the kernel's parameters are a list of tensors,
 * which is cut into chunks, and each block takes one chunk after another. */
#include "core/alloc.h"
#include "device/cuda/launchers/fused_params.h"
#include "device/cuda/kernels.h"
#include <string.h>

enum {
    TURNS = 4, /* vectors per thread in a chunk, if there is enough work */
    CHUNK_WORDS = 3,
    WORDS = MG_HEAD_WORDS + CHUNK_WORDS + MG_MAX_LAUNCH * MG_TENSOR_WORDS
};
_Static_assert(WORDS * 8 < 32764, "a kernel has at most 32,764 bytes of parameters");

typedef struct state {
    const mg_cuda_module *kernel;
    int64_t items; /* vectors of a group that is not flat */
    mg_fused_params group;
} state;

/* ---- preparing ---- */

/* Column sums: see fused_sums.c. */
static const char *accepts_fused(const mg_kernel_plan *plan) {
    const mg_fused_extra *extra = mg_fused_extra_of(plan->step);
    if (!extra) return NULL;
    if (extra->summed >= 0) return "it has column sums";
    return mg_fused_has_compiler() ? NULL : "there is no compiler";
}

/* Only flat groups of multi-tensor updates (batch_count) get a kernel for many tensors. */
static mg_status prepare_fused(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    if (mg_shape_count(mg_fused_shape(plan)) == 0) return MG_OK;
    mg_fused_params_init(plan, 0, &s->group);
    s->items = s->group.n / s->group.form.vector;
    if (plan->step->batch_count != 1 && s->group.form.rank == 0)
        s->group.form.tensors = MG_MAX_LAUNCH;
    return mg_fused_kernel_want(plan, &s->group, &s->kernel);
}

/* ---- running ---- */

/* A launch that is being assembled. */
typedef struct launch {
    int64_t chunk, chunks; /* elements of a chunk; chunks of all tensors so far */
    int tensors;
    int n_words;           /* of the parameters */
    uint64_t words[WORDS]; /* the parameters, as kernels/fused.h lays them out */
} launch;

/* The head is the same for all tensors; the words that divide the work are filled in by
 * launch_kernel. */
static void begin_launch(launch *l, const mg_fused_params *g, int64_t chunk) {
    memcpy(l->words, g->head, (size_t)g->n_head * sizeof *g->head);
    l->n_words = g->n_head + CHUNK_WORDS;
    l->chunk = chunk;
    l->chunks = l->tensors = 0;
}

/* Adds the tensors of a call. */
static void add_call(launch *l, const mg_call *call) {
    const state *s = call->plan->state;
    const mg_fused_params *g = &s->group;
    if (g->n == 0) return;
    const uint64_t *end = mg_fused_put_tensor(g, call, g->form.rank ? s->items : g->n, l->chunks,
                                              l->words + l->n_words);
    l->n_words = (int)(end - l->words);
    l->chunks += (g->n + l->chunk - 1) / l->chunk;
    l->tensors++;
}

static mg_status launch_kernel(launch *l, const state *s, const mg_device *d) {
    const int64_t threads = s->group.form.rank ? s->items : l->chunks * MG_FUSED_THREADS;
    uint64_t *at = l->words + s->group.n_head;
    at[0] = (uint64_t)l->chunk;
    at[1] = (uint64_t)l->chunks;
    at[2] = (uint64_t)l->tensors;
    return mg_cuda_launch(d, s->kernel->function, mg_cuda_blocks(d, threads, MG_FUSED_THREADS),
                          MG_FUSED_THREADS, 0, l->words);
}

/* Elements of a chunk: one vector for each thread of a block, or TURNS of them if there would be
 * many more chunks than blocks. */
static int64_t chunk_of(const mg_device *d, const mg_fused_params *g, int64_t n) {
    const int64_t chunk = (int64_t)MG_FUSED_THREADS * g->form.vector;
    const int64_t blocks = mg_cuda_blocks(d, INT64_MAX / 2, MG_FUSED_THREADS);
    return n / chunk > TURNS * blocks ? TURNS * chunk : chunk;
}

/* Runs n calls of one kernel in one launch. */
static mg_status run_together(const mg_call *calls, int n) {
    const mg_device *d = calls->plan->device;
    const state *s = calls->plan->state;
    int64_t elements = 0;
    launch l;
    for (int i = 0; i < n; i++) elements += ((const state *)calls[i].plan->state)->group.n;
    if (elements == 0) return MG_OK;
    begin_launch(&l, &s->group, chunk_of(d, &s->group, elements));
    for (int i = 0; i < n; i++) add_call(&l, &calls[i]);
    return launch_kernel(&l, s, d);
}

static mg_status run_fused(const mg_call *call) {
    return run_together(call, 1);
}

/* Whether one launch can run both: they need the same kernel (one for many tensors) and the same
 * immediates. A call without elements can join any other. */
static bool same_kernel(const mg_call *a, const mg_call *b) {
    const state *x = a->plan->state, *y = b->plan->state;
    const mg_fused_params *g = &x->group;
    if (y->group.n == 0) return true;
    return g->form.tensors > 1 && x->kernel == y->kernel &&
           memcmp(g->head, y->group.head, (size_t)g->n_head * sizeof *g->head) == 0;
}

/* Splits the calls into runs of the same kernel. */
static mg_status run_many_fused(const mg_call *calls, int n) {
    for (int i = 0, row; i < n; i += row) {
        for (row = 1; i + row < n && same_kernel(&calls[i], &calls[i + row]);) row++;
        MG_TRY(run_together(calls + i, row));
    }
    return MG_OK;
}

/* Fused groups need no scratch. */
static size_t scratch_many(const mg_kernel_plan *const *plans, int n) {
    (void)plans;
    (void)n;
    return 0;
}

const mg_kernel mg_cuda_fused = {.op = "fused",
                                 .name = "generated",
                                 .accepts = accepts_fused,
                                 .prepare = prepare_fused,
                                 .run = run_fused,
                                 .run_many = run_many_fused,
                                 .scratch_many = scratch_many,
                                 .batched_only = true,
                                 .release = mg_free};

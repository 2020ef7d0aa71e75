/* A fused group that also sums the columns of one of its results, in one pass over memory.
 *
 * A layer's bias gets its gradient this way: a group computes dz from the gradient of the next
 * layer, and dz is summed over all axes but the last. Such steps are made by
 * graph/epilogue_fusion.c: see mg_fused_extra.
 *
 * The blocks form a grid of tiles (of columns) and chunks (of rows). Each writes its partial sums,
 * which a second kernel adds up. */
#include "core/alloc.h"
#include "device/cuda/launchers/fused_params.h"
#include "device/cuda/kernels.h"
#include "device/cuda/codegen/codegen.h"
#include "device/cuda/launchers/launchers.h"
#include <string.h>

enum {
    FEWEST = 1 << 14, /* elements: fewer are still in the cache when a separate kernel sums them */
    MOST_ACROSS = 64, /* threads side by side: with more, more are idle at the edge of a row */
    PIECE = 4         /* minimum number of vectors per thread */
};

typedef struct grid { /* as in kernels/fused.h */
    int64_t rows, columns, chunks, tiles, across;
} grid;

enum { GRID_WORDS = sizeof(grid) / 8 + 1 }; /* and the address of the partial sums */

typedef struct state {
    const mg_cuda_module *kernel;
    CUfunction add; /* adds up the partial sums */
    mg_fused_params group;
    grid grid;
    int64_t n_columns; /* of the result */
    int64_t n_parts;   /* partial sums of each column */
} state;

/* The number of the result whose columns are summed. */
static int summed_result(const mg_kernel_plan *plan) {
    return mg_fused_extra_of(plan->step)->summed;
}

/* No other kernel takes such a step, so everything that could fail must be refused here. */
static const char *accepts_fused_sums(const mg_kernel_plan *plan) {
    const mg_fused_extra *extra = mg_fused_extra_of(plan->step);
    if (!extra || extra->summed < 0) return "no sums";
    const mg_value *x = plan->out[summed_result(plan)].value,
                   *sums = plan->out[plan->step->n_out - 1].value;
    if (!mg_dtype_is_float(x->dtype) || x->dtype != sums->dtype)
        return "the sums have another dtype, or none with floats";
    if (mg_shape_count(mg_fused_shape(plan)) < FEWEST) return "too few elements";
    return mg_fused_has_compiler() ? NULL : "there is no compiler";
}

/* Divides `g->n / row` rows of vectors among blocks: enough chunks to fill the GPU, each with at
 * least PIECE vectors for every thread. */
static grid grid_of(const mg_cuda *d, const mg_fused_params *g, int64_t row) {
    grid s = {.rows = g->n / row, .columns = row / g->form.vector};
    s.tiles = (s.columns + MOST_ACROSS - 1) / MOST_ACROSS;
    s.across = (s.columns + s.tiles - 1) / s.tiles;
    const int64_t wanted = (int64_t)MG_FUSED_FULL * d->multiprocessors / s.tiles;
    const int64_t most = s.rows / (MG_FUSED_THREADS / s.across * PIECE);
    s.chunks = wanted < most ? wanted : most;
    if (s.chunks < 1) s.chunks = 1;
    return s;
}

static mg_status prepare_fused_sums(mg_kernel_plan *plan) {
    const mg_value *x = plan->out[summed_result(plan)].value;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    mg_fused_params_init(plan, summed_result(plan) + 1, &s->group);
    s->n_columns = x->shape.dim[x->shape.rank - 1];
    const int64_t row = mg_fused_row(s->n_columns, s->group.form.vector);
    s->grid = grid_of(plan->device->state, &s->group, row);
    s->n_parts = s->grid.chunks * (row / s->n_columns);
    plan->scratch = mg_cuda_partial_sums_bytes(x->dtype, s->n_parts, s->n_columns);
    MG_TRY(mg_cuda_find_partial_sums(plan->device, x->dtype, &s->add));
    return mg_fused_kernel_want(plan, &s->group, &s->kernel);
}

/* The sums may overwrite an input that is not read later: they are written after all reads. */
static mg_status run_fused_sums(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_fused_params *g = &s->group;
    const mg_device *d = call->plan->device;
    uint64_t words[MG_HEAD_WORDS + GRID_WORDS + MG_TENSOR_WORDS], *at = words + g->n_head;
    memcpy(words, g->head, (size_t)g->n_head * sizeof *words);
    memcpy(at, &s->grid, sizeof s->grid);
    at += GRID_WORDS;
    at[-1] = (uint64_t)(uintptr_t)call->scratch;
    mg_fused_put_tensor(g, call, g->n, 0, at);
    MG_TRY(mg_cuda_launch(d, s->kernel->function, s->grid.tiles * s->grid.chunks, MG_FUSED_THREADS,
                          0, words));
    return mg_cuda_add_partial_sums(d, s->add, call->scratch, s->n_parts,
                                    call->out[call->plan->step->n_out - 1], s->n_columns);
}

const mg_kernel mg_cuda_fused_sums = {.op = "fused",
                                      .name = "generated with sums",
                                      .accepts = accepts_fused_sums,
                                      .prepare = prepare_fused_sums,
                                      .run = run_fused_sums,
                                      .release = mg_free};

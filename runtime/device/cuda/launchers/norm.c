/* moments, batch_norm and batch_norm_reduce, per channel (the last axis).
 *
 * x is a matrix {rows, channels}. moments gives the mean and variance of each column,
 * batch_norm_reduce the sums that the gradient needs, and batch_norm normalizes all elements with
 * given moments. Column statistics are shared with layer_norm.c. */
#include "core/alloc.h"
#include "device/cuda/launchers/launchers.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"

enum {
    THREADS = MG_COLUMN_THREADS,
    MOST_WIDTH = 32, /* columns of a block */
    LEAST_ROWS = 64, /* of a chunk */
    VECTOR = 4,      /* channels of a vector */
    EACH = 4,        /* blocks per multiprocessor that keep it busy with single channels, */
    EACH_VECTOR = 2  /* and with vectors, which load four times as much per thread */
};

/* x as a matrix: channels are the last axis, rows all others. */
static int64_t channels_of(const mg_value *x) {
    return x->shape.dim[x->shape.rank - 1];
}

static int64_t rows_of(const mg_value *x) {
    const int64_t c = channels_of(x);
    return c ? mg_shape_count(&x->shape) / c : 0;
}

/* Bytes of an element of x. */
static size_t size_of(const mg_call *call) {
    return mg_dtype_size(call->plan->in[0].value->dtype);
}

static double epsilon_of(const mg_kernel_plan *plan) {
    return ((const mg_norm_attrs *)plan->step->attrs)->epsilon;
}

/* ---- columns ---- */

int mg_cuda_column_width(int64_t channels) {
    int width = 1;
    while (width < MOST_WIDTH && width < channels) width *= 2;
    return width;
}

/* Divides rows x columns (or vectors) among blocks. `full` blocks fill the GPU. */
static void divide_work(struct mg_column_form *f, int64_t rows, int64_t columns, int64_t full) {
    f->width = mg_cuda_column_width(columns);
    const int64_t tiles = (columns + f->width - 1) / f->width;
    const int64_t wanted = full / (tiles ? tiles : 1), most = rows / LEAST_ROWS;
    int64_t chunks = wanted < most ? wanted : most;
    if (chunks < 1) chunks = 1;
    f->piece = rows ? (rows + chunks - 1) / chunks : 1;
    f->chunks = rows ? (int)((rows + f->piece - 1) / f->piece) : 1;
}

/* Prepares the form for single channels and, if the channels are a multiple of VECTOR, the form for
 * vectors. */
mg_status mg_cuda_columns_prepare(mg_device *d, bool moments, const mg_value *x,
                                  mg_columns *columns, size_t *scratch) {
    const int64_t rows = rows_of(x), channels = channels_of(x);
    const int multiprocessors = mg_cuda_of(d)->multiprocessors;
    struct mg_column_form *one = &columns->one, *vector = &columns->vector;
    columns->p = (column_params){.rows = rows, .channels = channels};
    divide_work(one, rows, channels, EACH * multiprocessors);
    if (channels % VECTOR == 0) {
        divide_work(vector, rows, channels / VECTOR, EACH_VECTOR * multiprocessors);
        MG_TRY(mg_cuda_find_typed(d, moments ? "moments_partial_vector" : "sums_partial_vector",
                                  x->dtype, &vector->partial));
    }
    const int chunks = one->chunks > vector->chunks ? one->chunks : vector->chunks;
    *scratch = mg_cuda_partial_sums_bytes(x->dtype, chunks, 2 * channels);
    MG_TRY(mg_cuda_find_typed(d, moments ? "moments_partial" : "sums_partial", x->dtype,
                              &one->partial));
    if (moments) return mg_cuda_find_typed(d, "moments_join", x->dtype, &columns->join);
    return mg_cuda_find_partial_sums(d, x->dtype == MG_F64 ? MG_F64 : MG_F32, &columns->add);
}

/* Uses vectors if the addresses allow it. */
mg_status mg_cuda_columns_run(const mg_device *d, const mg_columns *columns, size_t size,
                              column_params p) {
    const bool vector =
        columns->vector.partial && ((uintptr_t)p.x | (uintptr_t)p.dy) % (VECTOR * size) == 0;
    const struct mg_column_form *f = vector ? &columns->vector : &columns->one;
    const int64_t wide = (int64_t)f->width * (vector ? VECTOR : 1);
    p.width = f->width;
    p.chunks = f->chunks;
    p.piece = f->piece;
    MG_TRY(
        mg_cuda_launch(d, f->partial, (p.channels + wide - 1) / wide * p.chunks, THREADS, 0, &p));
    if (columns->add)
        return mg_cuda_add_partial_sums(d, columns->add, p.partials, p.chunks, p.out,
                                        2 * p.channels);
    return mg_cuda_launch(d, columns->join, (p.channels + 31) / 32, MG_JOIN_THREADS, 0, &p);
}

/* ---- moments and sums ---- */

static const char *accepts_norm(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->in[0].value->dtype) ? NULL : "only floating dtypes";
}

/* The state of moments and batch_norm_reduce is an mg_columns. */
static mg_status prepare_columns(mg_kernel_plan *plan, bool moments) {
    mg_columns *c = plan->state = mg_alloc_zero(sizeof *c);
    if (!c) return MG_OOM;
    return mg_cuda_columns_prepare(plan->device, moments, plan->in[0].value, c, &plan->scratch);
}

static mg_status prepare_moments(mg_kernel_plan *plan) {
    return prepare_columns(plan, true);
}

static mg_status prepare_reduce(mg_kernel_plan *plan) {
    return prepare_columns(plan, false);
}

/* Partial moments, then a kernel that combines them by the parallel formula of Chan et al., which
 * does not subtract large numbers. */
static mg_status run_moments(const mg_call *call) {
    const mg_columns *c = call->plan->state;
    column_params p = c->p;
    p.x = call->in[0];
    p.partials = call->scratch;
    p.out = call->out[0];
    return mg_cuda_columns_run(call->plan->device, c, size_of(call), p);
}

/* The sums of dy and of dy times the normalized x, which the gradient of batch_norm needs. */
static mg_status run_reduce(const mg_call *call) {
    const mg_columns *c = call->plan->state;
    column_params p = c->p;
    p.x = call->in[0];
    p.moments = call->in[1];
    p.dy = call->in[2];
    p.partials = call->scratch;
    p.out = call->out[0];
    p.epsilon = epsilon_of(call->plan);
    return mg_cuda_columns_run(call->plan->device, c, size_of(call), p);
}

/* ---- batch_norm ---- */

typedef struct state {
    CUfunction one, vector; /* vector: NULL if the channels are no multiple of VECTOR */
} state;

/* Uses vectors of channels if that is possible. */
static mg_status prepare_batch_norm(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    if (channels_of(x) % VECTOR == 0)
        MG_TRY(mg_cuda_find_typed(plan->device, "batch_norm_vector", x->dtype, &s->vector));
    return mg_cuda_find_typed(plan->device, "batch_norm", x->dtype, &s->one);
}

/* Blocks form a grid of column tiles and of as many rows of blocks as fill the GPU. */
static mg_status run_batch_norm(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const mg_value *x = plan->in[0].value;
    const uintptr_t access = VECTOR * mg_dtype_size(x->dtype);
    const bool vector =
        s->vector && ((uintptr_t)call->in[0] | (uintptr_t)call->out[0]) % access == 0;
    batch_norm_params p = {.x = call->in[0],
                           .moments = call->in[1],
                           .gamma = call->in[2],
                           .beta = call->in[3],
                           .y = call->out[0],
                           .rows = rows_of(x),
                           .channels = channels_of(x) / (vector ? VECTOR : 1),
                           .epsilon = epsilon_of(plan)};
    p.width = mg_cuda_column_width(p.channels);
    const int64_t tiles = (p.channels + p.width - 1) / p.width, lanes = THREADS / p.width;
    const int64_t most = 16LL * mg_cuda_of(plan->device)->multiprocessors / (tiles ? tiles : 1);
    const int64_t wanted = (p.rows + lanes - 1) / lanes;
    const int64_t down = wanted < most ? wanted : most < 1 ? 1 : most;
    return mg_cuda_launch(plan->device, vector ? s->vector : s->one, p.rows ? tiles * down : 0,
                          THREADS, 0, &p);
}

const mg_kernel mg_cuda_moments = {.op = "moments",
                                   .name = "columns",
                                   .accepts = accepts_norm,
                                   .prepare = prepare_moments,
                                   .run = run_moments,
                                   .release = mg_free};
const mg_kernel mg_cuda_batch_norm_reduce = {.op = "batch_norm_reduce",
                                             .name = "columns",
                                             .accepts = accepts_norm,
                                             .prepare = prepare_reduce,
                                             .run = run_reduce,
                                             .release = mg_free};
const mg_kernel mg_cuda_batch_norm = {.op = "batch_norm",
                                      .name = "batch_norm",
                                      .accepts = accepts_norm,
                                      .prepare = prepare_batch_norm,
                                      .run = run_batch_norm,
                                      .release = mg_free};

/* layer_norm, layer_norm_grad and layer_norm_reduce. Threads share the rows; a row is read several
 * times while it is in the cache (simd/layer_norm_loops.h).
 *
 * layer_norm_reduce sums over rows: first over chunks of rows, then over the chunks. The size of a
 * chunk depends on the shape only, and so does the order of additions.
 *
 * The two gradients read the same x and dy. Where a program has both, they become one step with two
 * results, dx and the sums: x and dy are read once, and each row's statistics are computed once. */
#include "device/cpu/halves.h"
#include "device/cpu/norm/norm.h"
#include "core/alloc.h"
#include "ops/attrs.h"
#include <string.h>

/* The rows of x, which is input 0 of every op here, and the loops for its dtype. */
typedef struct rows {
    int64_t n, length; /* rows; elements of a row */
    int64_t number;    /* bytes of a number in which the loops compute */
    mg_dtype t;        /* of x, dy, dx and y; all else is float32 if this is a half */
    double epsilon;
    const mg_simd_layer_norm *loops;
} rows;

static rows rows_of(const mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const int64_t length = x->shape.dim[x->shape.rank - 1], count = mg_shape_count(&x->shape);
    return (rows){.n = length ? count / length : 0,
                  .length = length,
                  .number = x->dtype == MG_F64 ? sizeof(double) : sizeof(float),
                  .t = x->dtype,
                  .epsilon = ((const mg_norm_attrs *)plan->step->attrs)->epsilon,
                  .loops = mg_simd_used->layer_norm[mg_simd_index(x->dtype)]};
}

static const char *layer_norm_accepts(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->in[0].value->dtype) ? NULL : "not floating point";
}

/* n rows from row i on: in place, or halves converted to `copy`. */
static const void *read_rows(const rows *r, const void *base, int64_t i, int64_t n, float *copy) {
    return mg_read_elements(base, r->t, i * r->length, n * r->length, copy);
}

/* Where results from row i on are computed: in place, or in `copy`, */
static void *target_rows(const rows *r, void *base, int64_t i, float *copy) {
    return mg_target_elements(base, r->t, i * r->length, copy);
}

/* from which n rows are rounded. */
static void round_rows(const rows *r, void *base, int64_t i, int64_t n, const float *copy) {
    mg_round_elements(base, r->t, i * r->length, n * r->length, copy);
}

/* Rows that are computed together: few enough to stay in the L1 cache. */
static int64_t rows_of_block(const rows *r) {
    enum { NUMBERS = 2048 };
    const int64_t n = r->length ? NUMBERS / r->length : 1;
    return n < 1 ? 1 : n > MG_NORM_ROWS ? MG_NORM_ROWS : n;
}

/* Rows of halves that are converted together: as many blocks as the loops of the gradients take
 * between two additions to sums, so that these have the order of float32's. */
static int64_t rows_of_copy(const rows *r) {
    const int64_t block = rows_of_block(r);
    return MG_NORM_ROWS / block * block;
}

/* Scratch for halves: each thread's copies of such rows of `operands` operands. */
static size_t copies_bytes(const rows *r, int operands) {
    return mg_copies_bytes(r->t, operands * rows_of_copy(r) * r->length, mg_cpu_threads());
}

/* This thread's copy number `at` of them; NULL without halves. */
static float *own_copy(const rows *r, void *copies, int operands, int at) {
    const int64_t floats = rows_of_copy(r) * r->length;
    float *own = mg_own_copy(copies, r->t, operands * floats);
    return own ? own + at * floats : NULL;
}

static mg_status layer_norm_prepare(mg_kernel_plan *plan) {
    const rows r = rows_of(plan);
    plan->scratch = copies_bytes(&r, 2);
    return MG_OK;
}

/* y = (x - mean) / deviation * gamma + beta. */
static mg_status layer_norm_run(const mg_call *call) {
    const rows r = rows_of(call->plan);
    const int64_t block = rows_of_block(&r);
#pragma omp parallel for schedule(static) if (r.n * r.length > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < r.n; i += block) {
        const int64_t n = mg_smaller(block, r.n - i);
        float *y = own_copy(&r, call->scratch, 2, 1);
        const void *x = read_rows(&r, call->in[0], i, n, own_copy(&r, call->scratch, 2, 0));
        r.loops->normalise_rows(x, call->in[1], call->in[2], target_rows(&r, call->out[0], i, y), n,
                                r.length, r.epsilon);
        round_rows(&r, call->out[0], i, n, y);
    }
    return MG_OK;
}

/* What the gradients of a call read and write: dx and gamma may be NULL, and so may the sums. */
typedef struct gradients {
    rows r;
    const void *x, *gamma, *dy;
    void *dx, *copies; /* copies: each thread's of x, dy and dx, for halves */
} gradients;

/* The gradients of n rows from row i on; sums and partial are those of mg_layer_norm_rows. */
static void gradients_of_rows(const gradients *g, int64_t i, int64_t n, double *sums,
                              void *partial) {
    const rows *r = &g->r;
    const int64_t end = i + n, step = mg_dtype_is_half(r->t) ? rows_of_copy(r) : n;
    for (; i < end; i += step) {
        const int64_t some = mg_smaller(step, end - i);
        float *dx = own_copy(r, g->copies, 3, 2);
        const mg_layer_norm_rows these = {
            .x = read_rows(r, g->x, i, some, own_copy(r, g->copies, 3, 0)),
            .gamma = g->gamma,
            .dy = read_rows(r, g->dy, i, some, own_copy(r, g->copies, 3, 1)),
            .dx = g->dx ? target_rows(r, g->dx, i, dx) : NULL,
            .sums = sums,
            .partial = partial,
            .n = some,
            .length = r->length,
            .few = rows_of_block(r),
            .epsilon = r->epsilon,
        };
        r->loops->gradients(&these);
        if (g->dx) round_rows(r, g->dx, i, some, dx);
    }
}

static mg_status layer_norm_grad_prepare(mg_kernel_plan *plan) {
    const rows r = rows_of(plan);
    plan->scratch = copies_bytes(&r, 3);
    return MG_OK;
}

/* dx from x, gamma and dy. */
static mg_status layer_norm_grad_run(const mg_call *call) {
    const gradients g = {.r = rows_of(call->plan),
                         .x = call->in[0],
                         .gamma = call->in[1],
                         .dy = call->in[2],
                         .dx = call->out[0],
                         .copies = call->scratch};
    const int64_t block = rows_of_block(&g.r);
#pragma omp parallel for schedule(static) if (g.r.n * g.r.length > MG_SERIAL_BELOW)
    for (int64_t i = 0; i < g.r.n; i += block)
        gradients_of_rows(&g, i, mg_smaller(block, g.r.n - i), NULL, NULL);
    return MG_OK;
}

/* ---- sums over rows ---- */

/* Rows of a chunk: enough to be worth a chunk's sums, and few enough to have chunks for many
 * threads. */
static int64_t rows_of_chunk(const rows *r) {
    enum { LEAST = 16, MOST = 128, CHUNKS = 16 };
    return mg_larger(LEAST, mg_smaller(MOST, mg_divide_up(r->n, CHUNKS)));
}

/* Chunks of rows, the last one perhaps shorter. */
static int64_t chunks_of(const rows *r) {
    return mg_divide_up(r->n, rows_of_chunk(r));
}

/* Scratch: the sums {2, length} of each chunk, their total, and partial sums of each chunk; */
static size_t sums_bytes(const rows *r) {
    const int64_t chunks = chunks_of(r), width = 2 * r->length;
    return (size_t)((chunks + 1) * width) * sizeof(double) +
           (size_t)(chunks * width) * (size_t)r->number;
}

/* behind them the copies. */
static mg_status layer_norm_sums_prepare(mg_kernel_plan *plan) {
    const rows r = rows_of(plan);
    plan->scratch = sums_bytes(&r) + copies_bytes(&r, 3);
    return MG_OK;
}

/* Adds the chunks' sums {2, length} in their order, whichever thread made them. */
static void add_chunks(const rows *r, const double *parts, double *total, void *sums) {
    const int64_t chunks = chunks_of(r), width = 2 * r->length;
    for (int64_t j = 0; j < width; j++) total[j] = 0;
    for (int64_t k = 0; k < chunks; k++)
        for (int64_t j = 0; j < width; j++) total[j] += parts[k * width + j];
    for (int64_t j = 0; j < width; j++) {
        if (r->number == sizeof(float))
            ((float *)sums)[j] = (float)total[j];
        else
            ((double *)sums)[j] = total[j];
    }
}

/* Computes the sums over rows {2, length}, of dy and of dy * xhat (the gradients of beta and
 * gamma), and dx unless that is NULL; gamma is for dx. */
static void make_sums(const mg_call *call, const void *gamma, const void *dy, void *dx,
                      void *sums) {
    const rows r = rows_of(call->plan);
    const gradients g = {.r = r,
                         .x = call->in[0],
                         .gamma = gamma,
                         .dy = dy,
                         .dx = dx,
                         .copies = (char *)call->scratch + sums_bytes(&r)};
    const int64_t chunk = rows_of_chunk(&r), chunks = chunks_of(&r), width = 2 * r.length;
    double *parts = call->scratch, *total = parts + chunks * width;
    char *partial = (char *)(total + width);
#pragma omp parallel for schedule(static) if (r.n * r.length > MG_SERIAL_BELOW)
    for (int64_t k = 0; k < chunks; k++) {
        const int64_t first = k * chunk;
        double *part = parts + k * width;
        for (int64_t j = 0; j < width; j++) part[j] = 0;
        gradients_of_rows(&g, first, mg_smaller(chunk, r.n - first), part,
                          partial + k * width * r.number);
    }
    add_chunks(&r, parts, total, sums);
}

static mg_status layer_norm_reduce_run(const mg_call *call) {
    make_sums(call, NULL, call->in[1], NULL, call->out[0]);
    return MG_OK;
}

/* ---- both gradients as one step ---- */

static const char *layer_norm_gradients_accepts(const mg_kernel_plan *plan) {
    return plan->step->n_out == 2 ? layer_norm_accepts(plan) : "has one result";
}

static mg_status layer_norm_gradients_run(const mg_call *call) {
    make_sums(call, call->in[1], call->in[2], call->out[0], call->out[1]);
    return MG_OK;
}

/* Whether the step is this op, and has not been merged with another. */
static bool is_op(const mg_step *s, const char *name) {
    return s->op && s->n_out == 1 && strcmp(s->op->name, name) == 0;
}

/* Whether steps `grad` and `reduce` may become one step in the place of the earlier one: they have
 * the same x, dy and epsilon, in a floating dtype, and no step between them computes gamma. */
static bool may_merge(const mg_kernel_graph *g, const mg_step *steps, int grad, int reduce) {
    const mg_step *a = &steps[grad], *b = &steps[reduce];
    if (!mg_dtype_is_float(g->values[a->in[0]].dtype) || a->in[0] != b->in[0] ||
        a->in[2] != b->in[1] ||
        ((const mg_norm_attrs *)a->attrs)->epsilon != ((const mg_norm_attrs *)b->attrs)->epsilon)
        return false;
    for (int i = reduce; i < grad; i++)
        for (int o = 0; o < steps[i].n_out; o++)
            if (steps[i].out[o] == a->in[1]) return false;
    return true;
}

/* Puts a step that computes both results in the place of the earlier one; `out` has room for the
 * results' numbers. */
static void merge_pair(mg_step *steps, int grad, int reduce, int *out) {
    mg_step both = steps[grad];
    out[0] = steps[grad].out[0];
    out[1] = steps[reduce].out[0];
    both.out = out;
    both.n_out = 2;
    steps[grad].n_in = steps[grad].n_out = steps[reduce].n_in = steps[reduce].n_out = 0;
    steps[grad < reduce ? grad : reduce] = both;
}

mg_status mg_cpu_merge_layer_norms(mg_device *d, const mg_kernel_graph *graph, mg_step **steps) {
    (void)d;
    const size_t n = (size_t)graph->n_steps;
    mg_step *s = *steps = mg_alloc(n * (sizeof *s + 2 * sizeof(int)) + 1);
    if (!s) return MG_OOM;
    int *out = (int *)(s + n);
    if (n) memcpy(s, graph->steps, n * sizeof *s);
    for (int i = 0; i < graph->n_compute; i++)
        for (int k = 0; is_op(&s[i], "layer_norm_reduce") && k < graph->n_compute; k++)
            if (is_op(&s[k], "layer_norm_grad") && may_merge(graph, s, k, i))
                merge_pair(s, k, i, out + 2 * k);
    return MG_OK;
}

#define KERNEL(id) .op = #id, .name = #id, .accepts = layer_norm_accepts

const mg_kernel mg_cpu_layer_norm = {KERNEL(layer_norm), .prepare = layer_norm_prepare,
                                     .run = layer_norm_run};
const mg_kernel mg_cpu_layer_norm_grad = {
    KERNEL(layer_norm_grad), .prepare = layer_norm_grad_prepare, .run = layer_norm_grad_run};
const mg_kernel mg_cpu_layer_norm_reduce = {
    KERNEL(layer_norm_reduce), .prepare = layer_norm_sums_prepare, .run = layer_norm_reduce_run};
const mg_kernel mg_cpu_layer_norm_gradients = {.op = "layer_norm_grad",
                                               .name = "layer_norm_gradients",
                                               .accepts = layer_norm_gradients_accepts,
                                               .prepare = layer_norm_sums_prepare,
                                               .run = layer_norm_gradients_run};

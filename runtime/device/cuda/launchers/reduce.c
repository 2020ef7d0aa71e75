/* sum prod max min all any over axes, argmax and argmin along one: see kernels/reduce.h.
 *
 * Neighbouring axes are merged into groups, which are alternately kept and reduced. The layout is
 * ROWS if the innermost group is reduced, else columns. If there are too few results to fill the
 * GPU, each is computed in pieces, which a second kernel joins. */
#include "core/alloc.h"
#include "device/axes.h"
#include "device/cuda/launchers/fused_params.h"
#include "device/cuda/kernels.h"
#include "device/cuda/codegen/module.h"
#include "device/cuda/codegen/codegen.h"
#include "ops/attrs.h"
#include <string.h>

enum {
    THREADS = 256,
    RUN = 64, /* items that are joined before they are joined to the others */
    WARP = 32,
    ACCESS = 16, /* bytes that a thread reads at once, at best */
    PIECE = 8,   /* items for each thread, at least, in a piece */
    FULL = 4,    /* blocks per multiprocessor that fill it */
    WORDS = 8 + 6 * MG_MAX_RANK + MG_FUSE_MAX_INSTRS
};

typedef struct group { /* axes of one kind that are merged */
    int64_t n, stride;
} group;

typedef struct groups {
    int n;
    group at[MG_MAX_RANK];
} groups;

/* The work of a kernel, before its parameters are written as words. */
typedef struct job {
    groups kept, reduced; /* kept: of columns, without the innermost */
    int64_t n, units, pieces, columns, across;
    bool rows, from_partial, to_partial;
    int vector, team;
} job;

typedef struct pass {
    const mg_cuda_module *kernel;
    int64_t blocks;
    int n_words;
    uint64_t words[WORDS];
} pass;

typedef struct state {
    int n_passes;
    size_t vector_bytes; /* bytes that the first kernel reads at once */
    pass pass[2];
} state;

/* ---- the op ---- */

static bool is(const mg_kernel_plan *plan, const char *op) {
    return strcmp(plan->step->op->name, op) == 0;
}

static bool is_arg(const mg_kernel_plan *plan) {
    return is(plan, "argmax") || is(plan, "argmin");
}

/* Whether to compute in int64. A float holds what bool and uint8 need in the other reductions. */
static bool is_integer(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_I32 || t == MG_I64 ||
           (!mg_dtype_is_float(t) && (is(plan, "sum") || is(plan, "prod")));
}

/* Whether to compute in double. Intermediate products can exceed the range of a float. */
static bool is_wide(const mg_kernel_plan *plan) {
    return plan->in[0].value->dtype == MG_F64 || is(plan, "prod");
}

static size_t partial_bytes(const mg_kernel_plan *plan) {
    return is_arg(plan) ? 16 : is_integer(plan) || is_wide(plan) ? 8 : sizeof(float);
}

/* ---- groups ---- */

static int64_t count_of(const groups *g) {
    int64_t n = 1;
    for (int i = 0; i < g->n; i++) n *= g->at[i].n;
    return n;
}

static void find_reduced(const mg_kernel_plan *plan, bool *reduced) {
    if (is_arg(plan)) {
        reduced[((const mg_axis_attrs *)plan->step->attrs)->axis] = true;
        return;
    }
    const mg_ints *axes = &((const mg_reduce_attrs *)plan->step->attrs)->axes;
    for (int i = 0; i < axes->n; i++) reduced[axes->v[i]] = true;
}

/* Fills j->kept and j->reduced; returns whether the innermost group is reduced. */
static bool find_groups(const mg_kernel_plan *plan, job *j) {
    bool reduced[MG_MAX_RANK] = {0};
    mg_reduce_axis axes[MG_MAX_RANK];
    find_reduced(plan, reduced);
    const int n = mg_axes_of_reduction(&plan->in[0].value->shape, reduced, axes);
    for (int i = 0; i < n; i++) {
        groups *g = axes[i].reduced ? &j->reduced : &j->kept;
        g->at[g->n++] = (group){axes[i].n, axes[i].stride};
    }
    return n == 0 || axes[n - 1].reduced;
}

/* ---- how ---- */

static bool divides(const groups *g, int but, int vector) {
    for (int i = 0; i < g->n; i++)
        if (i != but && g->at[i].stride % vector != 0) return false;
    return true;
}

/* Elements read at once, all from the innermost group, `inner` long. */
static int vector_of(const mg_kernel_plan *plan, const job *j, int64_t inner) {
    const int most = is_wide(plan) || is_integer(plan) || is_arg(plan) ? 4 : 8;
    int vector = (int)(ACCESS / mg_dtype_size(plan->in[0].value->dtype));
    if (vector > most) vector = most;
    const int last = j->rows ? j->reduced.n - 1 : -1;
    while (vector > 1 && (inner % vector != 0 || !divides(&j->reduced, last, vector) ||
                          !divides(&j->kept, -1, vector)))
        vector /= 2;
    return vector;
}

/* Pieces of n items, if `jobs` blocks are too few; `least` items make one. */
static int64_t pieces_of(const mg_cuda *d, int64_t jobs, int64_t n, int64_t least) {
    const int64_t full = (int64_t)FULL * d->multiprocessors;
    if (jobs == 0 || 2 * jobs > full) return 1;
    const int64_t most = n / least, wanted = full / jobs;
    const int64_t pieces = most < wanted ? most : wanted;
    return pieces > 1 ? pieces : 1;
}

static int team_of(const mg_cuda *d, int64_t items, int64_t results) {
    static const int teams[] = {1, 8, WARP, THREADS};
    const int64_t most[] = {4, 32, 1024, INT64_MAX};
    int i = 0;
    while (items > most[i]) i++;
    while (i < 3 && items > 2 * teams[i] &&
           results * teams[i] < (int64_t)d->multiprocessors * THREADS * FULL)
        i++;
    return teams[i];
}

static void settle_rows(const mg_kernel_plan *plan, const mg_cuda *d, job *j) {
    if (j->reduced.n > 0) {
        group *inner = &j->reduced.at[j->reduced.n - 1];
        j->vector = vector_of(plan, j, inner->n);
        inner->n /= j->vector;
        inner->stride *= j->vector;
    }
    j->n = count_of(&j->reduced);
    j->units = count_of(&j->kept);
    j->team = team_of(d, j->n, j->units);
    if (j->team == THREADS) j->pieces = pieces_of(d, j->units, j->n, THREADS * PIECE);
    j->units *= j->pieces;
}

/* Threads side by side: more of them where there are few rows. */
static int64_t across_of(int64_t columns, int64_t n, int vector) {
    int64_t across = 1;
    while (across < WARP && across * vector < columns) across *= 2;
    while (across < THREADS && across * vector < columns && THREADS / across > n / 2) across *= 2;
    return across;
}

static int64_t tiles_of(const job *j) {
    const int64_t wide = j->across * j->vector;
    return (j->columns + wide - 1) / wide;
}

static void settle_columns(const mg_kernel_plan *plan, const mg_cuda *d, job *j) {
    j->columns = j->kept.at[--j->kept.n].n;
    j->vector = vector_of(plan, j, j->columns);
    j->n = count_of(&j->reduced);
    j->across = across_of(j->columns, j->n, j->vector);
    j->units = count_of(&j->kept);
    const int64_t down = THREADS / j->across;
    j->pieces = pieces_of(d, j->units * tiles_of(j), j->n, down * PIECE);
    j->units *= j->pieces;
}

/* The second kernel, which joins the pieces of `first`. */
static job second_job(const mg_cuda *d, const job *first) {
    const int64_t results = first->units / first->pieces;
    job j = {.rows = first->rows, .from_partial = true, .pieces = 1, .vector = 1, .team = 1};
    j.n = first->pieces;
    if (j.rows) {
        j.units = results;
        j.kept = (groups){1, {{results, j.n}}};
        j.reduced = (groups){1, {{j.n, 1}}};
        j.team = team_of(d, j.n, results);
    } else {
        j.units = 1;
        j.columns = results * first->columns;
        j.reduced = (groups){1, {{j.n, j.columns}}};
        j.across = across_of(j.columns, j.n, 1);
    }
    return j;
}

/* ---- kernels ---- */

static int at_least_one(int n) {
    return n > 0 ? n : 1;
}

/* The element-wise ops behind the reduction, in its last pass, or NULL (graph/epilogue_fusion.c).
 */
static const mg_fused *finish_of(const mg_kernel_plan *plan, const job *j) {
    return j->to_partial ? NULL : plan->step->fused;
}

static void add_source(mg_string_buffer *t, const mg_kernel_plan *plan, const job *j) {
    const mg_fused *finish = finish_of(plan, j);
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"WIDE", is_wide(plan)},
                   {"INTEGER", is_integer(plan)},
                   {"WIDE_INDEX", mg_shape_count(&plan->in[0].value->shape) > INT32_MAX},
                   {"IS_ARG", is_arg(plan)},
                   {"IS_SUM", is(plan, "sum")},
                   {"IS_PROD", is(plan, "prod")},
                   {"IS_MAX", is(plan, "max")},
                   {"IS_MIN", is(plan, "min") || is(plan, "argmin")},
                   {"IS_ALL", is(plan, "all")},
                   {"IS_ANY", is(plan, "any")},
                   {"IN_PARTIAL", j->from_partial},
                   {"OUT_PARTIAL", j->to_partial},
                   {"ROWS", j->rows},
                   {"THREADS", THREADS},
                   {"TEAM", j->team},
                   {"RUN", RUN},
                   {"VECTOR", j->vector},
                   {"KEPT", at_least_one(j->kept.n)},
                   {"REDUCED", at_least_one(j->reduced.n)},
                   {"FINISH", finish ? at_least_one(finish->n_imms) : 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        mg_string_buffer_add(t, "#define %s %d\n", numbers[i].name, numbers[i].value);
    if (!j->from_partial)
        mg_string_buffer_add(t, "#define IN %s\n", mg_element_name(plan->in[0].value->dtype));
    mg_string_buffer_add(t, "#define OUT %s\n", mg_element_name(plan->out[0].value->dtype));
    if (finish)
        mg_string_buffer_add(t, "#define REDUCED_TO %s\n",
                             mg_element_name((mg_dtype)finish->in_dtype[0]));
    mg_string_buffer_add(t, "#include \"device/cuda/kernels/reduce.h\"\n");
    if (finish) mg_fused_finish_source(t, finish);
}

static void put(pass *p, int64_t word) {
    p->words[p->n_words++] = (uint64_t)word;
}

/* Writes the groups in the form of kernels/reduce.h; at least one axis. */
static void put_groups(pass *p, groups g) {
    if (g.n == 0) g = (groups){1, {{1, 0}}};
    for (int i = 0; i < g.n; i++) {
        const mg_axis a = mg_axis_of(g.at[i].n);
        memcpy(&p->words[p->n_words], &a, sizeof a);
        p->n_words += 2;
    }
    for (int i = 0; i < g.n; i++) put(p, g.at[i].stride);
}

static mg_status add_pass(const mg_kernel_plan *plan, state *s, const job *j) {
    mg_string_buffer text = {0};
    pass *p = &s->pass[s->n_passes++];
    p->n_words = 2; /* the addresses */
    put(p, j->n);
    put(p, j->units);
    put(p, j->pieces);
    put(p, j->columns);
    put(p, j->across);
    put(p, 1);
    put_groups(p, j->kept);
    put_groups(p, j->reduced);
    const mg_fused *finish = finish_of(plan, j);
    if (finish) memcpy(&p->words[p->n_words], finish->imm, (size_t)finish->n_imms * sizeof(double));
    if (finish) p->n_words += at_least_one(finish->n_imms);
    const int64_t blocks =
        j->rows ? (j->units * j->team + THREADS - 1) / THREADS : j->units * tiles_of(j);
    p->blocks = mg_cuda_blocks(plan->device, blocks * THREADS, THREADS);
    add_source(&text, plan, j);
    MG_TRY(mg_string_buffer_status(&text));
    const mg_status status = mg_cuda_module_want(plan->device, "reduce", text.s, &p->kernel);
    mg_free(text.s);
    return status;
}

static mg_status prepare(mg_kernel_plan *plan) {
    const mg_cuda *d = plan->device->state;
    job j = {.pieces = 1, .vector = 1, .team = 1};
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    if (mg_shape_count(&plan->out[0].value->shape) == 0) return MG_OK;
    j.rows = find_groups(plan, &j);
    if (j.rows)
        settle_rows(plan, d, &j);
    else
        settle_columns(plan, d, &j);
    j.to_partial = j.pieces > 1;
    s->vector_bytes = (size_t)j.vector * mg_dtype_size(plan->in[0].value->dtype);
    MG_TRY(add_pass(plan, s, &j));
    if (!j.to_partial) return MG_OK;
    plan->scratch = (size_t)(j.units * (j.rows ? 1 : j.columns)) * partial_bytes(plan);
    j = second_job(d, &j);
    return add_pass(plan, s, &j);
}

static mg_status run(const mg_call *call) {
    const state *s = call->plan->state;
    for (int i = 0; i < s->n_passes; i++) {
        const pass *p = &s->pass[i];
        const void *in = i == 0 ? call->in[0] : call->scratch;
        uint64_t words[WORDS];
        memcpy(words, p->words, (size_t)p->n_words * sizeof *words);
        words[0] = (uint64_t)(uintptr_t)in;
        words[1] = (uint64_t)(uintptr_t)(i + 1 == s->n_passes ? call->out[0] : call->scratch);
        words[7] = (uintptr_t)in % (s->vector_bytes < ACCESS ? s->vector_bytes : ACCESS) == 0;
        MG_TRY(
            mg_cuda_launch(call->plan->device, p->kernel->function, p->blocks, THREADS, 0, words));
    }
    return MG_OK;
}

#define REDUCTION(id)                                                                              \
    { .op = #id, .name = "generated", .prepare = prepare, .run = run, .release = mg_free }

const mg_kernel mg_cuda_sum = REDUCTION(sum);
const mg_kernel mg_cuda_prod = REDUCTION(prod);
const mg_kernel mg_cuda_max = REDUCTION(max);
const mg_kernel mg_cuda_min = REDUCTION(min);
const mg_kernel mg_cuda_all = REDUCTION(all);
const mg_kernel mg_cuda_any = REDUCTION(any);
const mg_kernel mg_cuda_argmax = REDUCTION(argmax);
const mg_kernel mg_cuda_argmin = REDUCTION(argmin);

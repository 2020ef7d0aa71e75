/* Epilogue fusion: steps that one kernel of this device does at once.
 */
#include "core/alloc.h"
#include "core/log.h"
#include "device/cuda/graph/cuda_graph.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"
#include <string.h>

typedef struct fusion {
    mg_device *device;
    const mg_kernel_graph *graph;
    mg_step *steps; /* the new ones */
    int *room;      /* for lists of joined steps */
    int *origin;    /* per value: what it is a reshape of, however often; or itself */
} fusion;

static bool is_op(const mg_step *s, const char *name) {
    return s->op && s->n_out && strcmp(s->op->name, name) == 0;
}

static const mg_value *value_of(const fusion *j, int value) {
    return &j->graph->values[value];
}

static bool reads_value(const mg_step *s, int value) {
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] == value) return true;
    return false;
}

/* ---- joining ---- */

static bool is_accepted(const fusion *j, const mg_step *s, const mg_kernel *kernel) {
    mg_port in[MG_FUSE_MAX_INPUTS] = {{0}}, out[MG_FUSE_MAX_OUTPUTS + 1] = {{0}};
    for (int i = 0; i < s->n_in; i++) in[i].value = value_of(j, s->in[i]);
    for (int i = 0; i < s->n_out; i++) out[i].value = value_of(j, s->out[i]);
    const mg_kernel_plan plan = {.step = s, .in = in, .out = out, .device = j->device};
    const char *refusal = kernel->accepts(&plan);
    if (refusal && mg_log_on("dispatch"))
        mg_log("dispatch", "%s: %s with sums: %s refuses: %s", j->device->name, kernel->op,
               kernel->name, refusal);
    return !refusal;
}

static bool fuse_sum(fusion *j, int into, int sum, int number, const mg_kernel *kernel) {
    mg_step both = j->steps[into];
    int *out = j->room;
    memcpy(out, both.out, (size_t)both.n_out * sizeof *out);
    both.out = out;
    out[both.n_out++] = j->steps[sum].out[0];
    out[both.n_out] = number;
    if (both.fused) both.attrs = &out[both.n_out];
    if (!is_accepted(j, &both, kernel)) return false;
    j->room += both.n_out + 1;
    j->steps[into] = both;
    j->steps[sum].n_in = j->steps[sum].n_out = 0;
    return true;
}

/* ---- a product and the sums of its second operand ---- */

/* A product whose second operand has the columns that `sum` adds up. */
static bool has_columns(const fusion *j, const mg_step *s, const mg_step *sum) {
    if (!is_op(s, "matmul") || s->n_in != 2 || s->n_out != 1) return false;
    const mg_matmul_attrs *attrs = s->attrs;
    const mg_shape *a = &value_of(j, s->in[0])->shape, *b = &value_of(j, s->in[1])->shape;
    const mg_shape *x = &value_of(j, sum->in[0])->shape;
    return !attrs->relu && !attrs->transpose_b && a->rank == 2 && b->rank == 2 &&
           j->origin[s->in[1]] == j->origin[sum->in[0]] && b->dim[1] == x->dim[x->rank - 1] &&
           value_of(j, s->out[0])->dtype == value_of(j, sum->out[0])->dtype;
}

static bool fuse_into_matmul(fusion *j, int sum) {
    const mg_step *s = &j->steps[sum];
    for (int i = 0; i < j->graph->n_compute; i++) {
        if (i > sum && reads_value(&j->steps[i], s->out[0])) return false;
        if (has_columns(j, &j->steps[i], s)) return fuse_sum(j, i, sum, 0, &mg_cuda_blas_matmul);
    }
    return false;
}

/* ---- a fused group and the sums of its result ---- */

static int64_t columns_of(const fusion *j, int value) {
    const mg_shape *s = &value_of(j, value)->shape;
    return s->rank > 0 ? s->dim[s->rank - 1] : 0;
}

/* A gradient of windows that do not overlap: each number goes to a cell of its own, the others are
 * 0, so the columns' sums stay. */
static bool spreads(const mg_step *s) {
    if (!is_op(s, "max_pool2d_grad")) return false;
    const mg_pool_attrs *a = s->attrs;
    return a->strides.v[0] >= a->size.v[0] && a->strides.v[1] >= a->size.v[1];
}

/* What has the sums of the columns of `value`, as far up as there is something before `step`. */
static int source_of(const fusion *j, int step, int value) {
    const int64_t columns = columns_of(j, value);
    value = j->origin[value];
    for (int i = step - 1; i >= 0 && columns_of(j, value) == columns; i--)
        if (spreads(&j->steps[i]) && j->steps[i].out[0] == value)
            value = j->origin[j->steps[i].in[2]];
    return columns_of(j, value) == columns ? value : -1;
}

/* The result of a group that is this value, or -1. */
static int result_for(const mg_step *s, int value) {
    if (!s->fused || s->batch_count != 1 || s->n_out != s->fused->n_outputs) return -1;
    for (int o = 0; o < s->n_out; o++)
        if (s->out[o] == value) return o;
    return -1;
}

static bool fuse_into_group(fusion *j, int sum) {
    const int source = source_of(j, sum, j->steps[sum].in[0]);
    for (int i = 0; i < sum; i++) {
        const int result = result_for(&j->steps[i], source);
        if (result >= 0) return fuse_sum(j, i, sum, result, &mg_cuda_fused_sums);
    }
    return false;
}

/* ---- all steps ---- */

/* Over all axes but the last. */
static bool sums_columns(const fusion *j, const mg_step *s) {
    if (!is_op(s, "sum")) return false;
    const mg_ints *axes = &((const mg_reduce_attrs *)s->attrs)->axes; /* ascending */
    const int rank = value_of(j, s->in[0])->shape.rank;
    return rank > 1 && axes->n == rank - 1 && axes->v[axes->n - 1] == rank - 2;
}

static void find_origins(fusion *j) {
    const mg_kernel_graph *w = j->graph;
    for (int v = 0; v < w->n_values; v++) j->origin[v] = v;
    for (int i = 0; i < w->n_steps; i++)
        if (is_op(&w->steps[i], "reshape"))
            j->origin[w->steps[i].out[0]] = j->origin[w->steps[i].in[0]];
}

/* A joined step's results, the sums, and a number. */
static size_t room_for(const mg_kernel_graph *graph) {
    size_t n = 0;
    for (int i = 0; i < graph->n_steps; i++) n += (size_t)graph->steps[i].n_out + 2;
    return n;
}

mg_status mg_cuda_fuse_epilogues(mg_device *d, const mg_kernel_graph *graph, mg_step **steps) {
    const size_t n = (size_t)graph->n_steps;
    fusion j = {.device = d, .graph = graph};
    *steps = j.steps = mg_alloc(n * sizeof *j.steps + room_for(graph) * sizeof *j.room + 1);
    j.origin = mg_alloc((size_t)graph->n_values * sizeof *j.origin + 1);
    if (!j.steps || !j.origin) {
        mg_free(j.origin);
        return MG_OOM;
    }
    j.room = (int *)(j.steps + n);
    if (n) memcpy(j.steps, graph->steps, n * sizeof *j.steps);
    find_origins(&j);
    for (int i = 0; i < graph->n_compute; i++)
        if (sums_columns(&j, &j.steps[i]) && !fuse_into_matmul(&j, i)) fuse_into_group(&j, i);
    mg_free(j.origin);
    return MG_OK;
}

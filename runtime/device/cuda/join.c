/* Joining steps with sums of columns: what the kinds, join_<kind>.c, have in common. */
#include "device/cuda/join.h"
#include "core/alloc.h"
#include "core/log.h"
#include "ops/attrs.h"
#include <string.h>

bool mg_join_is_op(const mg_step *s, const char *name) {
    return s->op && s->n_out && strcmp(s->op->name, name) == 0;
}

const mg_value *mg_join_value(const mg_joiner *j, int value) {
    return &j->graph->values[value];
}

bool mg_join_reads(const mg_step *s, int value) {
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] == value) return true;
    return false;
}

/* ---- joining ---- */

static bool is_accepted(const mg_joiner *j, const mg_step *s, const mg_kernel *kernel) {
    mg_port in[MG_FUSE_MAX_INPUTS] = {{0}}, out[MG_FUSE_MAX_OUTPUTS + 1] = {{0}};
    for (int i = 0; i < s->n_in; i++) in[i].value = mg_join_value(j, s->in[i]);
    for (int i = 0; i < s->n_out; i++) out[i].value = mg_join_value(j, s->out[i]);
    const mg_kernel_plan plan = {.step = s, .in = in, .out = out, .device = j->device};
    const char *refusal = kernel->accepts(&plan);
    if (refusal && mg_log_on("dispatch"))
        mg_log("dispatch", "%s: %s with sums: %s refuses: %s", j->device->name, kernel->op,
               kernel->name, refusal);
    return !refusal;
}

bool mg_join_sum(mg_joiner *j, int into, int sum, int number, const mg_kernel *kernel) {
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

/* Over all axes but the last. */
static bool sums_columns(const mg_joiner *j, const mg_step *s) {
    if (!mg_join_is_op(s, "sum")) return false;
    const mg_ints *axes = &((const mg_reduce_attrs *)s->attrs)->axes; /* ascending */
    const int rank = mg_join_value(j, s->in[0])->shape.rank;
    return rank > 1 && axes->n == rank - 1 && axes->v[axes->n - 1] == rank - 2;
}

static void find_origins(mg_joiner *j) {
    const mg_kernel_graph *w = j->graph;
    for (int v = 0; v < w->n_values; v++) j->origin[v] = v;
    for (int i = 0; i < w->n_steps; i++)
        if (mg_join_is_op(&w->steps[i], "reshape"))
            j->origin[w->steps[i].out[0]] = j->origin[w->steps[i].in[0]];
}

/* A joined step's results, the sums, and a number. */
static size_t room_for(const mg_kernel_graph *graph) {
    size_t n = 0;
    for (int i = 0; i < graph->n_steps; i++) n += (size_t)graph->steps[i].n_out + 2;
    return n;
}

mg_status mg_cuda_join(mg_device *d, const mg_kernel_graph *graph, mg_step **steps) {
    const size_t n = (size_t)graph->n_steps;
    mg_joiner j = {.device = d, .graph = graph};
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
        if (sums_columns(&j, &j.steps[i]) && !mg_join_matmul(&j, i)) mg_join_fused(&j, i);
    mg_free(j.origin);
    return MG_OK;
}

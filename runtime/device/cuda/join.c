/* Joining a product with the sums of its second operand's columns: see join.h.
 *
 * This is the backward pass of a dense layer, dW = x' dz and db = the sums of dz, of which cuBLASLt
 * makes both in one pass over dz. The product's step gets the sums as a second result; that of the
 * sums stays, empty, so that steps keep their numbers. Where cuBLASLt refuses, or somebody wants
 * the sums before the product, both are as they were. */
#include "device/cuda/join.h"
#include "core/alloc.h"
#include "core/log.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"
#include <string.h>

typedef struct joiner {
    mg_device *device;
    const mg_work *work;
    mg_step *steps; /* the new ones */
    int *out;       /* behind them: room for two results of each */
    int *origin;    /* per value: what it is a reshape of, however often; or itself */
} joiner;

static bool is_op(const mg_step *s, const char *name) {
    return s->op && s->n_out && strcmp(s->op->name, name) == 0;
}

static const mg_shape *shape_of(const joiner *j, int value) {
    return &j->work->values[value].shape;
}

/* Over all axes but the last. */
static bool sums_columns(const joiner *j, const mg_step *s) {
    if (!is_op(s, "sum")) return false;
    const mg_ints *axes = &((const mg_reduce_attrs *)s->attrs)->axes; /* ascending */
    const int rank = shape_of(j, s->in[0])->rank;
    return rank > 1 && axes->n == rank - 1 && axes->v[axes->n - 1] == rank - 2;
}

/* A product whose second operand has the columns that `sum` adds up. */
static bool has_columns(const joiner *j, const mg_step *s, const mg_step *sum) {
    if (!is_op(s, "matmul") || s->n_in != 2 || s->n_out != 1) return false;
    const mg_matmul_attrs *attrs = s->attrs;
    const mg_shape *b = shape_of(j, s->in[1]), *x = shape_of(j, sum->in[0]);
    return !attrs->relu && !attrs->transpose_b && shape_of(j, s->in[0])->rank == 2 &&
           b->rank == 2 && j->origin[s->in[1]] == j->origin[sum->in[0]] &&
           b->dim[1] == x->dim[x->rank - 1] &&
           j->work->values[s->out[0]].dtype == j->work->values[sum->out[0]].dtype;
}

static bool is_accepted(const joiner *j, const mg_step *s) {
    mg_port in[2] = {{0}}, out[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        in[i].value = &j->work->values[s->in[i]];
        out[i].value = &j->work->values[s->out[i]];
    }
    const mg_kernel_plan plan = {.step = s, .in = in, .out = out, .device = j->device};
    const char *refusal = mg_cuda_blas_matmul.accepts(&plan);
    if (refusal && mg_log_on("dispatch"))
        mg_log("dispatch", "%s: matmul with sums: %s refuses: %s", j->device->name,
               mg_cuda_blas_matmul.name, refusal);
    return !refusal;
}

static void join(joiner *j, int product, int sum) {
    int *out = j->out + (ptrdiff_t)2 * product;
    mg_step both = j->steps[product];
    out[0] = both.out[0];
    out[1] = j->steps[sum].out[0];
    both.out = out;
    both.n_out = 2;
    if (!is_accepted(j, &both)) return;
    j->steps[product] = both;
    j->steps[sum].n_in = j->steps[sum].n_out = 0;
}

static bool reads(const mg_step *s, int value) {
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] == value) return true;
    return false;
}

/* The product that step `sum` can go with, or -1. */
static int product_for(const joiner *j, int sum) {
    const mg_step *s = &j->steps[sum];
    for (int i = 0; i < j->work->n_compute; i++) {
        if (i > sum && reads(&j->steps[i], s->out[0])) return -1;
        if (has_columns(j, &j->steps[i], s)) return i;
    }
    return -1;
}

static void find_origins(joiner *j) {
    const mg_work *w = j->work;
    for (int v = 0; v < w->n_values; v++) j->origin[v] = v;
    for (int i = 0; i < w->n_steps; i++)
        if (is_op(&w->steps[i], "reshape"))
            j->origin[w->steps[i].out[0]] = j->origin[w->steps[i].in[0]];
}

mg_status mg_cuda_join(mg_device *d, const mg_work *work, mg_step **steps) {
    const size_t n = (size_t)work->n_steps;
    joiner j = {.device = d, .work = work};
    *steps = j.steps = mg_alloc(n * (sizeof *j.steps + 2 * sizeof *j.out) + 1);
    j.origin = mg_alloc((size_t)work->n_values * sizeof *j.origin + 1);
    if (!j.steps || !j.origin) {
        mg_free(j.origin);
        return MG_OOM;
    }
    j.out = (int *)(j.steps + n);
    if (n) memcpy(j.steps, work->steps, n * sizeof *j.steps);
    find_origins(&j);
    for (int i = 0; i < work->n_compute; i++) {
        const int product = sums_columns(&j, &j.steps[i]) ? product_for(&j, i) : -1;
        if (product >= 0) join(&j, product, i);
    }
    mg_free(j.origin);
    return MG_OK;
}

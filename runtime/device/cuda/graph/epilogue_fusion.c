/* Epilogue fusion: column sums computed by the kernel that already reads or makes their operand,
 * max pools and their gradients by the fused groups that need their results or make their dy, and
 * element-wise ops by the reduction in front of them.
 *
 * The gradient of a layer's bias is the sum of dz over all axes but the last. As a separate step it
 * reads all of dz from memory once more. Two kinds of steps can also add up columns: cuBLASLt's
 * product dW = x' dz, which reads dz, and the fused group that makes dz. Such a step gets the sums
 * as one more result; the step that computed them stays, empty, so that steps keep their numbers.
 *
 * Behind a max pool without overlapping windows, the group masks dy by the relu before the pool, or
 * by a dropout after it. Then the group puts each number of dy where the maximum is, and dy itself
 * is not stored. If no kernel accepts a fused step, both steps stay unchanged. */
#include "core/alloc.h"
#include "core/log.h"
#include "device/cuda/graph/cuda_graph.h"
#include "device/cuda/graph/merging.h"
#include "device/cuda/kernels.h"
#include "device/cuda/launchers/fused_params.h"
#include "ops/attrs.h"
#include <string.h>

typedef struct fusion {
    mg_device *device;
    const mg_kernel_graph *graph;
    mg_step *steps;         /* the new ones, which start as a copy of the graph's */
    mg_fused_extra *extras; /* per step: what was added to a fused group */
    int *room;              /* the next free place for a fused step's list of operands or results */
    int *origin; /* per value: the value it is a reshape of, through any number of reshapes */
} fusion;

static const mg_value *value_of(const fusion *f, int value) {
    return &f->graph->values[value];
}

/* ---- fusing two steps ---- */

/* Whether the kernel accepts the fused step. The dispatch log has the reason for a refusal. */
static bool is_accepted(const fusion *f, const mg_step *s, const mg_kernel *kernel) {
    mg_port in[MG_FUSE_MAX_INPUTS + 1] = {{0}}, out[MG_FUSE_MAX_OUTPUTS + 1] = {{0}};
    for (int i = 0; i < s->n_in; i++) in[i].value = value_of(f, s->in[i]);
    for (int i = 0; i < s->n_out; i++) out[i].value = value_of(f, s->out[i]);
    const mg_kernel_plan plan = {.step = s, .in = in, .out = out, .device = f->device};
    const char *refusal = kernel->accepts(&plan);
    if (refusal && mg_log_on("dispatch"))
        mg_log("dispatch", "%s: %s with sums: %s refuses: %s", f->device->name, kernel->op,
               kernel->name, refusal);
    return !refusal;
}

/* Gives step `into` the result of step `sum` as its last one, if `kernel` accepts that; returns
 * whether it did. For a fused group, attrs becomes the number of the result whose columns are
 * summed. */
static bool fuse_sum(fusion *f, int into, int sum, int number, const mg_kernel *kernel) {
    mg_step both = f->steps[into];
    int *out = f->room;
    memcpy(out, both.out, (size_t)both.n_out * sizeof *out);
    both.out = out;
    out[both.n_out++] = f->steps[sum].out[0];
    if (both.fused) {
        f->extras[into] = (mg_fused_extra){.summed = number, .spread = -1, .pooled = -1};
        both.attrs = &f->extras[into];
    }
    if (!is_accepted(f, &both, kernel)) return false;
    f->room += both.n_out;
    f->steps[into] = both;
    mg_step_remove(&f->steps[sum]);
    return true;
}

/* ---- a product, and the sums of its second operand ---- */

/* Whether the step is a product whose second operand has the columns that `sum` adds up. cuBLASLt
 * sums in the dtype of the product only, and not together with relu. */
static bool multiplies_columns(const fusion *f, const mg_step *s, const mg_step *sum) {
    if (!mg_step_is(s, "matmul") || s->n_in != 2 || s->n_out != 1) return false;
    const mg_matmul_attrs *attrs = s->attrs;
    const mg_shape *a = &value_of(f, s->in[0])->shape, *b = &value_of(f, s->in[1])->shape;
    const mg_shape *x = &value_of(f, sum->in[0])->shape;
    return !attrs->relu && !attrs->transpose_b && a->rank == 2 && b->rank == 2 &&
           f->origin[s->in[1]] == f->origin[sum->in[0]] && b->dim[1] == x->dim[x->rank - 1] &&
           value_of(f, s->out[0])->dtype == value_of(f, sum->out[0])->dtype;
}

/* The sums may move to a later product unless a step before it reads them. */
static bool fuse_into_matmul(fusion *f, int sum) {
    const mg_step *s = &f->steps[sum];
    for (int i = 0; i < f->graph->n_compute; i++) {
        if (i > sum && mg_step_reads(&f->steps[i], s->out[0])) return false;
        if (multiplies_columns(f, &f->steps[i], s))
            return fuse_sum(f, i, sum, 0, &mg_cuda_blas_matmul);
    }
    return false;
}

/* ---- a fused group, and the sums of one of its results (launchers/fused_sums.c) ---- */

/* The size of the last axis; 0 of a scalar. */
static int64_t columns_of(const fusion *f, int value) {
    const mg_shape *s = &value_of(f, value)->shape;
    return s->rank > 0 ? s->dim[s->rank - 1] : 0;
}

/* Whether the step keeps the sums of columns: the gradient of max pooling whose windows do not
 * overlap moves each number to a cell of its own and fills the others with 0. */
static bool keeps_sums(const mg_step *s) {
    if (!mg_step_is(s, "max_pool2d_grad")) return false;
    const mg_pool_attrs *a = s->attrs;
    return a->strides.v[0] >= a->size.v[0] && a->strides.v[1] >= a->size.v[1];
}

/* The earliest value, made before `step`, whose column sums equal those of `value`; -1 if `value`
 * has other columns. */
static int sum_source(const fusion *f, int step, int value) {
    const int64_t columns = columns_of(f, value);
    value = f->origin[value];
    for (int i = step - 1; i >= 0 && columns_of(f, value) == columns; i--)
        if (keeps_sums(&f->steps[i]) && f->steps[i].out[0] == value)
            value = f->origin[f->steps[i].in[2]];
    return columns_of(f, value) == columns ? value : -1;
}

/* The index of the value among the results of a fused group, or -1. A group of a multi-tensor
 * update is left alone (batch_count), and so is one that has sums already. */
static int result_index(const mg_step *s, int value) {
    if (!s->fused || s->batch_count != 1 || s->n_out != s->fused->n_outputs) return -1;
    for (int o = 0; o < s->n_out; o++)
        if (s->out[o] == value) return o;
    return -1;
}

/* The sums move to an earlier step here, so all their readers still come later. */
static bool fuse_into_group(fusion *f, int sum) {
    const int source = sum_source(f, sum, f->steps[sum].in[0]);
    for (int i = 0; i < sum; i++) {
        const int result = result_index(&f->steps[i], source);
        if (result >= 0) return fuse_sum(f, i, sum, result, &mg_cuda_fused_sums);
    }
    return false;
}

/* ---- a fused group, and the gradient of the max pool that reads its result ---- */

/* Whether only step `reader` reads the value. */
static bool has_one_reader(const fusion *f, int value, int reader) {
    if (value < f->graph->n_external) return false;
    for (int i = 0; i < f->graph->n_steps; i++)
        if (i != reader && mg_step_reads(&f->steps[i], value)) return false;
    return true;
}

/* Whether windows lie apart from each other and within the image x, and sizes fit an int. */
static bool has_plain_windows(const mg_pool_attrs *a, const mg_shape *x, const mg_shape *dy) {
    if (a->strides.v[0] < a->size.v[0] || a->strides.v[1] < a->size.v[1]) return false;
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i] || x->dim[i] > INT32_MAX / 4) return false;
    for (int i = 0; i < 2; i++)
        if (dy->dim[1 + i] < 1 ||
            (dy->dim[1 + i] - 1) * a->strides.v[i] + a->size.v[i] > x->dim[1 + i])
            return false;
    return true;
}

/* The pool's gradient becomes a result of the group, in the place of dy. */
static void fuse_pool_gradient(fusion *f, int pool) {
    const mg_step *s = &f->steps[pool];
    if (!mg_step_is(s, "max_pool2d_grad") ||
        !has_plain_windows(s->attrs, &value_of(f, s->in[0])->shape, &value_of(f, s->in[2])->shape))
        return;
    const int dy = s->in[2], into = mg_step_making(f->graph, f->steps, dy);
    if (into < 0 || !f->steps[into].fused || f->steps[into].batch_count != 1 ||
        mg_step_making(f->graph, f->steps, s->in[0]) >= into ||
        f->steps[into].n_in != f->steps[into].fused->n_inputs || !has_one_reader(f, dy, pool) ||
        mg_shape_count(&value_of(f, dy)->shape) == 0)
        return;
    mg_step both = f->steps[into];
    const mg_fused_extra before = f->extras[into];
    int *in = f->room, *out = in + both.n_in + 1;
    memcpy(in, both.in, (size_t)both.n_in * sizeof *in);
    memcpy(out, both.out, (size_t)both.n_out * sizeof *out);
    in[both.n_in++] = s->in[0];
    mg_fused_extra *extra = &f->extras[into];
    if (!both.attrs) extra->summed = -1;
    extra->pooled = -1;
    for (int o = 0; o < both.fused->n_outputs; o++)
        if (out[o] == dy) extra->spread = o;
    out[extra->spread] = s->out[0];
    extra->pool = s->attrs;
    extra->shape = &value_of(f, dy)->shape;
    both.in = in;
    both.out = out;
    both.attrs = extra;
    if (!is_accepted(f, &both, extra->summed >= 0 ? &mg_cuda_fused_sums : &mg_cuda_fused)) {
        f->extras[into] = before;
        return;
    }
    f->room = out + both.n_out;
    f->steps[into] = both;
    mg_step_remove(&f->steps[pool]);
}

/* ---- a fused group, and the max pool whose result it reads ---- */

/* The input of the group that has the value, in the shape of the group's results, or -1. */
static int pooled_input(const fusion *f, const mg_step *s, int value) {
    if (!s->fused || s->batch_count != 1 || s->attrs || !s->n_out ||
        s->fused->n_outputs == MG_FUSE_MAX_OUTPUTS ||
        !mg_shape_equal(&value_of(f, s->out[0])->shape, &value_of(f, value)->shape))
        return -1;
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] == value) return i;
    return -1;
}

/* The first reader of a pool's result pools by itself, if it is a group. The pooled image is one
 * more result of it if others read it. */
static void fuse_into_reader(fusion *f, int pool) {
    const mg_step *s = &f->steps[pool];
    int reader = pool + 1;
    if (!mg_step_is(s, "max_pool2d")) return;
    const int y = s->out[0];
    while (reader < f->graph->n_compute && !mg_step_reads(&f->steps[reader], y)) reader++;
    if (reader == f->graph->n_compute ||
        !has_plain_windows(s->attrs, &value_of(f, s->in[0])->shape, &value_of(f, y)->shape) ||
        mg_shape_count(&value_of(f, y)->shape) == 0)
        return;
    mg_step both = f->steps[reader];
    mg_fused_extra *extra = &f->extras[reader];
    const int input = pooled_input(f, &both, y);
    if (input < 0) return;
    int *in = f->room, *out = in + both.n_in;
    memcpy(in, both.in, (size_t)both.n_in * sizeof *in);
    memcpy(out, both.out, (size_t)both.n_out * sizeof *out);
    in[input] = s->in[0];
    if (!has_one_reader(f, y, reader)) out[both.n_out++] = y;
    *extra = (mg_fused_extra){.summed = -1,
                              .spread = -1,
                              .pooled = input,
                              .pool = s->attrs,
                              .shape = &value_of(f, y)->shape};
    both.in = in;
    both.out = out;
    both.attrs = extra;
    if (!is_accepted(f, &both, &mg_cuda_fused)) return;
    f->room = out + both.n_out;
    f->steps[reader] = both;
    mg_step_remove(&f->steps[pool]);
}

/* ---- a reduction, and the element-wise ops that its result goes through ---- */

static bool is_reduction(const mg_step *s) {
    return mg_step_is(s, "sum") || mg_step_is(s, "max") || mg_step_is(s, "min");
}

/* Whether the step is a group that computes one result from one value and immediates, as the
 * division of a mean does. The reduction computes in float or, of float64, in double. */
static bool is_finish(const fusion *f, const mg_step *s, int value) {
    const mg_dtype t = value_of(f, value)->dtype;
    return s->fused && s->batch_count == 1 && !s->attrs && s->n_in == 1 && s->n_out == 1 &&
           s->in[0] == value &&
           mg_shape_equal(&value_of(f, s->out[0])->shape, &value_of(f, value)->shape) &&
           mg_dtype_is_float(t) && (s->fused->wide != 0) == (t == MG_F64);
}

/* The reduction finishes its result: then it is the group's result that it stores. */
static void fuse_finish(fusion *f, int reduction) {
    mg_step *s = &f->steps[reduction];
    if (!is_reduction(s) || s->n_out != 1 || !mg_fused_has_compiler()) return;
    const int sum = s->out[0];
    /* the result must not lie in the memory of the input, as that of a group may */
    if (mg_shape_equal(&value_of(f, s->in[0])->shape, &value_of(f, sum)->shape)) return;
    for (int i = reduction + 1; i < f->graph->n_compute; i++) {
        mg_step *finish = &f->steps[i];
        if (!is_finish(f, finish, sum)) continue;
        if (!has_one_reader(f, sum, i)) return;
        s->fused = finish->fused;
        s->out = finish->out;
        mg_step_remove(finish);
        return;
    }
}

/* ---- all steps ---- */

/* Whether the step is a sum over all axes but the last. */
static bool sums_columns(const fusion *f, const mg_step *s) {
    if (!mg_step_is(s, "sum")) return false;
    const mg_ints *axes = &((const mg_reduce_attrs *)s->attrs)->axes; /* ascending */
    const int rank = value_of(f, s->in[0])->shape.rank;
    return rank > 1 && axes->n == rank - 1 && axes->v[axes->n - 1] == rank - 2;
}

/* Steps are in order, so the operand of a reshape already has its origin. */
static void find_origins(fusion *f) {
    const mg_kernel_graph *w = f->graph;
    for (int v = 0; v < w->n_values; v++) f->origin[v] = v;
    for (int i = 0; i < w->n_steps; i++)
        if (mg_step_is(&w->steps[i], "reshape"))
            f->origin[w->steps[i].out[0]] = f->origin[w->steps[i].in[0]];
}

/* The number of integers needed: each step's results twice, if it gets sums and then a pool, and
 * its operands with an image; and those of loss_fusion.c. */
static size_t room_for(const mg_kernel_graph *graph) {
    size_t n = 0;
    for (int i = 0; i < graph->n_steps; i++)
        n += 2 * (size_t)graph->steps[i].n_out + (size_t)graph->steps[i].n_in + 3 + MG_LOSS_ROOM;
    return n;
}

/* Only steps of the compute phase are considered: the commit phase has no column sums. */
mg_status mg_cuda_fuse_epilogues(mg_device *d, const mg_kernel_graph *graph, mg_step **steps) {
    const size_t n = (size_t)graph->n_steps;
    fusion f = {.device = d, .graph = graph};
    *steps = f.steps = mg_alloc_zero(n * (sizeof *f.steps + sizeof *f.extras) +
                                     room_for(graph) * sizeof *f.room + 1);
    f.origin = mg_alloc((size_t)graph->n_values * sizeof *f.origin + 1);
    if (!f.steps || !f.origin) {
        mg_free(f.origin);
        return MG_OOM;
    }
    f.extras = (mg_fused_extra *)(f.steps + n);
    f.room = (int *)(f.extras + n);
    if (n) memcpy(f.steps, graph->steps, n * sizeof *f.steps);
    mg_cuda_fuse_losses(graph, f.steps, &f.room);
    find_origins(&f);
    for (int i = 0; i < graph->n_compute; i++)
        if (sums_columns(&f, &f.steps[i]) && !fuse_into_matmul(&f, i)) fuse_into_group(&f, i);
    for (int i = 0; i < graph->n_compute; i++) fuse_pool_gradient(&f, i);
    for (int i = 0; i < graph->n_compute; i++) fuse_into_reader(&f, i);
    for (int i = 0; i < graph->n_compute; i++) fuse_finish(&f, i);
    mg_free(f.origin);
    return MG_OK;
}

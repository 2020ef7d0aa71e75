/* Ops without inputs: full, iota and random. Their state is the kernel itself.
 *
 * random gives Philox words, turned into numbers by the formulas of ops/random_formulas.h, so every
 * device draws the same. Where a draw counts from the run's random state, its key and ordinal are
 * read from device memory, so that a captured step draws new numbers at every launch. */
#include "device/cuda/kernels/movement_params.h"
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include "ops/random.h"
#include <stdio.h>

enum { THREADS = 256 };

/* ---- full ---- */

/* One kernel for all dtypes: it stores bytes. */
static mg_status prepare_full(mg_kernel_plan *plan) {
    return mg_cuda_find(plan->device, "fill", (CUfunction *)&plan->state);
}

/* The element is repeated to 16 bytes, which the kernel stores at once. */
static mg_status run_full(const mg_call *call) {
    const mg_value *y = call->plan->out[0].value;
    const mg_full_attrs *a = call->plan->step->attrs;
    const size_t size = mg_dtype_size(y->dtype);
    fill_params p = {.out = call->out[0], .bytes = mg_shape_count(&y->shape) * (int64_t)size};
    for (size_t at = 0; at < sizeof p.value; at += size)
        mg_from_double((char *)p.value + at, &a->value, y->dtype, 1);
    return mg_cuda_launch(call->plan->device, call->plan->state,
                          mg_cuda_blocks(call->plan->device, (p.bytes + 15) / 16, THREADS), THREADS,
                          0, &p);
}

/* ---- iota ---- */

static mg_status prepare_iota(mg_kernel_plan *plan) {
    return mg_cuda_find_typed(plan->device, "iota", plan->out[0].value->dtype,
                              (CUfunction *)&plan->state);
}

/* An element is its position along the axis. */
static mg_status run_iota(const mg_call *call) {
    const mg_shape *shape = &call->plan->out[0].value->shape;
    const mg_axis_view v =
        mg_axis_view_of(shape, ((const mg_iota_attrs *)call->plan->step->attrs)->axis);
    const iota_params p = {
        .out = call->out[0], .count = mg_shape_count(shape), .n = v.n, .inner = v.inner};
    return mg_cuda_launch(call->plan->device, call->plan->state,
                          mg_cuda_blocks(call->plan->device, p.count, THREADS), THREADS, 0, &p);
}

/* ---- random ---- */

/* A draw relative to the run's state has the cell's address; an absolute draw has its own key and
 * ordinal. */
mg_draw mg_cuda_draw(const mg_call *call) {
    const mg_cuda *s = mg_cuda_of(call->plan->device);
    const mg_step *step = call->plan->step;
    const mg_random_attrs *a = step->attrs;
    mg_draw draw = {.ordinal = step->draw, .seed = step->seed, .stream = (unsigned)a->stream};
    if (step->draw_relative) draw.cell = (const mg_rng_cell *)(uintptr_t)s->rng;
    return draw;
}

/* One kernel per kind of distribution and dtype. */
static mg_status prepare_random(mg_kernel_plan *plan) {
    static const char *const kinds[] = {[MG_RANDOM_UNIFORM] = "uniform",
                                        [MG_RANDOM_NORMAL] = "normal",
                                        [MG_RANDOM_TRUNCATED_NORMAL] = "truncated_normal",
                                        [MG_RANDOM_BERNOULLI] = "bernoulli",
                                        [MG_RANDOM_RANDINT] = "randint"};
    const mg_random_attrs *a = plan->step->attrs;
    char name[32];
    snprintf(name, sizeof name, "random_%s", kinds[a->kind]);
    return mg_cuda_find_typed(plan->device, name, plan->out[0].value->dtype,
                              (CUfunction *)&plan->state);
}

/* A Philox call gives four words, and so four elements. call->first says where in the whole draw
 * this device's elements begin: a tensor sharded over devices is the same as on one. */
static mg_status run_random(const mg_call *call) {
    const mg_step *step = call->plan->step;
    const mg_random_attrs *a = step->attrs;
    const mg_value *y = call->plan->out[0].value;
    const uint64_t four = 4 * mg_dtype_size(y->dtype);
    random_params p = {.draw = mg_cuda_draw(call),
                       .out = call->out[0],
                       .first = call->first,
                       .count = mg_shape_count(&y->shape),
                       .a = a->a,
                       .b = a->b};
    if (a->kind == MG_RANDOM_RANDINT) p.range = (uint64_t)(a->b - a->a);
    if (a->kind == MG_RANDOM_BERNOULLI) p.threshold = mg_random_threshold(a->a);
    p.aligned = call->first % 4 == 0 && (uintptr_t)call->out[0] % (four < 16 ? four : 16) == 0;
    if (p.count == 0) return MG_OK;
    return mg_cuda_launch(call->plan->device, call->plan->state,
                          mg_cuda_blocks(call->plan->device, p.count / 4 + 2, THREADS), THREADS, 0,
                          &p);
}

const mg_kernel mg_cuda_full = {
    .op = "full", .name = "full", .prepare = prepare_full, .run = run_full};
const mg_kernel mg_cuda_iota = {
    .op = "iota", .name = "iota", .prepare = prepare_iota, .run = run_iota};
const mg_kernel mg_cuda_random = {
    .op = "random", .name = "philox", .prepare = prepare_random, .run = run_random};

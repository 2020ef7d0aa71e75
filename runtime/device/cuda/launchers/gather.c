/* gather: slices of x picked by ids along an axis (kernels/gather.cu).
 *
 * x is seen as {outer, n, inner}; a slice is `inner` elements. Slices are copied in the widest
 * units (1 to 16 bytes) that their length and the addresses allow. An id outside 0 .. n - 1 gives
 * NaN, or 0 for integers; callers that take ids from data add guards. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/movement_params.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>

enum { THREADS = 256, UNITS = 5 };
/* Units of one launch: the kernel counts them in 32 bits. */
#define MOST ((int64_t)1 << 30)

_Static_assert(offsetof(gather_params, value) % 16 == 0, "it is loaded 16 bytes at once");

typedef struct state {
    CUfunction kernels[UNITS]; /* for units of 1, 2, 4, 8 and 16 bytes; NULL if below an element */
    mg_axis_view x;            /* {outer, n, inner} */
    uint64_t value[2];         /* the element for ids outside, repeated to 16 bytes */
} state;

/* Limits of 32-bit counting. */
static const char *accepts_gather(const mg_kernel_plan *plan) {
    const mg_axis_attrs *a = plan->step->attrs;
    const mg_axis_view v = mg_axis_view_of(&plan->in[0].value->shape, a->axis);
    if (v.outer * mg_shape_count(&plan->in[1].value->shape) > INT32_MAX) return "2^31 slices";
    return v.inner > MOST / 16 ? "slices too long" : NULL;
}

/* Looks up the kernels for all units from an element to 16 bytes: addresses are known only in
 * `run`. */
static mg_status prepare_gather(mg_kernel_plan *plan) {
    const mg_axis_attrs *a = plan->step->attrs;
    const mg_value *x = plan->in[0].value;
    const double nothing = mg_dtype_is_float(x->dtype) ? NAN : 0;
    const size_t size = mg_dtype_size(x->dtype);
    char name[32];
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->x = mg_axis_view_of(&x->shape, a->axis);
    for (size_t at = 0; at < sizeof s->value; at += size)
        mg_from_double((char *)s->value + at, &nothing, x->dtype, 1);
    for (int i = __builtin_ctzll(size); i < UNITS; i++) {
        snprintf(name, sizeof name, "gather_unit_%d", 1 << i);
        MG_TRY(mg_cuda_find(plan->device, name, &s->kernels[i]));
    }
    return MG_OK;
}

/* In several launches if there are too many units for one. */
static mg_status run_gather(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const int64_t n = mg_shape_count(&plan->in[1].value->shape), slices = s->x.outer * n;
    const int64_t bytes = s->x.inner * (int64_t)mg_dtype_size(plan->in[0].value->dtype);
    int64_t unit = 16;
    if (slices * bytes == 0) return MG_OK;
    while (((uintptr_t)call->in[0] | (uintptr_t)call->out[0] | (uint64_t)bytes) % (uint64_t)unit)
        unit /= 2;
    gather_params p = {.x = call->in[0],
                       .ids = call->in[1],
                       .id_bytes = (int)mg_dtype_size(plan->in[1].value->dtype),
                       .inner = mg_divisor_of(bytes / unit),
                       .n = mg_divisor_of(n),
                       .rows = s->x.n,
                       .value = {s->value[0], s->value[1]}};
    const int64_t most = MOST / (bytes / unit);
    for (int64_t first = 0; first < slices; first += most) {
        const int64_t part = slices - first < most ? slices - first : most;
        p.first = (unsigned)first;
        p.count = (unsigned)(part * (bytes / unit));
        p.out = (char *)call->out[0] + first * bytes;
        MG_TRY(mg_cuda_launch(plan->device, s->kernels[__builtin_ctzll((uint64_t)unit)],
                              mg_cuda_blocks(plan->device, (p.count + 3) / 4, THREADS), THREADS, 0,
                              &p));
    }
    return MG_OK;
}

const mg_kernel mg_cuda_gather = {.op = "gather",
                                  .name = "gather",
                                  .accepts = accepts_gather,
                                  .prepare = prepare_gather,
                                  .run = run_gather,
                                  .release = mg_free};

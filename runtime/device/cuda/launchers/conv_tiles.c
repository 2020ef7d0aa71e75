/* Convolutions by our own kernels, for everything that cuDNN refuses (such as float64) or when it
 * is missing.
 *
 * They are products of tiles, with the image read as the matrix that im2col would make, but without
 * storing it. A weight gradient is split along the pixels (split-K) where its tiles would not fill
 * the GPU, and a second kernel adds up the partial sums. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/product_params.h"
#include "device/cuda/launchers/launchers.h"
#include "ops/attrs.h"
#include <string.h>

enum {
    LEAST_PIXELS = 512, /* of one split of a weight gradient */
    LARGEST = 1 << 30   /* pixels, taps, strides: positions are divided in 32 bits */
};

typedef struct state {
    CUfunction function, add; /* add: adds up the splits of a weight gradient */
    conv_params p;            /* without the addresses */
    int64_t blocks;
} state;

/* The shape of an operand. */
static const mg_shape *in_shape(const mg_kernel_plan *plan, int i) {
    return &plan->in[i].value->shape;
}

/* Whether rows times columns times images fit 32-bit division. */
static bool few_positions(const mg_shape *s) {
    return s->dim[0] * s->dim[1] * s->dim[2] <= LARGEST;
}

/* Accepts everything unless 32-bit positions overflow: these kernels are the last ones before the
 * host fallback. */
static const char *accepts_tiled(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const bool weight = strcmp(plan->step->op->name, "conv2d_grad_weight") == 0;
    const mg_shape *w = &(weight ? plan->out : plan->in + 1)->value->shape;
    if (!mg_dtype_is_float(plan->out[0].value->dtype)) return "only floating dtypes";
    bool fits = few_positions(in_shape(plan, 0)) && few_positions(in_shape(plan, 1)) &&
                few_positions(&plan->out[0].value->shape) &&
                w->dim[0] * w->dim[1] * w->dim[3] <= LARGEST;
    for (int i = 0; i < 4; i++)
        fits = fits && a->pads.v[i] <= LARGEST && a->strides.v[i % 2] <= LARGEST &&
               a->dilations.v[i % 2] <= LARGEST;
    return fits ? NULL : "too large an image";
}

/* Tiles along an axis of n rows or columns. */
static int64_t tiles(int64_t n) {
    return (n + MG_TILE - 1) / MG_TILE;
}

/* A divisor for a size that may be 0, for which the kernel never divides. */
static mg_divisor divisor(int64_t n) {
    return mg_divisor_of(n ? n : 1);
}

/* The plan's state, with the parameters filled in for the shapes of image, kernel and result; NULL
 * without memory. */
static state *new_state(mg_kernel_plan *plan, const mg_shape *x, const mg_shape *w,
                        const mg_shape *y) {
    const mg_conv_attrs *a = plan->step->attrs;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return NULL;
    s->p = (conv_params){.n = x->dim[0],
                         .h = x->dim[1],
                         .wide = x->dim[2],
                         .c = w->dim[2],
                         .oh = y->dim[1],
                         .ow = y->dim[2],
                         .k = w->dim[3] / a->groups,
                         .kh = (int)w->dim[0],
                         .kw = (int)w->dim[1],
                         .down = (int)a->strides.v[0],
                         .across = (int)a->strides.v[1],
                         .spread_y = (int)a->dilations.v[0],
                         .spread_x = (int)a->dilations.v[1],
                         .top = (int)a->pads.v[0],
                         .left = (int)a->pads.v[2],
                         .groups = (int)a->groups,
                         .splits = 1,
                         .relu = (int)a->relu};
    conv_params *p = &s->p;
    p->by_c = divisor(p->c), p->by_k = divisor(p->k), p->by_kw = divisor(p->kw);
    p->by_h = divisor(p->h), p->by_wide = divisor(p->wide);
    p->by_oh = divisor(p->oh), p->by_ow = divisor(p->ow);
    p->by_down = divisor(p->down), p->by_across = divisor(p->across);
    return s;
}

static mg_status find_kernel(const mg_kernel_plan *plan, const char *name, CUfunction *f) {
    return mg_cuda_find_typed(plan->device, name, plan->out[0].value->dtype, f);
}

/* Tiles of pixels by output channels, for each group. */
static mg_status prepare_forward(mg_kernel_plan *plan) {
    state *s = new_state(plan, in_shape(plan, 0), in_shape(plan, 1), &plan->out[0].value->shape);
    if (!s) return MG_OOM;
    s->blocks = tiles(s->p.n * s->p.oh * s->p.ow) * tiles(s->p.k) * s->p.groups;
    return find_kernel(plan, "conv", &s->function);
}

/* Tiles of pixels of the image by its channels, for each group. */
static mg_status prepare_input(mg_kernel_plan *plan) {
    state *s = new_state(plan, &plan->out[0].value->shape, in_shape(plan, 1), in_shape(plan, 0));
    if (!s) return MG_OOM;
    s->blocks = tiles(s->p.n * s->p.h * s->p.wide) * tiles(s->p.c) * s->p.groups;
    return find_kernel(plan, "conv_grad_input", &s->function);
}

/* As many splits as fill the GPU, if each has enough pixels. */
static mg_status prepare_weight(mg_kernel_plan *plan) {
    const mg_value *w = plan->out[0].value;
    state *s = new_state(plan, in_shape(plan, 0), &w->shape, in_shape(plan, 1));
    if (!s) return MG_OOM;
    const int64_t blocks = tiles((int64_t)s->p.kh * s->p.kw * s->p.c) * tiles(s->p.k) * s->p.groups;
    const int64_t wanted = 4LL * mg_cuda_of(plan->device)->multiprocessors / (blocks ? blocks : 1);
    const int64_t most = s->p.n * s->p.oh * s->p.ow / LEAST_PIXELS;
    s->p.splits = (int)(wanted < most ? wanted : most);
    if (s->p.splits < 1) s->p.splits = 1;
    s->blocks = blocks * s->p.splits;
    plan->scratch = mg_cuda_partial_sums_bytes(w->dtype, s->p.splits, mg_shape_count(&w->shape));
    MG_TRY(mg_cuda_find_partial_sums(plan->device, w->dtype, &s->add));
    return find_kernel(plan, "conv_grad_weight", &s->function);
}

/* One block per tile. */
static mg_status launch_tiles(const mg_call *call, const conv_params *p) {
    const state *s = call->plan->state;
    return mg_cuda_launch(call->plan->device, s->function, s->blocks, MG_TILE_THREADS, 0, p);
}

/* The addresses by form: x, w and y are the image, the kernel and the result, or its gradient. */
static mg_status run_forward(const mg_call *call) {
    conv_params p = ((const state *)call->plan->state)->p;
    p.x = call->in[0];
    p.w = call->in[1];
    p.bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    p.out = call->out[0];
    return launch_tiles(call, &p);
}

static mg_status run_input(const mg_call *call) {
    conv_params p = ((const state *)call->plan->state)->p;
    p.y = call->in[0];
    p.w = call->in[1];
    p.out = call->out[0];
    return launch_tiles(call, &p);
}

/* Partial sums to scratch, then their total. */
static mg_status run_weight(const mg_call *call) {
    const state *s = call->plan->state;
    conv_params p = s->p;
    p.x = call->in[0];
    p.y = call->in[1];
    p.out = call->out[0];
    p.partials = call->scratch;
    MG_TRY(launch_tiles(call, &p));
    return mg_cuda_add_partial_sums(call->plan->device, s->add, call->scratch, s->p.splits,
                                    call->out[0], mg_shape_count(&call->plan->out[0].value->shape));
}

#define CONV(op_name, PREPARE, RUN)                                                                \
    const mg_kernel mg_cuda_tiled_##op_name = {.op = #op_name,                                     \
                                               .name = "tiles",                                    \
                                               .accepts = accepts_tiled,                           \
                                               .prepare = PREPARE,                                 \
                                               .run = RUN,                                         \
                                               .release = mg_free}
CONV(conv2d, prepare_forward, run_forward);
CONV(conv2d_grad_input, prepare_input, run_input);
CONV(conv2d_grad_weight, prepare_weight, run_weight);

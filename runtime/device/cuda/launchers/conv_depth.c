/* Depthwise convolutions, where each channel is a group of its own, and their backward forms.
 *
 * Forward and input gradient: a block computes one row of the result, a thread one channel or a
 * vector of channels. Weight gradient: the rows of all images are distributed in chunks over
 * blocks, whose partial sums a second kernel adds up. */
#include "core/alloc.h"
#include "device/cuda/launchers/launchers.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/product_params.h"
#include "ops/attrs.h"
#include <stdio.h>

enum {
    THREADS = MG_DEPTH_THREADS,
    VECTOR = MG_DEPTH_VECTOR,
    LARGEST = 1 << 20,     /* size, stride or pad: kernels compute with ints */
    LARGEST_ROW = 1 << 30, /* elements of an image's row, likewise */
    LEAST_PIXELS = 512,    /* pixels of a chunk: for fewer a partial sum is not worthwhile */
};

typedef struct state {
    CUfunction one, vector; /* by channels; by vectors of channels, or NULL if the channels are no
                               multiple of a vector */
    CUfunction add;         /* adds up the partial sums of a weight gradient */
    depth_params p;         /* without the addresses */
    int64_t rows;           /* of the result: one block each */
} state;

/* ---- shapes, and what is accepted ---- */

typedef struct shapes { /* of image, kernel and result, whichever of them the step computes */
    const mg_shape *x, *w, *y;
} shapes;

/* The shapes of an input and of the output. */
static const mg_shape *in(const mg_kernel_plan *plan, int i) {
    return &plan->in[i].value->shape;
}

static const mg_shape *out(const mg_kernel_plan *plan) {
    return &plan->out[0].value->shape;
}

/* The shapes by form: the tensor that a form computes is its output. */
static shapes of_forward(const mg_kernel_plan *plan) {
    return (shapes){in(plan, 0), in(plan, 1), out(plan)};
}

static shapes of_input(const mg_kernel_plan *plan) {
    return (shapes){out(plan), in(plan, 1), in(plan, 0)};
}

static shapes of_weight(const mg_kernel_plan *plan) {
    return (shapes){in(plan, 0), out(plan), in(plan, 1)};
}

/* Whether positions in the image fit an int. */
static bool is_small(const mg_shape *s) {
    for (int i = 1; i < 4; i++)
        if (s->dim[i] > LARGEST) return false;
    return s->dim[2] * s->dim[3] <= LARGEST_ROW;
}

/* NULL, or why a convolution of these shapes is refused. */
static const char *refusal(const mg_kernel_plan *plan, shapes s) {
    const mg_conv_attrs *a = plan->step->attrs;
    if (!mg_dtype_is_float(plan->out[0].value->dtype)) return "only floating dtypes";
    if (a->groups == 1 || a->groups != s.x->dim[3]) return "not depthwise";
    if (mg_shape_count(s.x) == 0 || mg_shape_count(s.w) == 0 || mg_shape_count(s.y) == 0)
        return "empty";
    if (!is_small(s.x) || !is_small(s.y) || s.w->dim[0] * s.w->dim[1] * s.w->dim[3] > LARGEST_ROW)
        return "too large an image";
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i] > LARGEST || a->strides.v[i % 2] > LARGEST ||
            a->dilations.v[i % 2] > LARGEST)
            return "too large an image";
    return NULL;
}

/* The three forms are accepted by the same rules. */
static const char *accepts_forward(const mg_kernel_plan *plan) {
    return refusal(plan, of_forward(plan));
}

static const char *accepts_input(const mg_kernel_plan *plan) {
    return refusal(plan, of_input(plan));
}

static const char *accepts_weight(const mg_kernel_plan *plan) {
    return refusal(plan, of_weight(plan));
}

/* The plan's state with its parameters filled in, or NULL without memory. */
static state *new_state(mg_kernel_plan *plan, shapes s) {
    const mg_conv_attrs *a = plan->step->attrs;
    state *made = plan->state = mg_alloc_zero(sizeof *made);
    if (!made) return NULL;
    made->p = (depth_params){.n = s.x->dim[0],
                             .h = (int)s.x->dim[1],
                             .wide = (int)s.x->dim[2],
                             .oh = (int)s.y->dim[1],
                             .ow = (int)s.y->dim[2],
                             .k = (int)s.y->dim[3],
                             .each = (int)(s.y->dim[3] / s.x->dim[3]),
                             .kh = (int)s.w->dim[0],
                             .kw = (int)s.w->dim[1],
                             .down = (int)a->strides.v[0],
                             .across = (int)a->strides.v[1],
                             .spread_y = (int)a->dilations.v[0],
                             .spread_x = (int)a->dilations.v[1],
                             .top = (int)a->pads.v[0],
                             .left = (int)a->pads.v[2],
                             .relu = (int)a->relu};
    return made;
}

/* ---- forward, and the gradient of the image ---- */

/* `kind` is the kernel's name without a suffix. */
static mg_status prepare_rows(mg_kernel_plan *plan, shapes s, const char *kind) {
    const mg_dtype t = plan->out[0].value->dtype;
    char name[32];
    state *made = new_state(plan, s);
    if (!made) return MG_OOM;
    made->rows = out(plan)->dim[0] * out(plan)->dim[1];
    snprintf(name, sizeof name, "%s_vector", kind);
    if (made->p.each == 1 && made->p.k % VECTOR == 0)
        MG_TRY(mg_cuda_find_typed(plan->device, name, t, &made->vector));
    return mg_cuda_find_typed(plan->device, kind, t, &made->one);
}

static mg_status prepare_forward(mg_kernel_plan *plan) {
    return prepare_rows(plan, of_forward(plan), "depth");
}

static mg_status prepare_input(mg_kernel_plan *plan) {
    return prepare_rows(plan, of_input(plan), "depth_input");
}

/* Uses vectors if all addresses are aligned to them. A block loops over rows if there are very
 * many. */
static mg_status launch_rows(const mg_call *call, const void *image, depth_params p) {
    const state *s = call->plan->state;
    const mg_device *d = call->plan->device;
    const size_t bytes = VECTOR * mg_dtype_size(call->plan->out[0].value->dtype);
    const uintptr_t all = (uintptr_t)image | (uintptr_t)p.w | (uintptr_t)p.out;
    const bool vector = s->vector && all % (bytes < 16 ? bytes : 16) == 0;
    const int64_t most = 32LL * mg_cuda_of(d)->multiprocessors;
    if (vector) p.k /= VECTOR;
    return mg_cuda_launch(d, vector ? s->vector : s->one, s->rows < most ? s->rows : most, THREADS,
                          0, &p);
}

static mg_status run_forward(const mg_call *call) {
    depth_params p = ((const state *)call->plan->state)->p;
    p.x = call->in[0];
    p.w = call->in[1];
    p.bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    p.out = call->out[0];
    return launch_rows(call, p.x, p);
}

/* The gradient of the image reads dy, aligned like the image in the other forms. */
static mg_status run_input(const mg_call *call) {
    depth_params p = ((const state *)call->plan->state)->p;
    p.dy = call->in[0];
    p.w = call->in[1];
    p.out = call->out[0];
    return launch_rows(call, p.dy, p);
}

/* ---- the gradient of the weights ---- */

/* Blocks that share a chunk: they divide the kernel's taps and the channels among them. */
static int64_t blocks_of_chunk(const depth_params *p) {
    const int64_t taps = (int64_t)p->kh * p->kw;
    return (taps + MG_DEPTH_TAPS - 1) / MG_DEPTH_TAPS * ((p->k + p->width - 1) / p->width);
}

/* As many chunks as fill the GPU, if each has enough pixels. */
static mg_status prepare_weight(mg_kernel_plan *plan) {
    const mg_value *w = plan->out[0].value;
    state *s = new_state(plan, of_weight(plan));
    if (!s) return MG_OOM;
    depth_params *p = &s->p;
    p->width = mg_cuda_column_width(p->k);
    const int64_t rows = p->n * p->oh, least = (LEAST_PIXELS + p->ow - 1) / p->ow;
    const int64_t wanted = 4LL * mg_cuda_of(plan->device)->multiprocessors / blocks_of_chunk(p);
    const int64_t chunks = wanted < rows / least ? wanted : rows / least;
    p->chunks = chunks < 1 ? 1 : (int)chunks;
    plan->scratch = mg_cuda_partial_sums_bytes(w->dtype, p->chunks, mg_shape_count(&w->shape));
    MG_TRY(mg_cuda_find_partial_sums(plan->device, w->dtype, &s->add));
    return mg_cuda_find_typed(plan->device, "depth_weight", w->dtype, &s->one);
}

/* Partial sums to scratch, then their total. */
static mg_status run_weight(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_device *d = call->plan->device;
    depth_params p = s->p;
    p.x = call->in[0];
    p.dy = call->in[1];
    p.out = call->scratch;
    MG_TRY(mg_cuda_launch(d, s->one, blocks_of_chunk(&p) * p.chunks, THREADS, 0, &p));
    return mg_cuda_add_partial_sums(d, s->add, call->scratch, p.chunks, call->out[0],
                                    mg_shape_count(out(call->plan)));
}

#define DEPTH(op_name, part)                                                                       \
    const mg_kernel mg_cuda_depth_##op_name = {.op = #op_name,                                     \
                                               .name = "depthwise",                                \
                                               .accepts = accepts_##part,                          \
                                               .prepare = prepare_##part,                          \
                                               .run = run_##part,                                  \
                                               .release = mg_free}
DEPTH(conv2d, forward);
DEPTH(conv2d_grad_input, input);
DEPTH(conv2d_grad_weight, weight);

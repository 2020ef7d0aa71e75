/* Convolutions of few input channels, such as a network's first layer, and their weight gradients.
 *
 * A block loads a patch of the image and the kernels into shared memory and computes a tile of the
 * result from them; with up to 4 channels a library's matrix units would mostly multiply padding. A
 * slice is a group of output channels that one block handles. For the weight gradient each block
 * sums over some tiles, and a second kernel adds up the partial sums. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/product_params.h"
#include "device/cuda/launchers/launchers.h"
#include "ops/attrs.h"

enum {
    MOST_CHANNELS = 4,
    MOST_TAPS = 64,          /* products per result; for longer sums a library is faster */
    MOST_KERNELS = 64,       /* output channels of a block */
    MOST_COLUMNS = 64,       /* of a tile */
    SHARED_BYTES = 48 << 10, /* shared memory that every GPU gives a block */
    LARGEST = 1 << 20,       /* size, stride or pad: kernels compute with ints */
    EACH_WEIGHT = 3,         /* blocks of a weight gradient that fit a multiprocessor's registers */
};

typedef struct state {
    CUfunction function, add; /* add: adds up the partial sums of a weight gradient */
    direct_params p;          /* without the addresses */
    int64_t blocks;           /* a multiple of the slices */
    int threads, shared;      /* of a block; shared memory in bytes */
} state;

/* For sizes that are known to fit an int after clamping. */
static int at_most(int64_t wanted, int64_t limit) {
    return (int)(wanted < limit ? wanted : limit);
}

/* The size of a piece when n is divided into equal pieces of at most `piece`. */
static int even_piece(int n, int piece) {
    const int pieces = (n + piece - 1) / piece;
    return (n + pieces - 1) / pieces;
}

/* Whether positions in the image fit an int. */
static bool is_small(const mg_shape *s) {
    for (int i = 1; i < 4; i++)
        if (s->dim[i] > LARGEST) return false;
    return true;
}

/* Sets the size of the image patch that a tile needs, and returns its number of elements; at least
 * SHARED_BYTES, which is too many, if it is huge. */
static int64_t size_patch(direct_params *p) {
    const int64_t rows = (p->rows - 1LL) * p->down + (p->kh - 1LL) * p->spread_y + 1;
    const int64_t run = ((p->columns - 1LL) * p->across + (p->kw - 1LL) * p->spread_x + 1) * p->c;
    p->patch_rows = at_most(rows, INT32_MAX);
    p->patch_run = at_most(run, INT32_MAX);
    return rows > SHARED_BYTES || run > SHARED_BYTES ? SHARED_BYTES : rows * run;
}

/* Chooses the largest tile that a block has threads for and whose patch fits in `room` elements.
 * False if even a single result does not fit. */
static bool choose_tile(direct_params *p, int64_t room) {
    const int vectors = p->kernels / MG_DIRECT_VECTOR;
    p->columns = even_piece(p->ow, MOST_COLUMNS);
    const int rows = MG_DIRECT_THREADS * MG_DIRECT_PIXELS / (p->columns * vectors);
    p->rows = even_piece(p->oh, rows < 1 ? 1 : rows);
    while (size_patch(p) > room) {
        if (p->rows > 1)
            p->rows = (p->rows + 1) / 2;
        else if (p->columns > 1)
            p->columns = (p->columns + 1) / 2;
        else
            return false;
    }
    p->bands = (p->oh + p->rows - 1) / p->rows;
    p->strips = (p->ow + p->columns - 1) / p->columns;
    return true;
}

/* Bytes of the type that kernels compute in. */
static size_t computed_size(mg_dtype t) {
    return t == MG_F64 ? sizeof(double) : sizeof(float);
}

/* Fills *p for the shapes of image, kernel and result. Returns NULL, or why that is refused. */
static const char *fill_params(const mg_conv_attrs *a, mg_dtype t, const mg_shape *x,
                               const mg_shape *w, const mg_shape *y, direct_params *p) {
    const int64_t *down = a->strides.v, *spread = a->dilations.v, *pads = a->pads.v;
    if (!mg_dtype_is_float(t)) return "only floating dtypes";
    if (a->groups != 1 || w->dim[2] > MOST_CHANNELS) return "more than 4 input channels, or groups";
    if (mg_shape_count(x) == 0 || mg_shape_count(w) == 0 || mg_shape_count(y) == 0) return "empty";
    if (!is_small(x) || !is_small(w) || !is_small(y) || down[0] > LARGEST || down[1] > LARGEST ||
        spread[0] > LARGEST || spread[1] > LARGEST)
        return "too large an image";
    for (int i = 0; i < 4; i++)
        if (pads[i] > LARGEST) return "too large an image";
    const int64_t taps = w->dim[0] * w->dim[1] * w->dim[2];
    if (taps > MOST_TAPS) return "large kernel";
    *p = (direct_params){.h = (int)x->dim[1],
                         .wide = (int)x->dim[2],
                         .c = (int)x->dim[3],
                         .oh = (int)y->dim[1],
                         .ow = (int)y->dim[2],
                         .k = (int)y->dim[3],
                         .kh = (int)w->dim[0],
                         .kw = (int)w->dim[1],
                         .down = (int)down[0],
                         .across = (int)down[1],
                         .spread_y = (int)spread[0],
                         .spread_x = (int)spread[1],
                         .top = (int)pads[0],
                         .left = (int)pads[2],
                         .relu = (int)a->relu};
    const int whole = (p->k + MG_DIRECT_VECTOR - 1) / MG_DIRECT_VECTOR;
    p->kernels = even_piece(whole, MOST_KERNELS / MG_DIRECT_VECTOR) * MG_DIRECT_VECTOR;
    p->slices = (p->k + p->kernels - 1) / p->kernels;
    if (!choose_tile(p, SHARED_BYTES / (int64_t)computed_size(t) - taps * p->kernels))
        return "strides or dilations too large";
    p->tiles = x->dim[0] * p->bands * p->strips;
    return NULL;
}

static const mg_shape *shape(const mg_port *port) {
    return &port->value->shape;
}

/* The same for a step: conv2d or, with `gradient`, conv2d_grad_weight. */
static const char *plan_params(const mg_kernel_plan *plan, bool gradient, direct_params *p) {
    const mg_port *w = gradient ? plan->out : plan->in + 1,
                  *y = gradient ? plan->in + 1 : plan->out;
    return fill_params(plan->step->attrs, plan->out[0].value->dtype, shape(plan->in), shape(w),
                       shape(y), p);
}

/* The parameters are computed and dropped: only the reason for a refusal is needed here. */
static const char *accepts_direct(const mg_kernel_plan *plan) {
    direct_params p;
    return plan_params(plan, false, &p);
}

static const char *accepts_gradient(const mg_kernel_plan *plan) {
    direct_params p;
    return plan_params(plan, true, &p);
}

/* Blocks per slice: as many as the GPU runs at once with `each` per multiprocessor, and not more
 * than there are tiles. */
static int64_t blocks_per_slice(const mg_kernel_plan *plan, const direct_params *p, int each) {
    const int64_t most_blocks = (int64_t)each * mg_cuda_of(plan->device)->multiprocessors;
    const int64_t wanted = most_blocks / p->slices;
    return p->tiles < wanted ? p->tiles : wanted < 1 ? 1 : wanted;
}

/* Each thread computes MG_DIRECT_PIXELS results for a vector of output channels. */
static mg_status prepare_direct(mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    direct_params *p = &s->p;
    plan_params(plan, false, p);
    const int vectors = p->kernels / MG_DIRECT_VECTOR;
    const int pixels = (p->rows * p->columns + MG_DIRECT_PIXELS - 1) / MG_DIRECT_PIXELS;
    s->threads = at_most((pixels * vectors + 31) / 32 * 32, MG_DIRECT_THREADS);
    s->blocks = blocks_per_slice(plan, p, 16) * p->slices;
    s->shared =
        (p->kh * p->kw * p->c * p->kernels + p->patch_rows * p->patch_run) * (int)computed_size(t);
    return mg_cuda_find_typed(plan->device, "direct_conv", t, &s->function);
}

/* The threads of a block divide the taps and output channels, and what is left of them, the
 * lanes, divides the pixels. Shared memory first holds patches and then the sums of the lanes. */
static mg_status prepare_gradient(mg_kernel_plan *plan) {
    const mg_value *w = plan->out[0].value;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    direct_params *p = &s->p;
    plan_params(plan, true, p);
    const int taps = p->kh * p->kw * p->c;
    const int groups = (taps + MG_DIRECT_TAPS - 1) / MG_DIRECT_TAPS;
    const int cells = MG_DIRECT_THREADS * MG_DIRECT_VECTOR * MG_DIRECT_TOGETHER;
    const int patch = p->patch_rows * p->patch_run;
    p->lanes = MG_DIRECT_THREADS / (p->kernels / MG_DIRECT_VECTOR * groups);
    s->threads = MG_DIRECT_THREADS;
    s->blocks = blocks_per_slice(plan, p, EACH_WEIGHT) * p->slices;
    s->shared = (patch > cells ? patch : cells) * (int)computed_size(w->dtype);
    plan->scratch =
        mg_cuda_partial_sums_bytes(w->dtype, s->blocks / p->slices, mg_shape_count(&w->shape));
    MG_TRY(mg_cuda_find_partial_sums(plan->device, w->dtype, &s->add));
    return mg_cuda_find_typed(plan->device, "direct_weight", w->dtype, &s->function);
}

/* Whether a vector of output channels can be accessed at once at `address`. */
static bool in_vectors(const mg_kernel_plan *plan, const direct_params *p, const void *address) {
    const size_t bytes = MG_DIRECT_VECTOR * mg_dtype_size(plan->out[0].value->dtype);
    return p->k % MG_DIRECT_VECTOR == 0 && (uintptr_t)address % (bytes < 16 ? bytes : 16) == 0;
}

/* Stores go by vectors of output channels if their number and the address allow it. */
static mg_status run_direct(const mg_call *call) {
    const state *s = call->plan->state;
    direct_params p = s->p;
    p.x = call->in[0];
    p.w = call->in[1];
    p.bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    p.out = call->out[0];
    p.vector = in_vectors(call->plan, &p, p.out);
    return mg_cuda_launch(call->plan->device, s->function, s->blocks, s->threads, s->shared, &p);
}

/* Partial sums to scratch, then their total. */
static mg_status run_gradient(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_device *d = call->plan->device;
    direct_params p = s->p;
    p.x = call->in[0];
    p.dy = call->in[1];
    p.out = call->scratch;
    p.vector = in_vectors(call->plan, &p, p.dy);
    MG_TRY(mg_cuda_launch(d, s->function, s->blocks, s->threads, s->shared, &p));
    return mg_cuda_add_partial_sums(d, s->add, call->scratch, s->blocks / p.slices, call->out[0],
                                    mg_shape_count(&call->plan->out[0].value->shape));
}

const mg_kernel mg_cuda_direct_conv2d = {.op = "conv2d",
                                         .name = "few channels",
                                         .accepts = accepts_direct,
                                         .prepare = prepare_direct,
                                         .run = run_direct,
                                         .release = mg_free};
const mg_kernel mg_cuda_direct_conv2d_grad_weight = {.op = "conv2d_grad_weight",
                                                     .name = "few channels",
                                                     .accepts = accepts_gradient,
                                                     .prepare = prepare_gradient,
                                                     .run = run_gradient,
                                                     .release = mg_free};

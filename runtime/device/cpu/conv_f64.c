/* conv2d and its backward forms in float64, as matrix products whose first factor is never written
 * down.
 *
 * That factor is the matrix of windows: its rows are pixels, its columns what a kernel's window
 * holds there (taps, and the channels of each tap). Forward, the windows look at the image; for the
 * gradient of the input, they stand at the image's pixels and look at dy. The weights' gradient is
 * the transposed matrix of windows times dy. There is one product per group. mg_gemm reads the
 * matrix strip by strip through the functions below. */
#include "core/alloc.h"
#include "device/cpu/gemm.h"
#include "ops/attrs.h"

/* How the matrix of windows looks at an image. */
typedef struct windows {
    const mg_conv_attrs *attrs;
    const int64_t *grid;  /* shape of the image at whose pixels the windows stand: {N, H, W, C} */
    const int64_t *image; /* shape of the image that they look at */
    int64_t columns;      /* taps in a row of the kernel */
    int64_t depth;        /* channels of a tap, in one group */
    bool back;            /* the windows look from the image's pixels at dy */
} windows;

typedef struct pixel {
    int64_t n, y,
        x; /* where its window's first tap lies; before the stride is taken off, if back */
} pixel;

typedef struct tap {
    int64_t y, x, channel; /* from the first one on */
} tap;

/* The window of row p of the matrix. */
static pixel pixel_of(const windows *s, int64_t p) {
    const int64_t *stride = s->attrs->strides.v, *pad = s->attrs->pads.v;
    const int64_t x = p % s->grid[2], y = p / s->grid[2] % s->grid[1];
    const int64_t n = p / s->grid[2] / s->grid[1];
    if (s->back) return (pixel){n, y + pad[0], x + pad[2]};
    return (pixel){n, y * stride[0] - pad[0], x * stride[1] - pad[2]};
}

/* The tap and channel of column e of the matrix. */
static tap tap_of(const windows *s, int64_t e) {
    const int64_t *apart = s->attrs->dilations.v, t = e / s->depth;
    return (tap){t / s->columns * apart[0], t % s->columns * apart[1], e % s->depth};
}

/* Where a tap falls along one axis of the image, or -1 if that is outside or, looking back, between
 * two strides. */
static inline int64_t grid_position(int64_t from, int64_t away, int64_t size, int64_t stride,
                                    bool back) {
    const int64_t at = back ? from - away : from + away;
    if (at < 0 || (back && at % stride)) return -1;
    const int64_t place = back ? at / stride : at;
    return place < size ? place : -1;
}

/* The channels of the pixel that a tap sees, or NULL outside the image. */
static inline const double *tap_address(const windows *s, const double *image, const pixel *p,
                                        const tap *t) {
    const int64_t *stride = s->attrs->strides.v, *size = s->image;
    const int64_t y = grid_position(p->y, t->y, size[1], stride[0], s->back);
    const int64_t x = y < 0 ? -1 : grid_position(p->x, t->x, size[2], stride[1], s->back);
    return x < 0 ? NULL : image + ((p->n * size[1] + y) * size[2] + x) * size[3];
}

/* Reads rows of the matrix: lanes are pixels. The channels of a tap are contiguous. */
static void read_windows(const mg_factor *f, int64_t first, int n, int64_t from, int64_t end,
                         int width, double *to) {
    const windows *s = f->how;
    pixel p[MG_LANES];
    for (int i = 0; i < n; i++) p[i] = pixel_of(s, first + i);
    for (int64_t k = from, run; k < end; k += run, to += run * width) {
        const tap t = tap_of(s, k);
        run = s->depth - t.channel < end - k ? s->depth - t.channel : end - k;
        for (int i = 0; i < n; i++) {
            const double *at = tap_address(s, f->at, &p[i], &t);
            for (int64_t c = 0; c < run; c++) to[c * width + i] = at ? at[t.channel + c] : 0;
        }
    }
}

/* Reads rows of the transposed matrix: lanes are taps and channels, steps are pixels. */
static void read_transposed_windows(const mg_factor *f, int64_t first, int n, int64_t from,
                                    int64_t end, int width, double *to) {
    const windows *s = f->how;
    tap t[MG_LANES];
    for (int i = 0; i < n; i++) t[i] = tap_of(s, first + i);
    /* neighbouring lanes are mostly channels of one tap, whose address is looked up once */
    for (int64_t k = from; k < end; k++, to += width) {
        const pixel p = pixel_of(s, k);
        const double *at = NULL;
        for (int i = 0; i < n; i++) {
            if (i == 0 || t[i].channel == 0) at = tap_address(s, f->at, &p, &t[i]);
            to[i] = at ? at[t[i].channel] : 0;
        }
    }
}

/* Reads the weights of the input's gradient: lanes are the weights' input channels, steps are taps
 * and kernels. f->step is the number of kernels of a group. */
static void read_weights_back(const mg_factor *f, int64_t first, int n, int64_t from, int64_t end,
                              int width, double *to) {
    const int64_t *w = f->how; /* {rows, columns, channels, kernels}; f->step: kernels of a group */
    for (int64_t k = from; k < end; k++, to += width) {
        const double *at = f->at + k / f->step * w[2] * w[3] + k % f->step;
        for (int i = 0; i < n; i++) to[i] = at[(first + i) * w[3]];
    }
}

/* ---- the three products ---- */

static const int64_t *port_dims(const mg_port *port) {
    return port->value->shape.dim;
}

static int64_t pixels_of(const int64_t *image) {
    return image[0] * image[1] * image[2];
}

/* The product of one group, without addresses. The next group's operands lie `view.depth`,
 * `b_group` and n elements further on. */
typedef struct product {
    int64_t m, n, k;
    windows view;
    bool transposed; /* the matrix of windows is transposed */
    mg_factor b;
    int64_t b_group, row;
} product;

typedef product product_of(const mg_kernel_plan *plan);

/* A matrix with rows of `row` elements as the second factor. */
static mg_factor matrix_factor(int64_t row) {
    return (mg_factor){.read = mg_read_matrix, .lane = 1, .step = row};
}

/* y {pixels, kernels} = windows of x, times w. */
static product forward_product(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *x = port_dims(&plan->in[0]), *w = port_dims(&plan->in[1]),
                  *y = port_dims(&plan->out[0]);
    const int64_t kernels = w[3] / a->groups;
    return (product){.m = pixels_of(y),
                     .n = kernels,
                     .k = w[0] * w[1] * w[2],
                     .view = {a, y, x, w[1], w[2], false},
                     .b = matrix_factor(w[3]),
                     .b_group = kernels,
                     .row = w[3]};
}

/* dx {pixels, channels} = windows of dy, times w with its two channel axes exchanged. */
static product input_product(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *dy = port_dims(&plan->in[0]), *w = port_dims(&plan->in[1]),
                  *dx = port_dims(&plan->out[0]);
    const int64_t kernels = w[3] / a->groups;
    return (product){.m = pixels_of(dx),
                     .n = w[2],
                     .k = w[0] * w[1] * kernels,
                     .view = {a, dx, dy, w[1], kernels, true},
                     .b = {.read = read_weights_back, .step = kernels, .how = w},
                     .b_group = kernels,
                     .row = dx[3]};
}

/* dw {taps and channels, kernels} = transposed windows of x, times dy. */
static product weight_product(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *x = port_dims(&plan->in[0]), *dy = port_dims(&plan->in[1]),
                  *dw = port_dims(&plan->out[0]);
    const int64_t kernels = dw[3] / a->groups;
    return (product){.m = dw[0] * dw[1] * dw[2],
                     .n = kernels,
                     .k = pixels_of(dy),
                     .view = {a, dy, x, dw[1], dw[2], false},
                     .transposed = true,
                     .b = matrix_factor(dw[3]),
                     .b_group = kernels,
                     .row = dw[3]};
}

/* One product per group of channels, over the same scratch. */
static void multiply_groups(const mg_call *call, product p) {
    mg_factor a = {.read = p.transposed ? read_transposed_windows : read_windows, .how = &p.view};
    for (int64_t g = 0; g < p.view.attrs->groups; g++) {
        a.at = (const double *)call->in[0] + g * p.view.depth;
        p.b.at = (const double *)call->in[1] + g * p.b_group;
        mg_gemm(p.m, p.n, p.k, &a, &p.b, (double *)call->out[0] + g * p.n, p.row, call->scratch);
    }
}

/* ---- the kernels ---- */

/* Every convolution in float64, whatever its strides, dilations and groups. */
static const char *conv_f64_accepts(const mg_kernel_plan *plan) {
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != MG_F64) return "not float64";
    return NULL;
}

static mg_status conv_f64_prepare(mg_kernel_plan *plan, product_of *form) {
    const product p = form(plan);
    plan->scratch = mg_gemm_scratch(p.m, p.n, p.k);
    return MG_OK;
}

/* Only the forward op has a bias or relu. */
static mg_status conv_f64_run(const mg_call *call, product_of *form) {
    const product p = form(call->plan);
    const bool relu = p.view.attrs->relu;
    const double *bias = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    multiply_groups(call, p);
    if (bias || relu) mg_finish_rows(call->out[0], p.m, p.row, bias, relu);
    return MG_OK;
}

#define CONV(id, form)                                                                             \
    static mg_status form##_prepare(mg_kernel_plan *plan) {                                        \
        return conv_f64_prepare(plan, form##_product);                                             \
    }                                                                                              \
    static mg_status form##_run(const mg_call *call) {                                             \
        return conv_f64_run(call, form##_product);                                                 \
    }                                                                                              \
    const mg_kernel mg_cpu_f64_##id = {.op = #id,                                                  \
                                       .name = "float64",                                          \
                                       .accepts = conv_f64_accepts,                                \
                                       .prepare = form##_prepare,                                  \
                                       .run = form##_run}
CONV(conv2d, forward);
CONV(conv2d_grad_input, input);
CONV(conv2d_grad_weight, weight);

/* conv2d and its gradients as implicit matrix products (im2col without the matrix in memory): any
 * strides, dilations, padding and groups, in float32, float64, float16 and bfloat16.
 *
 * The first factor is the matrix of windows (conv/windows.h): a row for each window, with a column
 * for each tap and each channel of the tap. It is read from the image block by block. Forward, it
 * is multiplied by the filters; for the filters' gradient, it is transposed and multiplied by dy.
 * For the gradient of the input the windows lie in dy, and there is one product for each place
 * within a stride. Each group has separate products. */
#include "core/alloc.h"
#include "device/cpu/conv/conv.h"
#include "device/cpu/conv/windows.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/upcast.h"
#include "ops/attrs.h"
#include <string.h>

/* ---- reading windows ---- */

/* Copies elements [from, from + n) of a window, which is a row of the matrix. The window lies at
 * (y, x) of the image that begins at element `image`. Pixels outside the image are 0. */
static void read_window(const mg_factor *f, int64_t image, int64_t y, int64_t x, int64_t from,
                        int64_t n, char *to) {
    const mg_windows *w = f->how;
    const int64_t size = mg_factor_size(f);
    const int64_t end = from + n;
    for (int64_t t = from / w->depth, run; from < end; t += run) {
        const mg_tap *at = &w->tap[t];
        const int64_t row = y + at->y, column = x + at->x;
        bool inside = row >= 0 && row < w->image[1] && column < w->image[2];
        run = at->run;
        if (inside && column < 0) {
            run = run < -column ? run : -column;
            inside = false;
        } else if (inside && run > w->image[2] - column) {
            run = w->image[2] - column;
        }
        const int64_t stop = (t + run) * w->depth < end ? (t + run) * w->depth : end;
        if (inside)
            mg_read_run(f, image + (row * w->image[2] + column) * w->image[3] + from - t * w->depth,
                        stop - from, to);
        else
            memset(to, 0, (size_t)((stop - from) * size));
        to += (stop - from) * size;
        from = stop;
    }
}

static void read_windows(const mg_factor *f, int64_t row, int64_t rows, int64_t column, int64_t n,
                         void *to, int64_t to_row) {
    const mg_windows *w = f->how;
    const int64_t size = mg_factor_size(f);
    const int64_t pixels = w->image[1] * w->image[2] * w->image[3];
    int64_t j = row % w->columns, i = row / w->columns % w->lines;
    int64_t image = row / w->columns / w->lines;
    for (int64_t r = 0; r < rows; r++) {
        read_window(f, image * pixels, i * w->stride_y, j * w->stride_x, column, n,
                    (char *)to + r * to_row * size);
        if (++j < w->columns) continue;
        j = 0;
        if (++i < w->lines) continue;
        i = 0;
        image++;
    }
}

/* Reads the second factor of the input's gradient, the filters with their channel axes exchanged:
 * rows are input channels, columns the taps of the windows and the filters of the group. f->row:
 * filters of all groups. */
static void read_filters_back(const mg_factor *f, int64_t row, int64_t rows, int64_t column,
                              int64_t n, void *to, int64_t to_row) {
    const mg_windows *w = f->how;
    const int64_t size = mg_factor_size(f);
    for (int64_t r = 0; r < rows; r++) {
        char *at = (char *)to + r * to_row * size;
        for (int64_t from = column, run; from < column + n; from += run, at += run * size) {
            const int64_t t = from / w->depth, left = column + n - from;
            run = (t + 1) * w->depth - from;
            run = run < left ? run : left;
            mg_read_run(f, (w->tap[t].number * w->channels + row + r) * f->row + from % w->depth,
                        run, at);
        }
    }
}

/* ---- windows ---- */

/* Whether the matrix of windows is the image itself, as for a 1x1 convolution with stride 1 and no
 * padding. */
static bool is_plain(const mg_windows *w) {
    return w->taps == 1 && w->tap->y == 0 && w->tap->x == 0 && w->stride_y == 1 &&
           w->stride_x == 1 && w->lines == w->image[1] && w->columns == w->image[2];
}

/* ---- products ---- */

/* The product of one group; run_product sets the addresses. The operands and results of the next
 * group lie `a_group`, `b_group` and n elements further on. */
typedef struct product {
    mg_windows view;
    mg_gemm gemm;
    mg_factor a, b;
    mg_gemm_result y;
    int64_t a_group, b_group;
    size_t b_bytes; /* of a group's filters if they are packed before, otherwise 0 */
} product;

typedef struct conv_products {
    /* n: products of each group; more than one for the input's gradient with strides */
    int64_t groups, n;
    product *product;
    mg_tap *taps; /* of all products */
} conv_products;

static mg_factor windows_factor(const mg_windows *w, mg_dtype t, bool by_steps) {
    return (mg_factor){.read = is_plain(w) ? mg_read_matrix : read_windows,
                       .dtype = t,
                       .by_steps = by_steps,
                       .row = w->image[3],
                       .how = w};
}

/* y {pixels, filters} = windows of x, times w. For the weights' gradient: dw {taps and channels,
 * filters} = transposed windows of x, times dy. */
static void forward_product(product *p, const mg_kernel_plan *plan, bool of_weights) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *x = mg_dims(&plan->in[0]);
    const int64_t *w = mg_dims(of_weights ? &plan->out[0] : &plan->in[1]);
    const int64_t *y = mg_dims(of_weights ? &plan->in[1] : &plan->out[0]);
    const int64_t pixels = y[0] * y[1] * y[2], k = w[3] / a->groups;
    const mg_dtype t = plan->out[0].value->dtype;
    mg_look_forward(&p->view, a, x, y, w);
    const int64_t terms = p->view.taps * w[2];
    p->gemm = of_weights ? mg_gemm_plan(terms, k, pixels, t) : mg_gemm_plan(pixels, k, terms, t);
    p->a = windows_factor(&p->view, t, of_weights);
    p->b = (mg_factor){.read = mg_read_matrix, .dtype = t, .by_steps = true, .row = w[3]};
    p->y = mg_gemm_matrix(p->gemm.m, w[3], t);
    p->y.relu = a->relu && !of_weights;
    p->a_group = w[2], p->b_group = k;
}

/* dx {pixels, channels} = windows of dy, times w with its two channel axes exchanged, for the
 * pixels of one place within a stride. */
static void input_product(product *p, const mg_kernel_plan *plan, int64_t place) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *dy = mg_dims(&plan->in[0]), *w = mg_dims(&plan->in[1]);
    const int64_t *dx = mg_dims(&plan->out[0]), k = w[3] / a->groups;
    const mg_dtype t = plan->out[0].value->dtype;
    mg_look_back(&p->view, a, dy, dx, w, place);
    p->gemm = mg_gemm_plan(dx[0] * p->view.lines * p->view.columns, w[2], p->view.taps * k, t);
    p->a = windows_factor(&p->view, t, false);
    p->b = (mg_factor){.read = read_filters_back, .dtype = t, .row = w[3], .how = &p->view};
    p->y = (mg_gemm_result){.dtype = t,
                            .columns = p->view.columns,
                            .lines = p->view.lines,
                            .pixel = p->view.pixel,
                            .line = p->view.line,
                            .image = dx[1] * dx[2] * dx[3]};
    if (p->view.lines * p->view.columns == dx[1] * dx[2]) /* all pixels */
        p->y = mg_gemm_matrix(p->gemm.m, dx[3], t);
    p->a_group = k, p->b_group = k;
}

/* ---- the kernels ---- */

/* Whether a step in float16 or bfloat16 is faster if it is upcast to float32 (upcast.c), for one of
 * these kernels. */
static bool is_faster_upcast(const mg_kernel_plan *plan) {
    static const mg_kernel *const faster[] = {&mg_cpu_winograd_images_conv2d,
                                              &mg_cpu_winograd_images_conv2d_grad_input,
                                              &mg_cpu_winograd_images_conv2d_grad_weight,
                                              &mg_cpu_winograd_conv2d,
                                              &mg_cpu_winograd_conv2d_grad_input,
                                              &mg_cpu_winograd_conv2d_grad_weight,
                                              &mg_cpu_direct_conv2d,
                                              &mg_cpu_direct_conv2d_grad_weight,
                                              &mg_cpu_depthwise_conv2d,
                                              &mg_cpu_depthwise_conv2d_grad_input,
                                              &mg_cpu_depthwise_conv2d_grad_weight,
                                              &mg_cpu_small_conv2d,
                                              &mg_cpu_small_conv2d_grad_input,
                                              &mg_cpu_small_conv2d_grad_weight};
    for (size_t i = 0; i < sizeof faster / sizeof *faster; i++)
        if (strcmp(faster[i]->op, plan->step->op->name) == 0 &&
            mg_cpu_upcast_suits(plan, faster[i]))
            return true;
    return false;
}

static const char *product_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->out[0].value->dtype;
    for (int i = 0; i < plan->step->n_in; i++)
        if (plan->in[i].value->dtype != t) return "dtypes differ";
    if (!mg_dtype_is_float(t)) return "not floating point";
    if (mg_dtype_is_half(t) && is_faster_upcast(plan)) return "faster in float32";
    return NULL;
}

/* Allocates the state: a product for each of `places` places. `filters`: the filters' shape. */
static mg_status new_products(mg_kernel_plan *plan, const int64_t *filters, int64_t places) {
    conv_products *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    const size_t taps = (size_t)(filters[0] * filters[1]);
    s->groups = ((const mg_conv_attrs *)plan->step->attrs)->groups;
    s->product = mg_alloc_zero((size_t)places * sizeof *s->product);
    s->taps = mg_alloc_zero((size_t)places * taps * sizeof *s->taps);
    if (!s->product || !s->taps) return MG_OOM;
    for (int64_t i = 0; i < places; i++) s->product[i].view.tap = s->taps + i * (int64_t)taps;
    s->n = places;
    return MG_OK;
}

/* The products run one after the other, in the same scratch. */
static void ask_for_scratch(mg_kernel_plan *plan) {
    const conv_products *s = plan->state;
    for (int64_t i = 0; i < s->n; i++)
        if (plan->scratch < s->product[i].gemm.scratch) plan->scratch = s->product[i].gemm.scratch;
}

static mg_status conv2d_prepare(mg_kernel_plan *plan) {
    MG_TRY(new_products(plan, mg_dims(&plan->in[1]), 1));
    forward_product(((conv_products *)plan->state)->product, plan, false);
    ask_for_scratch(plan);
    return MG_OK;
}

/* ---- filters that stay the same ---- */

static mg_status pack_filters(const mg_call *call) {
    const conv_products *s = call->plan->state;
    const product *p = s->product;
    for (int64_t g = 0; g < s->groups; g++) {
        mg_factor b = p->b;
        b.at = (const float *)call->in[0] + g * p->b_group;
        mg_gemm_pack(&p->gemm, &b, (char *)call->out[0] + g * (int64_t)p->b_bytes, call->scratch);
    }
    return MG_OK;
}

static const mg_kernel filter_packer = {.name = "pack for matrix product", .run = pack_filters};

static const char *packed_accepts(const mg_kernel_plan *plan) {
    if (!plan->in[1].fixed) return "the filters are not fixed";
    if (!mg_all_f32(plan)) return "not float32";
    if (mg_count(&plan->in[0]) == 0 || mg_count(&plan->in[1]) == 0 || mg_count(&plan->out[0]) == 0)
        return "empty";
    return NULL;
}

static mg_status packed_conv2d_prepare(mg_kernel_plan *plan) {
    MG_TRY(new_products(plan, mg_dims(&plan->in[1]), 1));
    const conv_products *s = plan->state;
    product *p = s->product;
    forward_product(p, plan, false);
    p->gemm = mg_gemm_plan_packed(p->gemm.m, p->gemm.n, p->gemm.k);
    p->b_bytes = mg_gemm_packed_bytes(&p->gemm);
    ask_for_scratch(plan);
    plan->packer = &filter_packer;
    plan->packed = 1;
    plan->packed_bytes = (size_t)s->groups * p->b_bytes;
    plan->packer_scratch = mg_gemm_packing_scratch(&p->gemm);
    return MG_OK;
}

static mg_status conv2d_grad_weight_prepare(mg_kernel_plan *plan) {
    MG_TRY(new_products(plan, mg_dims(&plan->out[0]), 1));
    forward_product(((conv_products *)plan->state)->product, plan, true);
    ask_for_scratch(plan);
    return MG_OK;
}

static mg_status conv2d_grad_input_prepare(mg_kernel_plan *plan) {
    const int64_t places = mg_look_back_places(plan->step->attrs, mg_dims(&plan->out[0]));
    MG_TRY(new_products(plan, mg_dims(&plan->in[1]), places));
    product *p = ((conv_products *)plan->state)->product;
    for (int64_t place = 0; place < places; place++) input_product(p + place, plan, place);
    ask_for_scratch(plan);
    return MG_OK;
}

static void run_product(const mg_call *call, const product *p, int64_t group) {
    const int64_t size = (int64_t)mg_dtype_size(p->y.dtype), n = p->gemm.n;
    mg_factor a = p->a, b = p->b;
    mg_gemm_result y = p->y;
    a.at = (const char *)call->in[0] + group * p->a_group * size;
    b.at = (const char *)call->in[1] +
           (p->b_bytes ? group * (int64_t)p->b_bytes : group * p->b_group * size);
    y.at = (char *)call->out[0] + (p->view.first + group * n) * size;
    if (call->plan->step->n_in == 3) y.bias = (const char *)call->in[2] + group * n * size;
    mg_gemm_run(&p->gemm, &a, &b, &y, call->scratch);
}

static mg_status product_run(const mg_call *call) {
    const conv_products *s = call->plan->state;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t g = 0; g < s->groups; g++) run_product(call, &s->product[i], g);
    return MG_OK;
}

/* Also after a prepare that failed half-way. */
static void product_release(void *state) {
    conv_products *s = state;
    if (!s) return;
    mg_free(s->product);
    mg_free(s->taps);
    mg_free(s);
}

#define CONV(id)                                                                                   \
    const mg_kernel mg_cpu_##id = {.op = #id,                                                      \
                                   .name = "matrix product",                                       \
                                   .accepts = product_accepts,                                     \
                                   .prepare = id##_prepare,                                        \
                                   .run = product_run,                                             \
                                   .release = product_release}
CONV(conv2d);
CONV(conv2d_grad_input);
CONV(conv2d_grad_weight);
const mg_kernel mg_cpu_packed_conv2d = {.op = "conv2d",
                                        .name = "packed matrix product",
                                        .accepts = packed_accepts,
                                        .prepare = packed_conv2d_prepare,
                                        .run = product_run,
                                        .release = product_release};

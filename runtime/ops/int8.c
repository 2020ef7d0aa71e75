/* 2-D convolution with 8-bit weights, which computes with 8-bit integers: for prediction.
 *
 * x {N, H, W, C} is rounded to codes 0 .. 255, products of codes and weights are added up in int32,
 * and the sum is scaled to float32 again; bias and activation follow. int8_formulas.h has the
 * formulas. Sums of integers are exact, so kernels, instruction sets and numbers of threads do not
 * matter: all give equal bits.
 *
 * Tensors have no dtype int8: the weights are bytes of two's complement in uint8, in the order in
 * which kernels read them (mg_int8_layout). With `range` = {steps, zero} all of x has one scale.
 * With an empty range, for windows of one pixel, each has its own scale, from its largest
 * magnitude, as in Keras's quantized Dense.
 *
 * A number of x that is not finite makes the results of its image NaN. There is no gradient. */
#include "ops/int8_formulas.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include "ops/window.h"

static const char *const activations[] = {"linear", "relu", "relu6", NULL};

static const mg_attr int8_attrs[] = {
    {"size", MG_ATTR_INTS, offsetof(mg_int8_attrs, size), 0, NULL,
     "{rows, columns} of the filters; default {1, 1}"},
    {"strides", MG_ATTR_INTS, offsetof(mg_int8_attrs, strides), 0, NULL, "{rows, columns}"},
    {"pads", MG_ATTR_INTS, offsetof(mg_int8_attrs, pads), 0, NULL,
     "cells of 0 around the image: {top, bottom, left, right}"},
    {"dilations", MG_ATTR_INTS, offsetof(mg_int8_attrs, dilations), 0, NULL,
     "{rows, columns} between the filter's cells"},
    {"activation", MG_ATTR_CHOICE, offsetof(mg_int8_attrs, activation), 0, activations,
     "\"linear\", \"relu\" or \"relu6\""},
};

/* ---- inference ---- */

static mg_status check_dtypes(const mg_infer *f) {
    for (int i = 0; i < f->n_inputs; i++) {
        const mg_dtype t = f->inputs[i]->dtype, wanted = i == 1 ? MG_U8 : MG_F32;
        if (t != wanted)
            return mg_infer_fail(f, MG_USAGE, "input %d must be %s, got %s", i + 1,
                                 mg_dtype_name(wanted), mg_dtype_name(t));
    }
    return MG_OK;
}

/* The kernel must have the layout that follows from the attributes. */
static mg_status check_kernel(const mg_infer *f, const mg_shape *x) {
    const mg_int8_layout l = mg_int8_layout_of(f->attrs, x->dim[3]);
    const mg_shape *w = mg_infer_shape(f, 1), wanted = MG_SHAPE(l.runs, l.quads, w->dim[2], 4);
    if (l.runs * l.run > MG_INT8_DEPTH)
        return mg_infer_fail(f, MG_USAGE,
                             "a filter has %lld weights, the sum of at most %d products fits into "
                             "32 bits",
                             (long long)(l.runs * l.run), MG_INT8_DEPTH);
    if (mg_shape_equal(w, &wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "the kernel has shape %s, images %s need %s",
                         MG_SHAPE_TEXT(w), MG_SHAPE_TEXT(x), MG_SHAPE_TEXT(&wanted));
}

static mg_status check_vector(const mg_infer *f, int i, int64_t n, const char *name) {
    const mg_shape *s = mg_infer_shape(f, i);
    if (s->rank == 1 && s->dim[0] == n) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "%s must have shape {%lld}, got %s", name, (long long)n,
                         MG_SHAPE_TEXT(s));
}

/* With an empty range, the results are those of a product of each pixel. */
static mg_status check_range(const mg_infer *f) {
    const mg_int8_attrs *a = f->attrs;
    const mg_shape *range = mg_infer_shape(f, 4);
    if (range->rank != 1 || range->dim[0] != 0) return check_vector(f, 4, 2, "range");
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i] || a->size.v[i % 2] != 1 || a->strides.v[i % 2] != 1)
            return mg_infer_fail(f, MG_USAGE,
                                 "needs a range {steps, zero}, but for windows of one pixel with "
                                 "strides of 1");
    return MG_OK;
}

static mg_status int8_infer(mg_infer *f) {
    mg_int8_attrs *a = f->attrs;
    const mg_shape *x = mg_infer_shape(f, 0);
    MG_TRY(check_dtypes(f));
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    MG_TRY(mg_infer_rank(f, 1, 4, "runs, quads, filters, 4"));
    MG_TRY(mg_window_list(f, &a->size, 2, 1, 1, "size"));
    MG_TRY(mg_window_list(f, &a->strides, 2, 1, 1, "strides"));
    MG_TRY(mg_window_list(f, &a->dilations, 2, 1, 1, "dilations"));
    MG_TRY(mg_window_list(f, &a->pads, 4, 0, 0, "pads"));
    const int64_t filters = mg_infer_shape(f, 1)->dim[2];
    f->dtype = MG_F32;
    f->shape = MG_SHAPE(x->dim[0], 0, 0, filters);
    for (int axis = 0; axis < 2; axis++) {
        const mg_window w =
            mg_window_along(axis, x, a->size.v[axis], &a->strides, &a->pads, &a->dilations);
        MG_TRY(mg_window_outputs(f, &w, axis, &f->shape.dim[1 + axis]));
    }
    MG_TRY(check_kernel(f, x));
    MG_TRY(check_vector(f, 2, filters, "scale"));
    MG_TRY(check_vector(f, 3, filters, "bias"));
    return check_range(f);
}

/* ---- the reference kernel ---- */

typedef struct window { /* one window of an image */
    const mg_ref *r;
    mg_window along[2];
    mg_int8_layout layout;
    const double *image;
    int64_t at[2];
    float steps;
    int32_t zero;
} window;

/* (code - zero) * weight of filter k, added up over the channels of one cell. */
static int32_t sum_cell(const window *w, int64_t ky, int64_t kx, int64_t k) {
    const mg_shape *x = &w->r->in_shape[0], *kernel = &w->r->in_shape[1];
    const int64_t channels = x->dim[3], columns = w->along[1].size;
    const int64_t y = mg_window_cell(&w->along[0], w->at[0], ky);
    const int64_t column = mg_window_cell(&w->along[1], w->at[1], kx);
    const bool whole = w->layout.runs == w->along[0].size;
    const int64_t run = whole ? ky : ky * columns + kx;
    const double *pixel = w->image + (y * x->dim[2] + column) * channels;
    int32_t sum = 0;
    if (y < 0 || column < 0) return 0; /* zeros around the image */
    for (int64_t c = 0; c < channels; c++) {
        const int64_t t = whole ? kx * channels + c : c;
        const int64_t place = ((run * kernel->dim[1] + t / 4) * kernel->dim[2] + k) * 4 + t % 4;
        const int32_t code = mg_int8_code((float)pixel[c], w->steps, (float)w->zero);
        sum += (code - w->zero) * (int8_t)(uint8_t)w->r->in[1][place];
    }
    return sum;
}

/* Sets steps and zero of an image; false: it has a number that is not finite. */
static bool find_scale(window *w, int64_t pixels) {
    const mg_ref *r = w->r;
    double largest = 0;
    for (int64_t i = 0; i < pixels * r->in_shape[0].dim[3]; i++) {
        if (!isfinite(w->image[i])) return false;
        largest = fmax(largest, fabs(w->image[i]));
    }
    w->steps = r->in_shape[4].dim[0] ? (float)r->in[4][0] : mg_int8_row_steps((float)largest);
    w->zero = r->in_shape[4].dim[0] ? mg_int8_zero((float)r->in[4][1]) : 128;
    return true;
}

/* All filters of one window. */
static void compute_window(const window *w, bool finite, double *y) {
    const mg_ref *r = w->r;
    const mg_int8_attrs *a = r->attrs;
    for (int64_t k = 0; k < r->shape.dim[3]; k++) {
        int32_t sum = 0;
        for (int64_t ky = 0; finite && ky < w->along[0].size; ky++)
            for (int64_t kx = 0; kx < w->along[1].size; kx++) sum += sum_cell(w, ky, kx, k);
        const float factor = 1.0f / (float)r->in[2][k] * (1.0f / w->steps);
        y[k] = finite ? mg_int8_result(sum, factor, (float)r->in[3][k], a->activation) : NAN;
    }
}

static void int8_ref(const mg_ref *r) {
    const mg_int8_attrs *a = r->attrs;
    const mg_shape *x = &r->in_shape[0], *y = &r->shape;
    const int64_t pixels = x->dim[1] * x->dim[2], channels = x->dim[3];
    const bool dynamic = r->in_shape[4].dim[0] == 0;
    window w = {.r = r, .layout = mg_int8_layout_of(a, channels), .steps = 1};
    for (int axis = 0; axis < 2; axis++)
        w.along[axis] =
            mg_window_along(axis, x, a->size.v[axis], &a->strides, &a->pads, &a->dilations);
    for (int64_t n = 0; n < y->dim[0]; n++) {
        bool finite = true;
        for (int64_t o = 0; o < y->dim[1] * y->dim[2]; o++) {
            const double *image = r->in[0] + n * pixels * channels;
            w.at[0] = o / y->dim[2], w.at[1] = o % y->dim[2];
            w.image = image;
            if (dynamic) {
                window one = w; /* the pixel as an image */
                one.image += o * channels;
                finite = find_scale(&one, 1);
                w.steps = one.steps, w.zero = one.zero;
            } else if (o == 0) {
                finite = find_scale(&w, pixels);
            }
            compute_window(&w, finite, r->out + (n * y->dim[1] * y->dim[2] + o) * y->dim[3]);
        }
    }
}

static bool int8_split(mg_split *s) {
    return mg_split_rows(s, 1, 0);
}

/* ---- the op table ---- */

static const mg_op int8_rows[] = {
    {.name = "conv2d_int8",
     .doc = "convolution of x {n, h, w, c} with 8-bit weights {runs, quads, filters, 4}, scale and "
            "bias {filters}, and range {2} or {0} of x; not differentiable",
     .example = "local x = mgpu.tensor { { { { 1, 2, 3, 4 } } } }\n"
                "local kernel = mgpu.tensor({ { { { 1, 2, 3, 255 } } } }, { dtype = \"uint8\" })\n"
                "-- 4 weights 1, 2, 3, -1 of one filter, 10 codes for 1\n"
                "print(x:conv2d_int8(kernel, mgpu.tensor { 1 }, mgpu.tensor { 0.5 },\n"
                "  mgpu.tensor { 10, 0 }):item())  --> 10.5",
     .min_inputs = 5,
     .max_inputs = 5,
     MG_ATTRS(mg_int8_attrs, int8_attrs),
     .infer = int8_infer,
     .split = int8_split,
     .ref = int8_ref},
};

const mg_op_family mg_ops_int8 = {"int8", int8_rows, sizeof int8_rows / sizeof *int8_rows};

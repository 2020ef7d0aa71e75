/* The arithmetic of the fake cuDNN: convolutions in plain loops, with sums in double.
 *
 * The three forms of a convolution (forward, gradient of the image, gradient of the filter) go
 * through the same triples of elements of x, w and y. The form only decides which two are
 * multiplied, and which of the three collects the sum. */
#include "cudnn_compute.h"
#include "fake_cuda.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements ---- */

/* Bytes of an element. read_tensor takes float, half and bfloat16 only. */
static size_t size_of(cudnnDataType_t type) {
    return type == CUDNN_DATA_FLOAT ? 4 : 2;
}

/* 16-bit floats: half by the compiler's _Float16, bfloat16 as the upper half of a float. */
static double load(const tensor *t, int64_t i) {
    uint32_t bits;
    float v;
    if (t->type == CUDNN_DATA_FLOAT) return ((const float *)t->at)[i];
    if (t->type == CUDNN_DATA_HALF) return (double)((const _Float16 *)t->at)[i];
    bits = (uint32_t)((const uint16_t *)t->at)[i] << 16;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Rounded to nearest, ties to even; NaN stays NaN. */
static void store(const tensor *t, int64_t i, double value) {
    void *to = (void *)(uintptr_t)t->at;
    const float v = (float)value;
    uint32_t bits;
    if (t->type == CUDNN_DATA_FLOAT) {
        ((float *)to)[i] = v;
    } else if (t->type == CUDNN_DATA_HALF) {
        ((_Float16 *)to)[i] = (_Float16)v;
    } else {
        memcpy(&bits, &v, sizeof bits);
        if (v != v) /* rounding could carry a NaN into an infinity */
            bits |= 0x400000u;
        else
            bits += 0x7fffu + ((bits >> 16) & 1u);
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    }
}

/* Positions are in elements. */
static int64_t offset_of(const tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * t->stride[0] + b * t->stride[1] + c * t->stride[2] + d * t->stride[3];
}

/* Elements from the first to the last, with all gaps. */
static int64_t extent_of(const tensor *t) {
    return 1 + offset_of(t, t->dim[0] - 1, t->dim[1] - 1, t->dim[2] - 1, t->dim[3] - 1);
}

bool dnn_is_owned(const tensor *t) {
    return t->at && fake_cuda_owns(t->at, (size_t)extent_of(t) * size_of(t->type));
}

/* ---- convolutions ---- */

/* x {n, c, h, w}, w {k, c / groups, r, s}, y {n, k, p, q}: the groups follow from the channels. */
bool dnn_is_consistent(const work *w) {
    const int64_t *x = w->x.dim, *f = w->w.dim, *y = w->y.dim;
    /* groups = x channels / filter channels; each has as many filters. */
    if (x[0] != y[0] || f[0] != y[1] || x[1] % f[1] || f[0] % (x[1] / f[1])) return false;
    for (int i = 0; i < 2; i++) {
        const int64_t room = x[2 + i] + w->before[i] + w->after[i];
        const int64_t reach = (f[2 + i] - 1) * w->dilations[i] + 1;
        if (room < reach || y[2 + i] != (room - reach) / w->strides[i] + 1) return false;
    }
    return true;
}

/* The result: y forward, x for the gradient of the image, w for the gradient of the filter. */
static const tensor *result_of(const work *w) {
    return w->form == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? &w->y
           : w->form == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? &w->x
                                                                                     : &w->w;
}

/* Adds the products of one filter cell (r, s) over one row of y, for image n, output channel k and
 * input channel c of k's group. `sum` has one number for each element of the result. */
static void add_taps(const work *w, double *sum, int64_t n, int64_t k, int64_t c, int64_t row,
                     int64_t r, int64_t s) {
    const int64_t in_row = row * w->strides[0] + r * w->dilations[0] - w->before[0];
    const int64_t group = k / (w->w.dim[0] / (w->x.dim[1] / w->w.dim[1]));
    const int64_t at_w = offset_of(&w->w, k, c, r, s);
    const tensor *result = result_of(w);
    if (in_row < 0 || in_row >= w->x.dim[2]) return; /* padding */
    for (int64_t column = 0; column < w->y.dim[3]; column++) {
        const int64_t in = column * w->strides[1] + s * w->dilations[1] - w->before[1];
        if (in < 0 || in >= w->x.dim[3]) continue;
        const int64_t at_x = offset_of(&w->x, n, group * w->w.dim[1] + c, in_row, in);
        const int64_t at_y = offset_of(&w->y, n, k, row, column);
        if (result == &w->y)
            sum[at_y] += load(&w->x, at_x) * load(&w->w, at_w);
        else if (result == &w->x)
            sum[at_x] += load(&w->y, at_y) * load(&w->w, at_w);
        else
            sum[at_w] += load(&w->x, at_x) * load(&w->y, at_y);
    }
}

/* All pairs of a filter cell and a row of y. */
static void convolve(const work *w, double *sum) {
    for (int64_t n = 0; n < w->y.dim[0]; n++)
        for (int64_t k = 0; k < w->w.dim[0]; k++)
            for (int64_t c = 0; c < w->w.dim[1]; c++)
                for (int64_t row = 0; row < w->y.dim[2]; row++)
                    for (int64_t r = 0; r < w->w.dim[2]; r++)
                        for (int64_t s = 0; s < w->w.dim[3]; s++)
                            add_taps(w, sum, n, k, c, row, r, s);
}

/* Bias and relu, from the sums to the result. With MGPU_FAKE_CUDA_NAN=lost relu turns NaN into 0,
 * as some real kernels do; with MGPU_FAKE_CUDA_NAN=made every result is NaN. */
static void store_result(const work *w, const double *sum) {
    const tensor *t = result_of(w);
    const char *nan_mode = getenv("MGPU_FAKE_CUDA_NAN");
    const bool loses_nan = nan_mode && strcmp(nan_mode, "made") != 0;
    const bool makes_nan = nan_mode && strcmp(nan_mode, "made") == 0;
    for (int64_t a = 0; a < t->dim[0]; a++)
        for (int64_t b = 0; b < t->dim[1]; b++)
            for (int64_t c = 0; c < t->dim[2]; c++)
                for (int64_t d = 0; d < t->dim[3]; d++) {
                    const int64_t at = offset_of(t, a, b, c, d);
                    double v = sum[at];
                    if (w->bias) v += load(&w->b, b * w->b.stride[1]);
                    if (w->relu && (v < 0 || (loses_nan && v != v))) v = 0;
                    store(t, at, makes_nan ? NAN : v);
                }
}

/* The workspace is filled with 0xff before anything is read: an operand in it would become NaN. */
void dnn_convolve(void *args) {
    const work *w = args;
    if (fake_cuda_is_still()) return;
    double *sum = calloc((size_t)extent_of(result_of(w)), sizeof *sum);
    if (w->workspace_bytes) memset(w->workspace, 0xff, w->workspace_bytes);
    if (!sum) abort(); /* no caller could handle an error */
    convolve(w, sum);
    store_result(w, sum);
    free(sum);
}

/* rfft: the discrete Fourier transform of real numbers along the last axis, any length n > 0.
 *
 *     X_k = sum over t of x_t (cos(2 pi k t / n) - i sin(2 pi k t / n)),  k = 0 .. n/2
 *
 * x {..., n} -> {..., 2, n/2 + 1}: real parts, then imaginary parts; the other X_k are their
 * conjugates. The op is linear, so its gradient is the transpose
 *
 *     x_t = sum over k of (a_k cos(2 pi k t / n) - b_k sin(2 pi k t / n)),
 *
 * rfft_transpose, whose gradient is rfft. The inverse transform is the transpose of weighted X_k
 * (lua/mgpu/tensor/spectra.lua). The sums below are these formulas, term by term. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include <math.h>

static const mg_attr transpose_attrs[] = {
    {"length", MG_ATTR_INT, offsetof(mg_spectrum_attrs, length), 0, NULL, "n"},
};

/* ---- inference ---- */

static mg_status rfft_infer(mg_infer *f) {
    const mg_shape *x = mg_infer_shape(f, 0);
    MG_TRY(mg_infer_float(f, 0));
    if (x->rank < 1 || x->rank == MG_MAX_RANK || x->dim[x->rank - 1] < 1)
        return mg_infer_fail(f, MG_USAGE,
                             "needs 1 to %d axes, the last with at least one element; got shape %s",
                             MG_MAX_RANK - 1, MG_SHAPE_TEXT(x));
    f->shape = *x;
    f->shape.rank++;
    f->shape.dim[x->rank - 1] = 2;
    f->shape.dim[x->rank] = x->dim[x->rank - 1] / 2 + 1;
    return MG_OK;
}

static mg_status transpose_infer(mg_infer *f) {
    const mg_shape *x = mg_infer_shape(f, 0);
    const int64_t n = ((const mg_spectrum_attrs *)f->attrs)->length;
    MG_TRY(mg_infer_float(f, 0));
    if (n < 1 || x->rank < 2 || x->dim[x->rank - 2] != 2 || x->dim[x->rank - 1] != n / 2 + 1)
        return mg_infer_fail(f, MG_USAGE,
                             "the length %lld needs the shape {..., 2, %lld}, got shape %s",
                             (long long)n, (long long)(n / 2 + 1), MG_SHAPE_TEXT(x));
    f->shape = *x;
    f->shape.rank--;
    f->shape.dim[x->rank - 2] = n;
    return MG_OK;
}

/* ---- gradients ---- */

static mg_tensor *rfft_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    const mg_shape *x = &y->inputs[0]->shape;
    const mg_spectrum_attrs attrs = {.length = x->dim[x->rank - 1]};
    return mg_make("rfft_transpose", &attrs, 1, dy);
}

static mg_tensor *transpose_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)y;
    (void)i;
    return mg_make("rfft", NULL, 1, dy);
}

/* ---- reference kernels ---- */

/* cos and -sin of 2 pi k t / n; k t is reduced first, so that large products lose no digits. */
static void wave(int64_t k, int64_t t, int64_t n, double *real, double *imaginary) {
    const double angle = 2 * 3.14159265358979323846 * (double)(k * t % n) / (double)n;
    *real = cos(angle);
    *imaginary = -sin(angle);
}

static void rfft_ref(const mg_ref *r) {
    const int64_t n = r->in_shape[0].dim[r->in_shape[0].rank - 1], m = n / 2 + 1;
    const int64_t rows = mg_shape_count(&r->in_shape[0]) / n;
    double c, s;
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    for (int64_t at = 0; at < rows * m * n; at++) {
        const int64_t row = at / (m * n), k = at / n % m, t = at % n;
        wave(k, t, n, &c, &s);
        r->out[row * 2 * m + k] += r->in[0][row * n + t] * c;
        r->out[row * 2 * m + m + k] += r->in[0][row * n + t] * s;
    }
}

static void transpose_ref(const mg_ref *r) {
    const int64_t n = r->shape.dim[r->shape.rank - 1], m = n / 2 + 1;
    const int64_t rows = mg_shape_count(&r->shape) / n;
    double c, s;
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    for (int64_t at = 0; at < rows * m * n; at++) {
        const int64_t row = at / (m * n), k = at / n % m, t = at % n;
        wave(k, t, n, &c, &s);
        r->out[row * n + t] += r->in[0][row * 2 * m + k] * c + r->in[0][row * 2 * m + m + k] * s;
    }
}

/* ---- split rules ---- */

static bool rfft_split(mg_split *s) {
    return mg_split_except(s, s->in_shape[0]->rank - 1);
}

/* Along any axis that both have; not the two that become one. */
static bool transpose_split(mg_split *s) {
    return s->given[0] < s->in_shape[0]->rank - 2 && mg_split_except(s, s->in_shape[0]->rank - 1);
}

/* ---- the op table ---- */

static const mg_op spectrum_rows[] = {
    {.name = "rfft",
     .doc = "the discrete Fourier transform of real x {..., n} along the last axis: {..., 2, n/2 + "
            "1}, real parts before imaginary parts",
     .example = "local spectrum = mgpu.tensor { 1, 2, 3, 4 } :rfft()\n"
                "print(spectrum)\n"
                "--> tensor {2, 3} float32 cpu:0\n"
                "--> {{10, -2, -2},\n"
                "-->  { 0,  2,  0}}",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = rfft_infer,
     .grad = rfft_grad,
     .split = rfft_split,
     .ref = rfft_ref},
    {.name = "rfft_transpose",
     .doc = "the transpose of rfft: {..., 2, n/2 + 1} to {..., n}",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     MG_ATTRS(mg_spectrum_attrs, transpose_attrs),
     .infer = transpose_infer,
     .grad = transpose_grad,
     .split = transpose_split,
     .ref = transpose_ref},
};

const mg_op_family mg_ops_spectrum = {"spectrum", spectrum_rows,
                                      sizeof spectrum_rows / sizeof spectrum_rows[0]};

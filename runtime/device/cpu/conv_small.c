/* Convolutions with few channels, where oneDNN's kernels leave most lanes of a vector empty:
 * float32, row-major, stride 1, no dilation.
 *
 * One input channel (the first layer of lenet5): a vector is a pixel of 16 images, so that every
 * lane works and no load crosses a cache line; up to 30 sums stay in registers. (Vectors along a
 * row of repeated pixels were slower than oneDNN: nearly each of their loads crossed a line.)
 *
 * Gradient of an input with few channels: pixel y of the output adds to KW * C neighbouring floats
 * of each of KH rows of the image, which fill one or two vectors. */
#include "core/alloc.h"
#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "ops/attrs.h"
#include <omp.h>
#include <string.h>

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(64), aligned(4), may_alias));

/* In floats: what the caches hold. */
enum { LARGEST_TABLE = 1 << 14, LARGEST_GROUP = 1 << 17 };

#define UNROLL _Pragma("GCC unroll 8")

typedef struct small_conv {
    int64_t n, h, w, c, oh, ow, k, kh, kw, top, left;
    int64_t row;  /* input's gradient: floats one pixel of dy adds to, whole vectors */
    int64_t wide; /* of a row of the padded image: pixels; input's gradient: floats */
    int64_t rows; /* of the padded image */
    size_t table, thread_floats; /* scratch: floats of a table of weights or sums; per thread */
    int team;
} small_conv;

static int64_t whole(int64_t n) {
    return (n + MG_LANES - 1) / MG_LANES * MG_LANES;
}

static small_conv sizes_of(const mg_kernel_plan *plan, const mg_value *x, const mg_value *w,
                           const mg_value *y) {
    const mg_conv_attrs *a = plan->step->attrs;
    return (small_conv){.n = x->shape.dim[0],
                        .h = x->shape.dim[1],
                        .w = x->shape.dim[2],
                        .c = x->shape.dim[3],
                        .oh = y->shape.dim[1],
                        .ow = y->shape.dim[2],
                        .k = y->shape.dim[3],
                        .kh = w->shape.dim[0],
                        .kw = w->shape.dim[1],
                        .top = a->pads.v[0],
                        .left = a->pads.v[2],
                        .team = mg_cpu_team(mg_shape_count(&y->shape))};
}

static const char *refusal(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    if (!mg_all_f32(plan)) return "not float32";
    if (mg_count(&plan->in[0]) == 0 || mg_count(&plan->in[1]) == 0 || mg_count(&plan->out[0]) == 0)
        return "empty";
    if (a->strides.v[0] != 1 || a->strides.v[1] != 1 || a->dilations.v[0] != 1 ||
        a->dilations.v[1] != 1 || a->groups != 1)
        return "strides, dilations or groups";
    return NULL;
}

/* ---- one input channel ---- */

/* Per thread: 16 images as pixels of 16 lanes, a row of y likewise, the sums of the gradient. */
static void size_groups(small_conv *s) {
    s->wide = s->ow + s->kw - 1;
    s->rows = s->oh + s->kh - 1;
    s->table = (size_t)(s->kh * s->kw * s->k) * MG_LANES;
    s->thread_floats = (size_t)(s->rows * s->wide + s->ow * s->k) * MG_LANES + s->table;
}

static const char *refuse_groups(const small_conv *s) {
    if (s->c != 1) return "more than one input channel";
    if (s->n < MG_LANES) return "fewer than 16 images";
    if (s->k > 12) return "kernels fill vectors";
    return s->thread_floats > LARGEST_GROUP ? "large images" : NULL;
}

/* Sixteen images from x on (zeros beyond `count`) with their padding; lane = image. */
MG_CLONES static void gather_images(const small_conv *s, const float *x, int64_t count,
                                    float *out) {
    memset(out, 0, (size_t)(s->rows * s->wide * MG_LANES) * sizeof *out);
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = 0; i < s->wide; i++) {
            const int64_t y = r - s->top, at = i - s->left;
            if (y < 0 || y >= s->h || at < 0 || at >= s->w) continue;
            for (int64_t n = 0; n < count; n++)
                out[(r * s->wide + i) * MG_LANES + n] = x[(n * s->h + y) * s->w + at];
        }
}

static inline __attribute__((always_inline)) void clamp_to_zero(lanes *v) {
    *v = (lanes)((mask)*v & ~(mask)(*v < (lanes){0})); /* NaN stays */
}

/* `pixels` neighbours and `kernels` kernels at once, summed in registers. */
static inline __attribute__((always_inline)) void sum_taps(const small_conv *s, const float *in,
                                                           const float *w, const float *bias,
                                                           bool relu, float *out, const int pixels,
                                                           const int kernels) {
    lanes sum[4][6];
    UNROLL for (int p = 0; p < pixels; p++) UNROLL for (int k = 0; k < kernels; k++) sum[p][k] =
        (lanes){0} + bias[k];
    for (int64_t ky = 0; ky < s->kh; ky++)
        for (int64_t kx = 0; kx < s->kw; kx++) {
            const float *x = in + (ky * s->wide + kx) * MG_LANES;
            const float *tap = w + (ky * s->kw + kx) * s->k;
            UNROLL for (int k = 0; k < kernels; k++) UNROLL for (int p = 0; p < pixels; p++)
                sum[p][k] += *(const lanes *)(x + p * MG_LANES) * tap[k];
        }
    UNROLL for (int p = 0; p < pixels; p++) UNROLL for (int k = 0; k < kernels; k++) {
        if (relu) clamp_to_zero(&sum[p][k]);
        *(lanes *)(out + (p * s->k + k) * MG_LANES) = sum[p][k];
    }
}

static inline __attribute__((always_inline)) void forward_row(const small_conv *s, const float *in,
                                                              const float *w, const float *bias,
                                                              bool relu, float *out,
                                                              const int kernels) {
    int64_t ox = 0;
    for (; ox + 4 <= s->ow; ox += 4)
        sum_taps(s, in + ox * MG_LANES, w, bias, relu, out + ox * s->k * MG_LANES, 4, kernels);
    for (; ox < s->ow; ox++)
        sum_taps(s, in + ox * MG_LANES, w, bias, relu, out + ox * s->k * MG_LANES, 1, kernels);
}

/* n elements of each of `count` images, `step` floats apart, from or to lanes. */
MG_CLONES static void scatter_row(const float *row, int64_t n, int64_t count, float *y,
                                  int64_t step) {
    for (int64_t j = 0; j < n; j += MG_LANES) {
        const int64_t width = n - j < MG_LANES ? n - j : MG_LANES;
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < width; k++) y[i * step + j + k] = row[(j + k) * MG_LANES + i];
    }
}

MG_CLONES static void gather_row(float *row, int64_t n, int64_t count, const float *y,
                                 int64_t step) {
    for (int64_t j = 0; j < n; j += MG_LANES) {
        const int64_t width = n - j < MG_LANES ? n - j : MG_LANES;
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < width; k++) row[(j + k) * MG_LANES + i] = y[i * step + j + k];
    }
}

MG_CLONES static void forward_group(const small_conv *s, const float *images, const float *w,
                                    const float *bias, bool relu, int64_t count, float *row,
                                    float *y) {
    for (int64_t oy = 0; oy < s->oh; oy++) {
        const float *in = images + oy * s->wide * MG_LANES;
        for (int64_t k = 0; k < s->k;) {
            const int64_t left = s->k - k, kernels = left >= 6 ? 6 : left >= 3 ? 3 : 1;
            float *out = row + k * MG_LANES;
            if (kernels == 6) forward_row(s, in, w + k, bias + k, relu, out, 6);
            if (kernels == 3) forward_row(s, in, w + k, bias + k, relu, out, 3);
            if (kernels == 1) forward_row(s, in, w + k, bias + k, relu, out, 1);
            k += kernels;
        }
        scatter_row(row, s->ow * s->k, count, y + oy * s->ow * s->k, s->oh * s->ow * s->k);
    }
}

static mg_status keep(mg_kernel_plan *plan, const small_conv *s) {
    mg_all_row_major(plan);
    small_conv *kept = plan->state = mg_alloc(sizeof *kept);
    if (!kept) return MG_OOM;
    *kept = *s;
    plan->scratch = (s->table + (size_t)s->team * s->thread_floats) * sizeof(float);
    return MG_OK;
}

static const char *forward_accepts(const mg_kernel_plan *plan) {
    const char *no = refusal(plan);
    if (no) return no;
    small_conv s = sizes_of(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    size_groups(&s);
    return refuse_groups(&s);
}

static mg_status forward_prepare(mg_kernel_plan *plan) {
    small_conv s = sizes_of(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    size_groups(&s);
    return keep(plan, &s);
}

static mg_status forward_run(const mg_call *call) {
    static const float no_bias[12];
    const small_conv *s = call->plan->state;
    const float *x = call->in[0], *w = call->in[1];
    const float *bias = call->plan->step->n_in == 3 ? call->in[2] : no_bias;
    const bool relu = ((const mg_conv_attrs *)call->plan->step->attrs)->relu;
    float *y = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
        float *images =
            (float *)call->scratch + s->table + (size_t)omp_get_thread_num() * s->thread_floats;
        float *row = images + s->rows * s->wide * MG_LANES;
#pragma omp for schedule(static)
        for (int64_t n = 0; n < s->n; n += MG_LANES) {
            const int64_t count = s->n - n < MG_LANES ? s->n - n : MG_LANES;
            gather_images(s, x + n * s->h * s->w, count, images);
            forward_group(s, images, w, bias, relu, count, row, y + n * s->oh * s->ow * s->k);
        }
    }
    return MG_OK;
}

/* ---- gradient of the kernel, one input channel ---- */

/* sums[kx][k] += x[ox + kx] * dy[ox][k] along a row, for some kx and k. */
static inline __attribute__((always_inline)) void add_products(const small_conv *s, const float *in,
                                                               const float *dy, float *sums,
                                                               const int taps, const int kernels) {
    lanes sum[5][6];
    UNROLL for (int i = 0; i < taps; i++) UNROLL for (int k = 0; k < kernels; k++) sum[i][k] =
        (lanes){0};
    for (int64_t ox = 0; ox < s->ow; ox++) UNROLL for (int k = 0; k < kernels; k++) {
            const lanes d = *(const lanes *)(dy + (ox * s->k + k) * MG_LANES);
            UNROLL for (int i = 0; i < taps; i++) sum[i][k] +=
                *(const lanes *)(in + (ox + i) * MG_LANES) * d;
        }
    UNROLL for (int i = 0; i < taps; i++) UNROLL for (int k = 0; k < kernels; k++) *
        (lanes *)(sums + (i * s->k + k) * MG_LANES) += sum[i][k];
}

static inline __attribute__((always_inline)) void weight_kernels(const small_conv *s,
                                                                 const float *in, const float *dy,
                                                                 float *sums, const int kernels) {
    for (int64_t kx = 0; kx < s->kw;) {
        const int64_t left = s->kw - kx, taps = left >= 5 ? 5 : left >= 3 ? 3 : 1;
        float *to = sums + kx * s->k * MG_LANES;
        if (taps == 5) add_products(s, in + kx * MG_LANES, dy, to, 5, kernels);
        if (taps == 3) add_products(s, in + kx * MG_LANES, dy, to, 3, kernels);
        if (taps == 1) add_products(s, in + kx * MG_LANES, dy, to, 1, kernels);
        kx += taps;
    }
}

MG_CLONES static void weight_row(const small_conv *s, const float *images, const float *row,
                                 float *sums) {
    for (int64_t ky = 0; ky < s->kh; ky++) {
        const float *in = images + ky * s->wide * MG_LANES;
        for (int64_t k = 0; k < s->k;) {
            const int64_t left = s->k - k, kernels = left >= 6 ? 6 : left >= 3 ? 3 : 1;
            const float *dy = row + k * MG_LANES;
            float *to = sums + (ky * s->kw * s->k + k) * MG_LANES;
            if (kernels == 6) weight_kernels(s, in, dy, to, 6);
            if (kernels == 3) weight_kernels(s, in, dy, to, 3);
            if (kernels == 1) weight_kernels(s, in, dy, to, 1);
            k += kernels;
        }
    }
}

static const char *weight_accepts(const mg_kernel_plan *plan) {
    const char *no = refusal(plan);
    if (no) return no;
    small_conv s = sizes_of(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value);
    size_groups(&s);
    return refuse_groups(&s);
}

static mg_status weight_prepare(mg_kernel_plan *plan) {
    small_conv s = sizes_of(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value);
    size_groups(&s);
    return keep(plan, &s);
}

static void weight_group(const small_conv *s, const float *images, const float *dy, int64_t count,
                         float *row, float *sums) {
    const int64_t length = s->ow * s->k;
    memset(row, 0, (size_t)(length * MG_LANES) * sizeof *row); /* lanes beyond count */
    for (int64_t oy = 0; oy < s->oh; oy++) {
        gather_row(row, length, count, dy + oy * length, s->oh * length);
        weight_row(s, images + oy * s->wide * MG_LANES, row, sums);
    }
}

/* Lanes, then threads in their order. */
static void fold_sums(const small_conv *s, const float *threads, float *dw) {
    for (int64_t i = 0; i < s->kh * s->kw * s->k; i++) {
        double sum = 0;
        for (int t = 0; t < s->team; t++)
            for (int64_t lane = 0; lane < MG_LANES; lane++)
                sum += (double)threads[(size_t)(t + 1) * s->thread_floats - s->table +
                                       (size_t)(i * MG_LANES + lane)];
        dw[i] = (float)sum;
    }
}

static mg_status weight_run(const mg_call *call) {
    const small_conv *s = call->plan->state;
    const float *x = call->in[0], *dy = call->in[1];
    float *threads = (float *)call->scratch + s->table;
    for (int t = 0; t < s->team; t++) /* all of them: a smaller team may come */
        memset(threads + (size_t)(t + 1) * s->thread_floats - s->table, 0,
               s->table * sizeof *threads);
#pragma omp parallel num_threads(s->team)
    {
        float *images = threads + (size_t)omp_get_thread_num() * s->thread_floats;
        float *row = images + s->rows * s->wide * MG_LANES, *sums = row + s->ow * s->k * MG_LANES;
#pragma omp for schedule(static)
        for (int64_t n = 0; n < s->n; n += MG_LANES) {
            const int64_t count = s->n - n < MG_LANES ? s->n - n : MG_LANES;
            gather_images(s, x + n * s->h * s->w, count, images);
            weight_group(s, images, dy + n * s->oh * s->ow * s->k, count, row, sums);
        }
    }
    fold_sums(s, threads, call->out[0]);
    return MG_OK;
}

/* ---- gradient of an input with few channels ---- */

static void size_padded(small_conv *s) {
    s->row = whole(s->kw * s->c);
    s->wide = (s->ow + s->kw - 1) * s->c + s->row;
    s->rows = s->oh + s->kh - 1;
    s->table = (size_t)(s->kh * s->k * s->row);
    s->thread_floats = (size_t)(s->rows * s->wide);
}

static const char *input_accepts(const mg_kernel_plan *plan) {
    const char *no = refusal(plan);
    if (no) return no;
    small_conv s = sizes_of(plan, plan->out[0].value, plan->in[1].value, plan->in[0].value);
    size_padded(&s);
    if (s.c > 12) return "channels fill vectors";
    if (s.row > 2 * MG_LANES) return "wide kernels";
    return s.table > LARGEST_TABLE ? "many kernels" : NULL;
}

static mg_status input_prepare(mg_kernel_plan *plan) {
    small_conv s = sizes_of(plan, plan->out[0].value, plan->in[1].value, plan->in[0].value);
    size_padded(&s);
    return keep(plan, &s);
}

/* w[ky][kx][c][k] -> out[ky][k][kx * C + c]. */
static void turn_weights(const small_conv *s, const float *w, float *out) {
    const int64_t run = s->kw * s->c;
    memset(out, 0, s->table * sizeof *out);
    for (int64_t ky = 0; ky < s->kh; ky++)
        for (int64_t i = 0; i < run; i++)
            for (int64_t k = 0; k < s->k; k++)
                out[(ky * s->k + k) * s->row + i] = w[(ky * run + i) * s->k + k];
}

/* `pixels` neighbours of dy, each adding `vectors` vectors to a row of dx. */
static inline __attribute__((always_inline)) void add_pixels(const small_conv *s, const float *dy,
                                                             const float *w, float *dx,
                                                             const int pixels, const int vectors) {
    lanes sum[4][2] = {{{0}}};
    for (int64_t k = 0; k < s->k; k++)
        for (int p = 0; p < pixels; p++)
            for (int v = 0; v < vectors; v++)
                sum[p][v] += *(const lanes *)(w + k * s->row + v * MG_LANES) * dy[p * s->k + k];
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < vectors; v++) *(lanes *)(dx + p * s->c + v * MG_LANES) += sum[p][v];
}

static inline __attribute__((always_inline)) void
add_row(const small_conv *s, const float *dy, const float *w, float *dx, const int vectors) {
    int64_t ox = 0;
    for (; ox + 4 <= s->ow; ox += 4) add_pixels(s, dy + ox * s->k, w, dx + ox * s->c, 4, vectors);
    for (; ox + 2 <= s->ow; ox += 2) add_pixels(s, dy + ox * s->k, w, dx + ox * s->c, 2, vectors);
    for (; ox < s->ow; ox++) add_pixels(s, dy + ox * s->k, w, dx + ox * s->c, 1, vectors);
}

MG_CLONES static void input_image(const small_conv *s, const float *dy, const float *w,
                                  float *padded, float *dx) {
    memset(padded, 0, s->thread_floats * sizeof *padded);
    for (int64_t oy = 0; oy < s->oh; oy++)
        for (int64_t ky = 0; ky < s->kh; ky++) {
            const float *from = dy + oy * s->ow * s->k, *table = w + ky * s->k * s->row;
            if (s->row == MG_LANES)
                add_row(s, from, table, padded + (oy + ky) * s->wide, 1);
            else
                add_row(s, from, table, padded + (oy + ky) * s->wide, 2);
        }
    for (int64_t y = 0; y < s->h; y++)
        for (int64_t i = 0; i < s->w; i++) {
            const int64_t r = y + s->top, column = i + s->left;
            const bool met = r < s->rows && column < s->ow + s->kw - 1;
            for (int64_t c = 0; c < s->c; c++)
                dx[(y * s->w + i) * s->c + c] = met ? padded[r * s->wide + column * s->c + c] : 0;
        }
}

static mg_status input_run(const mg_call *call) {
    const small_conv *s = call->plan->state;
    const float *dy = call->in[0];
    float *w = call->scratch, *dx = call->out[0], *threads = w + s->table;
    turn_weights(s, call->in[1], w);
#pragma omp parallel num_threads(s->team)
    {
        float *padded = threads + (size_t)omp_get_thread_num() * s->thread_floats;
#pragma omp for schedule(static)
        for (int64_t n = 0; n < s->n; n++)
            input_image(s, dy + n * s->oh * s->ow * s->k, w, padded, dx + n * s->h * s->w * s->c);
    }
    return MG_OK;
}

/* ---- the kernels ---- */

#define SMALL(id, part)                                                                            \
    const mg_kernel mg_cpu_small_##id = {.op = #id,                                                \
                                         .name = "few channels",                                   \
                                         .accepts = part##_accepts,                                \
                                         .prepare = part##_prepare,                                \
                                         .run = part##_run,                                        \
                                         .release = mg_free};
SMALL(conv2d, forward)
SMALL(conv2d_grad_weight, weight)
SMALL(conv2d_grad_input, input)
#undef SMALL

/* Convolutions with few channels, where oneDNN's kernels leave most lanes of a vector empty:
 * float32, row-major, stride 1, no dilation.
 *
 * One input channel (the first layer of lenet5): a row of the output is a vector over (column,
 * kernel) pairs. With every pixel of the image repeated K times, out[j] += image[j + kx * K] *
 * w[tap][j mod K] runs at full width; the gradient of the kernel likewise, folded over j mod K at
 * the end. One thread, 28x28x1 -> 6 kernels 5x5, batch 128: forward 1.17 -> 0.4 ms.
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

enum { LARGEST_TABLE = 1 << 14 /* floats of repeated weights: what the caches hold */ };

typedef struct small_conv {
    int64_t n, h, w, c, oh, ow, k, kh, kw, top, left;
    int64_t row;                 /* floats of an output row (or gradient row), whole vectors */
    int64_t wide;                /* floats of a row of the repeated or padded image */
    int64_t rows;                /* of it */
    size_t table, thread_floats; /* floats of the repeated weights; per thread after them */
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

static void size_repeated(small_conv *s) {
    s->row = whole(s->ow * s->k);
    s->wide = s->row + whole((s->kw - 1) * s->k) + MG_LANES;
    s->rows = (s->oh + 3) / 4 * 4 + s->kh - 1;
    s->table = (size_t)(s->kh * s->kw * s->row);
}

static const char *refuse_repeated(const small_conv *s) {
    if (s->c != 1) return "more than one input channel";
    if (s->k > 12) return "kernels fill vectors";
    return s->table > LARGEST_TABLE ? "wide images" : NULL;
}

/* Each pixel k times, zeros around. */
MG_CLONES static void repeat_image(const small_conv *s, const float *x, float *out) {
    const int64_t k = s->k, columns = s->ow + s->kw - 1;
    memset(out, 0, (size_t)(s->rows * s->wide) * sizeof *out);
    for (int64_t r = 0; r < s->oh + s->kh - 1; r++) {
        const int64_t y = r - s->top;
        if (y < 0 || y >= s->h) continue;
        for (int64_t i = 0; i < columns; i++) {
            const int64_t at = i - s->left;
            if (at < 0 || at >= s->w) continue;
            for (int64_t j = 0; j < k; j++) out[r * s->wide + i * k + j] = x[y * s->w + at];
        }
    }
}

static void repeat_weights(const small_conv *s, const float *w, float *out) {
    for (int64_t tap = 0; tap < s->kh * s->kw; tap++)
        for (int64_t j = 0; j < s->row; j++)
            out[tap * s->row + j] = j < s->ow * s->k ? w[tap * s->k + j % s->k] : 0;
}

static inline __attribute__((always_inline)) void clamp_to_zero(lanes *v) {
    *v = (lanes)((mask)*v & ~(mask)(*v < (lanes){0})); /* NaN stays */
}

/* Four rows of one image share the weights they load. */
MG_CLONES static void forward_image(const small_conv *s, const float *image, const float *w,
                                    const float *bias, bool relu, float *y) {
    const int64_t length = s->ow * s->k, step = s->wide;
    for (int64_t oy = 0; oy < s->oh; oy += 4)
        for (int64_t j = 0; j < length; j += MG_LANES) {
            const lanes start = *(const lanes *)(bias + j);
            lanes sum[4] = {start, start, start, start};
            for (int64_t ky = 0; ky < s->kh; ky++)
                for (int64_t kx = 0; kx < s->kw; kx++) {
                    const float *in = image + (oy + ky) * step + j + kx * s->k;
                    const lanes v = *(const lanes *)(w + (ky * s->kw + kx) * s->row + j);
                    sum[0] += *(const lanes *)in * v;
                    sum[1] += *(const lanes *)(in + step) * v;
                    sum[2] += *(const lanes *)(in + 2 * step) * v;
                    sum[3] += *(const lanes *)(in + 3 * step) * v;
                }
            const size_t bytes =
                length - j < MG_LANES ? (size_t)(length - j) * sizeof *y : MG_LANES * sizeof *y;
            for (int64_t r = 0; r < 4 && oy + r < s->oh; r++) {
                if (relu) clamp_to_zero(&sum[r]);
                memcpy(y + (oy + r) * length + j, &sum[r], bytes);
            }
        }
}

static const char *forward_accepts(const mg_kernel_plan *plan) {
    const char *no = refusal(plan);
    if (no) return no;
    small_conv s = sizes_of(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    size_repeated(&s);
    return refuse_repeated(&s);
}

static mg_status keep(mg_kernel_plan *plan, const small_conv *s) {
    mg_all_row_major(plan);
    small_conv *kept = plan->state = mg_alloc(sizeof *kept);
    if (!kept) return MG_OOM;
    *kept = *s;
    plan->scratch = (s->table + (size_t)s->team * s->thread_floats) * sizeof(float);
    return MG_OK;
}

static mg_status forward_prepare(mg_kernel_plan *plan) {
    small_conv s = sizes_of(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    size_repeated(&s);
    s.table += (size_t)s.row; /* the bias */
    s.thread_floats = (size_t)(s.rows * s.wide);
    return keep(plan, &s);
}

static mg_status forward_run(const mg_call *call) {
    const small_conv *s = call->plan->state;
    const float *x = call->in[0], *b = call->plan->step->n_in == 3 ? call->in[2] : NULL;
    const bool relu = ((const mg_conv_attrs *)call->plan->step->attrs)->relu;
    float *w = call->scratch, *bias = w + s->table - s->row, *images = w + s->table;
    float *y = call->out[0];
    repeat_weights(s, call->in[1], w);
    for (int64_t j = 0; j < s->row; j++) bias[j] = b ? b[j % s->k] : 0;
#pragma omp parallel num_threads(s->team)
    {
        float *image = images + (size_t)omp_get_thread_num() * s->thread_floats;
#pragma omp for schedule(static)
        for (int64_t n = 0; n < s->n; n++) {
            repeat_image(s, x + n * s->h * s->w, image);
            forward_image(s, image, w, bias, relu, y + n * s->oh * s->ow * s->k);
        }
    }
    return MG_OK;
}

/* ---- gradient of the kernel, one input channel ---- */

/* sums[tap][j] += image[j + kx * k] * dy[j] over the rows of one image. */
static inline __attribute__((always_inline)) void add_products(const small_conv *s,
                                                               const float *image, const float *dy,
                                                               float *sums, int64_t ky,
                                                               int64_t first, const int taps) {
    for (int64_t j = 0; j < s->row; j += MG_LANES) {
        lanes sum[8] = {{0}};
        for (int64_t oy = 0; oy < s->oh; oy++) {
            const lanes d = *(const lanes *)(dy + oy * s->row + j);
            const float *in = image + (oy + ky) * s->wide + j + first * s->k;
            for (int i = 0; i < taps; i++) sum[i] += *(const lanes *)(in + i * s->k) * d;
        }
        for (int i = 0; i < taps; i++)
            *(lanes *)(sums + (ky * s->kw + first + i) * s->row + j) += sum[i];
    }
}

MG_CLONES static void weight_image(const small_conv *s, const float *image, const float *dy,
                                   float *sums) {
    for (int64_t ky = 0; ky < s->kh; ky++)
        for (int64_t kx = 0; kx < s->kw;) {
            const int64_t left = s->kw - kx, taps = left >= 5 ? 5 : left >= 3 ? 3 : 1;
            if (taps == 5) add_products(s, image, dy, sums, ky, kx, 5);
            if (taps == 3) add_products(s, image, dy, sums, ky, kx, 3);
            if (taps == 1) add_products(s, image, dy, sums, ky, kx, 1);
            kx += taps;
        }
}

static const char *weight_accepts(const mg_kernel_plan *plan) {
    const char *no = refusal(plan);
    if (no) return no;
    small_conv s = sizes_of(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value);
    size_repeated(&s);
    return refuse_repeated(&s);
}

/* Per thread: the repeated image, the gradient's rows as whole vectors, the sums. */
static mg_status weight_prepare(mg_kernel_plan *plan) {
    small_conv s = sizes_of(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value);
    size_repeated(&s);
    s.thread_floats = (size_t)(s.rows * s.wide + s.oh * s.row) + s.table;
    return keep(plan, &s);
}

static void fold_sums(const small_conv *s, const float *threads, float *dw) {
    for (int64_t tap = 0; tap < s->kh * s->kw; tap++)
        for (int64_t k = 0; k < s->k; k++) {
            double sum = 0;
            for (int t = 0; t < s->team; t++) {
                const float *sums = threads + (size_t)(t + 1) * s->thread_floats - s->table;
                for (int64_t i = 0; i < s->ow; i++)
                    sum += (double)sums[tap * s->row + i * s->k + k];
            }
            dw[tap * s->k + k] = (float)sum;
        }
}

static mg_status weight_run(const mg_call *call) {
    const small_conv *s = call->plan->state;
    const float *x = call->in[0], *dy = call->in[1];
    float *threads = (float *)call->scratch + s->table;
    const int64_t length = s->ow * s->k;
#pragma omp parallel num_threads(s->team)
    {
        float *image = threads + (size_t)omp_get_thread_num() * s->thread_floats;
        float *rows = image + s->rows * s->wide, *sums = rows + s->oh * s->row;
        memset(rows, 0, (size_t)(s->oh * s->row) * sizeof *rows);
        memset(sums, 0, s->table * sizeof *sums);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < s->n; n++) {
            repeat_image(s, x + n * s->h * s->w, image);
            for (int64_t oy = 0; oy < s->oh; oy++)
                memcpy(rows + oy * s->row, dy + (n * s->oh + oy) * length,
                       (size_t)length * sizeof *rows);
            weight_image(s, image, rows, sums);
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

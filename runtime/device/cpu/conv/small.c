/* Convolutions with few channels, where oneDNN's kernels leave most lanes of a vector empty:
 * float32, row-major, no dilation; stride 1 except for the gradient of the input. The inner loops
 * are in simd/conv_small.c. A kernel of a convolution means a filter here.
 *
 * One input channel (the first layer of lenet5): images are computed in groups of as many as a
 * vector has lanes, and a vector holds the same pixel of all of them, so that every lane works and
 * no load crosses a cache line. (Vectors along a row of repeated pixels were slower than oneDNN:
 * nearly every load crossed a line.)
 *
 * Gradient of an input with few channels: a pixel of dy adds to KW * C neighbouring floats in each
 * of KH rows of the image, which fill one or two vectors of MG_LANES. */
#include "core/alloc.h"
#include "device/cpu/conv/conv.h"
#include "ops/attrs.h"
#include <omp.h>
#include <string.h>

/* Limits of scratch in floats, so that it stays in the caches. */
enum { LARGEST_TABLE = 1 << 14, LARGEST_GROUP = 1 << 17 };
/* Rows of an input's gradient that a thread computes at a time, at least. */
enum { FEWEST_ROWS = 4 };

/* n rounded up to MG_LANES. */
static int64_t whole(int64_t n) {
    return (n + MG_LANES - 1) / MG_LANES * MG_LANES;
}

/* The sizes of a convolution, whichever of x, w and y it computes. */
static mg_conv_small sizes_of(const mg_kernel_plan *plan, const mg_value *x, const mg_value *w,
                              const mg_value *y) {
    const mg_conv_attrs *a = plan->step->attrs;
    return (mg_conv_small){.n = x->shape.dim[0],
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
                           .down = a->strides.v[0],
                           .across = a->strides.v[1],
                           .team = mg_cpu_team(mg_shape_count(&y->shape))};
}

/* What all three forms refuse. */
static const char *small_conv_refuse(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    if (!mg_all_f32(plan)) return "not float32";
    if (mg_count(&plan->in[0]) == 0 || mg_count(&plan->in[1]) == 0 || mg_count(&plan->out[0]) == 0)
        return "empty";
    if (a->dilations.v[0] != 1 || a->dilations.v[1] != 1 || a->groups != 1)
        return "dilations or groups";
    return NULL;
}

/* ---- one input channel ---- */

/* Images of a group: the lanes of a vector. */
static int64_t group(void) {
    return mg_simd_used->conv_small->images;
}

/* Scratch per thread: a group of padded images as lanes, a row of y as lanes, and the sums of the
 * weights' gradient. */
static void size_groups(mg_conv_small *s) {
    s->wide = s->ow + s->kw - 1;
    s->rows = s->oh + s->kh - 1;
    s->table = (size_t)(s->kh * s->kw * s->k * group());
    s->thread_floats = (size_t)((s->rows * s->wide + s->ow * s->k) * group()) + s->table;
}

/* What the two forms that work on groups of images refuse besides. */
static const char *refuse_groups(const mg_conv_small *s) {
    if (s->c != 1) return "more than one input channel";
    if (s->down != 1 || s->across != 1) return "strides";
    if (s->n < group()) return "fewer images than lanes";
    if (s->k > 12) return "more than 12 filters";
    return s->thread_floats > LARGEST_GROUP ? "large images" : NULL;
}

/* Stores the sizes as the plan's state and asks for scratch. */
static mg_status small_conv_keep(mg_kernel_plan *plan, const mg_conv_small *s) {
    mg_conv_small *kept = plan->state = mg_alloc(sizeof *kept);
    if (!kept) return MG_OOM;
    *kept = *s;
    plan->scratch = (s->table + (size_t)s->team * s->thread_floats) * sizeof(float);
    return MG_OK;
}

/* y: x is input 0, w input 1, and there may be a bias. */
static const char *forward_accepts(const mg_kernel_plan *plan) {
    const char *no = small_conv_refuse(plan);
    if (no) return no;
    mg_conv_small s = sizes_of(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    size_groups(&s);
    return refuse_groups(&s);
}

static mg_status forward_prepare(mg_kernel_plan *plan) {
    mg_conv_small s = sizes_of(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    size_groups(&s);
    return small_conv_keep(plan, &s);
}

/* The threads share the rows of results, counted over all groups: each has a contiguous range,
 * which may begin and end within a group. A group that is shared is gathered in parts, which
 * overlap in kh - 1 rows. */
static int64_t share_begin(const mg_conv_small *s, int thread) {
    const int64_t groups = (s->n + group() - 1) / group();
    return groups * s->oh * thread / omp_get_num_threads();
}

/* The rows of the range [from, to) that belong to its first group. */
static mg_conv_rows first_rows(const mg_conv_small *s, int64_t from, int64_t to) {
    const int64_t n = from / s->oh * group(), first = from % s->oh, most = s->oh - first;
    return (mg_conv_rows){.n = n,
                          .count = s->n - n < group() ? s->n - n : group(),
                          .first = first,
                          .last = first + (to - from < most ? to - from : most)};
}

static mg_status forward_run(const mg_call *call) {
    static const float no_bias[12];
    const mg_conv_small *s = call->plan->state;
    const float *x = call->in[0], *w = call->in[1];
    const float *bias = call->plan->step->n_in == 3 ? call->in[2] : no_bias;
    const bool relu = ((const mg_conv_attrs *)call->plan->step->attrs)->relu;
    float *y = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
        const int me = omp_get_thread_num();
        const int64_t end = share_begin(s, me + 1);
        float *images = (float *)call->scratch + s->table + (size_t)me * s->thread_floats;
        float *row = images + s->rows * s->wide * group();
        for (int64_t at = share_begin(s, me); at < end;) {
            const mg_conv_rows rows = first_rows(s, at, end);
            mg_simd_used->conv_small->gather_images(s, x + rows.n * s->h * s->w, &rows, images);
            mg_simd_used->conv_small->forward_rows(s, images, w, bias, relu, &rows, row,
                                                   y + rows.n * s->oh * s->ow * s->k);
            at += rows.last - rows.first;
        }
    }
    return MG_OK;
}

/* ---- gradient of the kernel, one input channel ---- */

/* dw of one input channel: x is input 0, dy input 1. */
static const char *weight_accepts(const mg_kernel_plan *plan) {
    const char *no = small_conv_refuse(plan);
    if (no) return no;
    mg_conv_small s = sizes_of(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value);
    size_groups(&s);
    return refuse_groups(&s);
}

static mg_status weight_prepare(mg_kernel_plan *plan) {
    mg_conv_small s = sizes_of(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value);
    size_groups(&s);
    return small_conv_keep(plan, &s);
}

/* Adds the products of some rows of a group to the sums of the thread. */
static void weight_rows(const mg_conv_small *s, const float *images, const float *dy,
                        const mg_conv_rows *rows, float *row, float *sums) {
    const mg_simd_conv_small *loops = mg_simd_used->conv_small;
    const int64_t length = s->ow * s->k;
    for (int64_t oy = rows->first; oy < rows->last; oy++) {
        loops->gather_row(row, length, rows->count, dy + oy * length, s->oh * length);
        loops->weight_row(s, images + oy * s->wide * group(), row, sums);
    }
}

/* Adds up the lanes of sum i and the threads' sums, in the order of the threads. The shares of the
 * threads depend on their number, and so do the last bits of the result. */
static float fold_sum(const mg_conv_small *s, const float *threads, int64_t i) {
    double sum = 0;
    for (int t = 0; t < omp_get_num_threads(); t++)
        for (int64_t lane = 0; lane < group(); lane++)
            sum += (double)threads[(size_t)(t + 1) * s->thread_floats - s->table +
                                   (size_t)(i * group() + lane)];
    return (float)sum;
}

/* Every thread has separate sums. */
static mg_status weight_run(const mg_call *call) {
    const mg_conv_small *s = call->plan->state;
    const float *x = call->in[0], *dy = call->in[1];
    float *threads = (float *)call->scratch + s->table, *dw = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
        const int me = omp_get_thread_num();
        const int64_t end = share_begin(s, me + 1);
        float *images = threads + (size_t)me * s->thread_floats;
        float *row = images + s->rows * s->wide * group(), *sums = row + s->ow * s->k * group();
        memset(sums, 0, s->table * sizeof *sums);
        for (int64_t at = share_begin(s, me); at < end;) {
            const mg_conv_rows rows = first_rows(s, at, end);
            mg_simd_used->conv_small->gather_images(s, x + rows.n * s->h * s->w, &rows, images);
            weight_rows(s, images, dy + rows.n * s->oh * s->ow * s->k, &rows, row, sums);
            at += rows.last - rows.first;
        }
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->kh * s->kw * s->k; i++) dw[i] = fold_sum(s, threads, i);
    }
    return MG_OK;
}

/* ---- gradient of an input with few channels ---- */

/* Scratch: the table of weights for all threads, and padded rows of dx per thread. */
static void size_padded(mg_conv_small *s) {
    s->row = whole(s->kw * s->c);
    s->wide = ((s->ow - 1) * s->across + s->kw) * s->c + s->row;
    s->rows = mg_even_share(s->n, s->h, s->h, FEWEST_ROWS, s->team);
    s->table = (size_t)(s->kh * s->k * s->row);
    s->thread_floats = (size_t)(s->rows * s->wide);
}

/* dx of few channels: dy is input 0, w input 1. */
static const char *input_accepts(const mg_kernel_plan *plan) {
    const char *no = small_conv_refuse(plan);
    if (no) return no;
    mg_conv_small s = sizes_of(plan, plan->out[0].value, plan->in[1].value, plan->in[0].value);
    size_padded(&s);
    if (s.c > 12) return "more than 12 channels";
    if (s.row > 2 * MG_LANES) return "wide filters";
    return s.table > LARGEST_TABLE ? "many filters" : NULL;
}

static mg_status input_prepare(mg_kernel_plan *plan) {
    mg_conv_small s = sizes_of(plan, plan->out[0].value, plan->in[1].value, plan->in[0].value);
    size_padded(&s);
    return small_conv_keep(plan, &s);
}

/* w[ky][kx][c][k] becomes out[ky][k][kx * C + c]: what a pixel of dy adds to a row of dx, kernel by
 * kernel, padded to whole vectors. */
static void transpose_weights(const mg_conv_small *s, const float *w, float *out) {
    const int64_t run = s->kw * s->c;
    memset(out, 0, s->table * sizeof *out);
    for (int64_t ky = 0; ky < s->kh; ky++)
        for (int64_t i = 0; i < run; i++)
            for (int64_t k = 0; k < s->k; k++)
                out[(ky * s->k + k) * s->row + i] = w[(ky * run + i) * s->k + k];
}

/* Threads share the images, or rows of them. */
static mg_status input_run(const mg_call *call) {
    const mg_conv_small *s = call->plan->state;
    const float *dy = call->in[0];
    float *w = call->scratch, *dx = call->out[0], *threads = w + s->table;
    transpose_weights(s, call->in[1], w);
#pragma omp parallel num_threads(s->team)
    {
        float *padded = threads + (size_t)omp_get_thread_num() * s->thread_floats;
#pragma omp for collapse(2) schedule(static)
        for (int64_t n = 0; n < s->n; n++)
            for (int64_t row = 0; row < s->h; row += s->rows)
                mg_simd_used->conv_small->input_rows(s, dy + n * s->oh * s->ow * s->k, w, row,
                                                     mg_smaller(row + s->rows, s->h), padded,
                                                     dx + n * s->h * s->w * s->c);
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

/* conv2d and its gradients with few channels by Winograd's algorithm: 3x3 and 5x5 filters, stride
 * 1, float32, row-major, with or without groups. Several images are computed together, one per lane
 * of a vector, because the channels would leave most lanes empty (simd/winograd_images.c).
 *
 * A product takes a quarter (3x3) or 0.36 (5x5) of the multiplications of a direct sum. As in
 * conv/winograd.c, precision "highest" is refused. Threads share the pairs of a group of channels
 * and a group of images. */
#include "core/alloc.h"
#include "core/precision.h"
#include "device/cpu/conv/conv.h"
#include "ops/attrs.h"
#include <omp.h>
#include <string.h>

enum {
    MOST_IMAGE = 1 << 20,   /* floats of the padded images that are computed together */
    MOST_FILTERS = 1 << 18, /* floats of the transformed filters of a group of channels */
    MOST_SUMS = 1 << 21,    /* floats of the sums of the filters' gradient */
    FEWEST_TERMS = 32,      /* terms of a sum: with fewer, transforms cost more than they save */
    /* lanes of a vector that may be chosen instead of wider ones, at least */
    NARROWEST = 8
};

typedef struct state {
    mg_winograd_images sizes;
    const mg_simd_winograd_images *loops;
    /* groups of channels; groups of images, which are called parts */
    int64_t groups, parts;
    size_t filter_floats; /* of a group's transformed filters */
    /* offset and size of the threads' scratch, in floats: behind filters or sums */
    size_t threads_at, thread_floats;
    int team;
    bool bias, relu;
} state;

/* ---- which convolutions ---- */

/* The loops for the widest vectors with which every thread has work; if there are none, for the
 * narrowest vectors with NARROWEST lanes or more. */
static const mg_simd_winograd_images *loops_for(int64_t images, int64_t groups, int team) {
    const mg_simd *sets[3];
    const int n = mg_simd_available(sets);
    const mg_simd_winograd_images *best = mg_simd_used->winograd_images;
    for (int i = 0; i < n && mg_divide_up(images, best->images) * groups < team; i++) {
        const mg_simd_winograd_images *next = sets[i]->winograd_images;
        if (next->images < best->images && next->images >= NARROWEST) best = next;
    }
    return best;
}

/* Sizes of a convolution, whichever of x, w and y it computes. */
static state sizes_of(const mg_kernel_plan *plan, const mg_value *x, const mg_value *w,
                      const mg_value *y) {
    const mg_conv_attrs *a = plan->step->attrs;
    const int64_t *dx = x->shape.dim, *dy = y->shape.dim;
    const int side = w->shape.dim[0] == 3 ? 4 : 2, team = mg_cpu_threads();
    const mg_simd_winograd_images *loops = loops_for(dx[0], a->groups, team);
    return (state){.sizes = {.n = dx[0],
                             .h = dx[1],
                             .w = dx[2],
                             .oh = dy[1],
                             .ow = dy[2],
                             .c = dx[3] / a->groups,
                             .k = dy[3] / a->groups,
                             .c_total = dx[3],
                             .k_total = dy[3],
                             .top = a->pads.v[0],
                             .left = a->pads.v[2],
                             .side = side,
                             .rows = mg_divide_up(dy[1], side),
                             .columns = mg_divide_up(dy[2], side)},
                   .loops = loops,
                   .groups = a->groups,
                   .parts = mg_divide_up(dx[0], loops->images),
                   .filter_floats = (size_t)(36 * (dx[3] / a->groups) * (dy[3] / a->groups)),
                   .team = team};
}

static const char *refuse_attributes(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    if (!mg_all_f32(plan)) return "not float32";
    if (!mg_precision_fast()) return "precision is \"highest\"";
    if (mg_count(&plan->in[0]) == 0 || mg_count(&plan->in[1]) == 0 || mg_count(&plan->out[0]) == 0)
        return "empty";
    if (a->strides.v[0] != 1 || a->strides.v[1] != 1 || a->dilations.v[0] != 1 ||
        a->dilations.v[1] != 1)
        return "strides or dilations";
    return NULL;
}

/* Whether conv/winograd.c is as fast; `strips` is its kernel for the same form. It must accept the
 * step, and the channels of the results must fill enough of a strip: less with 5x5 filters, for
 * which its larger tiles save more. */
static bool is_for_strips(const mg_kernel_plan *plan, const mg_value *w, int64_t results,
                          const mg_kernel *strips) {
    const int64_t strip = mg_float_strip();
    return results > (w->shape.dim[0] == 3 ? strip / 4 * 3 : strip / 2) && !strips->accepts(plan);
}

/* What all three forms refuse. */
static const char *refuse(const mg_kernel_plan *plan, const mg_value *x, const mg_value *w,
                          const mg_value *y, int64_t results, const mg_kernel *strips) {
    const char *no = refuse_attributes(plan);
    if (no) return no;
    const int64_t *d = w->shape.dim, taps = d[0] - 1;
    if (d[0] != d[1] || (d[0] != 3 && d[0] != 5)) return "filters are neither 3x3 nor 5x5";
    if (is_for_strips(plan, w, results, strips)) return "many channels";
    const state s = sizes_of(plan, x, w, y);
    const mg_winograd_images *z = &s.sizes;
    if (z->c < 2 || z->k < 2) return "one channel";
    if (z->n < s.loops->images) return "fewer images than lanes";
    if (s.parts * s.groups < s.team) return "less work than threads";
    if (s.filter_floats > MOST_FILTERS) return "many channels";
    const int64_t pixels = (z->rows * z->side + taps) * (z->columns * z->side + taps);
    return pixels * z->c * s.loops->images > MOST_IMAGE ? "large images" : NULL;
}

/* Refuses short sums. */
static const char *refuse_few_terms(const mg_value *w) {
    const int64_t *d = w->shape.dim;
    return d[0] * d[1] * d[2] < FEWEST_TERMS ? "few terms of a sum" : NULL;
}

static const char *forward_accepts(const mg_kernel_plan *plan) {
    const mg_value *y = plan->out[0].value;
    const char *no = refuse(plan, plan->in[0].value, plan->in[1].value, y, y->shape.dim[3],
                            &mg_cpu_winograd_conv2d);
    return no ? no : refuse_few_terms(plan->in[1].value);
}

static const char *grad_input_accepts(const mg_kernel_plan *plan) {
    const mg_value *x = plan->out[0].value;
    return refuse(plan, x, plan->in[1].value, plan->in[0].value, x->shape.dim[3],
                  &mg_cpu_winograd_conv2d_grad_input);
}

static const char *grad_weight_accepts(const mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value, *w = plan->out[0].value, *y = plan->in[1].value;
    const char *no = refuse(plan, x, w, y, y->shape.dim[3], &mg_cpu_winograd_conv2d_grad_weight);
    if (!no) no = refuse_few_terms(w);
    if (no) return no;
    const state s = sizes_of(plan, x, w, y);
    if (s.loops->images == MG_LANES && s.sizes.c >= 8 && s.sizes.k % MG_LANES == 0)
        return "direct sums, which fill vectors, are as fast";
    return s.loops->sum_floats(&s.sizes) > MOST_SUMS ? "many channels" : NULL;
}

/* ---- preparing ---- */

static size_t whole_lines(size_t floats) {
    const size_t unit = MG_LINE / sizeof(float);
    return (floats + unit - 1) / unit * unit;
}

/* Keeps the sizes as the kernel's state. Scratch: the filters of all groups, or the sums of each
 * thread; then the threads' own. */
static mg_status keep(state s, bool sums, mg_kernel_plan *plan) {
    const size_t shared =
        sums ? (size_t)s.team * s.loops->sum_floats(&s.sizes) : (size_t)s.groups * s.filter_floats;
    s.threads_at = whole_lines(shared);
    s.thread_floats = whole_lines(s.loops->scratch_floats(&s.sizes));
    plan->scratch = (s.threads_at + (size_t)s.team * s.thread_floats) * sizeof(float);
    state *kept = plan->state = mg_alloc(sizeof *kept);
    if (!kept) return MG_OOM;
    *kept = s;
    return MG_OK;
}

static mg_status forward_prepare(mg_kernel_plan *plan) {
    state s = sizes_of(plan, plan->in[0].value, plan->in[1].value, plan->out[0].value);
    s.bias = plan->step->n_in == 3;
    s.relu = ((const mg_conv_attrs *)plan->step->attrs)->relu;
    return keep(s, false, plan);
}

static mg_status grad_input_prepare(mg_kernel_plan *plan) {
    return keep(sizes_of(plan, plan->out[0].value, plan->in[1].value, plan->in[0].value), false,
                plan);
}

static mg_status grad_weight_prepare(mg_kernel_plan *plan) {
    return keep(sizes_of(plan, plan->in[0].value, plan->out[0].value, plan->in[1].value), true,
                plan);
}

/* ---- running ---- */

/* Images of a part; the last one may have fewer. */
static int64_t images_of(const state *s, int64_t part) {
    const int64_t images = s->loops->images, left = s->sizes.n - part * images;
    return left < images ? left : images;
}

/* Where group g of a part begins in x or dx; result_at: in y or dy. */
static int64_t image_at(const state *s, int64_t part, int64_t g) {
    const mg_winograd_images *z = &s->sizes;
    return part * s->loops->images * z->h * z->w * z->c_total + g * z->c;
}

static int64_t result_at(const state *s, int64_t part, int64_t g) {
    const mg_winograd_images *z = &s->sizes;
    return part * s->loops->images * z->oh * z->ow * z->k_total + g * z->k;
}

static float *own_scratch(const state *s, float *scratch) {
    return scratch + s->threads_at + (size_t)omp_get_thread_num() * s->thread_floats;
}

/* Transforms the filters of all groups, by the threads of a region. */
static void transform_filters(const state *s, const float *w, bool transposed, float *u) {
#pragma omp for collapse(2) schedule(static)
    for (int64_t g = 0; g < s->groups; g++)
        for (int64_t c = 0; c < s->sizes.c; c++)
            s->loops->filters(&s->sizes, w + g * s->sizes.k, transposed, c,
                              u + (size_t)g * s->filter_floats);
}

static mg_status forward_run(const mg_call *call) {
    const state *s = call->plan->state;
    const float *x = call->in[0], *w = call->in[1], *bias = s->bias ? call->in[2] : NULL;
    float *u = call->scratch, *y = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
        float *own = own_scratch(s, call->scratch);
        transform_filters(s, w, false, u);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->parts * s->groups; i++) {
            const int64_t part = i / s->groups, g = i % s->groups;
            s->loops->forward(&s->sizes, x + image_at(s, part, g), images_of(s, part),
                              u + (size_t)g * s->filter_floats, bias ? bias + g * s->sizes.k : NULL,
                              s->relu, own, y + result_at(s, part, g));
        }
    }
    return MG_OK;
}

static mg_status grad_input_run(const mg_call *call) {
    const state *s = call->plan->state;
    const float *dy = call->in[0], *w = call->in[1];
    float *u = call->scratch, *dx = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
        float *own = own_scratch(s, call->scratch);
        transform_filters(s, w, true, u);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->parts * s->groups; i++) {
            const int64_t part = i / s->groups, g = i % s->groups;
            s->loops->image_gradient(&s->sizes, dy + result_at(s, part, g), images_of(s, part),
                                     u + (size_t)g * s->filter_floats, own,
                                     dx + image_at(s, part, g));
        }
    }
    return MG_OK;
}

/* One group of channels. Threads share the images. Every thread has separate sums, which are added
 * up in the order of the threads. OpenMP may start fewer threads than s->team. */
static void share_images(const state *s, const mg_call *call) {
    const float *x = call->in[0], *dy = call->in[1];
    const size_t floats = s->loops->sum_floats(&s->sizes);
    float *sums = call->scratch;
#pragma omp parallel num_threads(s->team)
    {
        float *own = own_scratch(s, call->scratch);
        float *own_sums = sums + (size_t)omp_get_thread_num() * floats;
        memset(own_sums, 0, floats * sizeof *sums);
#pragma omp for schedule(static)
        for (int64_t part = 0; part < s->parts; part++)
            s->loops->add_gradient(&s->sizes, x + image_at(s, part, 0), dy + result_at(s, part, 0),
                                   images_of(s, part), own, own_sums);
#pragma omp for schedule(static)
        for (int e = 0; e < s->loops->elements; e++)
            s->loops->fold_sums(&s->sizes, sums, omp_get_num_threads(), floats, e, own);
#pragma omp for schedule(static)
        for (int64_t c = 0; c < s->sizes.c; c++)
            s->loops->filter_gradient(&s->sizes, sums, c, call->out[0]);
    }
}

/* Several groups, which threads share. */
static void share_groups(const state *s, const mg_call *call) {
    const float *x = call->in[0], *dy = call->in[1];
    const size_t floats = s->loops->sum_floats(&s->sizes);
    float *dw = call->out[0];
#pragma omp parallel num_threads(s->team)
    {
        float *own = own_scratch(s, call->scratch);
        float *sums = (float *)call->scratch + (size_t)omp_get_thread_num() * floats;
#pragma omp for schedule(static)
        for (int64_t g = 0; g < s->groups; g++) {
            memset(sums, 0, floats * sizeof *sums);
            for (int64_t part = 0; part < s->parts; part++)
                s->loops->add_gradient(&s->sizes, x + image_at(s, part, g),
                                       dy + result_at(s, part, g), images_of(s, part), own, sums);
            for (int e = 0; e < s->loops->elements; e++)
                s->loops->fold_sums(&s->sizes, sums, 1, 0, e, own);
            for (int64_t c = 0; c < s->sizes.c; c++)
                s->loops->filter_gradient(&s->sizes, sums, c, dw + g * s->sizes.k);
        }
    }
}

static mg_status grad_weight_run(const mg_call *call) {
    const state *s = call->plan->state;
    if (s->groups > 1)
        share_groups(s, call);
    else
        share_images(s, call);
    return MG_OK;
}

#define WINOGRAD(id, part)                                                                         \
    const mg_kernel mg_cpu_winograd_images_##id = {.op = #id,                                      \
                                                   .name = "Winograd, few channels",               \
                                                   .accepts = part##_accepts,                      \
                                                   .prepare = part##_prepare,                      \
                                                   .run = part##_run,                              \
                                                   .release = mg_free}
WINOGRAD(conv2d, forward);
WINOGRAD(conv2d_grad_input, grad_input);
WINOGRAD(conv2d_grad_weight, grad_weight);
#undef WINOGRAD

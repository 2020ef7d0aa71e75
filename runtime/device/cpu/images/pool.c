/* Pooling of images; the loops are in simd/pool_loops.h.
 *
 * An image is a plane of h x w pixels with `width` neighbouring channels. Threads share bands: rows
 * of results, with the rows of images and of windows that they depend on. Each result is computed
 * by one thread, so the order of additions does not depend on the number of threads. The gradient
 * of max_pool2d finds the maximum again: it is the first element of the window that equals y.
 *
 * The loops take float16 and bfloat16 as floats: a band of them is converted when it is computed,
 * and its results are rounded. */
#include "device/cpu/halves.h"
#include "device/cpu/images/images.h"
#include "ops/attrs.h"

enum {
    FEWEST_WINDOWS = 8,   /* rows of windows that a band's rows of dx lie under, at least */
    MOST_COPIED = 1 << 16 /* elements of dx in a band of halves, unless that has the fewest rows */
};

/* The planes of images of shape x, pooled to shape y. */
static mg_pool_plane plane_of(const mg_kernel_plan *plan, const mg_shape *x, const mg_shape *y) {
    const mg_pool_attrs *a = plan->step->attrs;
    mg_pool_plane p = {.count = x->dim[0],
                       .h = x->dim[1],
                       .w = x->dim[2],
                       .oh = y->dim[1],
                       .ow = y->dim[2],
                       .width = x->dim[3],
                       .pairs = true};
    for (int axis = 0; axis < 2; axis++) {
        p.size[axis] = a->size.v[axis];
        p.stride[axis] = a->strides.v[axis];
        p.before[axis] = a->pads.v[2 * axis];
        if (p.size[axis] != 2 || p.stride[axis] != 2 || p.before[axis] || a->pads.v[2 * axis + 1])
            p.pairs = false;
    }
    return p;
}

/* The loops for the dtype of input 0. */
static const mg_simd_pool *loops_of(const mg_kernel_plan *plan) {
    return mg_simd_used->pool[mg_simd_index(plan->in[0].value->dtype)];
}

static bool has_halves(const mg_kernel_plan *plan) {
    return mg_dtype_is_half(plan->in[0].value->dtype);
}

/* Elements of a row of an image, and of a row of windows. */
static int64_t image_row(const mg_pool_plane *p) {
    return p->w * p->width;
}

static int64_t pooled_row(const mg_pool_plane *p) {
    return p->ow * p->width;
}

/* Threads for the images before pooling. */
static int team_of(const mg_pool_plane *p) {
    return mg_cpu_team(p->count * p->h * image_row(p));
}

/* ---- bands ---- */

/* Rows of an image and rows of windows as a plane of their own. */
typedef struct band {
    mg_pool_plane plane;
    int64_t image, pooled; /* elements before the first of those rows, of all images */
} band;

/* The rows of windows [from, to) of image k, with the rows of the image that they touch and its
 * rows [first, end). */
static band band_of(const mg_pool_plane *p, int64_t k, int64_t from, int64_t to, int64_t first,
                    int64_t end) {
    const int64_t top = from * p->stride[0] - p->before[0];
    const int64_t bottom = (to - 1) * p->stride[0] - p->before[0] + p->size[0];
    const int64_t low = from < to ? mg_smaller(first, mg_larger(top, 0)) : first;
    const int64_t high = from < to ? mg_larger(end, mg_smaller(bottom, p->h)) : end;
    band b = {*p, (k * p->h + low) * image_row(p), (k * p->oh + from) * pooled_row(p)};
    b.plane.count = 1;
    b.plane.h = high - low;
    b.plane.oh = to - from;
    b.plane.before[0] = low - top;
    return b;
}

/* The band of one row of windows. */
static band band_of_windows(const mg_pool_plane *p, int64_t k, int64_t window) {
    return band_of(p, k, window, window + 1, p->h, 0);
}

/* The band of the rows [first, end) of image k, with all windows that touch them. */
static band band_of_rows(const mg_pool_plane *p, int64_t k, int64_t first, int64_t end) {
    const int64_t past = first + p->before[0] - p->size[0]; /* no window from here on up touches */
    const int64_t from = past < 0 ? 0 : past / p->stride[0] + 1;
    const int64_t to = mg_smaller(mg_divide_up(end + p->before[0], p->stride[0]), p->oh);
    return band_of(p, k, mg_smaller(from, to), to, first, end);
}

/* Most elements of a band of `rows` rows of an image: of the image, and of windows. */
static int64_t most_image(const mg_pool_plane *p, int64_t rows) {
    return mg_smaller(rows + 2 * (p->size[0] - 1), p->h) * image_row(p);
}

static int64_t most_pooled(const mg_pool_plane *p, int64_t rows) {
    const int64_t windows = mg_divide_up(rows + p->size[0] - 1, p->stride[0]) + 1;
    return mg_smaller(windows, p->oh) * pooled_row(p);
}

/* ---- halves ---- */

/* n elements of an input from element `from` on: in place, or converted to `copy`. */
static const void *read_input(const mg_call *call, int input, int64_t from, int64_t n,
                              float *copy) {
    return mg_read_elements(call->in[input], call->plan->in[input].value->dtype, from, n, copy);
}

/* Where the loops write results from element `from` on: in place, or to `copy`, */
static void *target_of(const mg_call *call, int64_t from, float *copy) {
    return mg_target_elements(call->out[0], call->plan->out[0].value->dtype, from, copy);
}

/* from which n results are rounded, after the first `skipped` ones. */
static void round_results(const mg_call *call, int64_t from, int64_t skipped, int64_t n,
                          const float *copy) {
    if (copy)
        mg_round_elements(call->out[0], call->plan->out[0].value->dtype, from + skipped, n,
                          copy + skipped);
}

/* A copy in this thread's scratch of `floats` floats, from float `at` on; NULL without halves. */
static float *own_copy(const mg_call *call, int64_t floats, int64_t at) {
    float *copy = mg_own_copy(call->scratch, call->plan->in[0].value->dtype, floats);
    return copy ? copy + at : NULL;
}

/* Scratch for each thread's copies of so many elements, if there are halves. */
static void ask_for_copies(mg_kernel_plan *plan, const mg_pool_plane *p, int64_t floats) {
    plan->scratch = mg_copies_bytes(plan->in[0].value->dtype, floats, team_of(p));
}

/* ---- the kernels ---- */

static const char *pool_accepts(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->in[0].value->dtype) ? NULL : "not floating point";
}

static mg_pool_plane forward_plane(const mg_kernel_plan *plan) {
    return plane_of(plan, &plan->in[0].value->shape, &plan->out[0].value->shape);
}

/* Elements of the rows of an image under a row of windows, at most. */
static int64_t window_rows(const mg_pool_plane *p) {
    return mg_smaller(p->size[0], p->h) * image_row(p);
}

/* Copies: these rows, and the results. */
static mg_status forward_prepare(mg_kernel_plan *plan) {
    const mg_pool_plane p = forward_plane(plan);
    ask_for_copies(plan, &p, window_rows(&p) + pooled_row(&p));
    return MG_OK;
}

/* Threads share the rows of the result. */
static mg_status forward_run(const mg_call *call, void (*row)(const mg_pool_plane *p, const void *x,
                                                              void *y, int64_t oy)) {
    const mg_pool_plane p = forward_plane(call->plan);
    const int64_t image = window_rows(&p), n = pooled_row(&p);
#pragma omp parallel for schedule(static) num_threads(team_of(&p))
    for (int64_t i = 0; i < p.count * p.oh; i++) {
        const band b = band_of_windows(&p, i / p.oh, i % p.oh);
        float *x = own_copy(call, image + n, 0), *y = own_copy(call, image + n, image);
        row(&b.plane, read_input(call, 0, b.image, b.plane.h * image_row(&p), x),
            target_of(call, b.pooled, y), 0);
        round_results(call, b.pooled, 0, n, y);
    }
    return MG_OK;
}

/* The forward ops differ in their loop only. */
static mg_status max_pool_run(const mg_call *call) {
    return forward_run(call, loops_of(call->plan)->max_row);
}

static mg_status avg_pool_run(const mg_call *call) {
    return forward_run(call, loops_of(call->plan)->avg_row);
}

/* The rows of dx of a band: whole planes where that shares the work evenly, because windows that
 * reach across the first of the rows are read twice; fewer if they are copied. */
static int64_t band_rows(const mg_kernel_plan *plan, const mg_pool_plane *p) {
    if (p->pairs) return 2;
    const int64_t least = FEWEST_WINDOWS * p->stride[0];
    const int64_t most = has_halves(plan) ? mg_larger(MOST_COPIED / image_row(p), least) : p->h;
    return mg_even_share(p->count, p->h, mg_smaller(most, p->h), least, team_of(p));
}

static mg_pool_plane max_grad_plane(const mg_kernel_plan *plan) {
    return plane_of(plan, &plan->in[0].value->shape, &plan->in[1].value->shape);
}

static mg_pool_plane avg_grad_plane(const mg_kernel_plan *plan) {
    return plane_of(plan, &plan->out[0].value->shape, &plan->in[0].value->shape);
}

/* A band of dx, whose rows [first, end) are computed; image and pooled: the most elements that a
 * band of the call has before and after pooling. */
typedef struct grad_band {
    band in;
    int64_t first, end, image, pooled;
} grad_band;

/* Floats of a thread's copies for a band: up to two of the image and two of the windows, dx first.
 */
static int64_t grad_floats(const grad_band *g) {
    return 2 * (g->image + g->pooled);
}

/* Inputs x, y and dy. */
static void max_grad_band(const mg_call *call, const grad_band *g, void *dx) {
    const mg_simd_pool *l = loops_of(call->plan);
    const mg_pool_plane *p = &g->in.plane;
    const int64_t n = p->h * image_row(p), windows = p->oh * pooled_row(p);
    const int64_t floats = grad_floats(g);
    const void *x = read_input(call, 0, g->in.image, n, own_copy(call, floats, g->image));
    const void *y =
        read_input(call, 1, g->in.pooled, windows, own_copy(call, floats, 2 * g->image));
    const void *dy =
        read_input(call, 2, g->in.pooled, windows, own_copy(call, floats, floats - g->pooled));
    if (p->pairs && p->oh == 1)
        l->max_grad_row(p, x, y, dy, dx, 0);
    else
        l->max_grad_rows(p, x, y, dy, dx, g->first, g->end);
}

/* Input dy. */
static void avg_grad_band(const mg_call *call, const grad_band *g, void *dx) {
    const mg_pool_plane *p = &g->in.plane;
    const void *dy = read_input(call, 0, g->in.pooled, p->oh * pooled_row(p),
                                own_copy(call, grad_floats(g), g->image));
    loops_of(call->plan)->avg_grad_rows(p, dy, dx, g->first, g->end);
}

/* Computes the rows [first, end) of image k's dx. */
static void run_band(const mg_call *call, const mg_pool_plane *p, int64_t k, int64_t first,
                     int64_t end, int64_t rows,
                     void (*compute)(const mg_call *call, const grad_band *g, void *dx)) {
    grad_band g = {.in = band_of_rows(p, k, first, end),
                   .image = most_image(p, rows),
                   .pooled = most_pooled(p, rows)};
    const int64_t row = image_row(p);
    g.first = k * p->h + first - g.in.image / row;
    g.end = g.first + end - first;
    float *copy = own_copy(call, grad_floats(&g), 0);
    compute(call, &g, target_of(call, g.in.image, copy));
    round_results(call, g.in.image, g.first * row, (end - first) * row, copy);
}

static mg_status grad_prepare(mg_kernel_plan *plan, mg_pool_plane p) {
    if (mg_count(&plan->out[0]) == 0) return MG_OK;
    const int64_t rows = band_rows(plan, &p);
    const grad_band g = {.image = most_image(&p, rows), .pooled = most_pooled(&p, rows)};
    ask_for_copies(plan, &p, grad_floats(&g));
    return MG_OK;
}

/* Threads share the bands of dx. */
static mg_status grad_run(const mg_call *call, mg_pool_plane p,
                          void (*compute)(const mg_call *call, const grad_band *g, void *dx)) {
    if (mg_count(&call->plan->out[0]) == 0) return MG_OK;
    const int64_t rows = band_rows(call->plan, &p);
#pragma omp parallel for collapse(2) schedule(static) num_threads(team_of(&p))
    for (int64_t k = 0; k < p.count; k++)
        for (int64_t first = 0; first < p.h; first += rows)
            run_band(call, &p, k, first, mg_smaller(first + rows, p.h), rows, compute);
    return MG_OK;
}

/* 2 x 2 windows that do not overlap are read before their part of dx is written, so dx may be
 * written over x. */
static mg_status max_grad_prepare(mg_kernel_plan *plan) {
    const mg_pool_plane p = max_grad_plane(plan);
    plan->overwrites = p.pairs;
    return grad_prepare(plan, p);
}

static mg_status max_grad_run(const mg_call *call) {
    return grad_run(call, max_grad_plane(call->plan), max_grad_band);
}

static mg_status avg_grad_prepare(mg_kernel_plan *plan) {
    return grad_prepare(plan, avg_grad_plane(plan));
}

static mg_status avg_grad_run(const mg_call *call) {
    return grad_run(call, avg_grad_plane(call->plan), avg_grad_band);
}

#define POOL(id) .op = #id, .name = #id, .accepts = pool_accepts

const mg_kernel mg_cpu_max_pool2d = {POOL(max_pool2d), .prepare = forward_prepare,
                                     .run = max_pool_run};
const mg_kernel mg_cpu_max_pool2d_grad = {POOL(max_pool2d_grad), .prepare = max_grad_prepare,
                                          .run = max_grad_run};
const mg_kernel mg_cpu_avg_pool2d = {POOL(avg_pool2d), .prepare = forward_prepare,
                                     .run = avg_pool_run};
const mg_kernel mg_cpu_avg_pool2d_grad = {POOL(avg_pool2d_grad), .prepare = avg_grad_prepare,
                                          .run = avg_grad_run};

/* affine_transform and its gradient.
 *
 * For each row of the result, first the points of the image at which it reads are computed
 * (mg_sample), then the pixels there are read. Threads share the rows of the result; for the
 * gradient, which adds to pixels in any order, they share the images. Nearest neighbours are
 * copies, whatever the dtype. Compiled without contraction to fused multiply-adds: see
 * ops/transform_formulas.h. */
#include "core/alloc.h"
#include "device/cpu/images/images.h"
#include "ops/attrs.h"
#include "ops/transform_formulas.h"
#include <omp.h>
#include <string.h>

/* Sizes and operands that are the same for all rows of a call. */
typedef struct transform {
    const mg_transform_attrs *attrs;
    int64_t h, w, c;   /* of the images that are read */
    int64_t rows, row; /* of a result: rows, and pixels of a row */
    const mg_port *port;
    const void *numbers; /* the transforms */
} transform;

/* Steps with transforms in float16 or bfloat16 are upcast (upcast.c). */
static const char *accepts_dtypes(const mg_kernel_plan *plan, bool any) {
    const mg_dtype t = plan->in[0].value->dtype, u = plan->in[1].value->dtype;
    if (u != MG_F32 && u != MG_F64) return "transforms are neither float32 nor float64";
    return any || t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

static bool is_nearest(const mg_kernel_plan *plan) {
    return ((const mg_transform_attrs *)plan->step->attrs)->interpolation == 0;
}

static const char *transform_accepts(const mg_kernel_plan *plan) {
    return accepts_dtypes(plan, is_nearest(plan));
}

static const char *transform_grad_accepts(const mg_kernel_plan *plan) {
    return accepts_dtypes(plan, false);
}

/* The plan's state: the number of threads that scratch has room for. */
static int team_of(const mg_call *call) {
    return *(const int *)call->plan->state;
}

/* Room for the points of a row, for each thread. */
static mg_status prepare_points(mg_kernel_plan *plan, const mg_shape *result) {
    size_t bytes;
    int *team = plan->state = mg_alloc(sizeof *team);
    if (!team) return MG_OOM;
    *team = mg_cpu_team(mg_count(&plan->in[0]) + mg_count(&plan->out[0]));
    if (!mg_size_mul((size_t)result->dim[2], sizeof(mg_sample), &bytes) ||
        !mg_size_mul(bytes, (size_t)*team, &plan->scratch))
        return mg_fail(MG_OOM, "%s: a row is too long", plan->step->op->name);
    return MG_OK;
}

static mg_status transform_prepare(mg_kernel_plan *plan) {
    return prepare_points(plan, &plan->out[0].value->shape);
}

static mg_status transform_grad_prepare(mg_kernel_plan *plan) {
    return prepare_points(plan, &plan->in[0].value->shape);
}

/* ---- points ---- */

/* `image`: the shape of the images that are read; `result`: the shape of the result. */
static transform transform_of(const mg_call *call, const mg_shape *image, const mg_shape *result) {
    return (transform){.attrs = call->plan->step->attrs,
                       .h = image->dim[1],
                       .w = image->dim[2],
                       .c = image->dim[3],
                       .rows = result->dim[1],
                       .row = result->dim[2],
                       .port = &call->plan->in[1],
                       .numbers = call->in[1]};
}

/* The eight numbers of image n. */
static void read_transform(const transform *t, int64_t n, double number[8]) {
    const mg_shape *s = &t->port->value->shape;
    const int64_t count = s->dim[s->rank - 1], at = s->rank == 2 && s->dim[0] > 1 ? n * count : 0;
    for (int64_t i = 0; i < 8; i++) {
        if (i >= count)
            number[i] = 0;
        else if (t->port->value->dtype == MG_F64)
            number[i] = ((const double *)t->numbers)[at + i];
        else
            number[i] = (double)((const float *)t->numbers)[at + i];
    }
}

/* The points at which row oy of the result reads. */
static void find_points(const transform *t, const double number[8], int64_t oy, mg_sample *s) {
    const int fill = (int)t->attrs->fill_mode, bilinear = (int)t->attrs->interpolation;
    for (int64_t ox = 0; ox < t->row; ox++, s++) {
        double x, y;
        *s = (mg_sample){.outside = 1};
        if (!mg_transform_point(number, ox, oy, &x, &y)) continue;
        const mg_transform_axis v =
            mg_transform_pixels(mg_transform_fold(y, t->h, fill), t->h, bilinear);
        const mg_transform_axis u =
            mg_transform_pixels(mg_transform_fold(x, t->w, fill), t->w, bilinear);
        s->outside = 1 - v.inside * u.inside;
        if (v.count == 0 || u.count == 0) continue;
        s->first = (int64_t)v.first * t->w + u.first;
        s->rows = v.count, s->columns = u.count;
        memcpy(s->row, v.weight, sizeof s->row);
        memcpy(s->column, u.weight, sizeof s->column);
    }
}

/* ---- the kernels ---- */

/* Nearest neighbours: copies pixels of `bytes` bytes. Points outside get `fill`, one element, in
 * each channel. */
static void copy_points(const mg_sample *s, int64_t n, const char *image, const void *fill,
                        size_t element, size_t bytes, char *y) {
    for (int64_t p = 0; p < n; p++, s++, y += bytes) {
        if (s->rows > 0)
            memcpy(y, image + s->first * (int64_t)bytes, bytes);
        else
            for (size_t k = 0; k < bytes; k += element) memcpy(y + k, fill, element);
    }
}

static mg_status transform_run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const mg_shape *image = &plan->in[0].value->shape, *result = &plan->out[0].value->shape;
    const transform t = transform_of(call, image, result);
    const mg_dtype dtype = plan->in[0].value->dtype;
    const size_t size = mg_dtype_size(dtype);
    const int64_t step = t.h * t.w * t.c * (int64_t)size, row = t.row * t.c * (int64_t)size;
    const bool nearest = is_nearest(plan);
    uint64_t fill[1];
    mg_from_double(fill, &t.attrs->fill_value, dtype, 1);
    if (row == 0) return MG_OK;
#pragma omp parallel num_threads(team_of(call))
    {
        mg_sample *points = (mg_sample *)call->scratch + omp_get_thread_num() * t.row;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < result->dim[0] * t.rows; i++) {
            const char *x = (const char *)call->in[0] + i / t.rows * step;
            char *y = (char *)call->out[0] + i * row;
            double number[8];
            read_transform(&t, i / t.rows, number);
            find_points(&t, number, i % t.rows, points);
            if (nearest)
                copy_points(points, t.row, x, fill, size, (size_t)t.c * size, y);
            else
                mg_simd_used->resize[mg_simd_index(dtype)]->sample_row(points, t.row, x, t.w, t.c,
                                                                       t.attrs->fill_value, y);
        }
    }
    return MG_OK;
}

static mg_status transform_grad_run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const mg_shape *image = &plan->out[0].value->shape, *result = &plan->in[0].value->shape;
    const transform t = transform_of(call, image, result);
    const mg_dtype dtype = plan->in[0].value->dtype;
    const int64_t size = (int64_t)mg_dtype_size(dtype);
    const int64_t step = t.h * t.w * t.c * size, row = t.row * t.c * size;
#pragma omp parallel num_threads(team_of(call))
    {
        mg_sample *points = (mg_sample *)call->scratch + omp_get_thread_num() * t.row;
#pragma omp for schedule(static)
        for (int64_t n = 0; n < image->dim[0]; n++) {
            char *dx = (char *)call->out[0] + n * step;
            double number[8];
            read_transform(&t, n, number);
            memset(dx, 0, (size_t)step);
            for (int64_t oy = 0; oy < t.rows; oy++) {
                const char *dy = (const char *)call->in[0] + (n * t.rows + oy) * row;
                find_points(&t, number, oy, points);
                mg_simd_used->resize[mg_simd_index(dtype)]->spread_row(points, t.row, dy, t.w, t.c,
                                                                       dx);
            }
        }
    }
    return MG_OK;
}

const mg_kernel mg_cpu_affine_transform = {.op = "affine_transform",
                                           .name = "affine_transform",
                                           .accepts = transform_accepts,
                                           .prepare = transform_prepare,
                                           .run = transform_run,
                                           .release = mg_free};
const mg_kernel mg_cpu_affine_transform_grad = {.op = "affine_transform_grad",
                                                .name = "affine_transform",
                                                .accepts = transform_grad_accepts,
                                                .prepare = transform_grad_prepare,
                                                .run = transform_grad_run,
                                                .release = mg_free};

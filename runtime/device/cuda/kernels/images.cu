/* image_resize and its gradient, affine_transform: see ops/resize.c and ops/transform.c. A block
 * takes a row of pixels of the result, a thread some channels of a pixel.
 *
 * The source pixels of each row and column are computed once per launch, by `taps`, into a table.
 * This file is compiled without contraction of a * b + c to a fused multiply-add, so that
 * coordinates equal those of the reference. */
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"

#define MG_FORMULA DEVICE
#include "device/cuda/kernels/image_params.h"
#include "ops/transform_formulas.h"

/* A thread makes one row of a table at a time. */
KERNEL(taps, taps_params) {
    for (int64_t i = FIRST; i < p.table.n; i += STEP) {
        int64_t first, last;
        if (p.back)
            mg_resize_users(&p.axis, i, &first, &last);
        else
            mg_resize_cells(&p.axis, i, &first, &last);
        p.table.first[i] = first <= last ? (int)first : 0;
        p.table.count[i] = first <= last ? (int)(last - first + 1) : 0;
        for (int64_t k = first; k <= last; k++) {
            const int64_t o = p.back ? k : i, at = i * p.table.most + (k - first);
            const double w =
                mg_resize_kernel(&p.axis, o, p.back ? i : k) / mg_resize_sum(&p.axis, o);
            if (p.table.wide)
                ((double *)p.table.weight)[at] = w;
            else
                ((float *)p.table.weight)[at] = (float)w;
        }
    }
}

/* Nearest neighbours: pixels are copied in units, whatever the dtype. */
#define RESIZE_COPY(unit)                                                                          \
    KERNEL(resize_##unit, resize_params) {                                                         \
        for (int64_t r = blockIdx.x; r < p.n * p.oh; r += gridDim.x)                               \
            for (int t = threadIdx.x; t < p.ow * p.c; t += blockDim.x) {                           \
                const int64_t row = r / p.oh * p.h + p.rows.first[r % p.oh];                       \
                const int64_t from = (row * p.w + p.columns.first[t / p.c]) * p.c + t % p.c;       \
                ((unit *)p.out)[r * p.ow * p.c + t] = ((const unit *)p.x)[from];                   \
            }                                                                                      \
    }
RESIZE_COPY(unit_1)
RESIZE_COPY(unit_2)
RESIZE_COPY(unit_4)
RESIZE_COPY(unit_8)
RESIZE_COPY(unit_16)

/* The transform of image n. */
DEVICE void mg_transform_numbers(const transform_params *p, int64_t n, double t[8]) {
    for (int i = 0; i < 8; i++) {
        const int64_t at = (p->each ? n * p->numbers : 0) + i;
        if (i >= p->numbers)
            t[i] = 0;
        else if (p->type == MG_TRANSFORM_F64)
            t[i] = mg_load_f64(p->transforms, at);
        else if (p->type == MG_TRANSFORM_F32)
            t[i] = mg_load_f32(p->transforms, at);
        else
            t[i] = p->type == MG_TRANSFORM_F16 ? mg_load_f16(p->transforms, at)
                                               : mg_load_bf16(p->transforms, at);
    }
}

/* The pixels that pixel (row r of all results, column) reads: rows in at[0], columns in at[1]. */
DEVICE void mg_transform_read(const transform_params *p, int64_t r, int column, int bilinear,
                              mg_transform_axis at[2]) {
    double t[8], x, y;
    mg_transform_numbers(p, r / p->oh, t);
    at[0].count = at[1].count = 0;
    at[0].inside = at[1].inside = 0;
    if (!mg_transform_point(t, column, r % p->oh, &x, &y)) return;
    at[0] = mg_transform_pixels(mg_transform_fold(y, p->h, p->mode), p->h, bilinear);
    at[1] = mg_transform_pixels(mg_transform_fold(x, p->w, p->mode), p->w, bilinear);
}

#define TRANSFORM_COPY(unit)                                                                       \
    KERNEL(transform_##unit, transform_params) {                                                   \
        for (int64_t r = blockIdx.x; r < p.n * p.oh; r += gridDim.x)                               \
            for (int t = threadIdx.x; t < p.ow * p.c; t += blockDim.x) {                           \
                mg_transform_axis at[2];                                                           \
                mg_transform_read(&p, r, t / p.c, 0, at);                                          \
                const int64_t row = r / p.oh * p.h + at[0].first;                                  \
                const int64_t from = (row * p.w + at[1].first) * p.c + t % p.c;                    \
                ((unit *)p.out)[r * p.ow * p.c + t] = at[0].count && at[1].count                   \
                                                          ? ((const unit *)p.x)[from]              \
                                                          : *(const unit *)p.value;                \
            }                                                                                      \
    }
TRANSFORM_COPY(unit_1)
TRANSFORM_COPY(unit_2)
TRANSFORM_COPY(unit_4)
TRANSFORM_COPY(unit_8)
TRANSFORM_COPY(unit_16)

#define BODY "device/cuda/kernels/image_body.h"
#include "device/cuda/kernels/each_float.h"

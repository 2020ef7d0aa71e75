/* image_resize, its gradient, and affine_transform (kernels/images.cu). The gradient of
 * affine_transform would need atomic additions, whose order depends on timing, so it runs on the
 * host. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/image_params.h"
#include "ops/attrs.h"
#include "ops/transform_formulas.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 128, VECTOR = 4 /* channels that a thread takes at once */, UNITS = 5 };

_Static_assert(offsetof(transform_params, value) % 16 == 0, "it is loaded 16 bytes at once");

typedef struct state {
    CUfunction one, vector, taps; /* vector: NULL if the channels are no multiple of VECTOR */
    CUfunction copies[UNITS];     /* nearest: for units of 1 to 16 bytes; NULL below an element */
    resize_params resize;         /* without the addresses */
    taps_params rows, columns;    /* likewise */
    transform_params transform;
    size_t element; /* bytes of an element */
} state;

/* Whether positions in a row of an image fit an int. */
static bool fits_int(const mg_shape *s) {
    for (int i = 1; i < 4; i++)
        if (s->dim[i] > INT32_MAX / 32) return false;
    return s->dim[2] * s->dim[3] <= INT32_MAX / 32;
}

static const char *accepts_images(const mg_kernel_plan *plan, bool copies) {
    if (!copies && !mg_dtype_is_float(plan->out[0].value->dtype)) return "only floating dtypes";
    return fits_int(&plan->in[0].value->shape) && fits_int(&plan->out[0].value->shape)
               ? NULL
               : "too large an image";
}

/* Finds the kernels: those that copy, <kind>_unit_1 and so on, or <kind>_f32 and its like. */
static mg_status find_kernels(const mg_kernel_plan *plan, const char *kind, bool copies, state *s) {
    const mg_value *x = plan->in[0].value;
    char name[32];
    s->element = mg_dtype_size(x->dtype);
    for (int i = __builtin_ctzll(s->element); copies && i < UNITS; i++) {
        snprintf(name, sizeof name, "%s_unit_%d", kind, 1 << i);
        MG_TRY(mg_cuda_find(plan->device, name, &s->copies[i]));
    }
    if (copies) return MG_OK;
    if (x->shape.dim[3] % VECTOR == 0) {
        snprintf(name, sizeof name, "%s_vector", kind);
        MG_TRY(mg_cuda_find_typed(plan->device, name, x->dtype, &s->vector));
    }
    return mg_cuda_find_typed(plan->device, kind, x->dtype, &s->one);
}

/* Chooses the kernel for the addresses, and sets *c to how many of its units a pixel has. */
static CUfunction choose_kernel(const mg_call *call, int *c) {
    const state *s = call->plan->state;
    const uintptr_t all = (uintptr_t)call->in[0] | (uintptr_t)call->out[0];
    const int64_t channels = call->plan->in[0].value->shape.dim[3];
    *c = (int)channels;
    if (s->one) {
        if (!s->vector || all % (VECTOR * s->element)) return s->one;
        *c = (int)channels / VECTOR;
        return s->vector;
    }
    const uint64_t bytes = (uint64_t)channels * s->element;
    uint64_t unit = 16;
    while ((all | bytes) % unit) unit /= 2;
    *c = (int)(bytes / unit);
    return s->copies[__builtin_ctzll(unit)];
}

/* Launches one block per row of the result, up to a limit beyond which blocks loop over rows. */
static mg_status launch_rows(const mg_call *call, CUfunction kernel, const void *params) {
    const mg_shape *y = &call->plan->out[0].value->shape;
    const int64_t rows = y->dim[0] * y->dim[1], most = 1 << 20;
    if (mg_shape_count(y) == 0) return MG_OK;
    return mg_cuda_launch(call->plan->device, kernel, rows < most ? rows : most, THREADS, 0,
                          params);
}

/* ---- image_resize ---- */

static bool is_copy(const mg_kernel_plan *plan) {
    const mg_resize_attrs *a = plan->step->attrs;
    return a->interpolation == MG_RESIZE_NEAREST &&
           strcmp(plan->step->op->name, "image_resize") == 0;
}

static const char *accepts_resize(const mg_kernel_plan *plan) {
    return accepts_images(plan, is_copy(plan));
}

/* The table of one axis, without addresses. */
static taps_params taps_of(const mg_kernel_plan *plan, int axis, const mg_shape *from,
                           const mg_shape *to, bool back) {
    const mg_resize_attrs *a = plan->step->attrs;
    taps_params p = {.axis = {.from = from->dim[1 + axis],
                              .to = to->dim[1 + axis],
                              .kind = (int)a->interpolation,
                              .antialias = (int)a->antialias},
                     .back = back};
    p.table.n = back ? p.axis.from : p.axis.to;
    p.table.wide = plan->in[0].value->dtype == MG_F64;
    for (int64_t i = 0; i < p.table.n; i++) {
        int64_t first, last;
        if (back)
            mg_resize_users(&p.axis, i, &first, &last);
        else
            mg_resize_cells(&p.axis, i, &first, &last);
        if (last - first + 1 > p.table.most) p.table.most = (int)(last - first + 1);
    }
    return p;
}

/* Bytes of a table: weights first, since they may be doubles. */
static size_t weight_bytes(const taps_table *t) {
    return (size_t)t->n * (size_t)t->most * (t->wide ? sizeof(double) : sizeof(float));
}

static size_t table_bytes(const taps_table *t) {
    return (weight_bytes(t) + (size_t)t->n * 2 * sizeof(int) + 15) / 16 * 16;
}

static mg_status prepare_resize_between(mg_kernel_plan *plan, const mg_shape *from,
                                        const mg_shape *to, bool back) {
    const mg_shape *x = &plan->in[0].value->shape, *y = &plan->out[0].value->shape;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->rows = taps_of(plan, 0, from, to, back);
    s->columns = taps_of(plan, 1, from, to, back);
    s->resize = (resize_params){.n = x->dim[0],
                                .h = (int)x->dim[1],
                                .w = (int)x->dim[2],
                                .oh = (int)y->dim[1],
                                .ow = (int)y->dim[2]};
    plan->scratch = table_bytes(&s->rows.table) + table_bytes(&s->columns.table);
    MG_TRY(mg_cuda_find(plan->device, "taps", &s->taps));
    return find_kernels(plan, "resize", is_copy(plan), s);
}

static mg_status prepare_resize(mg_kernel_plan *plan) {
    return prepare_resize_between(plan, &plan->in[0].value->shape, &plan->out[0].value->shape,
                                  false);
}

static mg_status prepare_resize_grad(mg_kernel_plan *plan) {
    return prepare_resize_between(plan, &plan->out[0].value->shape, &plan->in[0].value->shape,
                                  true);
}

/* Fills the table at `memory`; *table is its copy with the addresses. */
static mg_status make_table(const mg_call *call, const taps_params *given, char *memory,
                            taps_table *table) {
    const state *s = call->plan->state;
    taps_params p = *given;
    p.table.weight = memory;
    p.table.first = (int *)(void *)(memory + weight_bytes(&p.table));
    p.table.count = p.table.first + p.table.n;
    *table = p.table;
    return mg_cuda_launch(call->plan->device, s->taps,
                          mg_cuda_blocks(call->plan->device, p.table.n, THREADS), THREADS, 0, &p);
}

static mg_status run_resize(const mg_call *call) {
    const state *s = call->plan->state;
    char *scratch = call->scratch;
    resize_params p = s->resize;
    if (mg_shape_count(&call->plan->out[0].value->shape) == 0) return MG_OK;
    MG_TRY(make_table(call, &s->rows, scratch, &p.rows));
    MG_TRY(make_table(call, &s->columns, scratch + table_bytes(&s->rows.table), &p.columns));
    p.x = call->in[0];
    p.out = call->out[0];
    const CUfunction kernel = choose_kernel(call, &p.c);
    return launch_rows(call, kernel, &p);
}

/* ---- affine_transform ---- */

static bool is_nearest(const mg_kernel_plan *plan) {
    return ((const mg_transform_attrs *)plan->step->attrs)->interpolation == 0;
}

static const char *accepts_transform(const mg_kernel_plan *plan) {
    return accepts_images(plan, is_nearest(plan));
}

static int type_of(mg_dtype t) {
    return t == MG_F64   ? MG_TRANSFORM_F64
           : t == MG_F32 ? MG_TRANSFORM_F32
           : t == MG_F16 ? MG_TRANSFORM_F16
                         : MG_TRANSFORM_BF16;
}

static mg_status prepare_transform(mg_kernel_plan *plan) {
    const mg_transform_attrs *a = plan->step->attrs;
    const mg_value *x = plan->in[0].value, *t = plan->in[1].value;
    const mg_shape *y = &plan->out[0].value->shape;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->transform = (transform_params){.fill = a->fill_value,
                                      .n = x->shape.dim[0],
                                      .h = (int)x->shape.dim[1],
                                      .w = (int)x->shape.dim[2],
                                      .oh = (int)y->dim[1],
                                      .ow = (int)y->dim[2],
                                      .numbers = (int)t->shape.dim[t->shape.rank - 1],
                                      .each = t->shape.rank == 2 && t->shape.dim[0] > 1,
                                      .type = type_of(t->dtype),
                                      .mode = (int)a->fill_mode};
    MG_TRY(find_kernels(plan, "transform", is_nearest(plan), s));
    for (size_t at = 0; at < sizeof s->transform.value; at += s->element)
        mg_from_double((char *)s->transform.value + at, &a->fill_value, x->dtype, 1);
    return MG_OK;
}

static mg_status run_transform(const mg_call *call) {
    const state *s = call->plan->state;
    transform_params p = s->transform;
    p.x = call->in[0];
    p.transforms = call->in[1];
    p.out = call->out[0];
    if (mg_shape_count(&call->plan->out[0].value->shape) == 0) return MG_OK;
    const CUfunction kernel = choose_kernel(call, &p.c);
    return launch_rows(call, kernel, &p);
}

const mg_kernel mg_cuda_image_resize = {.op = "image_resize",
                                        .name = "image_resize",
                                        .accepts = accepts_resize,
                                        .prepare = prepare_resize,
                                        .run = run_resize,
                                        .release = mg_free};
const mg_kernel mg_cuda_image_resize_grad = {.op = "image_resize_grad",
                                             .name = "image_resize",
                                             .accepts = accepts_resize,
                                             .prepare = prepare_resize_grad,
                                             .run = run_resize,
                                             .release = mg_free};
const mg_kernel mg_cuda_affine_transform = {.op = "affine_transform",
                                            .name = "affine_transform",
                                            .accepts = accepts_transform,
                                            .prepare = prepare_transform,
                                            .run = run_transform,
                                            .release = mg_free};

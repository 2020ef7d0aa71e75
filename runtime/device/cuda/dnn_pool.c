/* Pooling by cuDNN, where it means the same: as much padding before an image as behind it. The
 * gradient of max_pool2d is not among it, because which of equal maxima gets it is not said. */
#include "core/alloc.h"
#include "device/cuda/dnn_legacy.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"
#include <string.h>

typedef struct state {
    cudnnPoolingDescriptor_t pooling;
    cudnnTensorDescriptor_t image, pooled;
} state;

/* Of a plan: the shapes of the image and of what is pooled. */
static const mg_shape *image_of(const mg_kernel_plan *plan, bool gradient) {
    return &(gradient ? plan->out : plan->in)->value->shape;
}

static const mg_shape *pooled_of(const mg_kernel_plan *plan, bool gradient) {
    return &(gradient ? plan->in : plan->out)->value->shape;
}

static bool is_gradient(const mg_kernel_plan *plan) {
    return strcmp(plan->step->op->name, "avg_pool2d_grad") == 0;
}

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_pool_attrs *a = plan->step->attrs;
    const bool gradient = is_gradient(plan);
    const mg_shape *image = image_of(plan, gradient), *pooled = pooled_of(plan, gradient);
    if (!mg_dtype_is_float(plan->out[0].value->dtype)) return "only floating dtypes";
    if (mg_shape_count(image) == 0 || mg_shape_count(pooled) == 0) return "empty";
    if (!mg_dnn_fits(image)) return "too large an image";
    for (int i = 0; i < 2; i++) {
        const int64_t before = a->pads.v[2 * i], behind = a->pads.v[2 * i + 1];
        const int64_t cells = image->dim[1 + i] + 2 * before - a->size.v[i];
        if (before != behind) return "padding on one side";
        if (before >= a->size.v[i] || a->strides.v[i] > INT32_MAX) return "wide strides or padding";
        if (cells / a->strides.v[i] + 1 != pooled->dim[1 + i]) return "windows beyond the image";
    }
    return mg_dnn_legacy_missing();
}

static mg_status describe(state *s, const mg_kernel_plan *plan) {
    const mg_pool_attrs *a = plan->step->attrs;
    const bool gradient = is_gradient(plan), max = strcmp(plan->step->op->name, "max_pool2d") == 0;
    const mg_dtype dtype = plan->out[0].value->dtype;
    const int64_t *size = a->size.v, *pads = a->pads.v, *strides = a->strides.v;
    MG_TRY(mg_dnn_image(&s->image, image_of(plan, gradient), dtype));
    MG_TRY(mg_dnn_image(&s->pooled, pooled_of(plan, gradient), dtype));
    MG_TRY(mg_dnn_check(mg_dnn_old.cudnnCreatePoolingDescriptor(&s->pooling), "describe pooling"));
    const cudnnStatus_t status = mg_dnn_old.cudnnSetPooling2dDescriptor(
        s->pooling, max ? CUDNN_POOLING_MAX : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
        CUDNN_PROPAGATE_NAN, (int)size[0], (int)size[1], (int)pads[0], (int)pads[2],
        (int)strides[0], (int)strides[1]);
    return mg_dnn_check(status, "describe pooling");
}

static mg_status prepare(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    cudnnHandle_t handle;
    if (!s) return MG_OOM;
    MG_TRY(mg_cuda_enter(plan->device));
    MG_TRY(mg_dnn_handle(plan->device, &handle));
    return describe(s, plan);
}

static mg_status run(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_dtype dtype = call->plan->out[0].value->dtype;
    const void *one = mg_dnn_factor(dtype, true), *zero = mg_dnn_factor(dtype, false);
    cudnnHandle_t handle;
    MG_TRY(mg_dnn_handle(call->plan->device, &handle));
    const cudnnStatus_t status = mg_dnn_old.cudnnPoolingForward(
        handle, s->pooling, one, s->image, call->in[0], zero, s->pooled, call->out[0]);
    return mg_dnn_check(status, "pool");
}

/* Neither the image nor what was pooled is looked at: any addresses do. */
static mg_status run_gradient(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_dtype dtype = call->plan->out[0].value->dtype;
    const void *one = mg_dnn_factor(dtype, true), *zero = mg_dnn_factor(dtype, false);
    cudnnHandle_t handle;
    MG_TRY(mg_dnn_handle(call->plan->device, &handle));
    const cudnnStatus_t status = mg_dnn_old.cudnnPoolingBackward(
        handle, s->pooling, one, s->pooled, call->in[0], s->pooled, call->in[0], s->image,
        call->out[0], zero, s->image, call->out[0]);
    return mg_dnn_check(status, "pool backwards");
}

static void release(void *kept) {
    const state *s = kept;
    if (s->pooling) mg_dnn_old.cudnnDestroyPoolingDescriptor(s->pooling);
    if (s->image) mg_dnn_old.cudnnDestroyTensorDescriptor(s->image);
    if (s->pooled) mg_dnn_old.cudnnDestroyTensorDescriptor(s->pooled);
    mg_free(kept);
}

#define POOL(id, RUN)                                                                              \
    const mg_kernel mg_cuda_dnn_##id = {.op = #id,                                                 \
                                        .name = "cuDNN",                                           \
                                        .accepts = accepts,                                        \
                                        .prepare = prepare,                                        \
                                        .run = RUN,                                                \
                                        .release = release}
POOL(max_pool2d, run);
POOL(avg_pool2d, run);
POOL(avg_pool2d_grad, run_gradient);

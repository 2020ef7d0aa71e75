/* batch_norm by cuDNN: its form for given statistics. Ours are those of all devices in training
 * too, which its form for training does not have. */
#include "core/alloc.h"
#include "device/cuda/dnn_legacy.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"

enum { ALIGNMENT = 16 };

typedef struct state {
    cudnnTensorDescriptor_t x, channels;
} state;

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const mg_norm_attrs *a = plan->step->attrs;
    const mg_dtype dtype = x->dtype, parameters = dtype == MG_F64 ? MG_F64 : MG_F32;
    if (!mg_dtype_is_float(dtype)) return "only floating dtypes";
    if (mg_shape_count(&x->shape) == 0) return "empty";
    if (!mg_dnn_fits(&x->shape)) return "too large";
    if (!(a->epsilon >= CUDNN_BN_MIN_EPSILON)) return "a negative epsilon";
    if (mg_value_bytes(plan->in[1].value) / 2 % ALIGNMENT) return "variances are not aligned";
    for (int i = 1; i < 4; i++)
        if (plan->in[i].value->dtype != parameters) return "parameters of another dtype";
    return mg_dnn_legacy_missing();
}

static mg_status prepare(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    cudnnHandle_t handle;
    if (!s) return MG_OOM;
    MG_TRY(mg_cuda_enter(plan->device));
    MG_TRY(mg_dnn_handle(plan->device, &handle));
    MG_TRY(mg_dnn_image(&s->x, &x->shape, x->dtype));
    return mg_dnn_image(&s->channels, &plan->in[2].value->shape, plan->in[2].value->dtype);
}

static mg_status run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const mg_value *x = plan->in[0].value, *moments = plan->in[1].value;
    const void *one = mg_dnn_factor(x->dtype, true), *zero = mg_dnn_factor(x->dtype, false);
    const char *mean = call->in[1], *variance = mean + mg_value_bytes(moments) / 2;
    cudnnHandle_t handle;
    MG_TRY(mg_dnn_handle(plan->device, &handle));
    const cudnnStatus_t status = mg_dnn_old.cudnnBatchNormalizationForwardInference(
        handle, CUDNN_BATCHNORM_SPATIAL, one, zero, s->x, call->in[0], s->x, call->out[0],
        s->channels, call->in[2], call->in[3], mean, variance,
        ((const mg_norm_attrs *)plan->step->attrs)->epsilon);
    return mg_dnn_check(status, "normalize");
}

static void release(void *kept) {
    const state *s = kept;
    if (s->x) mg_dnn_old.cudnnDestroyTensorDescriptor(s->x);
    if (s->channels) mg_dnn_old.cudnnDestroyTensorDescriptor(s->channels);
    mg_free(kept);
}

const mg_kernel mg_cuda_dnn_batch_norm = {.op = "batch_norm",
                                          .name = "cuDNN",
                                          .accepts = accepts,
                                          .prepare = prepare,
                                          .run = run,
                                          .release = release};

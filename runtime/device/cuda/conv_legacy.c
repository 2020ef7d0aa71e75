/* conv2d and its backward forms by cuDNN's legacy calls, where its graph interface has no plan. A
 * bias and relu are added by a kernel of our own. */
#include "core/alloc.h"
#include "core/precision.h"
#include "device/cuda/bias_relu.h"
#include "device/cuda/dnn_legacy.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"
#include <string.h>

enum { MOST_OPTIONS = 8 };

typedef enum form { FORWARD, INPUT, WEIGHT } form;

typedef struct option { /* what the three kinds of algorithms have in common */
    int algorithm;
    cudnnStatus_t status;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t math;
} option;

typedef struct state {
    form form;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    option chosen;
    mg_bias_relu bias_relu;
} state;

/* ---- the case ---- */

static form form_of(const mg_kernel_plan *plan) {
    const char *op = plan->step->op->name;
    return strcmp(op, "conv2d") == 0              ? FORWARD
           : strcmp(op, "conv2d_grad_input") == 0 ? INPUT
                                                  : WEIGHT;
}

/* The ports of image, kernel and result, whichever is made. */
static mg_port *port_x(const mg_kernel_plan *plan) {
    return form_of(plan) == INPUT ? plan->out : plan->in;
}

static mg_port *port_w(const mg_kernel_plan *plan) {
    return form_of(plan) == WEIGHT ? plan->out : plan->in + 1;
}

static mg_port *port_y(const mg_kernel_plan *plan) {
    const form f = form_of(plan);
    return f == FORWARD ? plan->out : f == INPUT ? plan->in : plan->in + 1;
}

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const mg_shape *shapes[] = {&port_x(plan)->value->shape, &port_w(plan)->value->shape,
                                &port_y(plan)->value->shape};
    if (!mg_dtype_is_float(plan->out[0].value->dtype)) return "only floating dtypes";
    if (plan->out[0].value->dtype == MG_F64) return "cuDNN computes in float";
    for (int i = 0; i < 3; i++) {
        if (mg_shape_count(shapes[i]) == 0) return "empty";
        if (!mg_dnn_fits(shapes[i])) return "too large an image";
    }
    for (int i = 0; i < 2; i++) {
        if (a->pads.v[2 * i] != a->pads.v[2 * i + 1]) return "padding on one side";
        if (a->pads.v[2 * i] > INT32_MAX || a->strides.v[i] > INT32_MAX ||
            a->dilations.v[i] > INT32_MAX)
            return "wide strides or padding";
    }
    return mg_dnn_legacy_missing();
}

static cudnnStatus_t describe_kernel(state *s, const mg_value *w) {
    const int64_t *dim = w->shape.dim;
    const cudnnStatus_t status = mg_dnn_old.cudnnCreateFilterDescriptor(&s->w);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return mg_dnn_old.cudnnSetFilter4dDescriptor(s->w, mg_dnn_type(w->dtype), CUDNN_TENSOR_NHWC,
                                                 (int)dim[3], (int)dim[2], (int)dim[0],
                                                 (int)dim[1]);
}

static cudnnMathType_t allowed_math(mg_dtype dtype) {
    if (dtype != MG_F32) return CUDNN_TENSOR_OP_MATH;
    return mg_precision_fast() ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

static cudnnStatus_t describe_conv(state *s, const mg_conv_attrs *a, mg_dtype dtype) {
    const int64_t *pads = a->pads.v, *strides = a->strides.v, *dilations = a->dilations.v;
    cudnnStatus_t status = mg_dnn_old.cudnnCreateConvolutionDescriptor(&s->conv);
    if (status == CUDNN_STATUS_SUCCESS)
        status = mg_dnn_old.cudnnSetConvolution2dDescriptor(
            s->conv, (int)pads[0], (int)pads[2], (int)strides[0], (int)strides[1],
            (int)dilations[0], (int)dilations[1], CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    if (status == CUDNN_STATUS_SUCCESS)
        status = mg_dnn_old.cudnnSetConvolutionGroupCount(s->conv, (int)a->groups);
    if (status == CUDNN_STATUS_SUCCESS)
        status = mg_dnn_old.cudnnSetConvolutionMathType(s->conv, allowed_math(dtype));
    return status;
}

/* ---- choosing an algorithm ---- */

#define FINDER(name, Perf, find, first, second, result)                                            \
    static cudnnStatus_t name(const state *s, cudnnHandle_t handle, option *list, int *n) {        \
        Perf perf[MOST_OPTIONS];                                                                   \
        const cudnnStatus_t status = mg_dnn_old.find(handle, s->first, s->second, s->conv,         \
                                                     s->result, MOST_OPTIONS, n, perf);            \
        for (int i = 0; status == CUDNN_STATUS_SUCCESS && i < *n; i++)                             \
            list[i] = (option){(int)perf[i].algo, perf[i].status, perf[i].memory,                  \
                               perf[i].determinism, perf[i].mathType};                             \
        return status;                                                                             \
    }
FINDER(find_forward, cudnnConvolutionFwdAlgoPerf_t, cudnnGetConvolutionForwardAlgorithm_v7, x, w, y)
FINDER(find_input, cudnnConvolutionBwdDataAlgoPerf_t, cudnnGetConvolutionBackwardDataAlgorithm_v7,
       w, y, x)
FINDER(find_weight, cudnnConvolutionBwdFilterAlgoPerf_t,
       cudnnGetConvolutionBackwardFilterAlgorithm_v7, x, y, w)

static bool is_allowed(const option *o) {
    if (o->status != CUDNN_STATUS_SUCCESS || o->memory > MG_DNN_MUCH_WORKSPACE) return false;
    return !mg_deterministic() || o->determinism == CUDNN_DETERMINISTIC;
}

/* The best by cuDNN's own reckoning. */
static mg_status choose(state *s, cudnnHandle_t handle) {
    option list[MOST_OPTIONS];
    int n = 0;
    const cudnnStatus_t status = s->form == FORWARD ? find_forward(s, handle, list, &n)
                                 : s->form == INPUT ? find_input(s, handle, list, &n)
                                                    : find_weight(s, handle, list, &n);
    MG_TRY(mg_dnn_check(status, "find an algorithm"));
    for (int i = 0; i < n; i++) {
        if (!is_allowed(&list[i])) continue;
        s->chosen = list[i];
        return mg_dnn_check(mg_dnn_old.cudnnSetConvolutionMathType(s->conv, list[i].math),
                            "choose an algorithm");
    }
    return mg_fail(MG_UNSUPPORTED, "cuDNN names no algorithm that may be used");
}

static mg_status prepare(mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const mg_dtype dtype = plan->out[0].value->dtype;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    cudnnHandle_t handle;
    if (!s) return MG_OOM;
    s->form = form_of(plan);
    port_w(plan)->layout = MG_KRSC;
    MG_TRY(mg_cuda_enter(plan->device));
    MG_TRY(mg_dnn_handle(plan->device, &handle)); /* for the run to come */
    MG_TRY(mg_dnn_planner(plan->device, &handle));
    MG_TRY(mg_dnn_image(&s->x, &port_x(plan)->value->shape, dtype));
    MG_TRY(mg_dnn_image(&s->y, &port_y(plan)->value->shape, dtype));
    MG_TRY(mg_dnn_check(describe_kernel(s, port_w(plan)->value), "describe a kernel"));
    MG_TRY(mg_dnn_check(describe_conv(s, a, dtype), "describe a convolution"));
    MG_TRY(choose(s, handle));
    plan->scratch = s->chosen.memory;
    if (s->form != FORWARD || (plan->step->n_in == 2 && !a->relu)) return MG_OK;
    return mg_cuda_find_bias_relu(plan->device, dtype, &s->bias_relu);
}

/* ---- running ---- */

static mg_status run(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_cudnn_legacy *f = &mg_dnn_old;
    const void *one = mg_dnn_factor(MG_F32, true), *zero = mg_dnn_factor(MG_F32, false);
    void *const *in = call->in, *out = call->out[0], *room = call->scratch;
    const size_t bytes = s->chosen.memory;
    const int a = s->chosen.algorithm;
    cudnnStatus_t status;
    cudnnHandle_t h;
    MG_TRY(mg_dnn_handle(call->plan->device, &h));
    if (s->form == FORWARD)
        status =
            f->cudnnConvolutionForward(h, one, s->x, in[0], s->w, in[1], s->conv,
                                       (cudnnConvolutionFwdAlgo_t)a, room, bytes, zero, s->y, out);
    else if (s->form == INPUT)
        status = f->cudnnConvolutionBackwardData(h, one, s->w, in[1], s->y, in[0], s->conv,
                                                 (cudnnConvolutionBwdDataAlgo_t)a, room, bytes,
                                                 zero, s->x, out);
    else
        status = f->cudnnConvolutionBackwardFilter(h, one, s->x, in[0], s->y, in[1], s->conv,
                                                   (cudnnConvolutionBwdFilterAlgo_t)a, room, bytes,
                                                   zero, s->w, out);
    MG_TRY(mg_dnn_check(status, "run a convolution"));
    return s->bias_relu.one ? mg_cuda_finish_conv(call, &s->bias_relu) : MG_OK;
}

static void release(void *kept) {
    const state *s = kept;
    if (s->x) mg_dnn_old.cudnnDestroyTensorDescriptor(s->x);
    if (s->y) mg_dnn_old.cudnnDestroyTensorDescriptor(s->y);
    if (s->w) mg_dnn_old.cudnnDestroyFilterDescriptor(s->w);
    if (s->conv) mg_dnn_old.cudnnDestroyConvolutionDescriptor(s->conv);
    mg_free(kept);
}

#define CONV(id)                                                                                   \
    const mg_kernel mg_cuda_legacy_##id = {.op = #id,                                              \
                                           .name = "cuDNN's legacy calls",                         \
                                           .accepts = accepts,                                     \
                                           .prepare = prepare,                                     \
                                           .run = run,                                             \
                                           .release = release}
CONV(conv2d);
CONV(conv2d_grad_input);
CONV(conv2d_grad_weight);

/* The fake CUDA for cuDNN's older interface: convolutions.
 *
 * Two algorithms of each form work: the one offered first is not deterministic and wants much
 * workspace, the second one is. What is wanted depends on the math type too, so the one that was
 * offered must be set. All others are offered as not supported, as the real library does. */
#include "cudnn_handle.h"
#include "cudnn_legacy.h"
#include <string.h>

typedef struct algorithms { /* of a form; the first two work */
    cudnnBackendDescriptorType_t form;
    int n, order[8];
} algorithms;

static const algorithms forward = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
    {CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
     CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
     CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
     CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED}};

static const algorithms backward_data = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
     CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
     CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED}};

static const algorithms backward_filter = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING}};

/* A call's descriptors, x, w and y in their places whatever the form. */
typedef struct shape {
    const struct cudnnTensorStruct *x, *w, *y;
    const struct cudnnConvolutionStruct *how;
} shape;

/* ---- what fits ---- */

/* What no algorithm can do is BAD_PARAM. */
static cudnnStatus_t describe(const algorithms *of, const shape *s, work *w) {
    if (!legacy_tensor(s->x) || !legacy_tensor(s->y) || !s->w || !s->how)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a descriptor is missing or was not set");
    *w = (work){.form = of->form, .x = s->x->t, .w = s->w->t, .y = s->y->t};
    for (int i = 0; i < 2; i++) {
        w->strides[i] = s->how->stride[i];
        w->dilations[i] = s->how->dilation[i];
        w->before[i] = w->after[i] = s->how->pad[i];
    }
    return dnn_is_consistent(w) ? CUDNN_STATUS_SUCCESS
                                : dnn_say(CUDNN_STATUS_BAD_PARAM, "sizes that do not fit");
}

/* Types, layouts and groups that the algorithms know. A flipped filter and sums in half are nothing
 * that is used here. */
static bool is_supported(const shape *s) {
    const cudnnDataType_t type = s->x->t.type;
    const bool is_double = type == CUDNN_DATA_DOUBLE, last = s->w->format == CUDNN_TENSOR_NHWC;
    if (s->w->t.type != type || s->y->t.type != type) return false;
    if (s->how->type != (is_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT)) return false;
    if (last && (is_double || s->x->format != s->w->format || s->y->format != s->w->format))
        return false;
    return s->how->mode == CUDNN_CROSS_CORRELATION &&
           s->x->t.dim[1] == s->w->t.dim[1] * s->how->groups;
}

static size_t workspace_of(int place, cudnnMathType_t math) {
    return (place == 0 ? 65536u : 1024u) * (math == CUDNN_DEFAULT_MATH ? 2 : 1);
}

/* ---- what is offered ---- */

/* The three types of results differ in the algorithm's enumeration only. */
typedef cudnnConvolutionFwdAlgoPerf_t offer;
_Static_assert(sizeof(offer) == sizeof(cudnnConvolutionBwdDataAlgoPerf_t) &&
                   sizeof(offer) == sizeof(cudnnConvolutionBwdFilterAlgoPerf_t),
               "results of one layout");

static offer offer_of(const algorithms *of, const shape *s, int place) {
    const cudnnMathType_t asked = s->how->math;
    offer o = {.algo = (cudnnConvolutionFwdAlgo_t)of->order[place],
               .status = CUDNN_STATUS_NOT_SUPPORTED,
               .time = -1,
               .determinism = CUDNN_DETERMINISTIC,
               .mathType = asked};
    if (place > 1 || !is_supported(s)) return o;
    o.status = CUDNN_STATUS_SUCCESS;
    o.time = (float)(place + 1);
    o.determinism = place == 0 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    o.mathType = asked == CUDNN_DEFAULT_MATH ? CUDNN_TENSOR_OP_MATH : asked;
    o.memory = workspace_of(place, o.mathType);
    return o;
}

/* No room for results: the real library gives none for a count of 0 and too many below. */
static cudnnStatus_t give(const algorithms *of, cudnnHandle_t handle, const shape *s, int most,
                          int *n, void *results) {
    work w;
    if (!handle || !n || !results || most < 1)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "no handle, or no room for results");
    if (fake_cuda_forbid_capture() != CUDA_SUCCESS) /* kernels may be loaded */
        return dnn_say(CUDNN_STATUS_EXECUTION_FAILED, "algorithms are asked for while capturing");
    const cudnnStatus_t status = describe(of, s, &w);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    for (*n = 0; *n < of->n && *n < most; ++*n) {
        const offer o = offer_of(of, s, *n);
        memcpy((char *)results + (size_t)*n * sizeof o, &o, sizeof o);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t how, const cudnnTensorDescriptor_t y, const int most, int *n,
    cudnnConvolutionFwdAlgoPerf_t *results) {
    ENTER(cudnnGetConvolutionForwardAlgorithm_v7);
    const shape s = {x, legacy_filter(w), y, legacy_convolution(how)};
    return give(&forward, handle, &s, most, n, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t how, const cudnnTensorDescriptor_t dx, const int most,
    int *n, cudnnConvolutionBwdDataAlgoPerf_t *results) {
    ENTER(cudnnGetConvolutionBackwardDataAlgorithm_v7);
    const shape s = {dx, legacy_filter(w), dy, legacy_convolution(how)};
    return give(&backward_data, handle, &s, most, n, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t how, const cudnnFilterDescriptor_t dw, const int most,
    int *n, cudnnConvolutionBwdFilterAlgoPerf_t *results) {
    ENTER(cudnnGetConvolutionBackwardFilterAlgorithm_v7);
    const shape s = {x, legacy_filter(dw), dy, legacy_convolution(how)};
    return give(&backward_filter, handle, &s, most, n, results);
}

/* ---- running ---- */

typedef struct addresses {
    const void *x, *w, *y;
    const void *alpha, *beta;
    void *workspace;
    size_t bytes;
} addresses;

static int place_of(const algorithms *of, int algorithm) {
    for (int i = 0; i < 2; i++)
        if (of->order[i] == algorithm) return i;
    return -1;
}

/* A result over what it is made of is refused: the real library computes nonsense then. */
static cudnnStatus_t place(const shape *s, const addresses *at, int algorithm, work *w) {
    const tensor *const all[] = {&w->x, &w->w, &w->y}, *result = dnn_result_of(w);
    if (!legacy_place(s->x, at->x, &w->x) || !legacy_place(s->w, at->w, &w->w) ||
        !legacy_place(s->y, at->y, &w->y))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a tensor is missing or not in device memory");
    for (int i = 0; i < 3; i++)
        if (all[i] != result && legacy_overlap(all[i], result))
            return dnn_say(CUDNN_STATUS_BAD_PARAM, "the result lies over an operand");
    if (at->bytes < workspace_of(algorithm, s->how->math))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "the workspace is too small");
    if (!fake_cuda_owns(at->workspace, at->bytes))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "the workspace is not in device memory");
    w->workspace = at->workspace;
    w->workspace_bytes = at->bytes;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t run(const algorithms *of, cudnnHandle_t handle, const char *name,
                         const shape *s, int algorithm, const addresses *at) {
    const int which = place_of(of, algorithm);
    work w;
    if (!handle || !at->alpha || !at->beta)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "no handle, alpha or beta");
    cudnnStatus_t status = describe(of, s, &w);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (which < 0 || !is_supported(s))
        return dnn_say(CUDNN_STATUS_NOT_SUPPORTED, "the algorithm cannot do this");
    status = place(s, at, which, &w);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    w.alpha = legacy_factor(at->alpha, w.x.type);
    w.beta = legacy_factor(at->beta, w.x.type);
    return fake_cuda_enqueue(handle->stream, name, dnn_convolve, &w, sizeof w) == CUDA_SUCCESS
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      const cudnnTensorDescriptor_t x, const void *at_x,
                                      const cudnnFilterDescriptor_t w, const void *at_w,
                                      const cudnnConvolutionDescriptor_t how,
                                      cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
                                      size_t bytes, const void *beta,
                                      const cudnnTensorDescriptor_t y, void *at_y) {
    ENTER(cudnnConvolutionForward);
    const shape s = {x, legacy_filter(w), y, legacy_convolution(how)};
    const addresses at = {at_x, at_w, at_y, alpha, beta, workspace, bytes};
    return run(&forward, handle, "cudnnConvolutionForward", &s, (int)algorithm, &at);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           const cudnnFilterDescriptor_t w, const void *at_w,
                                           const cudnnTensorDescriptor_t dy, const void *at_dy,
                                           const cudnnConvolutionDescriptor_t how,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                                           size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t dx, void *at_dx) {
    ENTER(cudnnConvolutionBackwardData);
    const shape s = {dx, legacy_filter(w), dy, legacy_convolution(how)};
    const addresses at = {at_dx, at_w, at_dy, alpha, beta, workspace, bytes};
    return run(&backward_data, handle, "cudnnConvolutionBackwardData", &s, (int)algorithm, &at);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t x, const void *at_x,
                                             const cudnnTensorDescriptor_t dy, const void *at_dy,
                                             const cudnnConvolutionDescriptor_t how,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void *workspace, size_t bytes, const void *beta,
                                             const cudnnFilterDescriptor_t dw, void *at_dw) {
    ENTER(cudnnConvolutionBackwardFilter);
    const shape s = {x, legacy_filter(dw), dy, legacy_convolution(how)};
    const addresses at = {at_x, at_dw, at_dy, alpha, beta, workspace, bytes};
    return run(&backward_filter, handle, "cudnnConvolutionBackwardFilter", &s, (int)algorithm, &at);
}

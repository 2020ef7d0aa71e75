/* The fake CUDA for cuDNN's older interface: descriptors, which are set all at once.
 *
 * The setters take and refuse what those of cuDNN 9.19 do, except that other types than floating
 * ones are none here. Nothing of this touches the GPU, so it may happen while a stream captures. */
#include "cudnn_legacy.h"
#include "cudnn_handle.h"
#include <stdlib.h>
#include <string.h>

enum { TENSOR = 0x646e7401, FILTER, CONVOLUTION, POOLING };

/* ---- what the calls check ---- */

const tensor *legacy_tensor(const struct cudnnTensorStruct *d) {
    return d && d->kind == TENSOR && d->set ? &d->t : NULL;
}

const struct cudnnTensorStruct *legacy_filter(cudnnFilterDescriptor_t d) {
    return d && d->as.kind == FILTER && d->as.set ? &d->as : NULL;
}

const struct cudnnConvolutionStruct *legacy_convolution(cudnnConvolutionDescriptor_t d) {
    return d && d->kind == CONVOLUTION && d->set ? d : NULL;
}

const struct cudnnPoolingStruct *legacy_pooling(cudnnPoolingDescriptor_t d) {
    return d && d->kind == POOLING && d->set ? d : NULL;
}

bool legacy_place(const struct cudnnTensorStruct *d, const void *at, tensor *placed) {
    *placed = d->t;
    placed->at = at;
    return (uintptr_t)at % dnn_size(d->t.type) == 0 && dnn_is_owned(placed);
}

double legacy_factor(const void *factor, cudnnDataType_t data) {
    return data == CUDNN_DATA_DOUBLE ? *(const double *)factor : *(const float *)factor;
}

bool legacy_overlap(const tensor *a, const tensor *b) {
    const char *from = a->at, *other = b->at;
    return from < other + (size_t)dnn_extent(b) * dnn_size(b->type) &&
           other < from + (size_t)dnn_extent(a) * dnn_size(a->type);
}

/* ---- tensors and filters ---- */

static bool is_floating(cudnnDataType_t type) {
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_HALF ||
           type == CUDNN_DATA_BFLOAT16;
}

static cudnnStatus_t describe(struct cudnnTensorStruct *d, cudnnTensorFormat_t format,
                              cudnnDataType_t type, const int size[4]) {
    tensor t = {.type = type};
    const bool last = format == CUDNN_TENSOR_NHWC; /* channels */
    if (!is_floating(type) || (!last && format != CUDNN_TENSOR_NCHW))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a format or data type that is none");
    for (int i = 0; i < 4; i++) {
        t.dim[i] = size[i];
        if (size[i] < 1) return dnn_say(CUDNN_STATUS_BAD_PARAM, "a size below 1");
    }
    const int order[2][4] = {{3, 2, 1, 0}, {1, 3, 2, 0}}; /* of axes, the innermost first */
    int64_t stride = 1;
    for (int i = 0; i < 4; i++) {
        t.stride[order[last][i]] = stride;
        if (__builtin_mul_overflow(stride, t.dim[order[last][i]], &stride))
            return dnn_say(CUDNN_STATUS_NOT_SUPPORTED, "too many elements");
    }
    if (d->kind == TENSOR && stride > INT32_MAX)
        return dnn_say(CUDNN_STATUS_NOT_SUPPORTED, "a tensor of 2^31 elements or more");
    d->t = t;
    d->format = format;
    d->set = true;
    return CUDNN_STATUS_SUCCESS;
}

/* Puts a descriptor where `made` points. */
static cudnnStatus_t make(void *made, size_t bytes, uint32_t kind) {
    if (!made) return dnn_say(CUDNN_STATUS_BAD_PARAM, "nowhere to put a descriptor");
    void *d = calloc(1, bytes);
    memcpy(made, &d, sizeof d);
    if (!d) return CUDNN_STATUS_ALLOC_FAILED;
    *(uint32_t *)d = kind;
    return CUDNN_STATUS_SUCCESS;
}

/* NULL is let pass, what is no such descriptor is not. */
static cudnnStatus_t end(void *gone, uint32_t kind) {
    uint32_t *is = gone;
    if (!is) return CUDNN_STATUS_SUCCESS;
    if (*is != kind) return dnn_say(CUDNN_STATUS_BAD_PARAM, "no descriptor of that kind");
    *is = 0;
    free(gone);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *made) {
    ENTER(cudnnCreateTensorDescriptor);
    return make(made, sizeof **made, TENSOR);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    ENTER(cudnnSetTensor4dDescriptor);
    if (!d || d->kind != TENSOR) return dnn_say(CUDNN_STATUS_BAD_PARAM, "no tensor descriptor");
    return describe(d, format, type, (const int[]){n, c, h, w});
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t gone) {
    return end(gone, TENSOR);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *made) {
    ENTER(cudnnCreateFilterDescriptor);
    return make(made, sizeof **made, FILTER);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    ENTER(cudnnSetFilter4dDescriptor);
    if (!d || d->as.kind != FILTER) return dnn_say(CUDNN_STATUS_BAD_PARAM, "no filter descriptor");
    return describe(&d->as, format, type, (const int[]){k, c, h, w});
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t gone) {
    return end(gone, FILTER);
}

/* ---- convolutions ---- */

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *made) {
    ENTER(cudnnCreateConvolutionDescriptor);
    const cudnnStatus_t status = make(made, sizeof **made, CONVOLUTION);
    if (status == CUDNN_STATUS_SUCCESS) (*made)->groups = 1;
    return status;
}

/* The groups and the math type stay. */
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
    ENTER(cudnnSetConvolution2dDescriptor);
    if (!d || d->kind != CONVOLUTION)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "no convolution descriptor");
    if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a padding, stride or dilation out of range");
    if ((mode != CUDNN_CONVOLUTION && mode != CUDNN_CROSS_CORRELATION) ||
        (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_DOUBLE && type != CUDNN_DATA_HALF &&
         type != CUDNN_DATA_INT32))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a mode or a type to compute in that is none");
    memcpy(d->pad, (int[]){pad_h, pad_w}, sizeof d->pad);
    memcpy(d->stride, (int[]){stride_h, stride_w}, sizeof d->stride);
    memcpy(d->dilation, (int[]){dilation_h, dilation_w}, sizeof d->dilation);
    d->mode = mode;
    d->type = type;
    d->set = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) {
    ENTER(cudnnSetConvolutionGroupCount);
    if (!d || d->kind != CONVOLUTION || groups < 1)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "no convolution descriptor, or less than one group");
    d->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
    ENTER(cudnnSetConvolutionMathType);
    if (!d || d->kind != CONVOLUTION || (unsigned)math > CUDNN_FMA_MATH)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "no convolution descriptor, or no math type");
    d->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t gone) {
    return end(gone, CONVOLUTION);
}

/* ---- pooling ---- */

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *made) {
    ENTER(cudnnCreatePoolingDescriptor);
    return make(made, sizeof **made, POOLING);
}

/* Any padding is taken: who pools refuses it. */
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t d, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t nan, int window_h, int window_w,
                                          int pad_h, int pad_w, int stride_h, int stride_w) {
    ENTER(cudnnSetPooling2dDescriptor);
    if (!d || d->kind != POOLING) return dnn_say(CUDNN_STATUS_BAD_PARAM, "no pooling descriptor");
    if (window_h < 1 || window_w < 1 || stride_h < 1 || stride_w < 1)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a window or stride below 1");
    if ((unsigned)mode > CUDNN_POOLING_MAX_DETERMINISTIC || (unsigned)nan > CUDNN_PROPAGATE_NAN)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a mode or NaN option that is none");
    memcpy(d->window, (int[]){window_h, window_w}, sizeof d->window);
    memcpy(d->pad, (int[]){pad_h, pad_w}, sizeof d->pad);
    memcpy(d->stride, (int[]){stride_h, stride_w}, sizeof d->stride);
    d->mode = mode;
    d->nan = getenv("MGPU_FAKE_CUDA_NAN") ? CUDNN_NOT_PROPAGATE_NAN : nan;
    d->set = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t gone) {
    return end(gone, POOLING);
}

/* A convolution described as cuDNN's graph of operations.
 *
 * The graph is conv, then + bias and relu if the convolution has them. Results between two
 * operations are virtual tensors: cuDNN fuses the operations and never stores them. */
#include "device/cuda/cudnn/conv_plan.h"
#include <assert.h>

typedef cudnnBackendDescriptor_t descriptor;

enum { SUM = 100, CONVOLVED }; /* numbers of the virtual tensors; real ones are MG_DNN_X etc. */

/* A graph under construction. After the first failure the functions below do nothing, so that the
 * status is checked only at the end. */
typedef struct builder {
    mg_dnn_graph *g;
    cudnnStatus_t status;
} builder;

/* A new descriptor, which the graph owns. */
static descriptor begin(builder *b, cudnnBackendDescriptorType_t type) {
    descriptor d = NULL;
    assert(b->g->n < MG_DNN_DESCRIPTORS);
    if (b->status != CUDNN_STATUS_SUCCESS) return NULL;
    b->status = mg_dnn.cudnnBackendCreateDescriptor(type, &d);
    if (b->status == CUDNN_STATUS_SUCCESS) b->g->made[b->g->n++] = d;
    return d;
}

static void set(builder *b, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = mg_dnn.cudnnBackendSetAttribute(d, name, type, n, values);
}

/* Finalizes a descriptor: its attributes are complete. */
static descriptor end(builder *b, descriptor d) {
    if (b->status == CUDNN_STATUS_SUCCESS) b->status = mg_dnn.cudnnBackendFinalize(d);
    return d;
}

/* Descriptors are attributes of other descriptors. */
static void set_descriptor(builder *b, descriptor d, cudnnBackendAttributeName_t name,
                           descriptor value) {
    set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* ---- tensors ---- */

/* Sizes are in cuDNN's order N, C, H, W; in memory channels vary fastest (NHWC). */
static descriptor tensor(builder *b, int64_t number, const int64_t dims[4], cudnnDataType_t type) {
    const descriptor t = begin(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    const int64_t alignment = 16; /* bytes that all our tensors keep */
    const bool is_virtual = number >= SUM;
    set(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    set(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(b, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    return end(b, t);
}

/* ---- operations ---- */

/* Strides, dilations and padding. */
static descriptor geometry(builder *b, const mg_dnn_conv *c) {
    const descriptor d = begin(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t axes = 2;
    set(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    set(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->strides);
    set(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c->dilations);
    set(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->before);
    set(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->after);
    return end(b, d);
}

/* The attribute names of one of the three forms: forward, or the gradient of an operand. */
typedef struct form {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, geometry, alpha, beta;
} form;

static const form forms[] = {
    [MG_DNN_Y] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [MG_DNN_X] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [MG_DNN_W] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

/* The convolution; y is its result or, for a gradient, an operand. */
static descriptor convolution(builder *b, const mg_dnn_conv *c, descriptor y) {
    const form *f = &forms[c->result];
    const cudnnDataType_t type = mg_dnn_type(c->dtype);
    const descriptor x = tensor(b, MG_DNN_X, c->x, type), w = tensor(b, MG_DNN_W, c->w, type);
    const descriptor shape = geometry(b, c), d = begin(b, f->type);
    const float one = 1, zero = 0; /* the result is 1 * conv + 0 * the old contents */
    set_descriptor(b, d, f->geometry, shape);
    set_descriptor(b, d, f->x, x);
    set_descriptor(b, d, f->w, w);
    set_descriptor(b, d, f->y, y);
    set(b, d, f->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, d, f->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    return end(b, d);
}

/* y = mode(x) or, with a second operand, mode(x, second), computed in float. */
static descriptor pointwise(builder *b, cudnnPointwiseMode_t mode, descriptor x, descriptor second,
                            descriptor y) {
    const descriptor what = begin(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN; /* relu(NaN) is NaN */
    set(b, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(b, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, what, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    end(b, what);
    const descriptor d = begin(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (second) set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, second);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return end(b, d);
}

/* ---- the graph ---- */

/* Adds the operations conv, + bias, relu to `ops`, and returns how many they are. All but the last
 * write to virtual tensors of float. */
static int add_operations(builder *b, const mg_dnn_conv *c, descriptor ops[3]) {
    const cudnnDataType_t type = mg_dnn_type(c->dtype);
    const descriptor y = tensor(b, MG_DNN_Y, c->y, type);
    descriptor before = y;
    int n = 0;
    if (c->bias || c->relu) before = tensor(b, CONVOLVED, c->y, CUDNN_DATA_FLOAT);
    ops[n++] = convolution(b, c, before);
    if (c->bias) {
        const int64_t dims[4] = {1, c->y[1], 1, 1};
        const descriptor sum = c->relu ? tensor(b, SUM, c->y, CUDNN_DATA_FLOAT) : y;
        const descriptor bias = tensor(b, MG_DNN_BIAS, dims, type);
        ops[n++] = pointwise(b, CUDNN_POINTWISE_ADD, before, bias, sum);
        before = sum;
    }
    if (c->relu) ops[n++] = pointwise(b, CUDNN_POINTWISE_RELU_FWD, before, NULL, y);
    return n;
}

/* Returns the status of the first failure. */
mg_status mg_dnn_graph_make(mg_dnn_graph *g, const mg_dnn_target *target, const mg_dnn_conv *conv) {
    builder b = {.g = g, .status = CUDNN_STATUS_SUCCESS};
    descriptor ops[3];
    *g = (mg_dnn_graph){0};
    const int n = add_operations(&b, conv, ops);
    g->graph = begin(&b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&b, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    if (target->handle)
        set(&b, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    end(&b, g->graph);
    return mg_dnn_check(b.status, "describe a convolution");
}

/* In the reverse order of their making: a descriptor refers to earlier ones. */
void mg_dnn_graph_drop(mg_dnn_graph *g) {
    while (g->n) mg_dnn.cudnnBackendDestroyDescriptor(g->made[--g->n]);
}

/* The fake cuDNN: its graph interface, for graphs of one convolution, optionally followed by bias
 * and relu.
 *
 * A descriptor keeps the attributes that are set. Finalising an execution plan reads all
 * descriptors that it refers to and turns them into a `work` (cudnn_compute.h), which has no
 * pointers to descriptors, so that a plan can also be written as text and read back, as the real
 * library's JSON.
 *
 * Three engines compute the same in plain loops, to exercise the code that chooses one: the first
 * reports that it compiles at run time, the second that it is not deterministic. All overwrite
 * their workspace. With MGPU_FAKE_CUDA_CUDNN=plain no engine takes a graph with bias or relu.
 *
 * This proves that descriptors are complete and consistent. It says nothing about which graphs the
 * real engines support, about their speed, or about their rounding (TF32, Winograd). */
#include "cudnn_compute.h"
#include "fake_cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the handle, version and error texts ---- */

struct cudnnContext {
    CUstream stream;
};

/* Begins each function: counts the call, and fails it if a failure was requested. Statuses of cuDNN
 * are 1000 and above; a smaller number is a fatal error of CUDA. */
#define ENTER(function)                                                                            \
    const int entered = fake_cuda_enter(#function);                                                \
    if (entered) return entered >= 1000 ? (cudnnStatus_t)entered : CUDNN_STATUS_EXECUTION_FAILED

static _Thread_local char last_words[200];

/* Returns the status; `words` is what cudnnGetLastErrorString gives on this thread. */
static cudnnStatus_t dnn_say(cudnnStatus_t status, const char *words) {
    snprintf(last_words, sizeof last_words, "%s", words);
    return status;
}

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

/* Only the number: tests check that our messages pass it on. */
const char *cudnnGetErrorString(cudnnStatus_t status) {
    static _Thread_local char text[40];
    snprintf(text, sizeof text, "CUDNN_STATUS %d", (int)status);
    return text;
}

/* Reading the text clears it. */
void cudnnGetLastErrorString(char *message, size_t most) {
    snprintf(message, most, "%s", last_words);
    last_words[0] = 0;
}

/* The real one allocates device memory, which must not happen during a capture. */
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    ENTER(cudnnCreate);
    if (fake_cuda_forbid_capture() != CUDA_SUCCESS) return CUDNN_STATUS_EXECUTION_FAILED;
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    ENTER(cudnnSetStream);
    handle->stream = (CUstream)stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- attributes of descriptors ---- */

/* RUNTIME_COMPILED, PLAIN and UNORDERED are the numbers of the three engines. */
enum { MOST_ATTRIBUTES = 12, N_ENGINES = 3, RUNTIME_COMPILED = 0, PLAIN = 1, UNORDERED = 2 };

typedef struct attribute { /* n values of this type; `values` is owned */
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    void *values;
} attribute;

typedef struct descriptor {
    uint32_t kind; /* KIND, so that a destroyed descriptor is noticed */
    cudnnBackendDescriptorType_t type;
    bool final; /* finalised: attributes cannot be set any more */
    attribute attributes[MOST_ATTRIBUTES];
    int n;
    int engine;                     /* of an engine and an engine configuration */
    const struct descriptor *graph; /* of an engine configuration */
    work work;                      /* of an execution plan ... */
    cudnnHandle_t handle;           /* ... which was finalised with it */
} descriptor;

/* The first word of every live descriptor. */
enum { KIND = 0x646e6e21 };

/* Bytes of a value. Enumerations have 4. */
static size_t size_of_type(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;
    }
}

/* The handle as a descriptor; NULL if it is not a descriptor. */
static const descriptor *descriptor_of(const void *d) {
    return d && ((const descriptor *)d)->kind == KIND ? d : NULL;
}

/* The attribute of that name; NULL: not set. */
static const attribute *find_attribute(const descriptor *d, int name) {
    for (int i = 0; d && i < d->n; i++)
        if ((int)d->attributes[i].name == name) return &d->attributes[i];
    return NULL;
}

/* Copies an attribute's values; false unless it has exactly n of that type. */
static bool read_attribute(const descriptor *d, int name, cudnnBackendAttributeType_t type,
                           int64_t n, void *to) {
    const attribute *a = find_attribute(d, name);
    if (!a || a->type != type || a->n != n) return false;
    memcpy(to, a->values, (size_t)n * size_of_type(type));
    return true;
}

/* The finalised descriptor of the given type that an attribute refers to; NULL: none. */
static const descriptor *child(const descriptor *d, int name, int type) {
    void *c = NULL;
    if (!read_attribute(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c)) return NULL;
    const descriptor *found = descriptor_of(c);
    return found && found->final && (int)found->type == type ? found : NULL;
}

/* ---- from descriptors to a `work` ---- */

/* These return false if attributes are missing, or if our code could not have meant them. */

/* A tensor of rank 4 of a type that convolutions have; strides are positive. */
static bool read_tensor(const descriptor *op, int name, tensor *t) {
    const descriptor *d = child(op, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t alignment = 0;
    if (!read_attribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t->number) ||
        !read_attribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type) ||
        !read_attribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dim) ||
        !read_attribute(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->stride) ||
        !read_attribute(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment))
        return false;
    if (!read_attribute(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &t->is_virtual))
        t->is_virtual = false;
    for (int i = 0; i < 4; i++)
        if (t->dim[i] < 1 || t->stride[i] < 1) return false;
    return t->type == CUDNN_DATA_FLOAT || t->type == CUDNN_DATA_HALF ||
           t->type == CUDNN_DATA_BFLOAT16;
}

/* Strides, dilations and pads of a cross-correlation over two axes, computed in float. */
static bool read_geometry(const descriptor *op, int name, work *w) {
    const descriptor *d = child(op, name, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t type = CUDNN_DATA_DOUBLE;
    cudnnConvolutionMode_t mode = CUDNN_CONVOLUTION;
    int64_t axes = 0;
    return read_attribute(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes) &&
           axes == 2 &&
           read_attribute(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) &&
           type == CUDNN_DATA_FLOAT &&
           read_attribute(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
                          &mode) &&
           mode == CUDNN_CROSS_CORRELATION &&
           read_attribute(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2,
                          w->strides) &&
           read_attribute(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, w->dilations) &&
           read_attribute(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, w->before) &&
           read_attribute(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, w->after);
}

/* A convolution in one of its three forms. at[]: the numbers of the form's attributes in cudnn.h.
 * Only alpha = 1 and beta = 0 are taken. */
static bool read_convolution(const descriptor *op, work *w) {
    const int form = (int)op->type;
    int at[5]; /* x, w, y, geometry, alpha */
    float alpha = 0, beta = 1;
    w->form = op->type;
    if (form == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        memcpy(at, (int[]){704, 703, 705, 702, 700}, sizeof at);
    else if (form == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        memcpy(at, (int[]){710, 709, 711, 708, 706}, sizeof at);
    else if (form == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
        memcpy(at, (int[]){716, 715, 717, 714, 712}, sizeof at);
    else
        return false;
    return read_tensor(op, at[0], &w->x) && read_tensor(op, at[1], &w->w) &&
           read_tensor(op, at[2], &w->y) && read_geometry(op, at[3], w) &&
           read_attribute(op, at[4], CUDNN_TYPE_FLOAT, 1, &alpha) && alpha == 1 &&
           read_attribute(op, at[4] + 1, CUDNN_TYPE_FLOAT, 1, &beta) && beta == 0 &&
           dnn_is_consistent(w);
}

/* Whether two descriptors describe the same tensor of a graph. */
static bool same_tensor(const tensor *a, const tensor *b) {
    return a->number == b->number && a->type == b->type &&
           memcmp(a->dim, b->dim, sizeof a->dim) == 0 && a->is_virtual == b->is_virtual;
}

/* A pointwise operation that reads the previous result: first add (a bias), then relu, each at most
 * once. */
static bool read_pointwise(const descriptor *op, work *w) {
    const descriptor *what =
        child(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ABS;
    tensor x, y;
    if (!read_attribute(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode) ||
        !read_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x) ||
        !read_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &y) || !same_tensor(&x, &w->y) ||
        !x.is_virtual || w->relu)
        return false;
    /* The bias has one element per channel and is broadcast over everything else. */
    if (mode == CUDNN_POINTWISE_ADD) {
        if (w->bias || !read_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &w->b) ||
            w->b.dim[0] != 1 || w->b.dim[1] != y.dim[1] || w->b.dim[2] != 1 || w->b.dim[3] != 1)
            return false;
        w->bias = 1;
    } else if (mode == CUDNN_POINTWISE_RELU_FWD) {
        w->relu = 1;
    } else {
        return false;
    }
    w->y = y;
    return true;
}

/* An operation graph: a convolution and up to two pointwise operations. Only results between
 * operations may be virtual (not stored). */
static int read_graph(const descriptor *graph, work *w) {
    const attribute *ops = find_attribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    *w = (work){0};
    if (!ops || ops->n < 1 || ops->n > 3) return 0;
    for (int64_t i = 0; i < ops->n; i++) {
        const descriptor *op = descriptor_of(((void **)ops->values)[i]);
        if (!op || !op->final || !(i == 0 ? read_convolution(op, w) : read_pointwise(op, w)))
            return 0;
    }
    return !w->x.is_virtual && !w->w.is_virtual && !w->y.is_virtual;
}

/* ---- engines and plans ---- */

/* CUDNN_ATTR_ENGINEHEUR_RESULTS: fills the given descriptors with the engine configurations that
 * can run the graph, best first; sets *n to how many there are. */
static cudnnStatus_t list_engines(const descriptor *d, int64_t most, int64_t *n, void **results) {
    static const int mode_a[] = {RUNTIME_COMPILED, UNORDERED, PLAIN}, fallback[] = {PLAIN};
    const char *limits = getenv("MGPU_FAKE_CUDA_CUDNN");
    const descriptor *graph =
        child(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    work w;
    read_attribute(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!graph || !read_graph(graph, &w)) return dnn_say(CUDNN_STATUS_BAD_PARAM, "a wrong graph");
    /* Heuristic mode A lists all three, the fallback mode only the plain one. */
    const int *engines = mode == CUDNN_HEUR_MODE_FALLBACK ? fallback : mode_a;
    *n = mode == CUDNN_HEUR_MODE_FALLBACK ? 1 : N_ENGINES;
    if (limits && strcmp(limits, "plain") == 0 && (w.bias || w.relu)) *n = 0;
    for (int64_t i = 0; i < *n && i < most; i++) {
        descriptor *config = (descriptor *)(uintptr_t)descriptor_of(results[i]);
        if (!config || config->final || config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return dnn_say(CUDNN_STATUS_BAD_PARAM, "results go to fresh configurations");
        config->engine = engines[i];
        config->graph = graph;
        config->final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* CUDNN_ATTR_ENGINECFG_ENGINE: the engine of a configuration. */
static cudnnStatus_t give_engine(const descriptor *config, int64_t *n, void **results) {
    descriptor *engine = (descriptor *)(uintptr_t)descriptor_of(results[0]);
    if (!engine || engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM;
    engine->engine = config->engine;
    engine->final = true;
    *n = 1;
    return CUDNN_STATUS_SUCCESS;
}

/* A plan as text: the prefix, and the bytes of its `work` in hexadecimal. */
static const char prefix[] = "plan of the fake cuDNN: ";

/* Writes a plan as text. With most = 0 it only sets *n to the length, NUL included. */
static cudnnStatus_t give_text(const work *w, int64_t most, int64_t *n, char *text) {
    const unsigned char *bytes = (const unsigned char *)w;
    *n = (int64_t)(sizeof prefix + 2 * sizeof *w);
    if (most == 0) return CUDNN_STATUS_SUCCESS;
    if (most < *n) return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
    text += sprintf(text, "%s", prefix);
    for (size_t i = 0; i < sizeof *w; i++) text += sprintf(text, "%02x", bytes[i]);
    return CUDNN_STATUS_SUCCESS;
}

/* Reads such a text; false if it is damaged or of another build. */
static bool take_text(const attribute *a, work *w) {
    const char *text = a->values;
    if (a->n != (int64_t)(sizeof prefix + 2 * sizeof *w) || memcmp(text, prefix, sizeof prefix - 1))
        return false;
    text += sizeof prefix - 1;
    for (size_t i = 0; i < sizeof *w; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) return false;
        ((unsigned char *)w)[i] = (unsigned char)byte;
    }
    return true;
}

/* Finalises a plan, from an engine configuration or from text. Execution needs the same handle. */
static cudnnStatus_t finish_plan(descriptor *d) {
    const descriptor *config =
        child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const attribute *text = find_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    void *handle = NULL;
    if (!read_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) ||
        !handle)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a plan wants a handle");
    d->handle = handle;
    if (text)
        return take_text(text, &d->work) ? CUDNN_STATUS_SUCCESS
                                         : dnn_say(CUDNN_STATUS_BAD_PARAM, "a damaged plan");
    if (!config || !read_graph(config->graph, &d->work))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a plan wants an engine's configuration");
    /* Engines differ in their workspace, so that choices between them have consequences. */
    d->work.engine = config->engine;
    d->work.workspace_bytes = 256u * (unsigned)(config->engine + 1);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- exported functions ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *made) {
    ENTER(cudnnBackendCreateDescriptor);
    descriptor *d = calloc(1, sizeof *d);
    if (!d) return CUDNN_STATUS_ALLOC_FAILED;
    d->kind = KIND;
    d->type = type;
    *made = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t gone) {
    descriptor *d = gone;
    if (!descriptor_of(d)) return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < d->n; i++) free(d->attributes[i].values);
    d->kind = 0;
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

/* Each attribute is set at most once, before the descriptor is finalised. */
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values) {
    ENTER(cudnnBackendSetAttribute);
    descriptor *d = to;
    if (!descriptor_of(d) || d->final || n < 1 || !values || find_attribute(d, (int)name) ||
        d->n == MOST_ATTRIBUTES)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "an attribute is set wrongly");
    attribute a = {name, type, n, malloc((size_t)n * size_of_type(type))};
    if (!a.values) return CUDNN_STATUS_ALLOC_FAILED;
    memcpy(a.values, values, (size_t)n * size_of_type(type));
    d->attributes[d->n++] = a;
    return CUDNN_STATUS_SUCCESS;
}

/* Whether a descriptor has all that it needs, as far as this can be checked when it is
 * finalised. */
static bool is_complete(const descriptor *d) {
    work w = {0};
    tensor t;
    switch ((int)d->type) {
    /* A tensor is read through a descriptor that refers to it, so one is made up. */
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: {
        void *self = (void *)(uintptr_t)d;
        attribute a = {0, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &self};
        const descriptor holder = {.kind = KIND, .attributes = {a}, .n = 1};
        ((descriptor *)self)->final = true;
        return read_tensor(&holder, 0, &t);
    }
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return read_convolution(d, &w);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return read_graph(d, &w);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return child(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                     CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) != NULL;
    default: return true;
    }
}

/* Here inconsistent descriptors are refused, as by the real library. */
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t what) {
    ENTER(cudnnBackendFinalize);
    descriptor *d = what;
    if (!descriptor_of(d) || d->final) return CUDNN_STATUS_BAD_PARAM;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
        status = finish_plan(d);
    else if (!is_complete(d))
        status =
            dnn_say(CUDNN_STATUS_BAD_PARAM, "a descriptor lacks attributes or they do not fit");
    d->final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* The attributes that our code reads. */
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const from,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *n,
                                       void *values) {
    ENTER(cudnnBackendGetAttribute);
    const descriptor *d = descriptor_of(from);
    (void)type;
    if (!d || !d->final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return list_engines(d, most, n, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE: return give_engine(d, n, values);
    /* Notes: with most = 0 the call only returns their number. */
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *n = d->engine == UNORDERED;
        if (*n && most)
            *(cudnnBackendNumericalNote_t *)values = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        *n = d->engine == RUNTIME_COMPILED;
        if (*n && most)
            *(cudnnBackendBehaviorNote_t *)values = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)values = (int64_t)d->work.workspace_bytes;
        *n = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: return give_text(&d->work, most, n, values);
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
        *n = snprintf(values, (size_t)most, "{\"deviceName\": \"Fake GPU\"}") + 1;
        return CUDNN_STATUS_SUCCESS;
    default: return CUDNN_STATUS_BAD_PARAM;
    }
}

/* Sets t->at to the address that the variant pack gives for the tensor; false if there is none, or
 * if not all of the tensor lies in device memory. */
static bool set_address(const descriptor *pack, tensor *t) {
    const attribute *numbers = find_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const attribute *addresses = find_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    t->at = NULL;
    if (!numbers || !addresses || numbers->n != addresses->n) return false;
    for (int64_t i = 0; i < numbers->n; i++)
        if (((int64_t *)numbers->values)[i] == t->number) t->at = ((void **)addresses->values)[i];
    return (uintptr_t)t->at % 16 == 0 && dnn_is_owned(t);
}

/* Checks addresses and the workspace, then enqueues the convolution. */
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    ENTER(cudnnBackendExecute);
    const descriptor *d = descriptor_of(plan), *p = descriptor_of(pack);
    if (!d || !d->final || !p || !p->final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (handle != d->handle)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "the plan was finalised with another handle");
    work w = d->work;
    if (!set_address(p, &w.x) || !set_address(p, &w.w) || !set_address(p, &w.y) ||
        (w.bias && !set_address(p, &w.b)))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a tensor is missing or not in device memory");
    if (!read_attribute(p, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                        &w.workspace) ||
        !fake_cuda_owns(w.workspace, w.workspace_bytes))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "the workspace is too small");
    const CUresult r =
        fake_cuda_enqueue(handle->stream, "cudnnBackendExecute", dnn_convolve, &w, sizeof w);
    return r == CUDA_SUCCESS ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

/* The fake CUDA for cuDNN's older interface: what it computes, what it refuses, and in a recording.
 *
 * All numbers are small integers or halves, so every type holds them and every order of adding
 * gives the same: results are compared exactly. */
#include "fake_cuda.h"
#include "core/dtype.h"
#include <cudnn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { BYTES = 2 << 20, PART = 256 << 10, NCHW = CUDNN_TENSOR_NCHW, NHWC = CUDNN_TENSOR_NHWC };

#define OK(call) assert_int_equal(call, 0)
#define BAD(call) assert_int_equal(call, CUDNN_STATUS_BAD_PARAM)
#define UNSUPPORTED(call) assert_int_equal(call, CUDNN_STATUS_NOT_SUPPORTED)

typedef struct gpu {
    CUcontext context;
    CUstream stream;
    CUmemoryPool pool_of_memory;
    CUdeviceptr memory; /* BYTES, in parts: see at */
    cudnnHandle_t dnn;
    cudnnTensorDescriptor_t x, y, z;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    cudnnPoolingDescriptor_t pool;
} gpu;

static const float one = 1, zero = 0;

static int set_up(void **state) {
    static gpu g;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    fake_cuda_revive();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&g.context, 0));
    OK(cuCtxSetCurrent(g.context));
    OK(cuStreamCreate(&g.stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemPoolCreate(&g.pool_of_memory, &props));
    OK(cuMemAllocFromPoolAsync(&g.memory, BYTES, g.pool_of_memory, g.stream));
    OK(cudnnCreate(&g.dnn));
    OK(cudnnSetStream(g.dnn, (cudaStream_t)g.stream));
    OK(cudnnCreateTensorDescriptor(&g.x));
    OK(cudnnCreateTensorDescriptor(&g.y));
    OK(cudnnCreateTensorDescriptor(&g.z));
    OK(cudnnCreateFilterDescriptor(&g.w));
    OK(cudnnCreateConvolutionDescriptor(&g.conv));
    OK(cudnnCreatePoolingDescriptor(&g.pool));
    *state = &g;
    return 0;
}

static int tear_down(void **state) {
    gpu *g = *state;
    fake_cuda_revive();
    OK(cudnnDestroyTensorDescriptor(g->x));
    OK(cudnnDestroyTensorDescriptor(g->y));
    OK(cudnnDestroyTensorDescriptor(g->z));
    OK(cudnnDestroyFilterDescriptor(g->w));
    OK(cudnnDestroyConvolutionDescriptor(g->conv));
    OK(cudnnDestroyPoolingDescriptor(g->pool));
    OK(cudnnDestroy(g->dnn));
    OK(cuMemFreeAsync(g->memory, g->stream));
    OK(cuMemPoolDestroy(g->pool_of_memory));
    OK(cuStreamDestroy(g->stream));
    OK(cuDevicePrimaryCtxRelease(0));
    return 0;
}

/* The host is the GPU: its memory can be written at once. */
static void *at(const gpu *g, int part) {
    return (char *)(uintptr_t)g->memory + (size_t)part * PART;
}

static void put(cudnnDataType_t type, void *to, int i, float v) {
    switch (type) {
    case CUDNN_DATA_HALF: ((uint16_t *)to)[i] = mg_f32_to_f16(v); break;
    case CUDNN_DATA_BFLOAT16: ((uint16_t *)to)[i] = mg_f32_to_bf16(v); break;
    case CUDNN_DATA_DOUBLE: ((double *)to)[i] = (double)v; break;
    default: ((float *)to)[i] = v;
    }
}

static float get(cudnnDataType_t type, const void *from, int i) {
    switch (type) {
    case CUDNN_DATA_HALF: return mg_f16_to_f32(((const uint16_t *)from)[i]);
    case CUDNN_DATA_BFLOAT16: return mg_bf16_to_f32(((const uint16_t *)from)[i]);
    case CUDNN_DATA_DOUBLE: return (float)((const double *)from)[i];
    default: return ((const float *)from)[i];
    }
}

static void put_all(cudnnDataType_t type, void *to, int n, const float *values) {
    for (int i = 0; i < n; i++) put(type, to, i, values[i]);
}

static void check_all(cudnnDataType_t type, const void *from, int n, const float *expected) {
    for (int i = 0; i < n; i++)
        if (get(type, from, i) != expected[i])
            fail_msg("type %d, element %d: %g, not %g", (int)type, i, (double)get(type, from, i),
                     (double)expected[i]);
}

/* ---- convolutions ---- */

/* Two images of 4 channels and 7 x 6, 6 filters of 2 x 3 x 2 in 2 groups, rows padded by 1 and
 * stepped by 2, columns dilated by 2. */
enum { N = 2, C = 4, H = 7, W = 6, K = 6, D = 2, R = 3, S = 2, P = 4, Q = 4 };
enum { X = N * C * H * W, F = K * D * R * S, Y = N * K * P * Q };

static int place(int format, int a, int b, int c, int d, int nb, int nc, int nd) {
    return format == NHWC ? ((a * nc + c) * nd + d) * nb + b : ((a * nb + b) * nc + c) * nd + d;
}

static int at_x(int format, int n, int c, int h, int w) {
    return place(format, n, c, h, w, C, H, W);
}

/* Adds each product to its sum: y's, dx's and dw's at once; `in` has x, w and dy. */
static void naive(int format, float *const in[3], float *y, float *dx, float *dw) {
    for (int i = 0; i < N * K * P * Q * D * R * S; i++) {
        const int s = i % S, r = i / S % R, d = i / (S * R) % D, q = i / (S * R * D) % Q;
        const int p = i / (S * R * D * Q) % P, k = i / (S * R * D * Q * P) % K;
        const int n = i / (S * R * D * Q * P * K), h = 2 * p + r - 1, w = q + 2 * s;
        if (h < 0 || h >= H || w < 0 || w >= W) continue;
        const int ix = at_x(format, n, k / (K / 2) * D + d, h, w);
        const int iw = place(format, k, d, r, s, D, R, S), iy = place(format, n, k, p, q, K, P, Q);
        y[iy] += in[0][ix] * in[1][iw];
        dx[ix] += in[2][iy] * in[1][iw];
        dw[iw] += in[0][ix] * in[2][iy];
    }
}

static void describe(gpu *g, int format, cudnnDataType_t type) {
    const cudnnTensorFormat_t f = (cudnnTensorFormat_t)format;
    OK(cudnnSetTensor4dDescriptor(g->x, f, type, N, C, H, W));
    OK(cudnnSetTensor4dDescriptor(g->y, f, type, N, K, P, Q));
    OK(cudnnSetFilter4dDescriptor(g->w, type, f, K, D, R, S));
    OK(cudnnSetConvolution2dDescriptor(g->conv, 1, 0, 2, 1, 1, 2, CUDNN_CROSS_CORRELATION,
                                       type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE
                                                                 : CUDNN_DATA_FLOAT));
    OK(cudnnSetConvolutionGroupCount(g->conv, 2));
}

/* What is offered at a place, for forward; the math type is set. */
static cudnnConvolutionFwdAlgoPerf_t forward(gpu *g, int i) {
    cudnnConvolutionFwdAlgoPerf_t r[8];
    int n = 0;
    OK(cudnnSetConvolutionMathType(g->conv, CUDNN_DEFAULT_MATH));
    OK(cudnnGetConvolutionForwardAlgorithm_v7(g->dnn, g->x, g->w, g->conv, g->y, 8, &n, r));
    assert_int_equal(n, 8);
    OK(cudnnSetConvolutionMathType(g->conv, r[i].mathType));
    return r[i];
}

static cudnnStatus_t run_forward(gpu *g, cudnnConvolutionFwdAlgo_t algo, void *workspace,
                                 size_t bytes, const void *alpha, const void *beta) {
    return cudnnConvolutionForward(g->dnn, alpha, g->x, at(g, 0), g->w, at(g, 1), g->conv, algo,
                                   workspace, bytes, beta, g->y, at(g, 3));
}

static void run_backward(gpu *g, int i, const void *alpha, const void *beta) {
    cudnnConvolutionBwdDataAlgoPerf_t data[2];
    cudnnConvolutionBwdFilterAlgoPerf_t filter[2];
    int n = 0;
    OK(cudnnSetConvolutionMathType(g->conv, CUDNN_DEFAULT_MATH));
    OK(cudnnGetConvolutionBackwardDataAlgorithm_v7(g->dnn, g->w, g->y, g->conv, g->x, 2, &n, data));
    OK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(g->dnn, g->x, g->y, g->conv, g->w, 2, &n,
                                                     filter));
    assert_int_equal(n, 2);
    assert_true(data[0].memory > data[1].memory && filter[0].memory > filter[1].memory);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(data[k].determinism, k);
        assert_int_equal(filter[k].determinism, k);
    }
    OK(cudnnSetConvolutionMathType(g->conv, data[i].mathType));
    OK(cudnnConvolutionBackwardData(g->dnn, alpha, g->w, at(g, 1), g->y, at(g, 2), g->conv,
                                    data[i].algo, at(g, 6), data[i].memory, beta, g->x, at(g, 4)));
    OK(cudnnSetConvolutionMathType(g->conv, filter[i].mathType));
    OK(cudnnConvolutionBackwardFilter(g->dnn, alpha, g->x, at(g, 0), g->y, at(g, 2), g->conv,
                                      filter[i].algo, at(g, 6), filter[i].memory, beta, g->w,
                                      at(g, 5)));
}

static void check_convolution(gpu *g, int format, cudnnDataType_t type, int algorithm) {
    float x[X], w[F], dy[Y], y[Y] = {0}, dx[X] = {0}, dw[F] = {0}, *const in[] = {x, w, dy};
    const int sizes[] = {X, F, Y};
    const double one_of_double = 1, zero_of_double = 0;
    const bool wide = type == CUDNN_DATA_DOUBLE;
    const void *alpha = wide ? (const void *)&one_of_double : &one;
    const void *beta = wide ? (const void *)&zero_of_double : &zero;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < sizes[t]; i++) in[t][i] = (float)((i * 7 + i / 5 + t) % 5 - 2);
    naive(format, in, y, dx, dw);
    memset(at(g, 0), 0xff, BYTES); /* NaN: it is neither read nor left */
    for (int t = 0; t < 3; t++) put_all(type, at(g, t), sizes[t], in[t]);
    describe(g, format, type);
    const cudnnConvolutionFwdAlgoPerf_t r = forward(g, algorithm);
    memset(at(g, 6), 0, r.memory);
    OK(run_forward(g, r.algo, at(g, 6), r.memory, alpha, beta));
    assert_true(((unsigned char *)at(g, 6))[r.memory - 1] != 0); /* spoiled */
    run_backward(g, algorithm, alpha, beta);
    check_all(type, at(g, 3), Y, y);
    check_all(type, at(g, 4), X, dx);
    check_all(type, at(g, 5), F, dw);
}

static void convolutions_are_those_of_a_loop(void **state) {
    for (int i = 0; i < 2; i++) {
        check_convolution(*state, NHWC, CUDNN_DATA_FLOAT, i);
        check_convolution(*state, NHWC, CUDNN_DATA_HALF, i);
        check_convolution(*state, NHWC, CUDNN_DATA_BFLOAT16, i);
        check_convolution(*state, NCHW, CUDNN_DATA_FLOAT, i);
        check_convolution(*state, NCHW, CUDNN_DATA_DOUBLE, i);
    }
}

static void results_are_blended_with_what_was_there(void **state) {
    gpu *g = *state;
    const float half = 0.5f, three = 3;
    float *y = at(g, 3);
    memset(at(g, 0), 0, BYTES);
    describe(g, NHWC, CUDNN_DATA_FLOAT);
    for (int i = 0; i < X; i++) put(CUDNN_DATA_FLOAT, at(g, 0), i, 2);
    for (int i = 0; i < F; i++) put(CUDNN_DATA_FLOAT, at(g, 1), i, 1);
    for (int i = 0; i < Y; i++) y[i] = 10;
    const cudnnConvolutionFwdAlgoPerf_t r = forward(g, 1);
    OK(run_forward(g, r.algo, at(g, 6), r.memory, &half, &three));
    assert_true(y[0] == 0.5f * 2 * (D * 2 * S) + 30);             /* a row of taps is outside */
    assert_true(y[Q * K + K - 1] == 0.5f * 2 * (D * R * S) + 30); /* none */
}

static void algorithms_are_offered_with_what_they_want(void **state) {
    gpu *g = *state;
    describe(g, NHWC, CUDNN_DATA_HALF);
    const cudnnConvolutionFwdAlgoPerf_t first = forward(g, 0), second = forward(g, 1);
    assert_int_equal(first.status, 0);
    assert_int_equal(second.status, 0);
    assert_int_equal(first.determinism, CUDNN_NON_DETERMINISTIC);
    assert_int_equal(second.determinism, CUDNN_DETERMINISTIC);
    assert_true(first.memory > second.memory && second.memory > 0);
    for (int i = 2; i < 8; i++) assert_int_equal(forward(g, i).status, CUDNN_STATUS_NOT_SUPPORTED);
    /* Without the math type that was offered more is wanted. */
    OK(cudnnSetConvolutionMathType(g->conv, CUDNN_DEFAULT_MATH));
    BAD(run_forward(g, second.algo, at(g, 6), second.memory, &one, &zero));
    /* What no algorithm can do: a filter of another type, another number of groups. */
    OK(cudnnSetFilter4dDescriptor(g->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, K, D, R, S));
    for (int i = 0; i < 8; i++) assert_int_equal(forward(g, i).status, CUDNN_STATUS_NOT_SUPPORTED);
    describe(g, NHWC, CUDNN_DATA_HALF);
    OK(cudnnSetConvolutionGroupCount(g->conv, 1));
    assert_int_equal(forward(g, 0).status, CUDNN_STATUS_NOT_SUPPORTED);
    UNSUPPORTED(run_forward(g, second.algo, at(g, 6), second.memory, &one, &zero));
}

static void wrong_convolutions_are_refused(void **state) {
    gpu *g = *state;
    float host[Y];
    int n = 0;
    cudnnConvolutionFwdAlgoPerf_t offered[8];
    describe(g, NHWC, CUDNN_DATA_FLOAT);
    const cudnnConvolutionFwdAlgoPerf_t r = forward(g, 1);
    OK(run_forward(g, r.algo, at(g, 6), r.memory, &one, &zero));
    BAD(run_forward(g, r.algo, at(g, 6), r.memory - 1, &one, &zero));
    BAD(run_forward(g, r.algo, NULL, r.memory, &one, &zero));
    BAD(run_forward(g, r.algo, (char *)at(g, 8) - 64, r.memory, &one, &zero));
    BAD(run_forward(g, r.algo, at(g, 6), r.memory, NULL, &zero));
    UNSUPPORTED(run_forward(g, CUDNN_CONVOLUTION_FWD_ALGO_FFT, at(g, 6), PART, &one, &zero));
    void *const places[] = {NULL, host, (char *)at(g, 8) - 4, (char *)at(g, 3) + 2, at(g, 0)};
    for (int i = 0; i < 5; i++)
        BAD(cudnnConvolutionForward(g->dnn, &one, g->x, at(g, 0), g->w, at(g, 1), g->conv, r.algo,
                                    at(g, 6), r.memory, &zero, g->y, places[i]));
    BAD(cudnnGetConvolutionForwardAlgorithm_v7(g->dnn, g->x, g->w, g->conv, g->y, 0, &n, offered));
    BAD(cudnnGetConvolutionForwardAlgorithm_v7(NULL, g->x, g->w, g->conv, g->y, 8, &n, offered));
    BAD(cudnnGetConvolutionForwardAlgorithm_v7(g->dnn, g->x, g->w, g->conv, g->z, 8, &n, offered));
    const int sizes[][4] = {{N, K, P, Q + 1}, {N, K, P - 1, Q}, {N, K + 1, P, Q}, {N + 1, K, P, Q}};
    for (int i = 0; i < 4; i++) {
        const int *s = sizes[i];
        OK(cudnnSetTensor4dDescriptor(g->y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, s[0], s[1], s[2],
                                      s[3]));
        BAD(run_forward(g, r.algo, at(g, 6), r.memory, &one, &zero));
        BAD(cudnnGetConvolutionForwardAlgorithm_v7(g->dnn, g->x, g->w, g->conv, g->y, 8, &n,
                                                   offered));
    }
    /* A filter that the image with its padding has no room for. */
    OK(cudnnSetConvolution2dDescriptor(g->conv, 0, 0, 2, 2, 1, 1, CUDNN_CROSS_CORRELATION,
                                       CUDNN_DATA_FLOAT));
    OK(cudnnSetTensor4dDescriptor(g->x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, N, C, R - 1, S));
    OK(cudnnSetTensor4dDescriptor(g->y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, N, K, 1, 1));
    BAD(run_forward(g, r.algo, at(g, 6), r.memory, &one, &zero));
}

/* ---- pooling ---- */

/* Two channels, the second one twice the first. */
static void fill(cudnnDataType_t type, int format, void *to, int n, const float *values) {
    for (int i = 0; i < 2 * n; i++)
        put(type, to, i,
            format == NHWC ? values[i / 2] * (float)(1 + i % 2)
                           : values[i % n] * (float)(1 + i / n));
}

static void check(cudnnDataType_t type, int format, const void *from, int n, const float *values) {
    float expected[32];
    fill(CUDNN_DATA_FLOAT, format, expected, n, values);
    check_all(type, from, 2 * n, expected);
}

typedef struct example { /* of 4 x 4 cells, padded by 1 and stepped by 2 */
    cudnnPoolingMode_t mode;
    int window, out;
    float y[9], dy[9], dx[16];
} example;

static const float pooled[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 9, 4, 9, 6, 7};

static void describe_pooling(gpu *g, const example *e, int format, cudnnDataType_t type,
                             cudnnNanPropagation_t nan) {
    const cudnnTensorFormat_t f = (cudnnTensorFormat_t)format;
    OK(cudnnSetTensor4dDescriptor(g->x, f, type, 1, 2, 4, 4));
    OK(cudnnSetTensor4dDescriptor(g->y, f, type, 1, 2, e->out, e->out));
    OK(cudnnSetPooling2dDescriptor(g->pool, e->mode, nan, e->window, e->window, 1, 1, 2, 2));
}

/* x is in part 0, dy in part 2; y comes to part 1 and dx to part 3. */
static void run_pooling(gpu *g, const void *alpha, const void *beta) {
    OK(cudnnPoolingForward(g->dnn, g->pool, alpha, g->x, at(g, 0), beta, g->y, at(g, 1)));
    OK(cudnnPoolingBackward(g->dnn, g->pool, alpha, g->y, at(g, 1), g->y, at(g, 2), g->x, at(g, 0),
                            beta, g->x, at(g, 3)));
}

static void check_pooling(gpu *g, const example *e, int format, cudnnDataType_t type) {
    const double one_of_double = 1, zero_of_double = 0;
    const bool wide = type == CUDNN_DATA_DOUBLE;
    memset(at(g, 0), 0xff, BYTES);
    fill(type, format, at(g, 0), 16, pooled);
    fill(type, format, at(g, 2), e->out * e->out, e->dy);
    describe_pooling(g, e, format, type, CUDNN_PROPAGATE_NAN);
    run_pooling(g, wide ? (const void *)&one_of_double : &one,
                wide ? (const void *)&zero_of_double : &zero);
    check(type, format, at(g, 1), e->out * e->out, e->y);
    check(type, format, at(g, 3), 16, e->dx);
}

static const example of_max = {CUDNN_POOLING_MAX,
                               3,
                               2,
                               {6, 8, 9, 9},
                               {1, 2, 4, 8},
                               {0, 0, 0, 0, 0, 1, 0, 2, 4, 0, 0, 8, 0, 0, 0, 0}};

static void pooling_is_as_by_hand(void **state) {
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16,
                                            CUDNN_DATA_DOUBLE};
    example all[] = {of_max,
                     of_max,
                     {CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
                      2,
                      3,
                      {0.25f, 1.25f, 1, 3.5f, 4, 4.25f, 1, 3.75f, 1.75f},
                      {4, 8, 12, 16, 20, 24, 28, 32, 36},
                      {1, 2, 2, 3, 4, 5, 5, 6, 4, 5, 5, 6, 7, 8, 8, 9}},
                     {CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
                      2,
                      3,
                      {1, 2.5f, 4, 7, 4, 8.5f, 4, 7.5f, 7},
                      {4, 8, 12, 16, 20, 24, 28, 32, 36},
                      {4, 4, 4, 12, 8, 5, 5, 12, 8, 5, 5, 12, 28, 16, 16, 36}}};
    all[1].mode = CUDNN_POOLING_MAX_DETERMINISTIC;
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 4; t++) {
            check_pooling(*state, &all[i], NHWC, types[t]);
            check_pooling(*state, &all[i], NCHW, types[t]);
        }
}

static void a_nan_is_the_maximum_or_is_ignored(void **state) {
    gpu *g = *state;
    static const float ignored[] = {0, 0, 0, 0, 1, 0, 0, 2, 4, 0, 0, 8, 0, 0, 0, 0};
    static const float taken[] = {0, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int propagate = 0; propagate < 2; propagate++) {
        fill(CUDNN_DATA_FLOAT, NHWC, at(g, 0), 16, pooled);
        fill(CUDNN_DATA_FLOAT, NHWC, at(g, 2), 4, of_max.dy);
        for (int c = 0; c < 2; c++) put(CUDNN_DATA_FLOAT, at(g, 0), 2 * 5 + c, NAN);
        describe_pooling(g, &of_max, NHWC, CUDNN_DATA_FLOAT, (cudnnNanPropagation_t)propagate);
        run_pooling(g, &one, &zero);
        if (propagate)
            for (int i = 0; i < 8; i++) assert_true(isnan(((float *)at(g, 1))[i]));
        else
            check(CUDNN_DATA_FLOAT, NHWC, at(g, 1), 4, (const float[]){5, 8, 9, 9});
        check(CUDNN_DATA_FLOAT, NHWC, at(g, 3), 16, propagate ? taken : ignored);
    }
}

static cudnnStatus_t pool_forward(gpu *g, const void *from, void *to) {
    return cudnnPoolingForward(g->dnn, g->pool, &one, g->x, from, &zero, g->y, to);
}

static void wrong_pooling_is_refused(void **state) {
    gpu *g = *state;
    float host[32];
    const int sizes[][4] = {{1, 2, 2, 3}, {1, 2, 1, 2}, {1, 3, 2, 2}, {2, 2, 2, 2}};
    describe_pooling(g, &of_max, NHWC, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN);
    memset(at(g, 0), 0, BYTES);
    OK(pool_forward(g, at(g, 0), at(g, 1)));
    BAD(pool_forward(g, host, at(g, 1)));
    BAD(pool_forward(g, at(g, 0), host));
    BAD(pool_forward(g, at(g, 0), NULL));
    BAD(pool_forward(g, at(g, 0), at(g, 0)));
    BAD(pool_forward(g, (char *)at(g, 8) - 4 * 31, at(g, 1)));
    OK(pool_forward(g, (char *)at(g, 8) - 4 * 32, at(g, 1)));
    BAD(cudnnPoolingBackward(g->dnn, g->pool, &one, g->y, at(g, 1), g->y, at(g, 2), g->x, at(g, 0),
                             &zero, g->y, at(g, 3)));
    BAD(cudnnPoolingBackward(g->dnn, g->pool, &one, g->y, at(g, 1), g->y, host, g->x, at(g, 0),
                             &zero, g->x, at(g, 3)));
    for (int i = 0; i < 4; i++) {
        const int *s = sizes[i];
        OK(cudnnSetTensor4dDescriptor(g->y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, s[0], s[1], s[2],
                                      s[3]));
        BAD(pool_forward(g, at(g, 0), at(g, 1)));
    }
    OK(cudnnSetTensor4dDescriptor(g->y, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 1, 2, 2, 2));
    BAD(pool_forward(g, at(g, 0), at(g, 1)));
    OK(cudnnSetTensor4dDescriptor(g->y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 2, 2));
    UNSUPPORTED(pool_forward(g, at(g, 0), at(g, 1)));
    OK(cudnnSetTensor4dDescriptor(g->y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 2, 3, 3));
    OK(cudnnSetPooling2dDescriptor(g->pool, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 2, 2, 2, 2, 3,
                                   3));
    UNSUPPORTED(pool_forward(g, at(g, 0), at(g, 1))); /* windows of nothing but padding */
}

/* ---- batch normalization ---- */

static cudnnStatus_t normalize(gpu *g, const void *alpha, const void *beta, void *y,
                               double epsilon) {
    return cudnnBatchNormalizationForwardInference(g->dnn, CUDNN_BATCHNORM_SPATIAL, alpha, beta,
                                                   g->x, at(g, 0), g->y, y, g->z, at(g, 2),
                                                   at(g, 3), at(g, 4), at(g, 5), epsilon);
}

static void describe_norm(gpu *g, cudnnDataType_t type, cudnnDataType_t of_channels) {
    OK(cudnnSetTensor4dDescriptor(g->x, CUDNN_TENSOR_NHWC, type, 1, 2, 1, 3));
    OK(cudnnSetTensor4dDescriptor(g->y, CUDNN_TENSOR_NHWC, type, 1, 2, 1, 3));
    OK(cudnnSetTensor4dDescriptor(g->z, CUDNN_TENSOR_NHWC, of_channels, 1, 2, 1, 1));
}

static void normalization_is_as_by_hand(void **state) {
    gpu *g = *state;
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16,
                                            CUDNN_DATA_DOUBLE};
    static const float x[] = {1, 1, 2, 2, 4, 4}, y[] = {-1, -1, 0, 5, 2, 17};
    static const float channels[4][2] = {{2, 3}, {1, -1}, {3, 1}, {3.75f, 0}};
    const double one_of_double = 1, zero_of_double = 0;
    for (int t = 0; t < 4; t++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const bool wide = types[t] == CUDNN_DATA_DOUBLE;
            const cudnnDataType_t of_channels = wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
            memset(at(g, 0), 0xff, BYTES);
            put_all(types[t], at(g, 0), 6, x);
            for (int i = 0; i < 4; i++) put_all(of_channels, at(g, 2 + i), 2, channels[i]);
            describe_norm(g, types[t], of_channels);
            OK(normalize(g, wide ? (const void *)&one_of_double : &one,
                         wide ? (const void *)&zero_of_double : &zero, at(g, !in_place), 0.25));
            check_all(types[t], at(g, !in_place), 6, y);
        }
}

static void wrong_normalization_is_refused(void **state) {
    gpu *g = *state;
    float host[6];
    memset(at(g, 0), 0, BYTES);
    describe_norm(g, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT);
    OK(normalize(g, &one, &zero, at(g, 1), 0));
    BAD(normalize(g, &one, &zero, at(g, 1), -1e-9));
    BAD(normalize(g, &one, NULL, at(g, 1), 0));
    BAD(normalize(g, &one, &zero, host, 0));
    BAD(normalize(g, &one, &zero, (char *)at(g, 0) + 2, 0));
    describe_norm(g, CUDNN_DATA_HALF, CUDNN_DATA_HALF);
    BAD(normalize(g, &one, &zero, at(g, 1), 0));
    describe_norm(g, CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT);
    BAD(normalize(g, &one, &zero, at(g, 1), 0));
    describe_norm(g, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT);
    OK(cudnnSetTensor4dDescriptor(g->z, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 3, 1, 1));
    BAD(normalize(g, &one, &zero, at(g, 1), 0));
    UNSUPPORTED(cudnnBatchNormalizationForwardInference(
        g->dnn, CUDNN_BATCHNORM_PER_ACTIVATION, &one, &zero, g->x, at(g, 0), g->y, at(g, 1), g->x,
        at(g, 2), at(g, 3), at(g, 4), at(g, 5), 0));
}

/* ---- descriptors, recordings, failures ---- */

static void descriptors_take_what_the_real_library_takes(void **state) {
    gpu *g = *state;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnTensorFormat_t nhwc = CUDNN_TENSOR_NHWC;
    BAD(cudnnCreateTensorDescriptor(NULL));
    BAD(cudnnSetTensor4dDescriptor(NULL, nhwc, f32, 1, 1, 1, 1));
    BAD(cudnnSetTensor4dDescriptor(g->x, nhwc, f32, 0, 1, 1, 1));
    BAD(cudnnSetTensor4dDescriptor(g->x, nhwc, (cudnnDataType_t)99, 1, 1, 1, 1));
    BAD(cudnnSetTensor4dDescriptor(g->x, (cudnnTensorFormat_t)9, f32, 1, 1, 1, 1));
    OK(cudnnSetTensor4dDescriptor(g->x, nhwc, f32, 2, 1024, 1024, 1023));
    UNSUPPORTED(cudnnSetTensor4dDescriptor(g->x, nhwc, f32, 2, 1024, 1024, 1024));
    BAD(cudnnSetFilter4dDescriptor(g->w, f32, nhwc, 1, -1, 1, 1));
    OK(cudnnSetFilter4dDescriptor(g->w, f32, nhwc, 1024, 1024, 1024, 2));
#define CONV(pad, stride, dilation, mode, type)                                                    \
    cudnnSetConvolution2dDescriptor(g->conv, 0, pad, 1, stride, 1, dilation, mode, type)
    BAD(CONV(-1, 1, 1, CUDNN_CROSS_CORRELATION, f32));
    BAD(CONV(0, 0, 1, CUDNN_CROSS_CORRELATION, f32));
    BAD(CONV(0, 1, 0, CUDNN_CROSS_CORRELATION, f32));
    BAD(CONV(0, 1, 1, (cudnnConvolutionMode_t)5, f32));
    BAD(CONV(0, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_BFLOAT16));
    OK(CONV(0, 1, 1, CUDNN_CONVOLUTION, CUDNN_DATA_HALF));
    BAD(cudnnSetConvolutionGroupCount(g->conv, 0));
    BAD(cudnnSetConvolutionMathType(g->conv, (cudnnMathType_t)9));
#define POOL(mode, nan, window, pad, stride)                                                       \
    cudnnSetPooling2dDescriptor(g->pool, mode, nan, 2, window, 0, pad, 2, stride)
    BAD(POOL(CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 0, 0, 1));
    BAD(POOL(CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 1, 0, 0));
    BAD(POOL((cudnnPoolingMode_t)7, CUDNN_PROPAGATE_NAN, 1, 0, 1));
    BAD(POOL(CUDNN_POOLING_MAX, (cudnnNanPropagation_t)7, 1, 0, 1));
    OK(POOL(CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 1));
    OK(cudnnDestroyTensorDescriptor(NULL));
    BAD(cudnnDestroyTensorDescriptor((cudnnTensorDescriptor_t)(void *)g->pool));
}

static void what_is_recorded_runs_when_its_graph_does(void **state) {
    gpu *g = *state;
    CUgraph graph;
    CUgraphExec exec;
    const long long before = fake_cuda_count("cudnnPoolingForward in graph");
    describe_pooling(g, &of_max, NHWC, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN);
    memset(at(g, 0), 0, BYTES);
    OK(cuStreamBeginCapture(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(pool_forward(g, at(g, 0), at(g, 1)));
    OK(cuStreamEndCapture(g->stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    /* Neither descriptors nor data are those of the recording any more. */
    describe_norm(g, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT);
    fill(CUDNN_DATA_FLOAT, NHWC, at(g, 0), 16, pooled);
    assert_true(((float *)at(g, 1))[0] == 0);
    OK(cuGraphLaunch(exec, g->stream));
    OK(cuStreamSynchronize(g->stream));
    check(CUDNN_DATA_FLOAT, NHWC, at(g, 1), 4, of_max.y);
    assert_int_equal(fake_cuda_count("cudnnPoolingForward in graph"), before + 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void seeking_an_algorithm_spoils_a_recording(void **state) {
    gpu *g = *state;
    CUgraph graph;
    cudnnConvolutionFwdAlgoPerf_t r[8];
    int n;
    describe(g, NHWC, CUDNN_DATA_FLOAT);
    const cudnnConvolutionFwdAlgoPerf_t before = forward(g, 1);
    OK(cuStreamBeginCapture(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(run_forward(g, before.algo, at(g, 6), before.memory, &one, &zero));
    assert_int_equal(
        cudnnGetConvolutionForwardAlgorithm_v7(g->dnn, g->x, g->w, g->conv, g->y, 8, &n, r),
        CUDNN_STATUS_EXECUTION_FAILED);
    assert_int_equal(cuStreamEndCapture(g->stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void calls_fail_when_asked_to(void **state) {
    gpu *g = *state;
    describe_pooling(g, &of_max, NHWC, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN);
    fake_cuda_fail("cudnnPoolingForward", 2, CUDNN_STATUS_INTERNAL_ERROR);
    OK(pool_forward(g, at(g, 0), at(g, 1)));
    assert_int_equal(pool_forward(g, at(g, 0), at(g, 1)), CUDNN_STATUS_INTERNAL_ERROR);
    OK(pool_forward(g, at(g, 0), at(g, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
        TEST(convolutions_are_those_of_a_loop),
        TEST(results_are_blended_with_what_was_there),
        TEST(algorithms_are_offered_with_what_they_want),
        TEST(wrong_convolutions_are_refused),
        TEST(pooling_is_as_by_hand),
        TEST(a_nan_is_the_maximum_or_is_ignored),
        TEST(wrong_pooling_is_refused),
        TEST(normalization_is_as_by_hand),
        TEST(wrong_normalization_is_refused),
        TEST(descriptors_take_what_the_real_library_takes),
        TEST(what_is_recorded_runs_when_its_graph_does),
        TEST(seeking_an_algorithm_spoils_a_recording),
        TEST(calls_fail_when_asked_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The fake CUDA for cuDNN's older interface: pooling, and batch normalization with known moments.
 *
 * The real library launches pooling for any height and width of the result, and takes padding that
 * holds whole windows; what comes out then is documented nowhere, so both are refused here. */
#include "cudnn_handle.h"
#include "cudnn_legacy.h"
#include <math.h>
#include <stdlib.h>

static cudnnStatus_t enqueue(cudnnHandle_t handle, const char *name, fake_cuda_work *does,
                             const void *args, size_t bytes) {
    return fake_cuda_enqueue(handle->stream, name, does, args, bytes) == CUDA_SUCCESS
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}

static bool same_sizes(const tensor *a, const tensor *b, int axes) {
    for (int i = 0; i < axes; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* ---- pooling ---- */

typedef struct pooling {
    struct cudnnPoolingStruct how;
    tensor x, y, dy, dx;
    double alpha, beta;
} pooling;

typedef struct window { /* the rows and columns of x that a cell of y is made of */
    int64_t n, c, from[2], to[2];
} window;

static window window_of(const pooling *p, int64_t n, int64_t c, const int64_t cell[2]) {
    window w = {.n = n, .c = c};
    for (int i = 0; i < 2; i++) {
        const int64_t start = cell[i] * p->how.stride[i] - p->how.pad[i];
        const int64_t end = start + p->how.window[i], size = p->x.dim[2 + i];
        w.from[i] = start < 0 ? 0 : start;
        w.to[i] = end > size ? size : end;
    }
    return w;
}

static bool is_max(const pooling *p) {
    return p->how.mode == CUDNN_POOLING_MAX || p->how.mode == CUDNN_POOLING_MAX_DETERMINISTIC;
}

static double share(const pooling *p, const window *w) {
    const int64_t cells = p->how.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
                              ? (int64_t)p->how.window[0] * p->how.window[1]
                              : (w->to[0] - w->from[0]) * (w->to[1] - w->from[1]);
    return 1.0 / (double)cells;
}

static double pool(const pooling *p, const window *w) {
    double sum = 0, most = -INFINITY;
    for (int64_t row = w->from[0]; row < w->to[0]; row++)
        for (int64_t column = w->from[1]; column < w->to[1]; column++) {
            const double v = dnn_load(&p->x, dnn_offset(&p->x, w->n, w->c, row, column));
            sum += v;
            if (v > most || (v != v && p->how.nan == CUDNN_PROPAGATE_NAN)) most = v;
        }
    return is_max(p) ? most : sum * share(p, w);
}

/* The first cell that is what y says gets the gradient; a NaN is one if it is propagated. */
static void spread_max(const pooling *p, const window *w, double y, double dy, double *sum) {
    for (int64_t row = w->from[0]; row < w->to[0]; row++)
        for (int64_t column = w->from[1]; column < w->to[1]; column++) {
            const double v = dnn_load(&p->x, dnn_offset(&p->x, w->n, w->c, row, column));
            if (v == y || (v != v && y != y && p->how.nan == CUDNN_PROPAGATE_NAN)) {
                sum[dnn_offset(&p->dx, w->n, w->c, row, column)] += dy;
                return;
            }
        }
}

static void spread_mean(const pooling *p, const window *w, double dy, double *sum) {
    for (int64_t row = w->from[0]; row < w->to[0]; row++)
        for (int64_t column = w->from[1]; column < w->to[1]; column++)
            sum[dnn_offset(&p->dx, w->n, w->c, row, column)] += dy * share(p, w);
}

/* All cells of t, with their place in `cell`. */
#define EACH_CELL(t, cell)                                                                         \
    for (int64_t n = 0; n < (t)->dim[0]; n++)                                                      \
        for (int64_t c = 0; c < (t)->dim[1]; c++)                                                  \
            for (int64_t cell[2] = {0, 0}; cell[0] < (t)->dim[2]; cell[0]++)                       \
                for (cell[1] = 0; cell[1] < (t)->dim[3]; cell[1]++)

static void pool_forward(void *args) {
    const pooling *p = args;
    EACH_CELL(&p->y, cell) {
        const window w = window_of(p, n, c, cell);
        dnn_blend(&p->y, dnn_offset(&p->y, n, c, cell[0], cell[1]), p->alpha, pool(p, &w), p->beta);
    }
}

static void pool_backward(void *args) {
    const pooling *p = args;
    double *sum = calloc((size_t)dnn_extent(&p->dx), sizeof *sum);
    if (!sum) abort();
    EACH_CELL(&p->y, cell) {
        const window w = window_of(p, n, c, cell);
        const int64_t at = dnn_offset(&p->y, n, c, cell[0], cell[1]);
        if (is_max(p))
            spread_max(p, &w, dnn_load(&p->y, at), dnn_load(&p->dy, at), sum);
        else
            spread_mean(p, &w, dnn_load(&p->dy, at), sum);
    }
    EACH_CELL(&p->dx, cell) {
        const int64_t at = dnn_offset(&p->dx, n, c, cell[0], cell[1]);
        dnn_blend(&p->dx, at, p->alpha, sum[at], p->beta);
    }
    free(sum);
}

/* Whether y is what pooling makes of x; `wrong`: what the real library says if not. */
static cudnnStatus_t check_pooling(const struct cudnnPoolingStruct *how,
                                   const struct cudnnTensorStruct *x,
                                   const struct cudnnTensorStruct *y, cudnnStatus_t wrong) {
    if (!how || !legacy_tensor(x) || !legacy_tensor(y))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a descriptor is missing or was not set");
    if (!same_sizes(&x->t, &y->t, 2) || x->t.type != y->t.type)
        return dnn_say(wrong, "images, channels or types differ");
    if (x->format != y->format) return dnn_say(CUDNN_STATUS_NOT_SUPPORTED, "layouts differ");
    for (int i = 0; i < 2; i++) {
        const int64_t room = x->t.dim[2 + i] + 2 * (int64_t)how->pad[i] - how->window[i];
        if (how->pad[i] < 0 || how->pad[i] >= how->window[i])
            return dnn_say(CUDNN_STATUS_NOT_SUPPORTED, "padding below 0, or of a window's size");
        if (room < 0 || y->t.dim[2 + i] != 1 + room / how->stride[i])
            return dnn_say(CUDNN_STATUS_BAD_PARAM, "sizes that do not fit");
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t d,
                                  const void *alpha, const cudnnTensorDescriptor_t x,
                                  const void *at_x, const void *beta,
                                  const cudnnTensorDescriptor_t y, void *at_y) {
    ENTER(cudnnPoolingForward);
    const struct cudnnPoolingStruct *how = legacy_pooling(d);
    if (!handle || !alpha || !beta) return dnn_say(CUDNN_STATUS_BAD_PARAM, "no handle or factor");
    const cudnnStatus_t status = check_pooling(how, x, y, CUDNN_STATUS_BAD_PARAM);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    pooling p = {.how = *how,
                 .alpha = legacy_factor(alpha, x->t.type),
                 .beta = legacy_factor(beta, x->t.type)};
    if (!legacy_place(x, at_x, &p.x) || !legacy_place(y, at_y, &p.y) || legacy_overlap(&p.x, &p.y))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a tensor is not in device memory of its own");
    return enqueue(handle, "cudnnPoolingForward", pool_forward, &p, sizeof p);
}

/* What is pooled and its gradient are described alike. */
static bool alike(const struct cudnnTensorStruct *a, const struct cudnnTensorStruct *b) {
    return legacy_tensor(a) && legacy_tensor(b) && same_sizes(&a->t, &b->t, 4) &&
           a->format == b->format && a->t.type == b->t.type;
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t d,
                                   const void *alpha, const cudnnTensorDescriptor_t y,
                                   const void *at_y, const cudnnTensorDescriptor_t dy,
                                   const void *at_dy, const cudnnTensorDescriptor_t x,
                                   const void *at_x, const void *beta,
                                   const cudnnTensorDescriptor_t dx, void *at_dx) {
    ENTER(cudnnPoolingBackward);
    const struct cudnnPoolingStruct *how = legacy_pooling(d);
    if (!handle || !alpha || !beta) return dnn_say(CUDNN_STATUS_BAD_PARAM, "no handle or factor");
    if (!alike(y, dy) || !alike(x, dx))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a tensor and its gradient differ");
    const cudnnStatus_t status = check_pooling(how, x, y, CUDNN_STATUS_NOT_SUPPORTED);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    pooling p = {.how = *how,
                 .alpha = legacy_factor(alpha, x->t.type),
                 .beta = legacy_factor(beta, x->t.type)};
    if (!legacy_place(x, at_x, &p.x) || !legacy_place(y, at_y, &p.y) ||
        !legacy_place(dy, at_dy, &p.dy) || !legacy_place(dx, at_dx, &p.dx) ||
        (is_max(&p) && (legacy_overlap(&p.dx, &p.x) || legacy_overlap(&p.dx, &p.y))) ||
        legacy_overlap(&p.dx, &p.dy)) /* averages look at neither x nor y */
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a tensor is not in device memory of its own");
    return enqueue(handle, "cudnnPoolingBackward", pool_backward, &p, sizeof p);
}

/* ---- batch normalization ---- */

typedef struct norm {
    tensor x, y, scale, bias, mean, variance;
    double alpha, beta, epsilon;
} norm;

static void normalize(void *args) {
    const norm *w = args;
    EACH_CELL(&w->x, cell) {
        const int64_t at = dnn_offset(&w->scale, 0, c, 0, 0);
        const double slope =
            dnn_load(&w->scale, at) / sqrt(dnn_load(&w->variance, at) + w->epsilon);
        const double x = dnn_load(&w->x, dnn_offset(&w->x, n, c, cell[0], cell[1]));
        dnn_blend(&w->y, dnn_offset(&w->y, n, c, cell[0], cell[1]), w->alpha,
                  slope * (x - dnn_load(&w->mean, at)) + dnn_load(&w->bias, at), w->beta);
    }
}

/* One number a channel, in float, or in double for double. */
static bool is_of_channels(const tensor *p, const tensor *x) {
    const cudnnDataType_t type =
        x->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    return p->dim[0] == 1 && p->dim[1] == x->dim[1] && p->dim[2] == 1 && p->dim[3] == 1 &&
           p->type == type;
}

/* x and y may be one: each element is read before it is written. */
cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t x, const void *at_x, const cudnnTensorDescriptor_t y, void *at_y,
    const cudnnTensorDescriptor_t channels, const void *scale, const void *bias, const void *mean,
    const void *variance, double epsilon) {
    ENTER(cudnnBatchNormalizationForwardInference);
    norm w = {.epsilon = epsilon};
    if (!handle || !alpha || !beta || !legacy_tensor(x) || !legacy_tensor(y) ||
        !legacy_tensor(channels) || epsilon < CUDNN_BN_MIN_EPSILON)
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "no handle, factor or tensor, or epsilon below 0");
    if (mode != CUDNN_BATCHNORM_SPATIAL)
        return (unsigned)mode > CUDNN_BATCHNORM_SPATIAL_PERSISTENT
                   ? dnn_say(CUDNN_STATUS_BAD_PARAM, "a mode that is none")
                   : dnn_say(CUDNN_STATUS_NOT_SUPPORTED, "only spatial normalization");
    if (!same_sizes(&x->t, &y->t, 4) || x->t.type != y->t.type ||
        !is_of_channels(&channels->t, &x->t))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "sizes or types do not fit");
    if (!legacy_place(x, at_x, &w.x) || !legacy_place(y, at_y, &w.y) ||
        !legacy_place(channels, scale, &w.scale) || !legacy_place(channels, bias, &w.bias) ||
        !legacy_place(channels, mean, &w.mean) || !legacy_place(channels, variance, &w.variance))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "a tensor is not in device memory");
    if (legacy_overlap(&w.x, &w.y) && (at_x != at_y || x->format != y->format))
        return dnn_say(CUDNN_STATUS_BAD_PARAM, "the result lies over a part of the input");
    w.alpha = legacy_factor(alpha, x->t.type);
    w.beta = legacy_factor(beta, x->t.type);
    return enqueue(handle, "cudnnBatchNormalizationForwardInference", normalize, &w, sizeof w);
}

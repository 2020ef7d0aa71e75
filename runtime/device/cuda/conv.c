/* conv2d and its backward forms by cuDNN, in f16, bf16 and f32.
 *
 * Kernels lie as MG_KRSC, which the program converts to and from at most once a step. Which of
 * cuDNN's plans is fastest is measured once and kept on disk; where results must be the same in
 * every run, it is the one that cuDNN names first. Bias and relu are part of the plan; where no
 * engine does that, or none whose relu keeps NaN, a kernel of our own follows the convolution. */
#include "core/alloc.h"
#include "core/log.h"
#include "core/precision.h"
#include "device/cuda/bias_relu.h"
#include "device/cuda/dnn_plan.h"
#include "device/cuda/kernels.h"
#include "device/cuda/memory.h"
#include "core/string_buffer.h"
#include "ops/attrs.h"
#include <stdatomic.h>
#include <string.h>

enum { CANDIDATES = 8, MOST_TENSORS = 4, ALIGNMENT = 16 };

typedef struct state {
    mg_dnn_plan plan;
    int n;                         /* tensors: inputs, then the output */
    int64_t numbers[MOST_TENSORS]; /* theirs */
    bool apart;                    /* a kernel of our own follows the plan */
    mg_bias_relu bias_relu;
} state;

/* ---- the case ---- */

static const char *missing(void) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (mg_dnn_open() == MG_OK) return NULL;
    if (!atomic_flag_test_and_set(&told))
        mg_log("fallback", "convolutions are slower: %s", mg_error_message());
    return mg_error_message();
}

static const char *accepts(const mg_kernel_plan *plan) {
    const mg_step *step = plan->step;
    if (plan->out[0].value->dtype == MG_F64) return "cuDNN computes in float";
    for (int i = 0; i < step->n_in; i++)
        if (mg_shape_count(&plan->in[i].value->shape) == 0) return "empty";
    if (mg_shape_count(&plan->out[0].value->shape) == 0) return "empty";
    return missing();
}

/* In cuDNN's order, from {N, H, W, C} or {R, S, C / groups, K}. */
static void image_dims(int64_t to[4], const mg_shape *s) {
    const int64_t dims[4] = {s->dim[0], s->dim[3], s->dim[1], s->dim[2]};
    memcpy(to, dims, sizeof dims);
}

static void weight_dims(int64_t to[4], const mg_shape *s) {
    const int64_t dims[4] = {s->dim[3], s->dim[2], s->dim[0], s->dim[1]};
    memcpy(to, dims, sizeof dims);
}

static int result_of(const char *op) {
    return strcmp(op, "conv2d") == 0              ? MG_DNN_Y
           : strcmp(op, "conv2d_grad_input") == 0 ? MG_DNN_X
                                                  : MG_DNN_W;
}

static mg_port *port_of(const mg_kernel_plan *plan, const state *s, int i) {
    return i < s->n - 1 ? &plan->in[i] : &plan->out[0];
}

/* Describes the convolution, and asks for the layouts. */
static mg_dnn_conv conv_of(const mg_kernel_plan *plan, state *s) {
    int64_t *numbers = s->numbers;
    const mg_conv_attrs *a = plan->step->attrs;
    mg_dnn_conv c = {.result = result_of(plan->step->op->name),
                     .dtype = plan->out[0].value->dtype,
                     .bias = plan->step->n_in == 3};
    c.relu = c.result == MG_DNN_Y && a->relu;
    numbers[0] = c.result == MG_DNN_X ? MG_DNN_Y : MG_DNN_X;
    numbers[1] = c.result == MG_DNN_W ? MG_DNN_Y : MG_DNN_W;
    numbers[2] = c.bias ? MG_DNN_BIAS : c.result;
    s->n = plan->step->n_in + 1;
    numbers[s->n - 1] = c.result;
    for (int i = 0; i < s->n; i++) {
        mg_port *port = port_of(plan, s, i);
        port->layout = numbers[i] == MG_DNN_W ? MG_KRSC : MG_ROW_MAJOR;
        if (numbers[i] == MG_DNN_X) image_dims(c.x, &port->value->shape);
        if (numbers[i] == MG_DNN_W) weight_dims(c.w, &port->value->shape);
        if (numbers[i] == MG_DNN_Y) image_dims(c.y, &port->value->shape);
    }
    for (int i = 0; i < 2; i++) {
        c.strides[i] = a->strides.v[i];
        c.dilations[i] = a->dilations.v[i];
        c.before[i] = a->pads.v[2 * i];
        c.after[i] = a->pads.v[2 * i + 1];
    }
    return c;
}

/* ---- choosing among plans ---- */

/* Tensors for the time of measuring. */
typedef struct trial {
    const mg_dnn_plan *plan;
    cudnnHandle_t handle;
    const int64_t *numbers;
    int n;
    void *at[MOST_TENSORS + 1]; /* the last one: the workspace */
    size_t bytes[MOST_TENSORS + 1];
    bool relu; /* all tensors are NaN, and the result must be */
} trial;

static mg_status start_trial(void *context) {
    const trial *t = context;
    return mg_dnn_plan_run(t->plan, t->handle, t->n, t->numbers, t->at, t->at[MOST_TENSORS]);
}

static mg_status take_all(trial *t, const mg_kernel_plan *plan) {
    for (int i = 0; i <= MOST_TENSORS; i++) {
        if (t->bytes[i] == 0) continue;
        MG_TRY(mg_device_alloc(plan->device, t->bytes[i], &t->at[i]));
        MG_TRY(mg_cuda_fill(plan->device, t->at[i], t->relu ? 0xff : 0, t->bytes[i]));
    }
    return MG_OK;
}

static bool is_right(trial *t, const mg_kernel_plan *plan) {
    return !t->relu ||
           mg_cuda_keeps_nan(plan->device, start_trial, t, plan->out[0].value, t->at[t->n - 1]);
}

/* Of n plans, the number of the fastest; a plan that fails is not. */
static mg_status measure(trial *t, const mg_kernel_plan *plan, const mg_dnn_plan *plans, int n,
                         int *best) {
    float least = 0;
    *best = -1;
    for (int i = 0; i < n; i++) {
        float ms = 0;
        t->plan = &plans[i];
        if (!is_right(t, plan) || mg_cuda_time(plan->device, start_trial, t, &ms) != MG_OK)
            continue;
        if (*best < 0 || ms < least) {
            *best = i;
            least = ms;
        }
    }
    if (*best < 0 && mg_error_code() != MG_OK) return mg_error_code();
    if (*best < 0) return mg_fail(MG_UNSUPPORTED, "no relu of cuDNN's keeps NaN");
    mg_error_clear();
    return MG_OK;
}

/* The fastest plan's number; the first one, not settled, if there is no memory to measure them. */
static mg_status fastest(const mg_kernel_plan *plan, const state *s, bool relu,
                         const mg_dnn_plan *plans, int n, int *best, bool *settled) {
    trial t = {.numbers = s->numbers, .n = s->n, .relu = relu};
    *best = 0;
    *settled = true;
    MG_TRY(mg_dnn_handle(plan->device, &t.handle));
    if (n == 1 && !relu) return MG_OK;
    for (int i = 0; i < t.n; i++) {
        const mg_value *v = port_of(plan, s, i)->value;
        t.bytes[i] = (size_t)mg_shape_count(&v->shape) * mg_dtype_size(v->dtype);
    }
    for (int i = 0; i < n; i++)
        if (plans[i].workspace > t.bytes[MOST_TENSORS]) t.bytes[MOST_TENSORS] = plans[i].workspace;
    mg_status status = take_all(&t, plan);
    if (status == MG_OK) status = measure(&t, plan, plans, n, best);
    for (int i = 0; i <= MOST_TENSORS; i++)
        if (t.at[i]) mg_device_free(plan->device, t.at[i], t.bytes[i]);
    if (status != MG_OOM) return status;
    mg_error_clear();
    *best = 0;
    *settled = false;
    return relu ? mg_fail(MG_UNSUPPORTED, "no memory to look whether relu keeps NaN") : MG_OK;
}

static mg_status key_of(mg_string_buffer *key, const mg_device *d, const mg_dnn_conv *c) {
    mg_string_buffer_add(key, "conv %d %s fast %d bias %d relu %d cudnn %zu on %s;", c->result,
                         mg_dtype_name(c->dtype), mg_precision_fast(), c->bias, c->relu,
                         mg_dnn.cudnnGetVersion(), mg_cuda_of(d)->gpu_name);
    for (int i = 0; i < 4; i++)
        mg_string_buffer_add(key, " %lld %lld %lld,", (long long)c->x[i], (long long)c->w[i],
                             (long long)c->y[i]);
    for (int i = 0; i < 2; i++)
        mg_string_buffer_add(key, " %lld %lld %lld %lld,", (long long)c->strides[i],
                             (long long)c->dilations[i], (long long)c->before[i],
                             (long long)c->after[i]);
    return mg_string_buffer_status(key);
}

static const char no_plan[] = "none";

/* `none`: that there is none was kept. */
static bool read_back(mg_dnn_plan *plan, cudnnHandle_t handle, const char *key, bool *none) {
    size_t bytes = 0;
    char *text = mg_cuda_cache_read("cudnn", key, &bytes);
    *none = text && bytes == sizeof no_plan && memcmp(text, no_plan, bytes) == 0;
    const bool read = text && !*none && mg_dnn_plan_read(plan, handle, text, bytes) == MG_OK;
    if (text && !read) mg_error_clear();
    mg_free(text);
    return read;
}

static void keep(const mg_dnn_plan *plan, const char *key) {
    size_t bytes = 0;
    char *text = mg_dnn_plan_write(plan, &bytes);
    if (text) mg_cuda_cache_write("cudnn", key, text, bytes);
    mg_free(text);
}

static mg_status choose(const mg_kernel_plan *plan, state *s, const mg_dnn_target *target,
                        const mg_dnn_conv *c, bool *settled) {
    mg_dnn_graph graph;
    mg_dnn_plan plans[CANDIDATES];
    int n = 0, best = 0;
    mg_status status = mg_dnn_graph_make(&graph, target, c);
    if (status == MG_OK)
        status =
            mg_dnn_plans(target, &graph, c->dtype, mg_deterministic() ? 1 : CANDIDATES, plans, &n);
    if (status == MG_OK) status = fastest(plan, s, c->relu, plans, n, &best, settled);
    for (int i = 0; i < n; i++)
        if (status == MG_OK && i == best)
            s->plan = plans[i];
        else
            mg_dnn_plan_drop(&plans[i]);
    mg_dnn_graph_drop(&graph);
    return status;
}

/* The choice of an earlier time, or a new one, which is kept if there was memory to make it well.
 */
static mg_status find_plan(const mg_kernel_plan *plan, state *s, const mg_dnn_target *target,
                           const mg_dnn_conv *c) {
    mg_string_buffer key = {0};
    bool settled = false, none;
    if (mg_deterministic()) return choose(plan, s, target, c, &settled);
    MG_TRY(key_of(&key, plan->device, c));
    mg_status status = MG_OK;
    if (!read_back(&s->plan, target->handle, key.s, &none)) {
        status = none ? MG_UNSUPPORTED : choose(plan, s, target, c, &settled);
        if (status == MG_OK && settled) keep(&s->plan, key.s);
        if (status == MG_UNSUPPORTED && settled)
            mg_cuda_cache_write("cudnn", key.s, no_plan, sizeof no_plan);
    }
    mg_free(key.s);
    return status;
}

static mg_status prepare(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    mg_dnn_target target = {0};
    if (!s) return MG_OOM;
    mg_dnn_conv c = conv_of(plan, s);
    MG_TRY(mg_cuda_enter(plan->device));
    MG_TRY(mg_dnn_handle(plan->device, &target.handle)); /* for the run to come */
    MG_TRY(mg_dnn_planner(plan->device, &target.handle));
    mg_status status = find_plan(plan, s, &target, &c);
    if ((status == MG_UNSUPPORTED || status == MG_DEVICE) && (c.bias || c.relu)) {
        MG_TRY(mg_cuda_enter(plan->device)); /* it may be lost */
        mg_error_clear();
        c.bias = c.relu = false;
        s->n = 3;
        s->numbers[2] = MG_DNN_Y;
        s->apart = true;
        MG_TRY(mg_cuda_find_bias_relu(plan->device, c.dtype, &s->bias_relu));
        status = find_plan(plan, s, &target, &c);
    }
    plan->scratch = s->plan.workspace;
    return status;
}

/* ---- running ---- */

static mg_status run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    void *at[MOST_TENSORS];
    uintptr_t all = 0;
    cudnnHandle_t handle;
    MG_TRY(mg_dnn_handle(plan->device, &handle));
    for (int i = 0; i < s->n; i++) {
        at[i] = i < s->n - 1 ? call->in[i] : call->out[0];
        all |= (uintptr_t)at[i];
    }
    if (all % ALIGNMENT)
        return mg_fail(MG_INTERNAL, "a tensor of %s is not aligned", plan->step->op->name);
    MG_TRY(mg_dnn_plan_run(&s->plan, handle, s->n, s->numbers, at, call->scratch));
    return s->apart ? mg_cuda_finish_conv(call, &s->bias_relu) : MG_OK;
}

static void release(void *kept) {
    state *s = kept;
    mg_dnn_plan_drop(&s->plan);
    mg_free(s);
}

#define CONV(id)                                                                                   \
    const mg_kernel mg_cuda_##id = {.op = #id,                                                     \
                                    .name = "cuDNN",                                               \
                                    .accepts = accepts,                                            \
                                    .prepare = prepare,                                            \
                                    .run = run,                                                    \
                                    .release = release};
CONV(conv2d)
CONV(conv2d_grad_input)
CONV(conv2d_grad_weight)
#undef CONV

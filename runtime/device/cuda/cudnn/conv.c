/* conv2d and its backward forms by cuDNN, in f16, bf16 and f32.
 *
 * cuDNN needs convolution kernels in the layout MG_KRSC; the program converts to and from it at
 * most once per step. The autotuner picks one of cuDNN's execution plans. Bias and relu are part of
 * the plan if an engine can fuse them and its relu keeps NaN; otherwise our own bias_relu kernel
 * follows the convolution. */
#include "core/alloc.h"
#include "core/log.h"
#include "core/precision.h"
#include "device/cuda/autotune.h"
#include "device/cuda/launchers/launchers.h"
#include "device/cuda/cudnn/conv_plan.h"
#include "device/cuda/kernels.h"
#include "core/string_buffer.h"
#include "ops/attrs.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TENSORS = 4, ALIGNMENT = 16 };

typedef struct state {
    mg_dnn_plan plan;
    int n;                         /* tensors of the plan: the inputs, then the output */
    int64_t numbers[MOST_TENSORS]; /* their numbers in the graph: MG_DNN_X etc. */
    bool apart;                    /* bias and relu are not part of the plan: bias_relu follows */
    mg_bias_relu bias_relu;
} state;

/* ---- describing the step ---- */

/* NULL, or why cuDNN cannot be opened, which is logged once. */
static const char *why_missing(void) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (mg_dnn_open() == MG_OK) return NULL;
    if (!atomic_flag_test_and_set(&told))
        mg_log("fallback", "convolutions are slower: %s", mg_error_message());
    return mg_error_message();
}

/* The available engines are queried in prepare, because asking cuDNN takes milliseconds. */
static const char *accepts_conv(const mg_kernel_plan *plan) {
    const mg_step *step = plan->step;
    if (plan->out[0].value->dtype == MG_F64) return "cuDNN computes in float, not in double";
    for (int i = 0; i < step->n_in; i++)
        if (mg_shape_count(&plan->in[i].value->shape) == 0) return "empty";
    if (mg_shape_count(&plan->out[0].value->shape) == 0) return "empty";
    return why_missing();
}

/* Sizes in cuDNN's order: {N, C, H, W} from our {N, H, W, C}, and below {K, C, R, S} from our
 * {R, S, C / groups, K}. */
static void image_dims(int64_t to[4], const mg_shape *s) {
    const int64_t dims[4] = {s->dim[0], s->dim[3], s->dim[1], s->dim[2]};
    memcpy(to, dims, sizeof dims);
}

/* The kernel's sizes; groups follow from them. */
static void weight_dims(int64_t to[4], const mg_shape *s) {
    const int64_t dims[4] = {s->dim[3], s->dim[2], s->dim[0], s->dim[1]};
    memcpy(to, dims, sizeof dims);
}

/* Which tensor the op computes. */
static int result_of(const char *op) {
    return strcmp(op, "conv2d") == 0              ? MG_DNN_Y
           : strcmp(op, "conv2d_grad_input") == 0 ? MG_DNN_X
                                                  : MG_DNN_W;
}

/* The port of tensor i of the plan. */
static mg_port *port_of(const mg_kernel_plan *plan, const state *s, int i) {
    return i < s->n - 1 ? &plan->in[i] : &plan->out[0];
}

/* Describes the step as a convolution, sets s->n and s->numbers, and requests the ports' layouts.
 */
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
        c.strides[i] = a->strides.v[i]; /* rows, then columns */
        c.dilations[i] = a->dilations.v[i];
        c.before[i] = a->pads.v[2 * i];
        c.after[i] = a->pads.v[2 * i + 1];
    }
    return c;
}

/* ---- choosing among plans ---- */

typedef struct plan_choice { /* the problem of the tuning */
    const mg_kernel_plan *plan;
    state *state;
    mg_dnn_target target;
    const mg_dnn_conv *conv;
    mg_dnn_plan plans[MG_AUTOTUNE_CANDIDATES];
    int n;
} plan_choice;

/* Under mgpu.deterministic(true) only the plan that cuDNN's heuristics prefer is made: each takes
 * the library some milliseconds. */
static mg_status list_plans(mg_autotune *t) {
    plan_choice *p = t->problem;
    const int most = mg_deterministic() ? 1 : MG_AUTOTUNE_CANDIDATES;
    mg_dnn_graph graph;
    pthread_mutex_lock(&mg_cuda_of(t->device)->turn); /* for the handle */
    mg_status status = mg_dnn_graph_make(&graph, &p->target, p->conv);
    if (status == MG_OK)
        status = mg_dnn_plans(&p->target, &graph, p->conv->dtype, most, p->plans, &p->n);
    mg_dnn_graph_drop(&graph);
    pthread_mutex_unlock(&mg_cuda_of(t->device)->turn);
    MG_TRY(status);
    t->n = p->n;
    for (int i = 0; i < p->state->n; i++)
        t->buffer_bytes[i] = mg_value_bytes(port_of(p->plan, p->state, i)->value);
    for (int i = 0; i < p->n; i++)
        if (p->plans[i].workspace > t->workspace_bytes) t->workspace_bytes = p->plans[i].workspace;
    return MG_OK;
}

/* Runs on the trial's buffers, which are in the order of s->numbers. */
static mg_status run_plan(mg_autotune *t, int i) {
    const plan_choice *p = t->problem;
    return mg_dnn_plan_run(&p->plans[i], p->target.handle, p->state->n, p->state->numbers,
                           t->buffers, t->workspace);
}

/* Saves the plan in cuDNN's text form. */
static void *save_plan(mg_autotune *t, int i, size_t *bytes) {
    const plan_choice *p = t->problem;
    return mg_dnn_plan_write(&p->plans[i], bytes);
}

/* If this version of cuDNN cannot read the plan, the plan is chosen again. */
static bool load_plan(mg_autotune *t, const void *text, size_t bytes) {
    const plan_choice *p = t->problem;
    pthread_mutex_lock(&mg_cuda_of(t->device)->turn);
    const mg_status status = mg_dnn_plan_read(&p->state->plan, p->target.handle, text, bytes);
    pthread_mutex_unlock(&mg_cuda_of(t->device)->turn);
    return status == MG_OK;
}

/* The cache key: everything that the choice depends on. */
static mg_status conv_key(mg_string_buffer *key, const mg_device *d, const mg_dnn_conv *c) {
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

/* Sets state->plan to the fastest plan for the convolution: timed now, or in an earlier run. */
static mg_status choose_plan(const mg_kernel_plan *plan, state *s, const mg_dnn_target *target,
                             const mg_dnn_conv *c) {
    static const char *const what[] = {[MG_DNN_X] = "cuDNN's conv2d_grad_input",
                                       [MG_DNN_W] = "cuDNN's conv2d_grad_weight",
                                       [MG_DNN_Y] = "cuDNN's conv2d"};
    plan_choice p = {.plan = plan, .state = s, .target = *target, .conv = c};
    mg_string_buffer key = {0};
    int best;
    MG_TRY(conv_key(&key, plan->device, c));
    mg_autotune t = {.device = plan->device,
                     .problem = &p,
                     .what = what[c->result],
                     .kind = "cudnn",
                     .key = key.s,
                     .must_keep_nan = c->relu,
                     .result = plan->out[0].value,
                     .result_buffer = s->n - 1,
                     .list = list_plans,
                     .run = run_plan,
                     .save = save_plan,
                     .load = load_plan};
    const mg_status status = mg_cuda_autotune(&t, &best);
    for (int i = 0; i < p.n; i++)
        if (status == MG_OK && i == best)
            s->plan = p.plans[i];
        else
            mg_dnn_plan_drop(&p.plans[i]);
    mg_free(key.s);
    return status;
}

/* Tries bias and relu in the plan first. If there is no such plan, or none can be run, prepares the
 * plain convolution and a kernel that runs after it. */
static mg_status prepare_conv(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    mg_dnn_target target = {0};
    if (!s) return MG_OOM;
    mg_dnn_conv c = conv_of(plan, s);
    MG_TRY(mg_cuda_enter(plan->device));
    MG_TRY(mg_dnn_handle(plan->device, &target.handle)); /* made now: not allowed in a capture */
    mg_status status = choose_plan(plan, s, &target, &c);
    if ((status == MG_UNSUPPORTED || status == MG_DEVICE) && (c.bias || c.relu)) {
        char why[300];
        snprintf(why, sizeof why, "%s", mg_error_message());
        MG_TRY(mg_cuda_enter(plan->device)); /* fails if the device is lost */
        mg_log("dispatch", "%s: %s: bias and relu run after cuDNN: %s", plan->device->name,
               plan->step->op->name, why);
        mg_error_clear();
        c.bias = c.relu = false;
        s->n = 3;
        s->numbers[2] = MG_DNN_Y;
        s->apart = true;
        MG_TRY(mg_cuda_find_bias_relu(plan->device, c.dtype, &s->bias_relu));
        status = choose_plan(plan, s, &target, &c);
    }
    plan->scratch = s->plan.workspace;
    return status;
}

/* ---- running ---- */

/* The plan's descriptors promise 16-byte alignment, which the arena and external values have. */
static mg_status run_conv(const mg_call *call) {
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

static void release_conv(void *kept) {
    state *s = kept;
    mg_dnn_plan_drop(&s->plan);
    mg_free(s);
}

#define CONV(id)                                                                                   \
    const mg_kernel mg_cuda_##id = {.op = #id,                                                     \
                                    .name = "cuDNN",                                               \
                                    .accepts = accepts_conv,                                       \
                                    .prepare = prepare_conv,                                       \
                                    .run = run_conv,                                               \
                                    .release = release_conv};
CONV(conv2d)
CONV(conv2d_grad_input)
CONV(conv2d_grad_weight)
#undef CONV

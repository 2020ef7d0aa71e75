/* Ops for which several kernels exist, of ours and of cuDNN: the autotuner keeps the fastest.
 *
 * mg_cuda_autotuned_<op> stands before those kernels in the device's list. It accepts a step that
 * at least two of them accept, lets the autotuner choose in `prepare`, and then passes every call
 * on to the winner. Under mgpu.deterministic(true) it refuses, and the order of the device's list
 * holds.
 *
 * MGPU_CUDA_AUTOTUNE=N, for tests: the N-th kernel that accepts a step takes it, untimed. */
#include "core/alloc.h"
#include "core/log.h"
#include "core/precision.h"
#include "core/string_buffer.h"
#include "device/cuda/autotune.h"
#include "device/cuda/cudnn/cudnn.h"
#include "device/cuda/kernels.h"
#include "ops/op.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_KERNELS = 3, MOST_PORTS = MG_AUTOTUNE_BUFFERS };

/* The competing kernels of each op; the one that is preferred without timing comes first. */
static const mg_kernel *const competitors[][MOST_KERNELS] = {
    {&mg_cuda_direct_conv2d, &mg_cuda_depth_conv2d, &mg_cuda_conv2d},
    {&mg_cuda_depth_conv2d_grad_input, &mg_cuda_conv2d_grad_input},
    {&mg_cuda_direct_conv2d_grad_weight, &mg_cuda_depth_conv2d_grad_weight,
     &mg_cuda_conv2d_grad_weight},
};

typedef struct candidate { /* a kernel that accepts the step, with a plan of its own */
    const mg_kernel *kernel;
    mg_port ports[MOST_PORTS]; /* inputs, then the output: kernels ask for different layouts */
    mg_kernel_plan plan;
} candidate;

typedef struct contest {        /* the problem of the tuning */
    const mg_kernel_plan *plan; /* the step's */
    candidate list[MOST_KERNELS];
    int n;
} contest;

typedef struct autotuned_state {
    const mg_kernel *kernel; /* the winner */
    void *state;             /* its own, from its `prepare` */
} autotuned_state;

/* ---- candidates ---- */

/* Lists the kernels of the op that accept the step. */
static void find_candidates(contest *c, const mg_kernel_plan *plan) {
    *c = (contest){.plan = plan};
    for (size_t op = 0; op < sizeof competitors / sizeof *competitors; op++)
        for (int i = 0; i < MOST_KERNELS && competitors[op][i]; i++) {
            const mg_kernel *k = competitors[op][i];
            if (strcmp(k->op, plan->step->op->name) == 0 && !k->accepts(plan))
                c->list[c->n++].kernel = k;
        }
}

/* Refuses if there is only one kernel: it comes later in the device's list anyway. */
static const char *accepts_autotuned(const mg_kernel_plan *plan) {
    contest c;
    if (mg_deterministic()) return "mgpu.deterministic(true) rules out timing";
    find_candidates(&c, plan);
    return c.n > 1 ? NULL : "fewer than two kernels accept it";
}

/* Prepares the kernel with a copy of the plan: its layouts and scratch must not disturb the
 * others. */
static mg_status prepare_candidate(candidate *k, const mg_kernel_plan *plan) {
    const int n_in = plan->step->n_in;
    for (int i = 0; i < n_in; i++) k->ports[i] = plan->in[i];
    k->ports[n_in] = plan->out[0];
    k->plan = *plan;
    k->plan.in = k->ports;
    k->plan.out = k->ports + n_in;
    k->plan.state = NULL;
    return k->kernel->prepare(&k->plan);
}

static void release_candidate(candidate *k) {
    if (k->plan.state && k->kernel->release) k->kernel->release(k->plan.state);
    k->plan.state = NULL;
}

/* Prepares all candidates; one whose `prepare` cannot handle the step is removed from the list.
 * After an error the list holds the candidates prepared so far. */
static mg_status prepare_candidates(contest *c) {
    int kept = 0;
    const int n = c->n;
    mg_status status = MG_OK;
    for (int i = 0; i < n && status == MG_OK; i++) {
        candidate *k = &c->list[kept];
        k->kernel = c->list[i].kernel;
        status = prepare_candidate(k, c->plan);
        if (status == MG_OK) {
            kept++;
            continue;
        }
        release_candidate(k);
        if (status != MG_UNSUPPORTED) continue;
        if (mg_log_on("dispatch"))
            mg_log("dispatch", "%s: %s: %s is out: %s", c->plan->device->name,
                   c->plan->step->op->name, k->kernel->name, mg_error_message());
        mg_error_clear();
        status = MG_OK;
    }
    c->n = kept;
    if (status != MG_OK || kept) return status;
    return mg_fail(MG_UNSUPPORTED, "no kernel can be prepared for it");
}

/* ---- the functions of the tuning problem ---- */

/* Operands and the result are the buffers, in the order of the ports; scratch is the workspace. */
static mg_status list_kernels(mg_autotune *t) {
    contest *c = t->problem;
    const mg_kernel_plan *plan = c->plan;
    const int n_in = plan->step->n_in;
    MG_TRY(prepare_candidates(c));
    t->n = c->n;
    for (int i = 0; i < n_in; i++) t->buffer_bytes[i] = mg_value_bytes(plan->in[i].value);
    t->buffer_bytes[n_in] = mg_value_bytes(plan->out[0].value);
    for (int i = 0; i < c->n; i++) {
        t->names[i] = c->list[i].kernel->name;
        if (c->list[i].plan.scratch > t->workspace_bytes)
            t->workspace_bytes = c->list[i].plan.scratch;
    }
    return MG_OK;
}

/* Runs candidate i on the trial buffers. */
static mg_status run_kernel(mg_autotune *t, int i) {
    contest *c = t->problem;
    const candidate *k = &c->list[i];
    const mg_call call = {.plan = &k->plan,
                          .in = t->buffers,
                          .out = t->buffers + c->plan->step->n_in,
                          .scratch = k->plan.scratch ? t->workspace : NULL};
    return k->kernel->run(&call);
}

/* The cache holds the kernel's name. */
static void *save_kernel(mg_autotune *t, int i, size_t *bytes) {
    const contest *c = t->problem;
    const char *name = c->list[i].kernel->name;
    char *copy = mg_alloc(strlen(name));
    if (copy) memcpy(copy, name, strlen(name));
    *bytes = strlen(name);
    return copy;
}

/* The kernel of that name becomes the only candidate, prepared. */
static bool load_kernel(mg_autotune *t, const void *name, size_t bytes) {
    contest *c = t->problem;
    for (int i = 0; i < c->n; i++) {
        const mg_kernel *k = c->list[i].kernel;
        if (strlen(k->name) != bytes || memcmp(k->name, name, bytes) != 0) continue;
        c->list[0].kernel = k;
        c->n = 1;
        if (prepare_candidate(&c->list[0], c->plan) == MG_OK) return true;
        release_candidate(&c->list[0]);
        find_candidates(c, c->plan);
        return false;
    }
    return false;
}

/* 0 without cuDNN: then only our own kernels compete. */
static size_t cudnn_version(void) {
    if (mg_dnn_open() == MG_OK) return mg_dnn.cudnnGetVersion();
    mg_error_clear();
    return 0;
}

/* The cache key: the step, the kernels that compete, the precision, the version of cuDNN and the
 * GPU. */
static mg_status kernel_contest_key(mg_string_buffer *key, const contest *c) {
    const mg_kernel_plan *plan = c->plan;
    const mg_step *s = plan->step;
    const unsigned char *attrs = s->attrs;
    mg_string_buffer_add(key, "%s fast %d cudnn %zu on %s:", s->op->name, mg_precision_fast(),
                         cudnn_version(), mg_cuda_of(plan->device)->gpu_name);
    for (int i = 0; i < c->n; i++) mg_string_buffer_add(key, " %s,", c->list[i].kernel->name);
    for (int i = 0; i < s->n_in; i++)
        mg_string_buffer_add(key, " %s%s", mg_dtype_name(plan->in[i].value->dtype),
                             MG_SHAPE_TEXT(&plan->in[i].value->shape));
    mg_string_buffer_add(key, " -> %s ", MG_SHAPE_TEXT(&plan->out[0].value->shape));
    for (size_t i = 0; i < s->op->attrs_size; i++) mg_string_buffer_add(key, "%02x", attrs[i]);
    return mg_string_buffer_status(key);
}

/* ---- the kernel ---- */

/* The number in MGPU_CUDA_AUTOTUNE, or 0 if it is not set. */
static mg_status forced_kernel(int *number) {
    const char *text = getenv("MGPU_CUDA_AUTOTUNE");
    *number = 0;
    if (!text || !*text) return MG_OK;
    if (strlen(text) == 1 && *text >= '1' && *text <= '0' + MOST_KERNELS) {
        *number = *text - '0';
        return MG_OK;
    }
    return mg_fail(MG_USAGE, "MGPU_CUDA_AUTOTUNE is \"%s\": it must be a number from 1 to %d", text,
                   MOST_KERNELS);
}

/* *best: the index of the candidate to take, prepared. */
static mg_status choose_kernel(contest *c, int *best) {
    const mg_kernel_plan *plan = c->plan;
    mg_string_buffer key = {0};
    int forced;
    MG_TRY(forced_kernel(&forced));
    if (forced) {
        c->list[0].kernel = c->list[(forced < c->n ? forced : c->n) - 1].kernel;
        c->n = 1;
        *best = 0;
        return prepare_candidates(c);
    }
    MG_TRY(kernel_contest_key(&key, c));
    mg_autotune t = {.device = plan->device,
                     .problem = c,
                     .what = plan->step->op->name,
                     .kind = "kernel_choice",
                     .key = key.s,
                     .result = plan->out[0].value,
                     .result_buffer = plan->step->n_in,
                     .list = list_kernels,
                     .run = run_kernel,
                     .save = save_kernel,
                     .load = load_kernel};
    const mg_status status = mg_cuda_autotune(&t, best);
    mg_free(key.s);
    if (*best < 0) *best = 0; /* the one that was loaded */
    return status;
}

/* Copies the layouts and scratch that the winner requested to the step's plan. */
static void adopt_plan(mg_kernel_plan *plan, const candidate *winner) {
    autotuned_state *s = plan->state;
    for (int i = 0; i < plan->step->n_in; i++) plan->in[i].layout = winner->plan.in[i].layout;
    plan->out[0].layout = winner->plan.out[0].layout;
    plan->scratch = winner->plan.scratch;
    plan->overwrites = winner->plan.overwrites;
    s->kernel = winner->kernel;
    s->state = winner->plan.state;
    if (mg_log_on("dispatch"))
        mg_log("dispatch", "%s: %s: %s", plan->device->name, plan->step->op->name,
               winner->kernel->name);
}

/* On success the state owns the winner's state; all others are released. */
static mg_status prepare_autotuned(mg_kernel_plan *plan) {
    contest c;
    int best = 0;
    if (!(plan->state = mg_alloc_zero(sizeof(autotuned_state)))) return MG_OOM;
    find_candidates(&c, plan);
    const mg_status status = choose_kernel(&c, &best);
    if (status == MG_OK) adopt_plan(plan, &c.list[best]);
    for (int i = 0; i < c.n; i++)
        if (status != MG_OK || i != best) release_candidate(&c.list[i]);
    return status;
}

/* The winner sees the step's plan with its own state in it. */
static mg_status run_autotuned(const mg_call *call) {
    const autotuned_state *s = call->plan->state;
    mg_kernel_plan plan = *call->plan;
    mg_call own = *call;
    plan.state = s->state;
    own.plan = &plan;
    return s->kernel->run(&own);
}

static void release_autotuned(void *state) {
    const autotuned_state *s = state;
    if (s->state && s->kernel->release) s->kernel->release(s->state);
    mg_free(state);
}

#define AUTOTUNED(id)                                                                              \
    const mg_kernel mg_cuda_autotuned_##id = {.op = #id,                                           \
                                              .name = "the fastest of several",                    \
                                              .accepts = accepts_autotuned,                        \
                                              .prepare = prepare_autotuned,                        \
                                              .run = run_autotuned,                                \
                                              .release = release_autotuned}
AUTOTUNED(conv2d);
AUTOTUNED(conv2d_grad_input);
AUTOTUNED(conv2d_grad_weight);

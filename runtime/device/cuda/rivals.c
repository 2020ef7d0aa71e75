/* Kernels of our own and of a library that compute the same: which one is fastest on this GPU is
 * measured once and kept on disk.
 *
 * One that fails, or that makes a number of NaN, is out. Where every run must give the same bits
 * nothing is measured: then the order of the device's list holds. MGPU_CUDA_RIVAL=N, for tests:
 * the N-th that takes a step, unmeasured. */
#include "core/alloc.h"
#include "core/log.h"
#include "core/precision.h"
#include "device/cuda/cache.h"
#include "device/cuda/dnn.h"
#include "device/cuda/kernels.h"
#include "device/cuda/memory.h"
#include "core/string_buffer.h"
#include "ops/op.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_RIVALS = 3, MOST_PORTS = 5 };

static const mg_kernel *const contests[][MOST_RIVALS] = {
    {&mg_cuda_direct_conv2d, &mg_cuda_depth_conv2d, &mg_cuda_conv2d},
    {&mg_cuda_depth_conv2d_grad_input, &mg_cuda_conv2d_grad_input},
    {&mg_cuda_direct_conv2d_grad_weight, &mg_cuda_depth_conv2d_grad_weight,
     &mg_cuda_conv2d_grad_weight},
};

typedef struct entrant { /* a rival that takes the step */
    const mg_kernel *kernel;
    mg_port ports[MOST_PORTS];
    mg_kernel_plan plan; /* its own: with these ports */
    bool out;            /* it cannot, or does wrong */
    float ms;
} entrant;

typedef struct state {
    const mg_kernel *kernel; /* the winner, */
    void *own;               /* and what it keeps */
} state;

/* ---- who enters ---- */

static int find_entrants(const mg_kernel_plan *plan, entrant *list) {
    int n = 0;
    for (size_t c = 0; c < sizeof contests / sizeof *contests; c++)
        for (int i = 0; i < MOST_RIVALS && contests[c][i]; i++) {
            const mg_kernel *k = contests[c][i];
            if (strcmp(k->op, plan->step->op->name) == 0 && !k->accepts(plan)) list[n++].kernel = k;
        }
    return n;
}

static const char *accepts(const mg_kernel_plan *plan) {
    entrant list[MOST_RIVALS];
    if (mg_deterministic()) return "nothing is measured where every run must be the same";
    return find_entrants(plan, list) > 1 ? NULL : "no two kernels take it";
}

/* ---- their turns ---- */

static mg_status prepare_entrant(entrant *e, const mg_kernel_plan *plan) {
    const int n_in = plan->step->n_in;
    for (int i = 0; i < n_in; i++) e->ports[i] = plan->in[i];
    e->ports[n_in] = plan->out[0];
    e->plan = *plan;
    e->plan.in = e->ports;
    e->plan.out = e->ports + n_in;
    e->plan.state = NULL;
    return e->kernel->prepare(&e->plan);
}

static void drop_entrant(entrant *e) {
    if (e->plan.state && e->kernel->release) e->kernel->release(e->plan.state);
    e->plan.state = NULL;
}

/* Those that find out only now that they cannot are out. */
static mg_status prepare_all(const mg_kernel_plan *plan, entrant *list, int n) {
    for (int i = 0; i < n; i++) {
        const mg_status status = prepare_entrant(&list[i], plan);
        list[i].out = status != MG_OK;
        if (status == MG_OK) continue;
        drop_entrant(&list[i]);
        if (status != MG_UNSUPPORTED) return status;
        mg_error_clear();
    }
    return MG_OK;
}

/* Tensors and scratch for the time of measuring: all of it NaN. */
typedef struct trial {
    mg_device *device;
    int n; /* tensors; then the scratch */
    void *at[MOST_PORTS + 1];
    size_t bytes[MOST_PORTS + 1];
} trial;

static void give_back(trial *t) {
    for (int i = 0; i <= t->n; i++)
        if (t->at[i]) mg_device_free(t->device, t->at[i], t->bytes[i]);
}

static mg_status furnish(trial *t, const mg_kernel_plan *plan, const entrant *list, int n) {
    const int n_in = plan->step->n_in;
    *t = (trial){.device = plan->device, .n = n_in + 1};
    for (int i = 0; i < n_in; i++) t->bytes[i] = mg_value_bytes(plan->in[i].value);
    t->bytes[n_in] = mg_value_bytes(plan->out[0].value);
    for (int i = 0; i < n; i++)
        if (!list[i].out && list[i].plan.scratch > t->bytes[t->n])
            t->bytes[t->n] = list[i].plan.scratch;
    for (int i = 0; i <= t->n; i++) {
        if (t->bytes[i] == 0) continue;
        MG_TRY(mg_device_alloc(t->device, t->bytes[i], &t->at[i]));
        MG_TRY(mg_cuda_fill(t->device, t->at[i], 0xff, t->bytes[i]));
    }
    return MG_OK;
}

typedef struct turn {
    const entrant *entrant;
    mg_call call;
} turn;

static mg_status start(void *context) {
    const turn *t = context;
    return t->entrant->kernel->run(&t->call);
}

static void let_run(entrant *e, const trial *t) {
    const mg_kernel_plan *plan = &e->plan;
    turn own = {e,
                {.plan = plan,
                 .in = t->at,
                 .out = t->at + plan->step->n_in,
                 .scratch = plan->scratch ? t->at[t->n] : NULL}};
    const int y = plan->step->n_in;
    e->out = mg_cuda_fill(t->device, t->at[y], 0, t->bytes[y]) != MG_OK ||
             !mg_cuda_keeps_nan(t->device, start, &own, plan->out[0].value, t->at[y]) ||
             mg_cuda_time(t->device, start, &own, &e->ms) != MG_OK;
    if (mg_log_on("dispatch") && e->out)
        mg_log("dispatch", "%s: %s: %s is out", t->device->name, plan->step->op->name,
               e->kernel->name);
    else if (mg_log_on("dispatch"))
        mg_log("dispatch", "%s: %s: %s takes %.4f ms", t->device->name, plan->step->op->name,
               e->kernel->name, (double)e->ms);
    mg_error_clear();
}

/* NULL: all are out. */
static entrant *fastest(entrant *list, int n) {
    entrant *best = NULL;
    for (int i = 0; i < n; i++)
        if (!list[i].out && (!best || list[i].ms < best->ms)) best = &list[i];
    return best;
}

/* *settled: whether there was memory to measure them; else it is the first that can. */
static mg_status measure(const mg_kernel_plan *plan, entrant *list, int n, bool *settled) {
    trial t;
    mg_status status = furnish(&t, plan, list, n);
    for (int i = 0; i < n && status == MG_OK; i++)
        if (!list[i].out) let_run(&list[i], &t);
    give_back(&t);
    *settled = status == MG_OK;
    if (status == MG_OOM)
        mg_error_clear();
    else if (status != MG_OK)
        return status;
    return mg_cuda_enter(plan->device); /* one of them may have brought it down */
}

/* ---- what is kept ---- */

static mg_status key_of(mg_string_buffer *key, const mg_kernel_plan *plan, const entrant *list,
                        int n) {
    const mg_step *s = plan->step;
    const unsigned char *attrs = s->attrs;
    mg_string_buffer_add(key, "%s fast %d cudnn %zu on %s:", s->op->name, mg_precision_fast(),
                         mg_dnn.cudnnGetVersion(), mg_cuda_of(plan->device)->gpu_name);
    for (int i = 0; i < n; i++) mg_string_buffer_add(key, " %s,", list[i].kernel->name);
    for (int i = 0; i < s->n_in; i++)
        mg_string_buffer_add(key, " %s%s", mg_dtype_name(plan->in[i].value->dtype),
                             MG_SHAPE_TEXT(&plan->in[i].value->shape));
    mg_string_buffer_add(key, " -> %s ", MG_SHAPE_TEXT(&plan->out[0].value->shape));
    for (size_t i = 0; i < s->op->attrs_size; i++) mg_string_buffer_add(key, "%02x", attrs[i]);
    return mg_string_buffer_status(key);
}

/* The entrant of that name is the only one left, if there is one. */
static bool read_back(const char *key, entrant *list, int n) {
    size_t bytes = 0;
    char *name = mg_cuda_cache_read("rivals", key, &bytes);
    bool found = false;
    for (int i = 0; i < n && name && !found; i++) {
        const mg_kernel *k = list[i].kernel;
        found = strlen(k->name) == bytes && memcmp(k->name, name, bytes) == 0;
        if (found) list[0].kernel = k;
    }
    mg_free(name);
    return found;
}

/* ---- the kernel ---- */

/* MGPU_CUDA_RIVAL, or 0: not set. */
static mg_status forced_rival(int *number) {
    const char *text = getenv("MGPU_CUDA_RIVAL");
    *number = 0;
    if (!text || !*text) return MG_OK;
    if (strlen(text) == 1 && *text >= '1' && *text <= '0' + MOST_RIVALS) {
        *number = *text - '0';
        return MG_OK;
    }
    return mg_fail(MG_USAGE, "MGPU_CUDA_RIVAL is \"%s\": it must be a number from 1 to %d", text,
                   MOST_RIVALS);
}

/* Those of n whose turn is over without a win are dropped. */
static void take_over(mg_kernel_plan *plan, entrant *list, int n, const entrant *winner) {
    state *s = plan->state;
    for (int i = 0; i < n; i++)
        if (&list[i] != winner) drop_entrant(&list[i]);
    if (!winner) return;
    for (int i = 0; i < plan->step->n_in; i++) plan->in[i].layout = winner->plan.in[i].layout;
    plan->out[0].layout = winner->plan.out[0].layout;
    plan->scratch = winner->plan.scratch;
    plan->overwrites = winner->plan.overwrites;
    if (mg_log_on("dispatch"))
        mg_log("dispatch", "%s: %s: %s", plan->device->name, plan->step->op->name,
               winner->kernel->name);
    s->kernel = winner->kernel;
    s->own = winner->plan.state;
}

/* Among the first n of the list; the winner is kept under `key`. */
static mg_status compete(mg_kernel_plan *plan, entrant *list, int n, const char *key) {
    bool settled = false;
    mg_status status = prepare_all(plan, list, n);
    if (status == MG_OK && n > 1) status = measure(plan, list, n, &settled);
    const entrant *winner = status == MG_OK ? fastest(list, n) : NULL;
    if (winner && settled)
        mg_cuda_cache_write("rivals", key, winner->kernel->name, strlen(winner->kernel->name));
    take_over(plan, list, n, winner);
    if (status != MG_OK || winner) return status;
    return mg_fail(MG_UNSUPPORTED, "none of the rivals can do it");
}

static mg_status prepare(mg_kernel_plan *plan) {
    entrant list[MOST_RIVALS] = {0};
    mg_string_buffer key = {0};
    int n = find_entrants(plan, list), forced;
    if (!(plan->state = mg_alloc_zero(sizeof(state)))) return MG_OOM;
    MG_TRY(forced_rival(&forced));
    if (forced) {
        list[0].kernel = list[(forced < n ? forced : n) - 1].kernel;
        return compete(plan, list, 1, NULL);
    }
    MG_TRY(key_of(&key, plan, list, n));
    if (read_back(key.s, list, n)) n = 1;
    const mg_status status = compete(plan, list, n, key.s);
    mg_free(key.s);
    return status;
}

static mg_status run(const mg_call *call) {
    const state *s = call->plan->state;
    mg_kernel_plan plan = *call->plan;
    mg_call own = *call;
    plan.state = s->own;
    own.plan = &plan;
    return s->kernel->run(&own);
}

static void release(void *kept) {
    const state *s = kept;
    if (s->own && s->kernel->release) s->kernel->release(s->own);
    mg_free(kept);
}

#define RIVALS(id)                                                                                 \
    const mg_kernel mg_cuda_rivals_##id = {.op = #id,                                              \
                                           .name = "the fastest of several",                       \
                                           .accepts = accepts,                                     \
                                           .prepare = prepare,                                     \
                                           .run = run,                                             \
                                           .release = release}
RIVALS(conv2d);
RIVALS(conv2d_grad_input);
RIVALS(conv2d_grad_weight);

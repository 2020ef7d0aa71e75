/* float16 and bfloat16 where an operation has no kernel of its own for them: the float32 kernel
 * runs on copies in scratch memory, and its result is rounded once.
 *
 * So sums of halves are made in float32, as everywhere, and whatever float32 is good at (Winograd,
 * blocked layouts, threads) serves halves too. Copies lie as the values do.
 * Element-wise groups, and what only moves elements, take halves as they are. */
#include "core/alloc.h"
#include "core/log.h"
#include "device/cpu/cpu.h"
#include "device/cpu/loops.h"
#include <string.h>

enum { PIECE = 16384 }; /* elements that a thread converts at a time */

typedef struct state {
    const mg_kernel *kernel; /* that of float32 */
    mg_kernel_plan plan;     /* the step as it sees it; its ports and their values follow */
} state;

static int port_count(const mg_kernel_plan *plan) {
    return plan->step->n_in + plan->step->n_out;
}

/* Inputs, then results. */
static mg_port *port_of(const mg_kernel_plan *plan, int i) {
    return i < plan->step->n_in ? &plan->in[i] : &plan->out[i - plan->step->n_in];
}

static bool is_half(const mg_kernel_plan *plan, int i) {
    return mg_dtype_is_half(port_of(plan, i)->value->dtype);
}

static size_t aligned(size_t bytes) {
    return (bytes + MG_LINE - 1) / MG_LINE * MG_LINE;
}

/* ---- preparing ---- */

static const char *accepts(const mg_kernel_plan *plan) {
    for (int i = 0; plan->step->op && i < port_count(plan); i++)
        if (is_half(plan, i)) return NULL;
    return "no halves";
}

static state *new_state(const mg_kernel_plan *plan) {
    const size_t n = (size_t)port_count(plan);
    state *s = mg_alloc_zero(sizeof *s + n * (sizeof(mg_port) + sizeof(mg_value)));
    if (!s) return NULL;
    mg_port *ports = (mg_port *)(s + 1);
    mg_value *values = (mg_value *)(ports + n);
    for (size_t i = 0; i < n; i++) {
        values[i] = *port_of(plan, (int)i)->value;
        if (is_half(plan, (int)i)) values[i].dtype = MG_F32;
        ports[i].value = &values[i];
    }
    s->plan = *plan;
    s->plan.in = ports;
    s->plan.out = ports + plan->step->n_in;
    return s;
}

static void drop_kernel(state *s) {
    if (s->plan.state && s->kernel->release) s->kernel->release(s->plan.state);
    s->plan.state = NULL;
    s->kernel = NULL;
}

static void release(void *p) {
    drop_kernel(p);
    mg_free(p);
}

/* Offers the step, its values lying as they do, to a kernel of float32. */
static mg_status offer(state *s, const mg_kernel_plan *plan, const mg_kernel *kernel) {
    if (kernel == &mg_cpu_halves || strcmp(kernel->op, plan->step->op->name) != 0)
        return MG_UNSUPPORTED;
    for (int i = 0; i < port_count(plan); i++)
        port_of(&s->plan, i)->layout = port_of(plan, i)->layout;
    s->plan.scratch = 0;
    if (kernel->accepts && kernel->accepts(&s->plan)) return MG_UNSUPPORTED;
    s->kernel = kernel;
    const mg_status status = kernel->prepare ? kernel->prepare(&s->plan) : MG_OK;
    if (status != MG_UNSUPPORTED) return status;
    mg_error_clear();
    drop_kernel(s);
    return status;
}

static size_t copy_bytes(const mg_kernel_plan *plan, int i) {
    return is_half(plan, i) ? aligned(2 * mg_value_bytes(port_of(plan, i)->value)) : 0;
}

/* Scratch: the addresses of all ports, the copies, what the kernel wants. */
static mg_status prepare(mg_kernel_plan *plan) {
    mg_status status = MG_UNSUPPORTED;
    state *s = plan->state = new_state(plan);
    if (!s) return MG_OOM;
    for (int k = 0; mg_cpu_kernels[k] && status == MG_UNSUPPORTED; k++)
        status = offer(s, plan, mg_cpu_kernels[k]);
    if (status == MG_UNSUPPORTED)
        return mg_fail(status, "%s: no kernel for float32 either", plan->step->op->name);
    MG_TRY(status);
    if (mg_log_on("dispatch"))
        mg_log("dispatch", "%s: %s in float32: %s", plan->device->name, s->kernel->op,
               s->kernel->name);
    plan->scratch = aligned((size_t)port_count(plan) * sizeof(void *)) + s->plan.scratch;
    for (int i = 0; i < port_count(plan); i++) {
        port_of(plan, i)->layout = port_of(&s->plan, i)->layout;
        plan->scratch += copy_bytes(plan, i);
    }
    return MG_OK;
}

/* ---- running ---- */

/* A copy of port i to float32, or back from it. */
static void convert(const mg_kernel_plan *plan, int i, void *half, float *copy, bool back) {
    const mg_loops *loops = mg_loops_best();
    const mg_dtype type = port_of(plan, i)->value->dtype;
    const int64_t n = mg_count(port_of(plan, i));
#pragma omp parallel for schedule(static) num_threads(mg_cpu_team(n))
    for (int64_t first = 0; first < n; first += PIECE) {
        const int count = (int)(n - first < PIECE ? n - first : PIECE);
        if (back)
            loops->store_f32((uint16_t *)half + first, copy + first, type, count);
        else
            loops->load_f32(copy + first, (const uint16_t *)half + first, type, count);
    }
}

static mg_status run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const int n_in = plan->step->n_in, n = port_count(plan);
    void **at = call->scratch;
    char *free_from = (char *)call->scratch + aligned((size_t)n * sizeof *at);
    for (int i = 0; i < n; i++) {
        void *given = i < n_in ? call->in[i] : call->out[i - n_in];
        at[i] = is_half(plan, i) ? free_from : given;
        free_from += copy_bytes(plan, i);
        if (i < n_in && is_half(plan, i)) convert(plan, i, given, at[i], false);
    }
    mg_call inner = *call;
    inner.plan = &s->plan;
    inner.in = at;
    inner.out = at + n_in;
    inner.scratch = free_from;
    MG_TRY(s->kernel->run(&inner));
    for (int i = n_in; i < n; i++)
        if (is_half(plan, i)) convert(plan, i, call->out[i - n_in], at[i], true);
    return MG_OK;
}

const mg_kernel mg_cpu_halves = {.name = "halves in float32",
                                 .accepts = accepts,
                                 .prepare = prepare,
                                 .run = run,
                                 .release = release};

/* The host fallback: the reference kernel for steps that no kernel of the device accepts.
 *
 * Operands are copied to the host, computed there, and the results copied back. That is slow and
 * waits for the GPU, but makes every op work in every dtype; MGPU_LOG=fallback names the steps. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/context/context.h"
#include <string.h>

typedef struct state {
    size_t scratch;      /* scratch bytes of the reference kernel, on the host */
    mg_kernel_plan plan; /* a copy of ours, with the reference kernel's state */
} state;

/* Bytes of a value on the host, rounded up so that the next one is aligned. */
static size_t padded_bytes(const mg_port *port) {
    return (mg_value_bytes(port->value) + 63) / 64 * 64;
}

/* The reference kernel may keep a state and ask for scratch; both stay on the host. */
static mg_status prepare_fallback(mg_kernel_plan *plan) {
    state *s = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->plan = *plan;
    const mg_status status = mg_reference_kernel.prepare(&s->plan);
    if (status != MG_OK) {
        mg_free(s);
        return status;
    }
    s->scratch = s->plan.scratch;
    plan->state = s;
    return MG_OK;
}

static void release_fallback(void *kept) {
    state *s = kept;
    if (s->plan.state) mg_reference_kernel.release(s->plan.state);
    mg_free(s);
}

static bool is_stopped(void *run) {
    return mg_program_check_stop(run) != MG_OK;
}

/* `memory` has room for scratch, then all inputs, then all outputs. */
static mg_status run_on_host(const mg_call *call, char *memory, void **in, void **out) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const mg_step *step = plan->step;
    const mg_cuda_stop asked = {is_stopped, (void *)(uintptr_t)call->stoppable};
    const mg_cuda_stop *stop = call->stoppable ? &asked : NULL;
    char *at = memory + (s->scratch + 63) / 64 * 64;
    for (int i = 0; i < step->n_in; at += padded_bytes(&plan->in[i++])) {
        const size_t bytes = mg_value_bytes(plan->in[i].value);
        in[i] = at;
        MG_TRY(mg_cuda_fetch(plan->device, at, call->in[i], bytes, stop));
    }
    for (int i = 0; i < step->n_out; at += padded_bytes(&plan->out[i++])) out[i] = at;
    const mg_call host = {
        .plan = &s->plan, .in = in, .out = out, .scratch = memory, .rng = call->rng};
    MG_TRY(mg_reference_kernel.run(&host));
    for (int i = 0; i < step->n_out; i++) {
        const size_t bytes = mg_value_bytes(plan->out[i].value);
        MG_TRY(mg_cuda_send(plan->device, call->out[i], out[i], bytes, stop));
    }
    return mg_cuda_finish(plan->device, stop);
}

/* One block of host memory for everything, the lists of addresses at its end. */
static mg_status run_fallback(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const size_t n = (size_t)(plan->step->n_in + plan->step->n_out);
    size_t bytes = (s->scratch + 63) / 64 * 64 + n * sizeof(void *);
    for (int i = 0; i < plan->step->n_in; i++) bytes += padded_bytes(&plan->in[i]);
    for (int i = 0; i < plan->step->n_out; i++) bytes += padded_bytes(&plan->out[i]);
    char *memory = mg_alloc(bytes);
    if (!memory) return MG_OOM;
    void **pointers = (void **)(memory + bytes - n * sizeof(void *));
    const mg_status status = run_on_host(call, memory, pointers, pointers + plan->step->n_in);
    mg_free(memory);
    return status;
}

const mg_kernel mg_cuda_host_fallback = {.name = "reference",
                                         .prepare = prepare_fallback,
                                         .run = run_fallback,
                                         .release = release_fallback,
                                         .waits = true}; /* for the GPU: it cannot be captured */

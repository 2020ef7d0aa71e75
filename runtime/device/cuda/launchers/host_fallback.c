/* The reference kernel on a cuda device: operands go to the host, the result comes back.
 *
 * Slow, and it waits for the GPU, but every op works everywhere; MGPU_LOG=fallback names them. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/context/memory.h"
#include <string.h>

typedef struct state {
    size_t scratch;
    mg_kernel_plan plan; /* the reference kernel's: ours, with a state of its own */
} state;

static size_t bytes_of(const mg_port *port) {
    const mg_value *v = port->value;
    const size_t bytes = (size_t)mg_shape_count(&v->shape) * mg_dtype_size(v->dtype);
    return (bytes + 63) / 64 * 64;
}

static mg_status prepare(mg_kernel_plan *plan) {
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

static void release(void *kept) {
    state *s = kept;
    if (s->plan.state) mg_reference_kernel.release(s->plan.state);
    mg_free(s);
}

static mg_status run_on_host(const mg_call *call, char *memory, void **in, void **out) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const mg_step *step = plan->step;
    char *at = memory + (s->scratch + 63) / 64 * 64;
    for (int i = 0; i < step->n_in; at += bytes_of(&plan->in[i++])) {
        const mg_value *v = plan->in[i].value;
        const size_t bytes = (size_t)mg_shape_count(&v->shape) * mg_dtype_size(v->dtype);
        in[i] = at;
        MG_TRY(mg_cuda_copy_out(plan->device, at, call->in[i], bytes));
    }
    for (int i = 0; i < step->n_out; at += bytes_of(&plan->out[i++])) out[i] = at;
    const mg_call host = {
        .plan = &s->plan, .in = in, .out = out, .scratch = memory, .rng = call->rng};
    MG_TRY(mg_reference_kernel.run(&host));
    for (int i = 0; i < step->n_out; i++) {
        const mg_value *v = plan->out[i].value;
        const size_t bytes = (size_t)mg_shape_count(&v->shape) * mg_dtype_size(v->dtype);
        MG_TRY(mg_cuda_copy_in(plan->device, call->out[i], out[i], bytes));
    }
    return mg_cuda_sync(plan->device);
}

static mg_status run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const size_t n = (size_t)(plan->step->n_in + plan->step->n_out);
    size_t bytes = (s->scratch + 63) / 64 * 64 + n * sizeof(void *);
    for (int i = 0; i < plan->step->n_in; i++) bytes += bytes_of(&plan->in[i]);
    for (int i = 0; i < plan->step->n_out; i++) bytes += bytes_of(&plan->out[i]);
    char *memory = mg_alloc(bytes);
    if (!memory) return MG_OOM;
    void **pointers = (void **)(memory + bytes - n * sizeof(void *));
    const mg_status status = run_on_host(call, memory, pointers, pointers + plan->step->n_in);
    mg_free(memory);
    return status;
}

const mg_kernel mg_cuda_host_fallback = {
    .name = "reference", .prepare = prepare, .run = run, .release = release, .waits = true};

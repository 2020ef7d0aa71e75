/* Upcasts: an op whose dtypes no kernel takes runs on copies in a wider dtype, in scratch memory.
 *
 * float16 and bfloat16 become float32, and results are rounded once. So sums of halves are made in
 * float32, as everywhere, and whatever float32 is good at (Winograd, threads) serves halves too.
 * Small ids become int32. Element-wise groups, reductions and ops that only move elements take
 * integers without copies. */
#include "core/alloc.h"
#include "core/log.h"
#include "device/cpu/upcast.h"
#include <string.h>

enum { PIECE = 16384 }; /* elements that a thread converts at a time */

/* The wider op. Its ports and their values follow in the same allocation. */
typedef struct state {
    const mg_kernel *kernel; /* that of wider dtypes */
    mg_kernel_plan plan;     /* the step as it sees it; its ports and their values follow */
} state;

/* Inputs and results together. */
static int port_count(const mg_kernel_plan *plan) {
    return plan->step->n_in + plan->step->n_out;
}

/* Ports are numbered: inputs first, then results. */
static mg_port *port_of(const mg_kernel_plan *plan, int i) {
    return i < plan->step->n_in ? &plan->in[i] : &plan->out[i - plan->step->n_in];
}

/* Whether an op is in a list that ends with NULL. */
static bool is_one_of(const char *op, const char *const *list) {
    while (*list && strcmp(op, *list) != 0) list++;
    return *list;
}

/* The dtype in which the kernel gets port i. */
static mg_dtype upcast_dtype(const mg_kernel_plan *plan, int i) {
    static const char *const readers[] = {"gather", "scatter_add", "sparse_softmax_cross_entropy",
                                          "sparse_softmax_cross_entropy_grad", NULL};
    const mg_dtype own = port_of(plan, i)->value->dtype;
    const bool small = own == MG_BOOL || own == MG_U8;
    if (mg_dtype_is_half(own)) return MG_F32;
    if (mg_dtype_is_float(own)) return own;
    return i == 1 && small && is_one_of(plan->step->op->name, readers) ? MG_I32 : own;
}

/* Copies start at cache lines. */
static size_t round_to_line(size_t bytes) {
    return (bytes + MG_LINE - 1) / MG_LINE * MG_LINE;
}

/* ---- preparing ---- */

/* Accepts ops for which at least one port has a wider dtype. */
static const char *upcast_accepts(const mg_kernel_plan *plan) {
    for (int i = 0; plan->step->op && i < port_count(plan); i++)
        if (upcast_dtype(plan, i) != port_of(plan, i)->value->dtype) return NULL;
    return "none is wider";
}

/* A copy of the plan whose ports have the wider dtypes. */
static state *new_state(const mg_kernel_plan *plan) {
    const size_t n = (size_t)port_count(plan);
    state *s = mg_alloc_zero(sizeof *s + n * (sizeof(mg_port) + sizeof(mg_value)));
    if (!s) return NULL;
    mg_port *ports = (mg_port *)(s + 1);
    mg_value *values = (mg_value *)(ports + n);
    for (size_t i = 0; i < n; i++) {
        values[i] = *port_of(plan, (int)i)->value;
        values[i].dtype = upcast_dtype(plan, (int)i);
        ports[i].value = &values[i];
    }
    s->plan = *plan;
    s->plan.in = ports;
    s->plan.out = ports + plan->step->n_in;
    return s;
}

/* Releases the state of a kernel that was prepared, perhaps only in part. */
static void drop_kernel(state *s) {
    if (s->plan.state && s->kernel->release) s->kernel->release(s->plan.state);
    s->plan.state = NULL;
    s->kernel = NULL;
}

bool mg_cpu_upcast_suits(const mg_kernel_plan *plan, const mg_kernel *kernel) {
    state *s = new_state(plan);
    const bool suits = s && (!kernel->accepts || !kernel->accepts(&s->plan));
    mg_free(s);
    return suits;
}

static void upcast_release(void *p) {
    drop_kernel(p);
    mg_free(p);
}

/* Offers the wider op to a kernel. MG_UNSUPPORTED: it does not take it. */
static mg_status offer_to_kernel(state *s, const mg_kernel_plan *plan, const mg_kernel *kernel) {
    if (kernel == &mg_cpu_upcast || strcmp(kernel->op, plan->step->op->name) != 0)
        return MG_UNSUPPORTED;
    s->plan.scratch = 0;
    if (kernel->accepts && kernel->accepts(&s->plan)) return MG_UNSUPPORTED;
    s->kernel = kernel;
    const mg_status status = kernel->prepare ? kernel->prepare(&s->plan) : MG_OK;
    if (status != MG_UNSUPPORTED) return status;
    mg_error_clear(); /* the next kernel may do */
    drop_kernel(s);
    return status;
}

/* Whether port i has another dtype in the kernel, and so needs a copy. */
static bool is_copied(const state *s, const mg_kernel_plan *plan, int i) {
    return port_of(&s->plan, i)->value->dtype != port_of(plan, i)->value->dtype;
}

/* Scratch for the copy of port i. */
static size_t copy_bytes(const state *s, const mg_kernel_plan *plan, int i) {
    return is_copied(s, plan, i) ? round_to_line(mg_value_bytes(port_of(&s->plan, i)->value)) : 0;
}

/* Finds the first kernel that takes the wider op. Scratch: the addresses of all ports, the copies,
 * then what the kernel asks for. An input that has been copied may be overwritten. */
static mg_status upcast_prepare(mg_kernel_plan *plan) {
    mg_status status = MG_UNSUPPORTED;
    state *s = plan->state = new_state(plan);
    if (!s) return MG_OOM;
    for (int k = 0; mg_cpu_kernels[k] && status == MG_UNSUPPORTED; k++)
        status = offer_to_kernel(s, plan, mg_cpu_kernels[k]);
    if (status == MG_UNSUPPORTED)
        return mg_fail(status, "%s: no kernel for wider dtypes either", plan->step->op->name);
    MG_TRY(status);
    if (mg_log_on("dispatch"))
        mg_log("dispatch", "%s: %s of wider dtypes: %s", plan->device->name, s->kernel->op,
               s->kernel->name);
    plan->scratch = round_to_line((size_t)port_count(plan) * sizeof(void *)) + s->plan.scratch;
    for (int i = 0; i < port_count(plan); i++) {
        plan->scratch += copy_bytes(s, plan, i);
        if (i < plan->step->n_in && i < 32 && is_copied(s, plan, i))
            plan->overwrites |= (uint32_t)1 << i;
    }
    return MG_OK;
}

/* ---- running ---- */

/* Converts n elements to a wider dtype. */
static void upcast_elements(void *dst, mg_dtype to, const void *src, mg_dtype from, int n) {
    if (to == MG_F32)
        mg_simd_used->conversions->load_f32(dst, src, from, n);
    else
        for (int i = 0; i < n; i++) ((int32_t *)dst)[i] = ((const uint8_t *)src)[i];
}

void mg_cpu_convert_port(const mg_port *port, mg_dtype to, void *own, void *copy, bool back) {
    const mg_dtype from = port->value->dtype;
    const int64_t size = (int64_t)mg_dtype_size(from), wide = (int64_t)mg_dtype_size(to);
    const int64_t n = mg_count(port);
#pragma omp parallel for schedule(static) num_threads(mg_cpu_team(n))
    for (int64_t first = 0; first < n; first += PIECE) {
        const int count = (int)(n - first < PIECE ? n - first : PIECE);
        if (back)
            mg_simd_used->conversions->store_f32((char *)own + first * size, (float *)copy + first,
                                                 from, count);
        else
            upcast_elements((char *)copy + first * wide, to, (char *)own + first * size, from,
                            count);
    }
}

/* Copies the inputs, runs the kernel, and rounds the results. */
static mg_status upcast_run(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const int n_in = plan->step->n_in, n = port_count(plan);
    void **at = call->scratch;
    char *free_from = (char *)call->scratch + round_to_line((size_t)n * sizeof *at);
    for (int i = 0; i < n; i++) {
        void *given = i < n_in ? call->in[i] : call->out[i - n_in];
        const bool copied = is_copied(s, plan, i);
        at[i] = copied ? free_from : given;
        free_from += copy_bytes(s, plan, i);
        if (i < n_in && copied)
            mg_cpu_convert_port(&plan->in[i], port_of(&s->plan, i)->value->dtype, given, at[i],
                                false);
    }
    /* the kernel sees its own plan, the copies, and what is left of the scratch */
    mg_call inner = *call;
    inner.plan = &s->plan;
    inner.in = at;
    inner.out = at + n_in;
    inner.scratch = free_from;
    MG_TRY(s->kernel->run(&inner));
    for (int i = n_in; i < n; i++)
        if (is_copied(s, plan, i))
            mg_cpu_convert_port(&plan->out[i - n_in], MG_F32, call->out[i - n_in], at[i], true);
    return MG_OK;
}

const mg_kernel mg_cpu_upcast = {.name = "upcast",
                                 .accepts = upcast_accepts,
                                 .prepare = upcast_prepare,
                                 .run = upcast_run,
                                 .release = upcast_release};

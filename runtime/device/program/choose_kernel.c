/* Choosing a kernel for a step: the first of the device's list that accepts it.
 *
 * Every attempt starts from the same ports, because a kernel may change their layouts before it
 * refuses. MGPU_LOG=dispatch prints every attempt, MGPU_LOG=fallback the steps that go to the
 * kernel of last resort. */
#include "core/log.h"
#include "device/program/program.h"
#include "device/program/host_program.h"
#include <stdio.h>
#include <string.h>

/* Whether the kernel is written for the step's op. */
static bool kernel_is_for(const mg_kernel *k, const mg_step *s) {
    if (!k->op) return true;
    return strcmp(k->op, s->op ? s->op->name : "fused") == 0;
}

/* Sets all ports to row-major, their layout before a kernel asks for another. */
static void reset_ports(mg_program_call *k) {
    const mg_step *s = k->plan.step;
    for (int i = 0; i < s->n_in; i++) k->plan.in[i].layout = MG_ROW_MAJOR;
    for (int i = 0; i < s->n_out; i++) k->plan.out[i].layout = MG_ROW_MAJOR;
}

/* "matmul float32{2,3} float32{3,4}", for the log. */
static const char *describe_step(const mg_kernel_plan *plan, char *text, size_t size) {
    const mg_step *s = plan->step;
    int n = snprintf(text, size, "%s", s->op ? s->op->name : "fused");
    for (int i = 0; i < s->n_in && n > 0 && (size_t)n < size; i++)
        n += snprintf(text + n, size - (size_t)n, " %s%s", mg_dtype_name(plan->in[i].value->dtype),
                      MG_SHAPE_TEXT(&plan->in[i].value->shape));
    return text;
}

/* Cleans up after a `prepare` that failed because the kernel cannot run the step. */
static void undo_prepare(mg_program_call *k) {
    if (mg_log_on("dispatch")) mg_log("dispatch", "%s: %s", k->kernel->name, mg_error_message());
    if (k->plan.state && k->kernel->release) k->kernel->release(k->plan.state);
    k->plan.state = NULL;
    k->plan.scratch = 0;
    k->plan.overwrites = 0;
    k->plan.packer = NULL;
    mg_error_clear();
}

/* One line per kernel that was tried: the step, the kernel, and the reason for a refusal. */
static void log_attempt(const mg_program *p, const mg_kernel *kernel, const mg_kernel_plan *plan,
                        const char *refusal) {
    char text[512];
    if (!mg_log_on("dispatch")) return;
    mg_log("dispatch", "%s: %s: %s%s%s", p->device->name, describe_step(plan, text, sizeof text),
           kernel->name, refusal ? " refuses: " : "", refusal ? refusal : "");
}

/* MG_UNSUPPORTED if even the kernel of last resort cannot run the step. */
static mg_status use_last_resort(const mg_program *p, mg_program_call *k) {
    char text[512];
    /* A kind without kernels, as ref, has nothing to fall back from. */
    if (p->set->kernels[0] && mg_log_on("fallback"))
        mg_log("fallback", "%s: reference kernel for %s", p->device->name,
               describe_step(&k->plan, text, sizeof text));
    reset_ports(k);
    k->kernel = p->set->last_resort ? p->set->last_resort : &mg_reference_kernel;
    return k->kernel->prepare(&k->plan);
}

/* Collectives have no kernels: their call goes to the communicator, row-major. */
mg_status mg_program_choose_kernel(const mg_program *p, mg_program_call *k) {
    if (mg_is_collective(k->plan.step)) {
        reset_ports(k);
        k->kernel = &mg_collective_kernel;
        k->plan.overwrites =
            p->set->reduces_in_place && k->plan.step->op->collective == MG_ALL_REDUCE;
        return MG_OK;
    }
    if (k->plan.step->loop) {
        reset_ports(k);
        k->kernel = &mg_loop_kernel;
        return mg_loop_prepare(p->set, &k->plan);
    }
    for (const mg_kernel *const *candidate = p->set->kernels; *candidate; candidate++) {
        if (!kernel_is_for(*candidate, k->plan.step)) continue;
        reset_ports(k);
        const char *refusal = (*candidate)->accepts ? (*candidate)->accepts(&k->plan) : NULL;
        log_attempt(p, *candidate, &k->plan, refusal);
        if (refusal) continue;
        k->kernel = *candidate;
        const mg_status status = (*candidate)->prepare ? (*candidate)->prepare(&k->plan) : MG_OK;
        if (status != MG_UNSUPPORTED) return status;
        undo_prepare(k);
    }
    return use_last_resort(p, k);
}

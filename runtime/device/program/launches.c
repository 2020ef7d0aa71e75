/* Launches: neighbouring independent calls of one kernel that the kernel runs together.
 *
 * One launch for many small tensors, such as the variables of an optimizer's step, saves the cost
 * of starting each. Buckets of reductions were formed by the scheduler, and are launches too. */
#include "core/log.h"
#include "device/program/program.h"
#include "device/program/host_program.h"

/* Whether one of the n slots overlaps slot `index`. */
static bool overlaps(const mg_program *p, const int *slots, int n, int index) {
    for (int i = 0; i < n; i++)
        if (mg_program_whole_slot(p, slots[i]) == mg_program_whole_slot(p, index)) return true;
    return false;
}

/* Whether one of two calls writes what the other reads or writes. */
static bool depend(const mg_program *p, const mg_program_call *a, const mg_program_call *b) {
    for (int o = 0; o < a->n_out; o++)
        if (overlaps(p, b->in, b->n_in, a->out[o]) || overlaps(p, b->out, b->n_out, a->out[o]))
            return true;
    for (int o = 0; o < b->n_out; o++)
        if (overlaps(p, a->in, a->n_in, b->out[o])) return true;
    return false;
}

/* How many calls from `first` on, before `end`, make one launch. */
static int launch_length(const mg_program *p, int first, int end) {
    const mg_program_call *head = &p->calls[first];
    if (head->kernel == &mg_collective_kernel) return head->plan.step->batch_count;
    if (!head->kernel->run_many) return 1;
    int n = 1, pointers = head->n_in + head->n_out;
    for (; n < MG_MAX_LAUNCH && first + n < end; n++) {
        const mg_program_call *next = &p->calls[first + n];
        pointers += next->n_in + next->n_out;
        if (next->kernel != head->kernel || pointers > MG_MOST_POINTERS) return n;
        /* batch_count is not 0 on the first step of another batch */
        if (next->kernel->batched_only && next->plan.step->batch_count) return n;
        for (int i = first; i < first + n; i++)
            if (depend(p, &p->calls[i], next)) return n;
    }
    return n;
}

/* Makes the slot live at least during calls [first, last]. */
static void extend_life(mg_program *p, int index, int first, int last) {
    mg_slot *s = &p->slots[mg_program_whole_slot(p, index)];
    if (s->block.first > first) s->block.first = first;
    if (s->block.last < last) s->block.last = last;
}

/* All calls of a launch run at the same time, so each of their slots lives during all of them. The
 * scratch of single calls is replaced by one slot for the launch. */
static mg_status share_life(mg_program *p, int first, int n) {
    const mg_kernel_plan *plans[MG_MAX_LAUNCH];
    const int last = first + n - 1;
    for (int i = 0; i < n; i++) {
        mg_program_call *k = &p->calls[first + i];
        plans[i] = &k->plan;
        for (int s = 0; s < k->n_in; s++) extend_life(p, k->in[s], first, last);
        for (int s = 0; s < k->n_out; s++) extend_life(p, k->out[s], first, last);
        if (k->scratch >= 0) p->slots[k->scratch].block.bytes = 0;
        k->scratch = MG_NO_SLOT;
    }
    if (p->calls[first].kernel == &mg_collective_kernel) return MG_OK;
    const size_t bytes = p->calls[first].kernel->scratch_many(plans, n);
    int *scratch = &p->calls[first].scratch;
    MG_TRY(mg_program_add_slot(p, bytes, MG_NO_SLOT, scratch));
    p->slots[*scratch].block.first = first;
    p->slots[*scratch].block.last = last;
    return MG_OK;
}

/* Launches do not cross from one phase to the next. */
mg_status mg_program_make_launches(mg_program *p) {
    for (int i = 0; i < p->n_calls; i += p->calls[i].launch_count) {
        const int end = i < p->n_fixed ? p->n_fixed : i < p->n_compute ? p->n_compute : p->n_calls;
        const int n = launch_length(p, i, end);
        p->calls[i].launch_count = n;
        if (n > 1) MG_TRY(share_life(p, i, n));
    }
    return MG_OK;
}

/* ---- the log ---- */

/* One line for each launch: its phase, kernel and op, how many calls it makes, and the bytes of
 * their operands and results. */
void mg_program_log_launches(const mg_program *p) {
    if (!mg_log_on("launches")) return;
    int n = 0;
    for (int i = 0; i < p->n_calls; i += p->calls[i].launch_count, n++) {
        const mg_program_call *k = &p->calls[i];
        const mg_step *s = k->plan.step;
        mg_log("launches", "%s: %s %s by %s: %d calls, %.0f bytes", p->device->name,
               i < p->n_compute ? "compute" : "commit",
               !s      ? "reorder"
               : s->op ? s->op->name
                       : "fused",
               k->kernel->name, k->launch_count, (double)k->bytes);
    }
    mg_log("launches", "%s: %d launches", p->device->name, n);
}

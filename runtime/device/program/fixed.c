/* The phase MG_PREPARE of a frozen plan: calls that make what stays the same from run to run, and
 * the memory that keeps it. program.h says what is fixed. */
#include "core/alloc.h"
#include "device/program/host_program.h"
#include "device/program/program.h"
#include <string.h>

/* Extends the slot's life to call number `call`. */
static void touch(mg_program *p, int index, int call) {
    mg_block *b = &p->slots[mg_program_whole_slot(p, index)].block;
    if (b->first < 0) b->first = call;
    b->last = call;
}

/* Puts the fixed calls first; among themselves, both kinds stay in order. */
static mg_status put_fixed_first(mg_program *p) {
    mg_program_call *ordered = mg_alloc((size_t)(p->n_calls + 1) * sizeof *ordered);
    if (!ordered) return MG_OOM;
    int n = 0, n_compute = 0;
    for (int i = 0; i < p->n_calls; i++)
        if (p->calls[i].fixed) ordered[n++] = p->calls[i];
    p->n_fixed = n;
    for (int i = 0; i < p->n_calls; i++) {
        n_compute += i < p->n_compute || p->calls[i].fixed;
        if (!p->calls[i].fixed) ordered[n++] = p->calls[i];
    }
    p->n_compute = n_compute;
    memcpy(p->calls, ordered, (size_t)n * sizeof *ordered);
    mg_free(ordered);
    return MG_OK;
}

mg_status mg_program_order_calls(mg_program *p) {
    bool any = false;
    for (int i = 0; i < p->n_calls; i++) any |= p->calls[i].fixed;
    if (any) MG_TRY(put_fixed_first(p));
    for (int i = 0; i < p->n_calls; i++) {
        const mg_program_call *k = &p->calls[i];
        for (int s = 0; s < k->n_in; s++) touch(p, k->in[s], i);
        for (int s = 0; s < k->n_out; s++) touch(p, k->out[s], i);
        if (k->scratch >= 0) touch(p, k->scratch, i);
    }
    return MG_OK;
}

/* What only the phase itself needs lies in the arena. */
void mg_program_keep_slots(mg_program *p) {
    const size_t mask = MG_ARENA_ALIGNMENT - 1;
    for (int i = 0; i < p->n_slots; i++) {
        mg_slot *s = &p->slots[i];
        if (s->external != MG_NO_SLOT || s->inside != MG_NO_SLOT || s->block.first < 0 ||
            s->block.first >= p->n_fixed || s->block.last < p->n_fixed)
            continue;
        s->kept = true;
        s->block.offset = p->kept_bytes;
        p->kept_bytes += (s->block.bytes + mask) & ~mask;
    }
}

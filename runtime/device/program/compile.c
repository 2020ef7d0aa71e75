/* Compiling a kernel graph into calls and slots: the driver of the stages that program.h lists.
 *
 * Invariants: a value has one slot per layout it has been needed in. A slot's life span goes from
 * the first to the last call that touches it; it is found when all calls are there (fixed.c). A
 * slot is reused for another value only when no step will read it again (pending_uses). */
#include "core/alloc.h"
#include "device/work.h"
#include "device/worker.h"
#include "device/program/program.h"
#include "device/program/host_program.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <string.h>

enum {
    MAX_LAYOUTS = 4,    /* of a device kind, row-major included */
    PART_ALIGNMENT = 64 /* bytes, of parts of slots: a cache line, and the widest vector */
};

typedef struct compiler {
    mg_program *p; /* being made */
    const mg_kernel_graph *graph;
    int (*place)[MAX_LAYOUTS]; /* per value and layout: its slot, or MG_NO_SLOT */
    int *primary;              /* per value: the layout it was made in */
    int *uses;                 /* per value: operands of steps that are this value */
    bool *fixed;               /* per value: see program.h */
} compiler;

/* ---- slots ---- */

mg_status mg_program_add_slot(mg_program *p, size_t bytes, int external, int *index) {
    MG_TRY(mg_reserve((void **)&p->slots, p->n_slots, &p->slots_capacity, sizeof *p->slots));
    *index = p->n_slots++;
    p->slots[*index] = (mg_slot){.block = {.bytes = bytes, .first = -1, .last = -1},
                                 .external = external,
                                 .inside = MG_NO_SLOT,
                                 .pending_uses = 0};
    return MG_OK;
}

/* A slot of the arena. */
static mg_status new_slot(compiler *c, size_t bytes, int *index) {
    return mg_program_add_slot(c->p, bytes, MG_NO_SLOT, index);
}

/* Records that the value lies in slot `index`, in this layout. */
static void put_value(compiler *c, int value, int layout, int index) {
    c->place[value][layout] = index;
    c->p->slots[mg_program_whole_slot(c->p, index)].pending_uses += c->uses[value];
}

/* Counts down the reads of the value, after one of its readers was bound. */
static void end_use(compiler *c, int value) {
    const int index = c->place[value][c->primary[value]];
    c->p->slots[mg_program_whole_slot(c->p, index)].pending_uses--;
}

/* ---- calls ---- */

/* A call for the step, without kernel and slots yet. mg_program_drop_call frees it. */
static mg_status new_call(compiler *c, const mg_step *step, mg_program_call *made) {
    const size_t ports = (size_t)(step->n_in + step->n_out);
    mg_port *block = mg_alloc_zero(ports * (sizeof(mg_port) + sizeof(int)) + 1);
    if (!block) return MG_OOM;
    *made = (mg_program_call){.n_in = step->n_in, .n_out = step->n_out, .scratch = MG_NO_SLOT};
    made->in = (int *)(block + ports);
    made->out = made->in + step->n_in;
    made->plan = (mg_kernel_plan){
        .step = step, .in = block, .out = block + step->n_in, .device = c->p->device};
    for (int i = 0; i < step->n_in; i++) {
        made->plan.in[i].value = &c->graph->values[step->in[i]];
        made->plan.in[i].fixed = c->fixed[step->in[i]];
    }
    for (int i = 0; i < step->n_out; i++) made->plan.out[i].value = &c->graph->values[step->out[i]];
    return MG_OK;
}

/* Adds a call whose kernel and slots are known. The program owns it from here on, also on failure.
 */
static mg_status append_call(compiler *c, mg_program_call *k) {
    mg_program *p = c->p;
    mg_status status =
        mg_reserve((void **)&p->calls, p->n_calls, &p->calls_capacity, sizeof *p->calls);
    if (status == MG_OK && k->plan.scratch) status = new_slot(c, k->plan.scratch, &k->scratch);
    if (status != MG_OK) {
        mg_program_drop_call(k);
        return status;
    }
    for (int i = 0; i < k->n_out && k->fixed; i++) p->slots[k->out[i]].fixed = true;
    p->calls[p->n_calls++] = *k;
    return MG_OK;
}

/* Adds a call that copies a value from one layout to another, from slot to slot. */
static mg_status append_reorder(compiler *c, int value, int from_layout, int from, int to_layout,
                                int to) {
    const mg_step step = {.n_in = 1, .n_out = 1, .in = &value, .out = &value};
    mg_program_call k;
    MG_TRY(new_call(c, &step, &k));
    k.plan.step = NULL; /* a reorder has ports only */
    k.kernel = c->p->set->reorder;
    k.plan.in[0].layout = from_layout;
    k.plan.out[0].layout = to_layout;
    k.in[0] = from;
    k.out[0] = to;
    k.fixed = c->fixed[value];
    const mg_status status = k.kernel->prepare ? k.kernel->prepare(&k.plan) : MG_OK;
    if (status == MG_OK) return append_call(c, &k);
    mg_program_drop_call(&k);
    return status;
}

/* The slot where the value lies in `layout`. At the first use of a layout, a reorder into a new
 * slot is added. */
static mg_status slot_in_layout(compiler *c, int value, int layout, int *index) {
    *index = c->place[value][layout];
    if (*index >= 0) return MG_OK;
    const int from = c->primary[value];
    const size_t bytes = mg_value_bytes(&c->graph->values[value]);
    MG_TRY(new_slot(c, bytes, index));
    c->p->slots[*index].pending_uses = 1 << 20; /* readers of copies are not counted */
    c->place[value][layout] = *index;
    return append_reorder(c, value, from, c->place[value][from], layout, *index);
}

/* ---- steps ---- */

/* Adds the call that packs an input of k for its kernel: *index is the slot of the result. */
static mg_status append_packing(compiler *c, const mg_program_call *k, int value, int *index) {
    const mg_step step = {.n_in = 1, .n_out = 1, .in = &value, .out = &value};
    mg_program_call pack;
    int from;
    MG_TRY(slot_in_layout(c, value, k->plan.in[k->plan.packed].layout, &from));
    MG_TRY(new_slot(c, k->plan.packed_bytes, index));
    c->p->slots[*index].pending_uses = 1 << 20; /* it holds another form: it is never taken over */
    MG_TRY(new_call(c, &step, &pack));
    pack.plan.step = NULL;
    pack.plan.state = k->plan.state; /* borrowed: packers have no `release` */
    pack.plan.scratch = k->plan.packer_scratch;
    pack.kernel = k->plan.packer;
    pack.in[0] = from;
    pack.out[0] = *index;
    pack.fixed = true;
    return append_call(c, &pack);
}

/* Gives each input the slot that holds it in the layout, or packed form, that the kernel asked
 * for. */
static mg_status bind_inputs(compiler *c, mg_program_call *k) {
    for (int i = 0; i < k->n_in; i++)
        if (k->plan.in[i].layout == MG_ANY_LAYOUT)
            k->plan.in[i].layout = c->primary[k->plan.step->in[i]];
    for (int i = 0; i < k->n_in; i++) {
        const int value = k->plan.step->in[i];
        if (k->plan.packer && i == k->plan.packed)
            MG_TRY(append_packing(c, k, value, &k->in[i]));
        else
            MG_TRY(slot_in_layout(c, value, k->plan.in[i].layout, &k->in[i]));
    }
    return MG_OK;
}

/* The slot of an input that output `o` may be written over, or MG_NO_SLOT. It must belong to the
 * arena, be of the same size and shape, not be read again by any step, and be read by this call
 * once only; and the kernel must allow it. Not where calls are fixed: they come before others that
 * may read the input, and the next run reads it again. */
static int overwritable_input(const compiler *c, const mg_program_call *k, int o) {
    const mg_port *out = &k->plan.out[o];
    const size_t bytes = mg_value_bytes(out->value);
    for (int i = 0; i < k->n_in; i++) {
        if (!k->plan.step->fused && (i >= 32 || !(k->plan.overwrites >> i & 1))) continue;
        const mg_port *in = &k->plan.in[i];
        const mg_slot *s = &c->p->slots[k->in[i]];
        int readers = 0;
        for (int j = 0; j < k->n_in; j++)
            readers += mg_program_whole_slot(c->p, k->in[j]) == k->in[i];
        for (int j = 0; j < o; j++) readers += k->out[j] == k->in[i];
        if (s->external == MG_NO_SLOT && s->inside == MG_NO_SLOT && s->pending_uses == 0 &&
            !s->fixed && !k->fixed && readers == 1 && s->block.bytes == bytes &&
            in->layout == out->layout &&
            mg_dtype_size(in->value->dtype) == mg_dtype_size(out->value->dtype) &&
            mg_shape_equal(&in->value->shape, &out->value->shape))
            return k->in[i];
    }
    return MG_NO_SLOT;
}

/* Gives each output a slot: the memory of an external value, that of a dying input, or a new one.
 */
static mg_status bind_outputs(compiler *c, mg_program_call *k) {
    const mg_step *s = k->plan.step;
    for (int i = 0; i < k->n_in; i++) end_use(c, s->in[i]);
    for (int i = 0; i < k->n_out; i++) {
        const int layout = k->plan.out[i].layout, value = s->out[i];
        if (value < c->graph->n_external && layout == MG_ROW_MAJOR) {
            k->out[i] = c->place[value][layout];
            continue;
        }
        k->out[i] = overwritable_input(c, k, i);
        if (k->out[i] < 0) MG_TRY(new_slot(c, mg_value_bytes(k->plan.out[i].value), &k->out[i]));
        c->primary[value] = layout;
        put_value(c, value, layout, k->out[i]);
    }
    return MG_OK;
}

/* External values are row-major: adds a reorder for each that the kernel made in another layout. */
static mg_status reorder_external(compiler *c, const mg_step *s) {
    for (int i = 0; i < s->n_out; i++) {
        const int v = s->out[i], layout = c->primary[v];
        if (v < c->graph->n_external && layout != MG_ROW_MAJOR)
            MG_TRY(append_reorder(c, v, layout, c->place[v][layout], MG_ROW_MAJOR,
                                  c->place[v][MG_ROW_MAJOR]));
    }
    return MG_OK;
}

/* ---- steps without a call ---- */

static bool is_reshape(const mg_step *s) {
    return s->op && strcmp(s->op->name, "reshape") == 0;
}

/* A reshape whose result is a temporary needs no call: the result shares the input's slot. */
static bool is_free_reshape(const compiler *c, const mg_step *s) {
    return is_reshape(s) && s->out[0] >= c->graph->n_external;
}

/* Carries out a free reshape. */
static mg_status share_slot(compiler *c, const mg_step *s) {
    int index;
    MG_TRY(slot_in_layout(c, s->in[0], MG_ROW_MAJOR, &index));
    end_use(c, s->in[0]);
    c->primary[s->out[0]] = MG_ROW_MAJOR;
    put_value(c, s->out[0], MG_ROW_MAJOR, index);
    return MG_OK;
}

/* A contiguous slice of a temporary needs no call either: the result is a part of the input's slot,
 * if that part starts at an aligned *offset (bytes), as kernels expect of their operands. */
static bool is_contiguous_slice(const compiler *c, const mg_step *s, size_t *offset) {
    if (!s->op || strcmp(s->op->name, "slice") != 0 || s->out[0] < c->graph->n_external)
        return false;
    const mg_value *x = &c->graph->values[s->in[0]];
    const mg_slice_attrs *a = s->attrs;
    size_t row = mg_dtype_size(x->dtype);
    bool full = true; /* the slice has all of the axes after axis i */
    *offset = 0;
    /* `row`: bytes from one entry of axis i to the next */
    for (int i = x->shape.rank - 1; i >= 0; row *= (size_t)x->shape.dim[i--]) {
        const int64_t n = a->stop.v[i] - a->start.v[i];
        if (n <= 0 || a->step.v[i] != 1 || (n > 1 && !full)) return false;
        *offset += (size_t)a->start.v[i] * row;
        full = full && n == x->shape.dim[i];
    }
    const int index = c->place[s->in[0]][MG_ROW_MAJOR];
    return c->primary[s->in[0]] == MG_ROW_MAJOR && c->p->slots[index].external == MG_NO_SLOT &&
           *offset % PART_ALIGNMENT == 0;
}

/* Makes the result `out` a part of the input's slot. Parts of parts are parts of the whole slot. */
static mg_status share_part(compiler *c, const mg_step *s, int out, size_t offset) {
    int index;
    const int in = c->place[s->in[0]][MG_ROW_MAJOR];
    MG_TRY(new_slot(c, mg_value_bytes(&c->graph->values[out]), &index));
    c->p->slots[index].offset = c->p->slots[in].offset + offset;
    c->p->slots[index].inside = mg_program_whole_slot(c->p, in);
    c->primary[out] = MG_ROW_MAJOR;
    put_value(c, out, MG_ROW_MAJOR, index);
    return MG_OK;
}

/* Carries out a contiguous slice. */
static mg_status share_slice(compiler *c, const mg_step *s, size_t offset) {
    end_use(c, s->in[0]);
    return share_part(c, s, s->out[0], offset);
}

/* Likewise a split whose parts are contiguous and aligned. */
static bool is_contiguous_split(const compiler *c, const mg_step *s) {
    if (!s->op || strcmp(s->op->name, "split") != 0) return false;
    const mg_axis_view v = mg_axis_view_of(&c->graph->values[s->in[0]].shape,
                                           ((const mg_split_attrs *)s->attrs)->axis);
    bool fits = v.outer == 1 && c->primary[s->in[0]] == MG_ROW_MAJOR &&
                c->p->slots[c->place[s->in[0]][MG_ROW_MAJOR]].external == MG_NO_SLOT;
    for (int k = 0; k < s->n_out; k++)
        fits = fits && s->out[k] >= c->graph->n_external &&
               mg_value_bytes(&c->graph->values[s->out[k]]) % PART_ALIGNMENT == 0;
    return fits;
}

static mg_status share_parts(compiler *c, const mg_step *s) {
    end_use(c, s->in[0]);
    for (int k = 0; k < s->n_out; k++)
        MG_TRY(
            share_part(c, s, s->out[k], (size_t)k * mg_value_bytes(&c->graph->values[s->out[k]])));
    return MG_OK;
}

/* A reshape of a temporary to an external result needs no call either, if the temporary's slot can
 * become the result's memory: then the calls that made the value have written it there. Returns
 * whether this was possible. Never in the commit phase: its results go to variables, whose old
 * values are read until then. */
static bool make_in_result(compiler *c, const mg_step *s) {
    if (!is_reshape(s) || s >= c->graph->steps + c->graph->n_compute) return false;
    const int in = s->in[0], index = c->place[in][MG_ROW_MAJOR];
    const mg_slot *slot = &c->p->slots[index];
    if (c->primary[in] != MG_ROW_MAJOR || slot->external != MG_NO_SLOT || slot->inside >= 0 ||
        slot->fixed)
        return false;
    c->p->slots[index].external = s->out[0];
    c->p->slots[index].pending_uses--;
    /* Each piece of memory has exactly one slot, so that launches can see which calls depend on
     * each other. */
    c->place[s->out[0]][MG_ROW_MAJOR] = index;
    return true;
}

/* ---- the whole graph ---- */

/* The operands of a bucket, and of a multi-tensor update, become row-major before the first call of
 * the batch: no reorder may come between the calls of one launch. */
static mg_status reorder_batch(compiler *c, const mg_step *s) {
    int index;
    for (int i = 0; i < s->batch_count && s->batch_count > 1; i++)
        for (int k = 0; k < (mg_is_collective(s) ? 1 : s[i].n_in); k++)
            MG_TRY(slot_in_layout(c, s[i].in[k], MG_ROW_MAJOR, &index));
    return MG_OK;
}

/* Notes which values the step makes once for many runs: all its inputs are fixed, and no result is
 * external, since those have new memory in each run. */
static void mark_fixed(const compiler *c, const mg_step *s) {
    bool fixed = c->graph->fixed && c->p->device->api->kept_bytes && !s->loop &&
                 !mg_is_collective(s) && !(s->op && s->op->flags & MG_OP_RANDOM) &&
                 s < c->graph->steps + c->graph->n_compute;
    for (int i = 0; i < s->n_in; i++) fixed = fixed && c->fixed[s->in[i]];
    for (int i = 0; i < s->n_out; i++) fixed = fixed && s->out[i] >= c->graph->n_external;
    for (int i = 0; i < s->n_out; i++) c->fixed[s->out[i]] = fixed;
}

/* Compiles one step: first the cases that need no call, then the stages of program.h. */
static mg_status compile_step(compiler *c, const mg_step *s) {
    mg_program_call k;
    size_t offset;
    if (s->n_out == 0) return MG_OK; /* the device has merged it into another step */
    mark_fixed(c, s);
    if (is_free_reshape(c, s)) return share_slot(c, s);
    if (is_contiguous_slice(c, s, &offset)) return share_slice(c, s, offset);
    if (is_contiguous_split(c, s)) return share_parts(c, s);
    MG_TRY(reorder_batch(c, s));
    if (make_in_result(c, s)) return MG_OK;
    MG_TRY(new_call(c, s, &k));
    k.fixed = c->fixed[s->out[0]];
    mg_status status = mg_program_choose_kernel(c->p, &k);
    if (status == MG_OK) status = bind_inputs(c, &k);
    if (status == MG_OK) status = bind_outputs(c, &k);
    if (status != MG_OK) {
        mg_program_drop_call(&k);
        return status;
    }
    MG_TRY(append_call(c, &k));
    return reorder_external(c, s);
}

/* Gives the slots of the arena their offsets; slots that no call touches need none. */
static mg_status place_slots(mg_program *p) {
    mg_block **blocks = mg_alloc((size_t)(p->n_slots + 1) * sizeof *blocks);
    int n = 0;
    if (!blocks) return MG_OOM;
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].external == MG_NO_SLOT && p->slots[i].inside == MG_NO_SLOT &&
            p->slots[i].block.first >= 0 && !p->slots[i].kept)
            blocks[n++] = &p->slots[i].block;
    const mg_status status = mg_arena_assign(blocks, n, &p->arena_bytes);
    mg_free(blocks);
    return status;
}

/* What each launch computes, for profiles. A reorder reads and writes its value. */
static void estimate_launches(const compiler *c) {
    for (int i = 0; i < c->p->n_calls; i += c->p->calls[i].launch_count) {
        mg_program_call *head = &c->p->calls[i];
        for (const mg_program_call *k = head; k < head + head->launch_count; k++) {
            const mg_step *s = k->plan.step;
            const double copied = s ? 0 : 2 * (double)mg_value_bytes(k->plan.in[0].value);
            const mg_work w = s ? mg_step_work(c->graph, s) : (mg_work){.bytes = copied};
            head->flops += (float)w.flops;
            head->bytes += (float)w.bytes;
        }
    }
}

/* External values get their slots first, because steps may write to them in any order. */
static mg_status compile_all(compiler *c) {
    const mg_kernel_graph *g = c->graph;
    for (int v = 0; v < g->n_values; v++)
        for (int l = 0; l < MAX_LAYOUTS; l++) c->place[v][l] = MG_NO_SLOT;
    for (int s = 0; s < g->n_steps; s++)
        for (int i = 0; i < g->steps[s].n_in; i++) c->uses[g->steps[s].in[i]]++;
    for (int v = 0; v < g->n_external; v++) {
        int index;
        MG_TRY(mg_program_add_slot(c->p, mg_value_bytes(&g->values[v]), v, &index));
        put_value(c, v, MG_ROW_MAJOR, index);
        c->fixed[v] = g->fixed && g->fixed[v] && c->p->device->api->kept_bytes;
    }
    for (int s = 0; s < g->n_steps; s++) {
        if (s == g->n_compute) c->p->n_compute = c->p->n_calls;
        MG_TRY(mg_worker_poll());
        MG_TRY(compile_step(c, &g->steps[s]));
    }
    if (g->n_compute == g->n_steps) c->p->n_compute = c->p->n_calls;
    MG_TRY(mg_program_order_calls(c->p));
    MG_TRY(mg_program_make_launches(c->p));
    estimate_launches(c);
    mg_program_log_launches(c->p);
    mg_program_keep_slots(c->p);
    return place_slots(c->p);
}

mg_status mg_program_compile(mg_device *d, const mg_kernel_set *set, const mg_kernel_graph *graph,
                             mg_program **program) {
    mg_program *p = mg_alloc_zero(sizeof *p);
    if (!p) return MG_OOM;
    p->device = d;
    p->set = set;
    mg_kernel_graph merged = *graph; /* whose steps outlive the program */
    mg_status status = MG_OK;
    if (set->merge) {
        status = set->merge(d, graph, &p->merged);
        merged.steps = p->merged;
    }
    p->steps = merged.steps;
    compiler c = {.p = p, .graph = &merged};
    const size_t n = (size_t)graph->n_values + 1;
    c.place = mg_alloc(n * sizeof *c.place);
    c.primary = mg_alloc_zero(n * sizeof *c.primary);
    c.uses = mg_alloc_zero(n * sizeof *c.uses);
    c.fixed = mg_alloc_zero(n * sizeof *c.fixed);
    const bool allocated = c.place && c.primary && c.uses && c.fixed;
    if (status == MG_OK) status = allocated ? compile_all(&c) : MG_OOM;
    mg_free(c.place);
    mg_free(c.primary);
    mg_free(c.uses);
    mg_free(c.fixed);
    if (status != MG_OK)
        mg_program_release(p);
    else
        *program = p;
    return status;
}

/* Compiling work into kernel calls.
 *
 * A value lies in one slot per layout it has been seen in. Reshapes share the slot of their input,
 * slices take a part of it; a fused group may write over an input that dies with it. When all calls
 * are known, the temporary slots get places by their life spans. */
#include "core/alloc.h"
#include "core/log.h"
#include "device/program/calls.h"
#include "device/program/collective.h"
#include "ops/attrs.h"
#include <stdio.h>
#include <string.h>

enum { MAX_LAYOUTS = 4 };

typedef struct compiler {
    mg_program *p;
    const mg_kernel_set *set;
    const mg_kernel_graph *graph;
    int (*place)[MAX_LAYOUTS]; /* per value and layout: its slot, or MG_NO_SLOT */
    int *primary;              /* per value: the layout it was made in */
    int *uses;                 /* per value: steps that read it */
} compiler;

/* ---- slots ---- */

static mg_status new_slot(compiler *c, size_t bytes, int external, int *index) {
    mg_program *p = c->p;
    MG_TRY(mg_reserve((void **)&p->slots, p->n_slots, &p->slots_capacity, sizeof *p->slots));
    *index = p->n_slots++;
    p->slots[*index] = (mg_slot){.block = {.bytes = bytes, .first = -1, .last = -1},
                                 .external = external,
                                 .inside = MG_NO_SLOT,
                                 .pending_uses = 0};
    return MG_OK;
}

/* The slot that lives, and is read: of a part the whole. */
static int whole_of(const mg_program *p, int index) {
    return p->slots[index].inside >= 0 ? p->slots[index].inside : index;
}

static void touch(mg_program *p, int index) {
    mg_block *b = &p->slots[whole_of(p, index)].block;
    if (b->first < 0) b->first = p->n_calls;
    b->last = p->n_calls;
}

static void put_value(compiler *c, int value, int layout, int index) {
    c->place[value][layout] = index;
    c->p->slots[whole_of(c->p, index)].pending_uses += c->uses[value];
}

/* A step has read the value, as it was made. */
static void end_use(compiler *c, int value) {
    const int index = c->place[value][c->primary[value]];
    c->p->slots[whole_of(c->p, index)].pending_uses--;
}

/* ---- calls ---- */

static mg_status new_call(compiler *c, const mg_step *step, mg_program_call *made) {
    const size_t ports = (size_t)(step->n_in + step->n_out);
    mg_port *block = mg_alloc_zero(ports * (sizeof(mg_port) + sizeof(int)) + 1);
    if (!block) return MG_OOM;
    *made = (mg_program_call){.n_in = step->n_in, .n_out = step->n_out, .scratch = MG_NO_SLOT};
    made->in = (int *)(block + ports);
    made->out = made->in + step->n_in;
    made->plan = (mg_kernel_plan){
        .step = step, .in = block, .out = block + step->n_in, .device = c->p->device};
    for (int i = 0; i < step->n_in; i++) made->plan.in[i].value = &c->graph->values[step->in[i]];
    for (int i = 0; i < step->n_out; i++) {
        made->plan.out[i].value = &c->graph->values[step->out[i]];
        if (step->out[i] < c->graph->n_external) made->plan.out_external = true;
    }
    return MG_OK;
}

static mg_status append_call(compiler *c, mg_program_call *k) {
    mg_program *p = c->p;
    mg_status status =
        mg_reserve((void **)&p->calls, p->n_calls, &p->calls_capacity, sizeof *p->calls);
    if (status == MG_OK && k->plan.scratch)
        status = new_slot(c, k->plan.scratch, MG_NO_SLOT, &k->scratch);
    if (status != MG_OK) {
        mg_program_drop_call(k);
        return status;
    }
    for (int i = 0; i < k->n_in; i++) touch(p, k->in[i]);
    for (int i = 0; i < k->n_out; i++) touch(p, k->out[i]);
    if (k->scratch >= 0) touch(p, k->scratch);
    p->calls[p->n_calls++] = *k;
    return MG_OK;
}

/* A call that copies value from one layout to another, slot to slot. */
static mg_status append_reorder(compiler *c, int value, int from_layout, int from, int to_layout,
                                int to) {
    const mg_step step = {.n_in = 1, .n_out = 1, .in = &value, .out = &value};
    mg_program_call k;
    MG_TRY(new_call(c, &step, &k));
    k.plan.step = NULL; /* a reorder has ports only */
    k.kernel = c->set->reorder;
    k.plan.in[0].layout = from_layout;
    k.plan.out[0].layout = to_layout;
    k.in[0] = from;
    k.out[0] = to;
    const mg_status status = k.kernel->prepare ? k.kernel->prepare(&k.plan) : MG_OK;
    if (status == MG_OK) return append_call(c, &k);
    mg_program_drop_call(&k);
    return status;
}

/* The slot where value lies in `layout`, reordering into a new one at first
 * need. */
static mg_status slot_in_layout(compiler *c, int value, int layout, int *index) {
    *index = c->place[value][layout];
    if (*index >= 0) return MG_OK;
    const int from = c->primary[value];
    const size_t bytes = mg_value_bytes(&c->graph->values[value]);
    MG_TRY(new_slot(c, bytes, MG_NO_SLOT, index));
    c->p->slots[*index].pending_uses = 1 << 20; /* a copy: readers are not counted */
    c->place[value][layout] = *index;
    return append_reorder(c, value, from, c->place[value][from], layout, *index);
}

/* ---- choosing a kernel ---- */

static bool handles(const mg_kernel *k, const mg_step *s) {
    if (!k->op) return true;
    return strcmp(k->op, s->op ? s->op->name : "fused") == 0;
}

static void set_ports(const compiler *c, mg_program_call *k) {
    const mg_step *s = k->plan.step;
    for (int i = 0; i < s->n_in; i++)
        k->plan.in[i].layout = c->set->row_major ? MG_ROW_MAJOR : c->primary[s->in[i]];
    for (int i = 0; i < s->n_out; i++) k->plan.out[i].layout = MG_ROW_MAJOR;
}

static const char *describe_step(const mg_kernel_plan *plan, char *text, size_t size) {
    const mg_step *s = plan->step;
    int n = snprintf(text, size, "%s", s->op ? s->op->name : "fused");
    for (int i = 0; i < s->n_in && n > 0 && (size_t)n < size; i++)
        n += snprintf(text + n, size - (size_t)n, " %s%s", mg_dtype_name(plan->in[i].value->dtype),
                      MG_SHAPE_TEXT(&plan->in[i].value->shape));
    return text;
}

/* A kernel that finds out only when it prepares that it cannot: the next one's turn. */
static void pass_over(mg_program_call *k) {
    if (mg_log_on("dispatch")) mg_log("dispatch", "%s: %s", k->kernel->name, mg_error_message());
    if (k->plan.state && k->kernel->release) k->kernel->release(k->plan.state);
    k->plan.state = NULL;
    k->plan.scratch = 0;
    k->plan.overwrites = 0;
    mg_error_clear();
}

static mg_status choose_kernel(const compiler *c, mg_program_call *k) {
    char text[512];
    if (mg_is_collective(k->plan.step)) {
        set_ports(c, k);
        for (int i = 0; i < k->n_in; i++) k->plan.in[i].layout = MG_ROW_MAJOR;
        k->kernel = &mg_collective_kernel;
        return MG_OK;
    }
    const bool log = mg_log_on("dispatch");
    for (const mg_kernel *const *candidate = c->set->kernels; *candidate; candidate++) {
        if (!handles(*candidate, k->plan.step)) continue;
        set_ports(c, k);
        const char *refusal = (*candidate)->accepts ? (*candidate)->accepts(&k->plan) : NULL;
        if (log)
            mg_log("dispatch", "%s: %s: %s%s%s", c->p->device->name,
                   describe_step(&k->plan, text, sizeof text), (*candidate)->name,
                   refusal ? " refuses: " : "", refusal ? refusal : "");
        if (refusal) continue;
        k->kernel = *candidate;
        const mg_status status = (*candidate)->prepare ? (*candidate)->prepare(&k->plan) : MG_OK;
        if (status != MG_UNSUPPORTED) return status;
        pass_over(k);
    }
    if (c->set->kernels[0] && mg_log_on("fallback"))
        mg_log("fallback", "%s: reference kernel for %s", c->p->device->name,
               describe_step(&k->plan, text, sizeof text));
    set_ports(c, k);
    k->kernel = c->set->last_resort ? c->set->last_resort : &mg_reference_kernel;
    return k->kernel->prepare(&k->plan);
}

/* ---- steps ---- */

static mg_status bind_inputs(compiler *c, mg_program_call *k) {
    for (int i = 0; i < k->n_in; i++)
        MG_TRY(slot_in_layout(c, k->plan.step->in[i], k->plan.in[i].layout, &k->in[i]));
    return MG_OK;
}

/* An input whose slot output `o` may take over: read by nobody else, ever. */
static int dying_input(const compiler *c, const mg_program_call *k, int o) {
    const mg_port *out = &k->plan.out[o];
    const size_t bytes = mg_value_bytes(out->value);
    for (int i = 0; i < k->n_in; i++) {
        if (!k->plan.step->fused && (i >= 32 || !(k->plan.overwrites >> i & 1))) continue;
        const mg_port *in = &k->plan.in[i];
        const mg_slot *s = &c->p->slots[k->in[i]];
        int readers = 0;
        for (int j = 0; j < k->n_in; j++) readers += whole_of(c->p, k->in[j]) == k->in[i];
        for (int j = 0; j < o; j++) readers += k->out[j] == k->in[i];
        if (s->external == MG_NO_SLOT && s->inside == MG_NO_SLOT && s->pending_uses == 0 &&
            readers == 1 && s->block.bytes == bytes && in->layout == out->layout &&
            mg_dtype_size(in->value->dtype) == mg_dtype_size(out->value->dtype) &&
            mg_shape_equal(&in->value->shape, &out->value->shape))
            return k->in[i];
    }
    return MG_NO_SLOT;
}

static mg_status bind_outputs(compiler *c, mg_program_call *k) {
    const mg_step *s = k->plan.step;
    for (int i = 0; i < k->n_in; i++) end_use(c, s->in[i]);
    for (int i = 0; i < k->n_out; i++) {
        const int layout = k->plan.out[i].layout, value = s->out[i];
        if (value < c->graph->n_external && layout == MG_ROW_MAJOR) {
            k->out[i] = c->place[value][layout];
            continue;
        }
        k->out[i] = dying_input(c, k, i);
        if (k->out[i] < 0)
            MG_TRY(new_slot(c, mg_value_bytes(k->plan.out[i].value), MG_NO_SLOT, &k->out[i]));
        c->primary[value] = layout;
        put_value(c, value, layout, k->out[i]);
    }
    return MG_OK;
}

/* External values are row-major: bring home what a kernel made in another
 * layout. */
static mg_status bring_home(compiler *c, const mg_step *s) {
    for (int i = 0; i < s->n_out; i++) {
        const int v = s->out[i], layout = c->primary[v];
        if (v < c->graph->n_external && layout != MG_ROW_MAJOR)
            MG_TRY(append_reorder(c, v, layout, c->place[v][layout], MG_ROW_MAJOR,
                                  c->place[v][MG_ROW_MAJOR]));
    }
    return MG_OK;
}

/* A reshape of a temporary to a temporary is no work at all. */
static bool is_free_reshape(const compiler *c, const mg_step *s) {
    return s->op && strcmp(s->op->name, "reshape") == 0 && s->out[0] >= c->graph->n_external;
}

static mg_status share_slot(compiler *c, const mg_step *s) {
    int index;
    MG_TRY(slot_in_layout(c, s->in[0], MG_ROW_MAJOR, &index));
    end_use(c, s->in[0]);
    c->primary[s->out[0]] = MG_ROW_MAJOR;
    put_value(c, s->out[0], MG_ROW_MAJOR, index);
    return MG_OK;
}

/* Nor is a slice whose elements lie in a row: a part of the slot, at an aligned place. */
static bool is_part(const compiler *c, const mg_step *s, size_t *offset) {
    enum { ALIGNED = 64 };
    if (!s->op || strcmp(s->op->name, "slice") != 0 || s->out[0] < c->graph->n_external)
        return false;
    const mg_value *x = &c->graph->values[s->in[0]];
    const mg_slice_attrs *a = s->attrs;
    size_t row = mg_dtype_size(x->dtype);
    bool full = true; /* the axes behind this one */
    *offset = 0;
    for (int i = x->shape.rank - 1; i >= 0; row *= (size_t)x->shape.dim[i--]) {
        const int64_t n = a->stop.v[i] - a->start.v[i];
        if (n <= 0 || a->step.v[i] != 1 || (n > 1 && !full)) return false;
        *offset += (size_t)a->start.v[i] * row;
        full = full && n == x->shape.dim[i];
    }
    const int index = c->place[s->in[0]][MG_ROW_MAJOR];
    return c->primary[s->in[0]] == MG_ROW_MAJOR && c->p->slots[index].external == MG_NO_SLOT &&
           *offset % ALIGNED == 0;
}

static mg_status share_part(compiler *c, const mg_step *s, size_t offset) {
    int index;
    const int in = c->place[s->in[0]][MG_ROW_MAJOR], out = s->out[0];
    MG_TRY(new_slot(c, mg_value_bytes(&c->graph->values[out]), MG_NO_SLOT, &index));
    c->p->slots[index].offset = c->p->slots[in].offset + offset;
    c->p->slots[index].inside = whole_of(c->p, in);
    end_use(c, s->in[0]);
    c->primary[out] = MG_ROW_MAJOR;
    put_value(c, out, MG_ROW_MAJOR, index);
    return MG_OK;
}

/* Nor is the reshape of a temporary to a result: the temporary is made in the result's
 * memory, which nothing else uses. (What is committed goes to variables, whose
 * old values are still read.) */
static bool make_in_result(compiler *c, const mg_step *s) {
    if (!s->op || strcmp(s->op->name, "reshape") != 0 || s >= c->graph->steps + c->graph->n_compute)
        return false;
    const int in = s->in[0], index = c->place[in][MG_ROW_MAJOR];
    const mg_slot *slot = &c->p->slots[index];
    if (c->primary[in] != MG_ROW_MAJOR || slot->external != MG_NO_SLOT || slot->inside >= 0)
        return false;
    c->p->slots[index].external = s->out[0];
    c->p->slots[index].pending_uses--;
    c->place[s->out[0]][MG_ROW_MAJOR] = index; /* one place, one slot: who reads it is seen */
    return true;
}

static mg_status compile_step(compiler *c, const mg_step *s) {
    mg_program_call k;
    int index;
    if (s->n_out == 0) return MG_OK; /* another one does its work */
    size_t offset;
    if (is_free_reshape(c, s)) return share_slot(c, s);
    if (is_part(c, s, &offset)) return share_part(c, s, offset);
    for (int i = 0; i < s->batch_count && mg_is_collective(s);
         i++) /* no reorders among a bucket's calls */
        MG_TRY(slot_in_layout(c, s[i].in[0], MG_ROW_MAJOR, &index));
    if (make_in_result(c, s)) return MG_OK;
    MG_TRY(new_call(c, s, &k));
    mg_status status = choose_kernel(c, &k);
    if (status == MG_OK) status = bind_inputs(c, &k);
    if (status == MG_OK) status = bind_outputs(c, &k);
    if (status != MG_OK) {
        mg_program_drop_call(&k);
        return status;
    }
    MG_TRY(append_call(c, &k));
    return bring_home(c, s);
}

static mg_status place_slots(mg_program *p) {
    mg_block **blocks = mg_alloc((size_t)(p->n_slots + 1) * sizeof *blocks);
    int n = 0;
    if (!blocks) return MG_OOM;
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].external == MG_NO_SLOT && p->slots[i].inside == MG_NO_SLOT &&
            p->slots[i].block.first >= 0)
            blocks[n++] = &p->slots[i].block;
    const mg_status status = mg_arena_assign(blocks, n, &p->arena_bytes);
    mg_free(blocks);
    return status;
}

/* ---- calls that run as one ---- */

static bool has_slot(const mg_program *p, const int *slots, int n, int index) {
    for (int i = 0; i < n; i++)
        if (whole_of(p, slots[i]) == whole_of(p, index)) return true;
    return false;
}

/* Whether one of the calls writes what the other reads or writes. */
static bool interfere(const mg_program *p, const mg_program_call *a, const mg_program_call *b) {
    for (int o = 0; o < a->n_out; o++)
        if (has_slot(p, b->in, b->n_in, a->out[o]) || has_slot(p, b->out, b->n_out, a->out[o]))
            return true;
    for (int o = 0; o < b->n_out; o++)
        if (has_slot(p, a->in, a->n_in, b->out[o])) return true;
    return false;
}

/* From `first` on, before `end`. */
static int count_together(const mg_program *p, int first, int end) {
    int n = 1;
    if (p->calls[first].kernel == &mg_collective_kernel)
        return p->calls[first].plan.step->batch_count;
    if (!p->calls[first].kernel->run_many) return 1;
    int ports = p->calls[first].n_in + p->calls[first].n_out;
    for (; n < MG_MAX_LAUNCH && first + n < end; n++) {
        const mg_program_call *next = &p->calls[first + n];
        ports += next->n_in + next->n_out;
        if (next->kernel != p->calls[first].kernel || ports > MG_MOST_POINTERS) return n;
        if (next->kernel->batched_only && next->plan.step->batch_count) return n;
        for (int i = first; i < first + n; i++)
            if (interfere(p, &p->calls[i], next)) return n;
    }
    return n;
}

static void widen_life(mg_program *p, int index, int first, int last) {
    mg_slot *s = &p->slots[whole_of(p, index)];
    if (s->block.first > first) s->block.first = first;
    if (s->block.last < last) s->block.last = last;
}

/* What lives during one of the calls lives during all, and their scratch is the
 * first one's. */
static mg_status live_together(compiler *c, int first, int n) {
    mg_program *p = c->p;
    const mg_kernel_plan *plans[MG_MAX_LAUNCH];
    for (int i = 0; i < n; i++) {
        mg_program_call *k = &p->calls[first + i];
        plans[i] = &k->plan;
        for (int s = 0; s < k->n_in; s++) widen_life(p, k->in[s], first, first + n - 1);
        for (int s = 0; s < k->n_out; s++) widen_life(p, k->out[s], first, first + n - 1);
        if (k->scratch >= 0) p->slots[k->scratch].block.bytes = 0;
        k->scratch = MG_NO_SLOT;
    }
    if (p->calls[first].kernel == &mg_collective_kernel) return MG_OK;
    const size_t bytes = p->calls[first].kernel->scratch_many(plans, n);
    int *scratch = &p->calls[first].scratch;
    MG_TRY(new_slot(c, bytes, MG_NO_SLOT, scratch));
    p->slots[*scratch].block.first = first;
    p->slots[*scratch].block.last = first + n - 1;
    return MG_OK;
}

/* Groups in a row, such as the updates of variables, become one call where they
 * can. */
static mg_status join_calls(compiler *c) {
    mg_program *p = c->p;
    for (int i = 0; i < p->n_calls; i += p->calls[i].launch_count) {
        const int n = count_together(p, i, i < p->n_compute ? p->n_compute : p->n_calls);
        p->calls[i].launch_count = n;
        if (n > 1) MG_TRY(live_together(c, i, n));
    }
    return MG_OK;
}

static mg_status compile_all(compiler *c) {
    const mg_kernel_graph *w = c->graph;
    for (int v = 0; v < w->n_values; v++)
        for (int l = 0; l < MAX_LAYOUTS; l++) c->place[v][l] = MG_NO_SLOT;
    for (int s = 0; s < w->n_steps; s++)
        for (int i = 0; i < w->steps[s].n_in; i++) c->uses[w->steps[s].in[i]]++;
    for (int v = 0; v < w->n_external; v++) {
        int index;
        MG_TRY(new_slot(c, mg_value_bytes(&w->values[v]), v, &index));
        put_value(c, v, MG_ROW_MAJOR, index);
    }
    for (int s = 0; s < w->n_steps; s++) {
        if (s == w->n_compute) c->p->n_compute = c->p->n_calls;
        MG_TRY(compile_step(c, &w->steps[s]));
    }
    if (w->n_compute == w->n_steps) c->p->n_compute = c->p->n_calls;
    MG_TRY(join_calls(c));
    return place_slots(c->p);
}

mg_status mg_program_compile(mg_device *d, const mg_kernel_set *set, const mg_kernel_graph *graph,
                             mg_program **program) {
    mg_program *p = mg_alloc_zero(sizeof *p);
    if (!p) return MG_OOM;
    p->device = d;
    p->set = set;
    p->steps = graph->steps;
    compiler c = {.p = p, .set = set, .graph = graph};
    const size_t n = (size_t)graph->n_values + 1;
    c.place = mg_alloc(n * sizeof *c.place);
    c.primary = mg_alloc_zero(n * sizeof *c.primary);
    c.uses = mg_alloc_zero(n * sizeof *c.uses);
    mg_status status = c.place && c.primary && c.uses ? compile_all(&c) : MG_OOM;
    mg_free(c.place);
    mg_free(c.primary);
    mg_free(c.uses);
    if (status != MG_OK)
        mg_program_release(p);
    else
        *program = p;
    return status;
}

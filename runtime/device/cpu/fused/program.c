/* Fused element-wise groups: translates instructions to the steps of threaded code
 * (simd/fused_threaded.h).
 *
 * The strip in the registers holds one operand at a time. If it holds an operand of the next
 * instruction, the instruction takes it from there; otherwise one operand is loaded into the strip.
 * The other operands are read from memory, in the registers' dtype. An input of another dtype is
 * converted by the load; if an instruction reads it from memory, the first steps convert a strip of
 * it. */
#include "device/cpu/fused/fused.h"
#include <string.h>

/* What is known of an operand before the steps are written. */
typedef struct operand_use {
    bool
        from_memory; /* an instruction reads it from memory while the strip holds another operand */
    bool loaded;     /* it is loaded into the strip */
    int last;        /* the last instruction that reads it from memory or loads it */
    int readers;     /* how often instructions read it */
} operand_use;

typedef struct writer {
    mg_fused_state *s;
    const mg_kernel_plan *plan;
    const mg_fused *e;
    operand_use use[MG_FUSED_OPERANDS];
    int strip_arg[MG_FUSE_MAX_INSTRS]; /* which of its operands is in the strip */
    bool loads[MG_FUSE_MAX_INSTRS];    /* whether that operand must be loaded */
    int output[MG_FUSE_MAX_INSTRS];    /* the output that is its result, or -1 */
    int32_t bytes;                     /* of scratch memory given so far */
} writer;

/* ---- which operand of each instruction the strip is ---- */

/* Whether an operand is an input that a load converts. */
static bool is_converted(const writer *w, int operand) {
    return operand < w->e->n_inputs && w->e->in_dtype[operand] != w->s->real &&
           (w->s->access[operand] == MG_READ_IN_PLACE || w->s->access[operand] == MG_READ_GATHERED);
}

/* Whether all elements of a tile are the same number. */
static bool is_one(const writer *w, int operand) {
    return operand < w->e->n_inputs ? w->s->access[operand] == MG_READ_ONE
                                    : operand < mg_fused_result(w->e, 0);
}

/* The operand to load: one that must be converted, or else one that is not a single number, because
 * single numbers can be read from memory by forms of the ops. */
static int best_to_load(const writer *w, const mg_instr *instr) {
    for (int k = 0; k < instr->n_args; k++)
        if (is_converted(w, instr->arg[k])) return k;
    for (int k = 0; k < instr->n_args; k++)
        if (!is_one(w, instr->arg[k])) return k;
    return 0;
}

/* Decides which operands are loaded and which are read from memory. */
static void plan_strip(writer *w) {
    const mg_fused *e = w->e;
    for (int i = 0; i < e->n_instrs; i++) {
        const mg_instr *instr = &e->instr[i];
        const int held = i ? mg_fused_result(e, i - 1) : -1;
        int it = 0;
        while (it < instr->n_args && instr->arg[it] != held) it++;
        w->loads[i] = it == instr->n_args;
        if (w->loads[i]) it = best_to_load(w, instr);
        w->strip_arg[i] = it;
        for (int k = 0; k < instr->n_args; k++) {
            operand_use *use = &w->use[instr->arg[k]];
            use->readers++;
            if (k == it && !w->loads[i]) continue;
            *(k == it ? &use->loaded : &use->from_memory) = true;
            use->last = i;
        }
    }
    for (int i = 0; i < e->n_instrs; i++) w->output[i] = -1;
    for (int o = 0; o < e->n_outputs; o++) w->output[e->output[o] - mg_fused_result(e, 0)] = o;
}

/* ---- places in scratch memory ---- */

/* Allocates scratch memory in whole cache lines. */
static int32_t take(writer *w, int64_t bytes) {
    const int32_t at = w->bytes;
    w->bytes += (int32_t)((bytes + MG_LINE - 1) / MG_LINE * MG_LINE);
    return at;
}

/* Bytes of scratch memory that an input needs; 0: it is read in place. */
static int64_t input_bytes(const writer *w, int i) {
    const mg_fused_state *s = w->s;
    switch (s->access[i]) {
    case MG_READ_ONE: return s->copies * (int64_t)s->width;
    case MG_READ_ROW: return (s->period + s->threaded->strip) * (int64_t)s->width;
    case MG_READ_GATHERED:
        return s->rows * s->columns * (int64_t)mg_dtype_size((mg_dtype)w->e->in_dtype[i]);
    default: return 0;
    }
}

/* The last instruction that reads a result from scratch memory; -1: it is not kept there. A result
 * that may have to be stored late is kept to the end. */
static int kept_until(const writer *w, int i) {
    const operand_use *use = &w->use[mg_fused_result(w->e, i)];
    if (w->output[i] >= 0 && w->s->late[w->output[i]]) return w->e->n_instrs;
    return use->from_memory || use->loaded ? use->last : -1;
}

/* Places for inputs, immediates and converted inputs, and for results, which share strips. */
static void give_places(writer *w) {
    const mg_fused *e = w->e;
    mg_fused_state *s = w->s;
    int32_t unused[MG_FUSE_MAX_INSTRS];
    int n_unused = 0, until[MG_FUSE_MAX_INSTRS];
    for (int k = 0; k < MG_FUSED_OPERANDS; k++) s->place[k] = s->pad[k] = -1;
    for (int i = 0; i < e->n_inputs; i++) {
        const int64_t bytes = input_bytes(w, i);
        if (bytes) s->place[i] = take(w, bytes);
        if (is_converted(w, i) && w->use[i].from_memory)
            s->place[mg_fused_converted(e, i)] = take(w, MG_STRIP_BYTES);
    }
    for (int i = 0; i < e->n_imms; i++)
        s->place[e->n_inputs + i] = take(w, s->copies * (int64_t)s->width);
    for (int i = 0; i < e->n_instrs; i++) {
        for (int k = 0; k < i; k++) /* strips whose last reader was the instruction before */
            if (until[k] == i - 1) unused[n_unused++] = s->place[mg_fused_result(e, k)];
        until[i] = kept_until(w, i);
        if (until[i] < 0) continue;
        s->place[mg_fused_result(e, i)] = n_unused ? unused[--n_unused] : take(w, MG_STRIP_BYTES);
    }
}

/* A pad for each operand that advances through memory. */
static void give_pads(writer *w) {
    const mg_fused *e = w->e;
    for (int i = 0; i < e->n_inputs; i++)
        if (w->s->access[i] == MG_READ_IN_PLACE || w->s->access[i] == MG_READ_GATHERED)
            w->s->pad[i] = take(w, MG_STRIP_BYTES);
    for (int o = 0; o < e->n_outputs; o++) {
        w->s->pad[mg_fused_output(e, o)] = take(w, MG_STRIP_BYTES);
        w->s->pad[e->output[o]] = take(w, MG_STRIP_BYTES);
    }
}

/* ---- steps ---- */

/* Adds a step that works on an operand. */
static mg_fused_step *add_step(writer *w, mg_threaded_code *code, int operand) {
    mg_fused_step *step = &w->s->step[w->s->n_steps++];
    *step = (mg_fused_step){.code = code, .operand = (int16_t)operand};
    return step;
}

/* The number under which instructions read an operand from memory. */
static int in_memory(const writer *w, int operand) {
    return is_converted(w, operand) && w->use[operand].from_memory
               ? mg_fused_converted(w->e, operand)
               : operand;
}

/* Loads an operand into the strip. */
static void add_load(writer *w, int operand) {
    const int from = in_memory(w, operand);
    const bool converts = from == operand && is_converted(w, operand);
    const mg_dtype type = converts ? (mg_dtype)w->e->in_dtype[operand] : w->s->real;
    add_step(w, w->s->threaded->load[type], from);
}

/* Converts a strip of each input that instructions read from memory in another dtype. */
static void convert_inputs(writer *w) {
    for (int i = 0; i < w->e->n_inputs; i++) {
        if (!is_converted(w, i) || !w->use[i].from_memory) continue;
        add_step(w, w->s->threaded->load[w->e->in_dtype[i]], i);
        add_step(w, w->s->threaded->store[w->s->real], mg_fused_converted(w->e, i));
    }
}

/* The steps of the instruction itself. */
static void add_op(writer *w, const mg_instr *instr, int it) {
    mg_threaded_code *const *op = w->s->threaded->op[instr->op];
    if (instr->op == MG_EW_cast || instr->op == MG_EW_stop_gradient) return; /* the result is x */
    if (instr->n_args == 1) {
        add_step(w, op[0], instr->arg[0]);
    } else if (instr->n_args == 2) {
        const int other = instr->arg[1 - it];
        const bool one = is_one(w, other);
        add_step(w,
                 op[it    ? one ? MG_FROM_ONE : MG_FROM
                    : one ? MG_WITH_ONE
                          : MG_WITH],
                 in_memory(w, other));
    } else { /* two steps, of which the second only carries an address */
        add_step(w, op[it], in_memory(w, instr->arg[it == 0]));
        add_step(w, NULL, in_memory(w, instr->arg[it == 2 ? 1 : 2]));
    }
}

/* Stores the result of instruction i where it is needed. Operand `result` is the output's memory if
 * that has the registers' dtype and is stored early, and a strip in scratch memory otherwise. */
static void add_stores(writer *w, int i) {
    const int result = mg_fused_result(w->e, i), o = w->output[i];
    mg_threaded_code *const *store = w->s->threaded->store;
    const bool again = w->use[result].from_memory || w->use[result].loaded;
    const mg_dtype type = o < 0 ? w->s->real : w->plan->out[o].value->dtype;
    if (type != w->s->real) {
        mg_fused_step *step = add_step(w, store[type], mg_fused_output(w->e, o));
        if (w->s->late[o]) step->when = (int8_t)(o + 1);
        if (!again && !w->s->late[o]) return;
        step = add_step(w, store[w->s->real], result);
        if (!again) step->when = (int8_t)(-o - 1);
    } else if (o >= 0 || again) {
        add_step(w, store[type], result)->may_stream = o >= 0 && !again;
    }
}

/* Rounds the result if another instruction reads it; a store rounds by itself. */
static void add_rounding(writer *w, int i) {
    const mg_instr *instr = &w->e->instr[i];
    if (mg_fused_rounds(instr, w->e->wide) && w->use[mg_fused_result(w->e, i)].readers)
        add_step(w, w->s->threaded->round[instr->dtype], mg_fused_result(w->e, i));
}

/* Stores the outputs that had to wait until all inputs were read. */
static void add_late_stores(writer *w) {
    for (int o = 0; o < w->e->n_outputs; o++) {
        if (!w->s->late[o]) continue;
        const mg_dtype type = w->plan->out[o].value->dtype;
        add_step(w, w->s->threaded->load[w->s->real], w->e->output[o])->when = (int8_t)(-o - 1);
        add_step(w, w->s->threaded->store[type], mg_fused_output(w->e, o))->when = (int8_t)(-o - 1);
    }
}

/* Outputs whose memory may hold an input that a later instruction reads. */
static void find_late(mg_fused_state *s, const mg_fused *e) {
    for (int o = 0; o < e->n_outputs; o++)
        for (int i = e->output[o] - mg_fused_result(e, 0) + 1; i < e->n_instrs; i++)
            for (int k = 0; k < e->instr[i].n_args; k++)
                s->late[o] |= e->instr[i].arg[k] < e->n_inputs;
}

void mg_fused_write(mg_fused_state *s, const mg_kernel_plan *plan) {
    writer w = {.s = s, .plan = plan, .e = plan->step->fused};
    find_late(s, w.e);
    plan_strip(&w);
    give_places(&w);
    give_pads(&w);
    convert_inputs(&w);
    for (int i = 0; i < w.e->n_instrs; i++) {
        const mg_instr *instr = &w.e->instr[i];
        if (w.loads[i]) add_load(&w, instr->arg[w.strip_arg[i]]);
        add_op(&w, instr, w.strip_arg[i]);
        add_rounding(&w, i);
        add_stores(&w, i);
    }
    add_late_stores(&w);
    add_step(&w, s->threaded->end, w.e->output[0]);
    s->thread_bytes = (size_t)w.bytes;
}

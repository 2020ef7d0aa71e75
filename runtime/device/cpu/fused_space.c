/* Fused element-wise groups: the iteration space and its tiles, passes, registers.
 *
 * Axes that all operands step through alike are merged; the last one or two make a tile. A register
 * is used again as soon as no later instruction reads it, so that few registers, and longer tiles,
 * fit into the first-level cache. */
#include "device/cpu/fused.h"
#include "core/alloc.h"
#include "device/axes.h"

/* Elements of a tile, and the bytes of the first-level cache that a tile of loops may take. */
enum {
    TILE = 1024,          /* loops at most; threaded code over two axes */
    THREADED_TILE = 2048, /* threaded code over one axis, with inputs that are rearranged */
    LONG_TILE = 8192,     /* threaded code that reads all inputs in place */
    LEAST_TILE = 256,
    STREAMED_TILE = 192, /* loops past the caches with three or more inputs in place */
    CACHE = 16 << 10
};

/* ---- the iteration space ---- */

/* The axes of the output, and each input's strides over them. */
static void output_axes(mg_fused_state *s, const mg_kernel_plan *plan) {
    const mg_shape *shape = &plan->out[0].value->shape;
    s->rank = shape->rank;
    for (int k = 0; k < s->rank; k++) s->dim[k] = shape->dim[k];
    for (int i = 0; i < plan->step->n_in; i++)
        mg_shape_strides(&plan->in[i].value->shape, shape, s->stride[i]);
}

/* Merges axes; leaves at least one. */
static void merge_axes(mg_fused_state *s, int n_in) {
    int64_t *strides[MG_FUSE_MAX_INPUTS];
    for (int i = 0; i < n_in; i++) strides[i] = s->stride[i];
    s->rank = mg_axes_merge(s->rank, s->dim, strides, n_in);
    if (s->rank > 0) return;
    s->rank = 1;
    s->dim[0] = 1;
    for (int i = 0; i < n_in; i++) s->stride[i][0] = 0;
}

/* The elements of a tile. Threaded code holds little more than strips, if it reads everything in
 * place, so its tiles may be long; with two axes, tiles of one long row are best, where a row is
 * read in place and a column is one number.
 *
 * For loops, a tile's share of all operands should fit into the first-level cache, but short tiles
 * make calls show. Arrays mostly start at a page, so operands read in place, and what is prefetched
 * of them, compete for the same sets of that cache: with three or more of them that go past the
 * caches, only short tiles leave room for the registers (in the caches, short tiles would lose up
 * to a fifth). */
static int64_t tile_size(const mg_fused_state *s, int n_in) {
    int in_place = 0;
    for (int i = 0; i < n_in; i++) in_place += s->reg[i] < 0;
    if (s->single_pass && s->rank == 1) return in_place == n_in ? LONG_TILE : THREADED_TILE;
    if (s->single_pass) return TILE;
    if (s->past_caches && in_place >= 3) return STREAMED_TILE;
    const int64_t n = CACHE / ((s->n_registers + n_in) * (int64_t)s->width) / MG_STRIP * MG_STRIP;
    return n > TILE ? TILE : n < LEAST_TILE ? LEAST_TILE : n;
}

/* A tile is part of the last axis if that is long, otherwise several rows of it. A single axis gets
 * one of size 1 in front. */
static void cut_tiles(mg_fused_state *s, int n_in) {
    const int64_t last = s->dim[s->rank - 1], size = tile_size(s, n_in);
    if (s->rank == 1 || last >= size / 2) {
        for (int i = 0; i < n_in; i++) {
            s->stride[i][s->rank] = s->stride[i][s->rank - 1];
            s->stride[i][s->rank - 1] = 0;
        }
        s->dim[s->rank] = last;
        s->dim[s->rank - 1] = 1;
        s->rank++;
        s->rows = 1;
        s->columns = last < size ? last : size;
        s->pieces = (last + s->columns - 1) / s->columns;
    } else {
        const int64_t rows = s->dim[s->rank - 2];
        s->columns = last;
        s->rows = size / last < rows ? size / last : rows;
        int64_t even = 1; /* rows that are whole strips */
        while (even * last % MG_STRIP) even *= 2;
        if (s->rows > even) s->rows -= s->rows % even;
        s->pieces = (rows + s->rows - 1) / s->rows;
    }
    s->outer = 1;
    for (int k = 0; k < s->rank - 2; k++) s->outer *= s->dim[k];
    s->length = (s->rows * s->columns + MG_LANES - 1) / MG_LANES * MG_LANES;
    if (s->length < MG_STRIP) s->length = MG_STRIP;
}

/* ---- passes ---- */

/* The operand number of the result of instruction i: inputs come first, then immediates. */
static int result_of(const mg_fused *e, int i) {
    return e->n_inputs + e->n_imms + i;
}

/* How often an instruction reads an operand. */
static int times_read(const mg_instr *instr, int operand) {
    int n = 0;
    for (int a = 0; a < instr->n_args; a++) n += instr->arg[a] == operand;
    return n;
}

/* Threaded code computes in float32 and does not round results. */
static bool may_thread(const mg_fused *e, int i) {
    return !e->wide && !mg_fused_rounds(&e->instr[i], false);
}

/* Consecutive instructions become threaded code where it pays: three or more; two only if they are
 * the whole group, because threaded code costs more per tile, and tiles are short where there are
 * loops as well; a single one only if its result is stored past the caches, which threaded code
 * does directly. */
static void choose_passes(mg_fused_state *s, const mg_fused *e) {
    const int least = e->n_instrs > 2 ? 3 : e->n_instrs == 2 || !s->past_caches ? 2 : 1;
    for (int i = 0, end; i < e->n_instrs; i = end) {
        for (end = i + 1; end < e->n_instrs && may_thread(e, i) && may_thread(e, end);) end++;
        if (end - i < least) end = i + 1;
        s->pass[s->n_passes++] = (mg_fused_pass){.from = i, .to = end};
    }
    s->single_pass = s->n_passes == 1 && e->n_instrs >= least && may_thread(e, 0);
}

/* Whether instruction i takes the result of the one before from the strip in the vector registers.
 */
static bool is_handed(const mg_fused_pass *pass, const mg_fused *e, int i) {
    return i > pass->from && i < pass->to && times_read(&e->instr[i], result_of(e, i - 1)) == 1;
}

/* Who reads a result, besides the next instruction: nobody, the same threaded code, or others. */
typedef enum wanted { NOWHERE, INSIDE, OUTSIDE } wanted;

/* Counts the readers of a result. Of the same threaded code, the next instruction does not count if
 * the strip is handed to it. The result of a loop is always stored. */
static wanted where_wanted(const mg_fused_pass *pass, const mg_fused *e, int i) {
    const int result = result_of(e, i);
    int inside = -is_handed(pass, e, i + 1), outside = pass->to - pass->from == 1;
    for (int k = i + 1; k < e->n_instrs; k++)
        *(k < pass->to ? &inside : &outside) += times_read(&e->instr[k], result);
    for (int o = 0; o < e->n_outputs; o++) outside += e->output[o] == result;
    return outside ? OUTSIDE : inside ? INSIDE : NOWHERE;
}

/* ---- registers ---- */

/* Whether a tile can read an input in place. */
static bool lies_ready(const mg_fused_state *s, const mg_fused *e, int i) {
    const int64_t *step = &s->stride[i][s->rank - 1];
    if (e->in_dtype[i] != (e->wide ? MG_F64 : MG_F32) || *step != 1) return false;
    return s->rank == 1 || s->rows <= 1 || step[-1] == s->columns;
}

/* The last instruction that reads each operand; outputs are kept to the end. */
static void find_last_uses(const mg_fused *e, int *last) {
    for (int i = 0; i < e->n_instrs; i++) {
        last[result_of(e, i)] = i;
        for (int k = 0; k < e->instr[i].n_args; k++) last[e->instr[i].arg[k]] = i;
    }
    for (int o = 0; o < e->n_outputs; o++) last[e->output[o]] = e->n_instrs;
}

/* Registers that are free again. Those of which threaded code uses only one strip are kept apart
 * from those as long as a tile. */
typedef struct unused_registers {
    int n, reg[MG_FUSED_OPERANDS];
} unused_registers;

/* Inputs that must be rearranged and immediates have registers of their own, because a tile may
 * find there what an earlier one left. The results of instructions share the others. */
static void give_registers(mg_fused_state *s, const mg_fused *e) {
    const int first = e->n_inputs + e->n_imms;
    int last[MG_FUSED_OPERANDS];
    wanted kind[MG_FUSE_MAX_INSTRS];
    unused_registers unused[OUTSIDE + 1] = {0};
    s->n_registers = 0;
    for (int i = 0; i < first; i++)
        s->reg[i] = i < e->n_inputs && lies_ready(s, e, i) ? -1 : (int16_t)s->n_registers++;
    find_last_uses(e, last);
    for (int n = 0, i = 0; i < e->n_instrs; i++) {
        if (i == s->pass[n].to) n++;
        const int result = first + i;
        for (int k = 0; k < e->instr[i].n_args; k++) {
            const int a = e->instr[i].arg[k];
            if (a < first || last[a] != i) continue;
            last[a] = -1; /* an operand may stand there twice */
            unused_registers *to = &unused[kind[a - first]];
            to->reg[to->n++] = s->reg[a];
        }
        kind[i] = where_wanted(&s->pass[n], e, i);
        unused_registers *from = &unused[kind[i]];
        s->reg[result] = -1;
        if (kind[i] == NOWHERE) continue;
        s->reg[result] = (int16_t)(from->n ? from->reg[--from->n] : s->n_registers++);
        if (last[result] == i) from->reg[from->n++] = s->reg[result];
    }
}

/* ---- the steps of threaded code ---- */

/* Whether all elements of a tile are the same element of the input. */
static bool is_uniform(const mg_fused_state *s, int input) {
    const int64_t *step = &s->stride[input][s->rank - 1];
    return step[0] == 0 && (s->rows == 1 || step[-1] == 0);
}

/* Adds a step that works on an operand. */
static void add_step(mg_fused_state *s, mg_fused_pass *pass, mg_threaded_code *code, int operand,
                     const int16_t *pad) {
    s->step[s->n_steps++] = (mg_fused_step){.code = code,
                                            .operand = (int16_t)operand,
                                            .pad = pad[operand],
                                            .stores = code == s->threaded->store};
    pass->steps++;
}

/* An instruction with two operands, of which the strip holds number `it`. */
static void add_pair(mg_fused_state *s, const mg_fused *e, mg_fused_pass *pass, const int16_t *pad,
                     const mg_instr *instr, int it) {
    const int other = instr->arg[1 - it];
    const bool uniform = other < result_of(e, 0) && pad[other] < 0;
    const int form = it ? uniform ? MG_FROM_ONE : MG_FROM : uniform ? MG_WITH_ONE : MG_WITH;
    add_step(s, pass, s->threaded->op[instr->op][form], other, pad);
}

/* An instruction with three operands: two steps, of which the second only carries an address. */
static void add_triple(mg_fused_state *s, mg_fused_pass *pass, const int16_t *pad,
                       const mg_instr *instr, int it) {
    add_step(s, pass, s->threaded->op[instr->op][it], instr->arg[it == 0], pad);
    add_step(s, pass, NULL, instr->arg[it == 2 ? 1 : 2], pad);
}

/* The steps of a pass. The strip is loaded where the previous instruction's result is not the
 * operand wanted next, and stored where somebody else reads it. */
static void write_threaded_pass(mg_fused_state *s, const mg_fused *e, mg_fused_pass *pass,
                                const int16_t *pad) {
    pass->step = s->n_steps;
    for (int i = pass->from; i < pass->to; i++) {
        const mg_instr *instr = &e->instr[i];
        const bool handed = is_handed(pass, e, i);
        int it = 0;
        while (handed && instr->arg[it] != result_of(e, i - 1)) it++;
        if (!handed) add_step(s, pass, s->threaded->load, instr->arg[0], pad);
        if (instr->n_args == 1)
            add_step(s, pass, s->threaded->op[instr->op][0], instr->arg[0], pad);
        if (instr->n_args == 2) add_pair(s, e, pass, pad, instr, it);
        if (instr->n_args == 3) add_triple(s, pass, pad, instr, it);
        if (where_wanted(pass, e, i) != NOWHERE)
            add_step(s, pass, s->threaded->store, result_of(e, i), pad);
    }
    add_step(s, pass, s->threaded->end, 0, pad);
}

/* The steps of all threaded passes. An operand that differs from strip to strip gets a buffer for
 * its last one. */
static void write_threaded_code(mg_fused_state *s, const mg_fused *e) {
    const int first = e->n_inputs + e->n_imms;
    int16_t pad[MG_FUSED_OPERANDS];
    for (int i = 0; i < first; i++)
        pad[i] = i < e->n_inputs && !is_uniform(s, i) ? (int16_t)s->n_pads++ : -1;
    for (int n = 0; n < s->n_passes; n++)
        for (int i = s->pass[n].from; i < s->pass[n].to; i++)
            pad[first + i] = where_wanted(&s->pass[n], e, i) == OUTSIDE ? (int16_t)s->n_pads++ : -1;
    for (int n = 0; n < s->n_passes; n++)
        if (s->single_pass || s->pass[n].to - s->pass[n].from > 1)
            write_threaded_pass(s, e, &s->pass[n], pad);
}

/* Whether the group reads and writes more than the last cache holds. Results then bypass the
 * caches, so that their memory is not read first: relu and its gradient over 51 MB took 1.0 instead
 * of 1.3 ms. */
static bool leaves_caches(const mg_kernel_plan *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->step->n_in; i++) bytes += (int64_t)mg_value_bytes(plan->in[i].value);
    for (int o = 0; o < plan->step->n_out; o++)
        bytes += (int64_t)mg_value_bytes(plan->out[o].value);
    return !plan->step->fused->wide && bytes > MG_LAST_CACHE;
}

/* Registers are given twice: the size of a tile depends on how many there are, and which inputs can
 * be read in place depends on the tile. */
mg_status mg_fused_prepare(mg_kernel_plan *plan) {
    const mg_fused *e = plan->step->fused;
    mg_fused_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->loops = mg_simd_used->elementwise;
    s->threaded = mg_simd_used->threaded;
    s->count = mg_count(&plan->out[0]);
    if (s->count == 0) return MG_OK;
    output_axes(s, plan);
    s->width = e->wide ? sizeof(double) : sizeof(float);
    s->past_caches = leaves_caches(plan);
    merge_axes(s, e->n_inputs);
    choose_passes(s, e);
    give_registers(s, e);
    cut_tiles(s, e->n_inputs);
    give_registers(s, e);
    write_threaded_code(s, e);
    s->thread_bytes = (size_t)s->n_registers * (size_t)s->length * s->width +
                      (size_t)s->n_pads * MG_STRIP * sizeof(float);
    plan->scratch = s->thread_bytes * (size_t)mg_cpu_team(s->count);
    return MG_OK;
}

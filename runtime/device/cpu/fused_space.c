/* Fused element-wise groups: layouts, the iteration space and its tiles, registers.
 *
 * Axes that all operands step through alike are merged; the last one or two make a tile. A register
 * is taken over as soon as no later instruction reads what it holds, so that few of them, and
 * longer tiles, fit into the first-level cache. */
#include "device/cpu/fused.h"
#include "core/alloc.h"
#include "device/axes.h"

enum {
    TILE = 1024,
    CHAIN_TILE = 2048,
    LONG_TILE = 8192,
    LEAST_TILE = 256,
    STREAMED_TILE = 192,
    CACHE = 16 << 10
};

/* ---- layouts ---- */

static bool same_shape(const mg_kernel_plan *plan, int i) {
    return mg_shape_equal(&plan->in[i].value->shape, &plan->out[0].value->shape);
}

static bool whole_blocks(const mg_shape *s) {
    return s->rank == 4 && s->dim[3] % MG_LANES == 0;
}

/* Blocked output if all full-size inputs are: a row-major one (a dropout mask, the gradient of a
 * reshape) tells that row-major is wanted around here. Returns whether any input is blocked. */
static bool choose_layouts(mg_kernel_plan *plan) {
    bool any = false, all = true;
    const bool possible = whole_blocks(&plan->out[0].value->shape);
    for (int i = 0; i < plan->step->n_in; i++) {
        if (!possible || !same_shape(plan, i)) plan->in[i].layout = MG_ROW_MAJOR;
        if (plan->in[i].layout == MG_BLOCKED)
            any = true;
        else if (same_shape(plan, i))
            all = false;
    }
    for (int o = 0; o < plan->step->n_out; o++)
        all &= plan->out[o].value->dtype == MG_F32 || mg_dtype_is_half(plan->out[o].value->dtype);
    const bool blocked = any && all && !plan->out_external;
    for (int i = 0; i < plan->step->n_out; i++)
        plan->out[i].layout = blocked ? MG_BLOCKED : MG_ROW_MAJOR;
    return any;
}

/* ---- the iteration space ---- */

/* {N, C / 16, H, W, 16} or {N, H, W, C / 16, 16} instead of the image's own axes. */
static void split_channels(mg_fused_state *s, const mg_kernel_plan *plan) {
    const mg_shape *shape = &plan->out[0].value->shape;
    const int64_t h = shape->dim[1], w = shape->dim[2], blocks = shape->dim[3] / MG_LANES;
    const bool blocked = plan->out[0].layout == MG_BLOCKED;
    const int64_t plain[] = {shape->dim[0], h, w, blocks, MG_LANES};
    const int order[2][5] = {{0, 1, 2, 3, 4}, {0, 3, 1, 2, 4}};
    s->rank = 5;
    for (int k = 0; k < 5; k++) s->dim[k] = plain[order[blocked][k]];
    for (int i = 0; i < plan->step->n_in; i++) {
        int64_t by[MG_MAX_RANK];
        mg_shape_strides(&plan->in[i].value->shape, shape, by);
        int64_t step[] = {by[0], by[1], by[2], by[3] * MG_LANES, by[3]};
        if (plan->in[i].layout == MG_BLOCKED) {
            step[1] = w * MG_LANES;
            step[2] = MG_LANES;
            step[3] = h * w * MG_LANES;
        }
        for (int k = 0; k < 5; k++) s->stride[i][k] = step[order[blocked][k]];
    }
}

static void plain_axes(mg_fused_state *s, const mg_kernel_plan *plan) {
    const mg_shape *shape = &plan->out[0].value->shape;
    s->rank = shape->rank;
    for (int k = 0; k < s->rank; k++) s->dim[k] = shape->dim[k];
    for (int i = 0; i < plan->step->n_in; i++)
        mg_shape_strides(&plan->in[i].value->shape, shape, s->stride[i]);
}

/* Leaves one axis at least. */
static void merge_axes(mg_fused_state *s, int n_in) {
    int64_t *strides[MG_FUSE_MAX_INPUTS];
    for (int i = 0; i < n_in; i++) strides[i] = s->stride[i];
    s->rank = mg_axes_merge(s->rank, s->dim, strides, n_in);
    if (s->rank > 0) return;
    s->rank = 1;
    s->dim[0] = 1;
    for (int i = 0; i < n_in; i++) s->stride[i][0] = 0;
}

/* A chain holds little more than strips of anything, if it reads all where it lies; with two axes
 * tiles of one long row are best, where a row is read where it lies and a column is one number. The
 * tiles of loops are as long as the tile's share of everything fits into the first-level cache, but
 * not so short that the calls show. Arrays mostly start at a page, so those read where they lie,
 * and what comes in ahead of them, meet in the same sets of that cache: from three on that go past
 * the caches, only short tiles leave room for the registers (in the caches they would lose up to a
 * fifth). */
static int64_t tile_size(const mg_fused_state *s, int n_in) {
    int in_place = 0;
    for (int i = 0; i < n_in; i++) in_place += s->reg[i] < 0;
    if (s->chained && s->rank == 1) return in_place == n_in ? LONG_TILE : CHAIN_TILE;
    if (s->chained) return TILE;
    if (s->past_caches && in_place >= 3) return STREAMED_TILE;
    const int64_t n = CACHE / ((s->n_registers + n_in) * (int64_t)s->width) / MG_STRIP * MG_STRIP;
    return n > TILE ? TILE : n < LEAST_TILE ? LEAST_TILE : n;
}

/* One axis makes the tile if it is long, else two; a single axis gets one of length 1 before it. */
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

/* ---- loops and chains ---- */

static int result_of(const mg_fused *e, int i) {
    return e->n_inputs + e->n_imms + i;
}

static int times_read(const mg_instr *instr, int operand) {
    int n = 0;
    for (int a = 0; a < instr->n_args; a++) n += instr->arg[a] == operand;
    return n;
}

bool mg_fused_rounds(const mg_instr *instr, bool wide) {
    const enum mg_elementwise op = (enum mg_elementwise)instr->op;
    if (instr->dtype == (wide ? MG_F64 : MG_F32)) return false;
    return !(instr->dtype == MG_BOOL &&
             ((op >= MG_EW_gt && op <= MG_EW_logical_xor) || op == MG_EW_logical_not ||
              op == MG_EW_isnan || op == MG_EW_isfinite));
}

static bool may_chain(const mg_fused *e, int i) {
    return !e->wide && !mg_fused_rounds(&e->instr[i], false);
}

/* Instructions that follow one another become chains: two of them only if they are all, because a
 * chain costs more for each tile, and tiles are short where there are loops as well; a single one
 * if its result goes past the caches, where a chain stores it. */
static void choose_loops(mg_fused_state *s, const mg_fused *e) {
    const int least = e->n_instrs > 2 ? 3 : e->n_instrs == 2 || !s->past_caches ? 2 : 1;
    for (int i = 0, end; i < e->n_instrs; i = end) {
        for (end = i + 1; end < e->n_instrs && may_chain(e, i) && may_chain(e, end);) end++;
        if (end - i < least) end = i + 1;
        s->loop[s->n_loops++] = (mg_fused_loop){.from = i, .to = end};
    }
    s->chained = s->n_loops == 1 && e->n_instrs >= least && may_chain(e, 0);
}

/* Whether instruction i gets the result of the one before from hand to hand. */
static bool is_handed(const mg_fused_loop *loop, const mg_fused *e, int i) {
    return i > loop->from && i < loop->to && times_read(&e->instr[i], result_of(e, i - 1)) == 1;
}

/* Where the result of an instruction of the loop is wanted besides. */
typedef enum wanted { NOWHERE, INSIDE, OUTSIDE } wanted;

static wanted where_wanted(const mg_fused_loop *loop, const mg_fused *e, int i) {
    const int result = result_of(e, i);
    int inside = -is_handed(loop, e, i + 1), outside = loop->to - loop->from == 1;
    for (int k = i + 1; k < e->n_instrs; k++)
        *(k < loop->to ? &inside : &outside) += times_read(&e->instr[k], result);
    for (int o = 0; o < e->n_outputs; o++) outside += e->output[o] == result;
    return outside ? OUTSIDE : inside ? INSIDE : NOWHERE;
}

/* ---- registers ---- */

/* Whether an input lies as the tile wants it. */
static bool lies_ready(const mg_fused_state *s, const mg_fused *e, int i) {
    const int64_t *step = &s->stride[i][s->rank - 1];
    if (e->in_dtype[i] != (e->wide ? MG_F64 : MG_F32) || *step != 1) return false;
    return s->rank == 1 || s->rows <= 1 || step[-1] == s->columns;
}

/* The last instruction that reads each operand; results are kept to the end. */
static void find_last_uses(const mg_fused *e, int *last) {
    for (int i = 0; i < e->n_instrs; i++) {
        last[result_of(e, i)] = i;
        for (int k = 0; k < e->instr[i].n_args; k++) last[e->instr[i].arg[k]] = i;
    }
    for (int o = 0; o < e->n_outputs; o++) last[e->output[o]] = e->n_instrs;
}

/* Registers that hold nothing any more: whole ones, and those of which chains use one strip. */
typedef struct unused_registers {
    int n, reg[MG_FUSED_OPERANDS];
} unused_registers;

/* Inputs that must be brought into shape and immediates have registers of their own, because a tile
 * may find there what an earlier one left; results of instructions share the others. */
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
        if (i == s->loop[n].to) n++;
        const int result = first + i;
        for (int k = 0; k < e->instr[i].n_args; k++) {
            const int a = e->instr[i].arg[k];
            if (a < first || last[a] != i) continue;
            last[a] = -1; /* an operand may stand there twice */
            unused_registers *to = &unused[kind[a - first]];
            to->reg[to->n++] = s->reg[a];
        }
        kind[i] = where_wanted(&s->loop[n], e, i);
        unused_registers *from = &unused[kind[i]];
        s->reg[result] = -1;
        if (kind[i] == NOWHERE) continue;
        s->reg[result] = (int16_t)(from->n ? from->reg[--from->n] : s->n_registers++);
        if (last[result] == i) from->reg[from->n++] = s->reg[result];
    }
}

/* ---- steps of chains ---- */

/* Whether all elements of a tile are one. */
static bool is_uniform(const mg_fused_state *s, int input) {
    const int64_t *step = &s->stride[input][s->rank - 1];
    return step[0] == 0 && (s->rows == 1 || step[-1] == 0);
}

static void add_step(mg_fused_state *s, mg_fused_loop *loop, mg_threaded_code *code, int operand,
                     const int16_t *pad) {
    s->step[s->n_steps++] = (mg_fused_step){.code = code,
                                            .operand = (int16_t)operand,
                                            .pad = pad[operand],
                                            .stores = code == s->threaded->store};
    loop->steps++;
}

/* An instruction of two operands: `it` is the one that the chain holds. */
static void add_pair(mg_fused_state *s, const mg_fused *e, mg_fused_loop *loop, const int16_t *pad,
                     const mg_instr *instr, int it) {
    const int other = instr->arg[1 - it];
    const bool uniform = other < result_of(e, 0) && pad[other] < 0;
    const int form = it ? uniform ? MG_FROM_ONE : MG_FROM : uniform ? MG_WITH_ONE : MG_WITH;
    add_step(s, loop, s->threaded->op[instr->op][form], other, pad);
}

/* One of three operands. */
static void add_triple(mg_fused_state *s, mg_fused_loop *loop, const int16_t *pad,
                       const mg_instr *instr, int it) {
    add_step(s, loop, s->threaded->op[instr->op][it], instr->arg[it == 0], pad);
    add_step(s, loop, NULL, instr->arg[it == 2 ? 1 : 2], pad);
}

static void write_chain(mg_fused_state *s, const mg_fused *e, mg_fused_loop *loop,
                        const int16_t *pad) {
    loop->step = s->n_steps;
    for (int i = loop->from; i < loop->to; i++) {
        const mg_instr *instr = &e->instr[i];
        const bool handed = is_handed(loop, e, i);
        int it = 0;
        while (handed && instr->arg[it] != result_of(e, i - 1)) it++;
        if (!handed) add_step(s, loop, s->threaded->load, instr->arg[0], pad);
        if (instr->n_args == 1)
            add_step(s, loop, s->threaded->op[instr->op][0], instr->arg[0], pad);
        if (instr->n_args == 2) add_pair(s, e, loop, pad, instr, it);
        if (instr->n_args == 3) add_triple(s, loop, pad, instr, it);
        if (where_wanted(loop, e, i) != NOWHERE)
            add_step(s, loop, s->threaded->store, result_of(e, i), pad);
    }
    add_step(s, loop, s->threaded->end, 0, pad);
}

/* What lies differently in every strip has a pad. */
static void write_chains(mg_fused_state *s, const mg_fused *e) {
    const int first = e->n_inputs + e->n_imms;
    int16_t pad[MG_FUSED_OPERANDS];
    for (int i = 0; i < first; i++)
        pad[i] = i < e->n_inputs && !is_uniform(s, i) ? (int16_t)s->n_pads++ : -1;
    for (int n = 0; n < s->n_loops; n++)
        for (int i = s->loop[n].from; i < s->loop[n].to; i++)
            pad[first + i] = where_wanted(&s->loop[n], e, i) == OUTSIDE ? (int16_t)s->n_pads++ : -1;
    for (int n = 0; n < s->n_loops; n++)
        if (s->chained || s->loop[n].to - s->loop[n].from > 1) write_chain(s, e, &s->loop[n], pad);
}

/* What a group reads and writes, if more than the last cache holds, had better not be read into it
 * before it is written over: relu and its gradient over 51 MB, 1.3 -> 1.0 ms. */
static bool leaves_caches(const mg_kernel_plan *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->step->n_in; i++)
        bytes += mg_count(&plan->in[i]) * (int64_t)mg_dtype_size(plan->in[i].value->dtype);
    for (int o = 0; o < plan->step->n_out; o++)
        bytes += mg_count(&plan->out[o]) * (int64_t)mg_dtype_size(plan->out[o].value->dtype);
    return !plan->step->fused->wide && bytes > MG_LAST_CACHE;
}

mg_status mg_fused_prepare(mg_kernel_plan *plan) {
    const mg_fused *e = plan->step->fused;
    mg_fused_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->loops = mg_simd_used->elementwise;
    s->threaded = mg_simd_used->threaded;
    s->count = mg_count(&plan->out[0]);
    const bool any_blocked = choose_layouts(plan);
    if (s->count == 0) return MG_OK;
    if (any_blocked)
        split_channels(s, plan);
    else
        plain_axes(s, plan);
    s->width = e->wide ? sizeof(double) : sizeof(float);
    s->past_caches = leaves_caches(plan);
    merge_axes(s, e->n_inputs);
    choose_loops(s, e);
    give_registers(s, e);
    cut_tiles(s, e->n_inputs);
    give_registers(s, e);
    write_chains(s, e);
    s->thread_bytes = (size_t)s->n_registers * (size_t)s->length * s->width +
                      (size_t)s->n_pads * MG_STRIP * sizeof(float);
    plan->scratch = s->thread_bytes * (size_t)mg_cpu_team(s->count);
    return MG_OK;
}

/* Fused element-wise groups: layouts, the iteration space and its tiles, registers.
 *
 * Axes that all operands step through alike are merged; the last one or two make a tile. A register
 * is taken over as soon as no later instruction reads what it holds, so that few of them, and
 * longer tiles, fit into the first-level cache. */
#include "device/cpu/fused.h"
#include "core/alloc.h"
#include "device/cpu/pairs.h"

enum { TILE = 1024, LEAST_TILE = 256, STREAMED_TILE = 192, CACHE = 16 << 10 };

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
    for (int o = 0; o < plan->step->n_out; o++) all &= plan->out[o].value->dtype == MG_F32;
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

static void drop_axis(mg_fused_state *s, int axis, int n_in) {
    s->rank--;
    for (int k = axis; k < s->rank; k++) {
        s->dim[k] = s->dim[k + 1];
        for (int i = 0; i < n_in; i++) s->stride[i][k] = s->stride[i][k + 1];
    }
}

static void merge_axes(mg_fused_state *s, int n_in) {
    for (int k = s->rank - 1; k >= 0; k--)
        if (s->dim[k] == 1) drop_axis(s, k, n_in);
    for (int k = s->rank - 2; k >= 0; k--) {
        bool alike = true;
        for (int i = 0; i < n_in; i++)
            alike &= s->stride[i][k] == s->stride[i][k + 1] * s->dim[k + 1];
        if (!alike) continue;
        s->dim[k + 1] *= s->dim[k];
        drop_axis(s, k, n_in);
    }
    if (s->rank > 0) return;
    s->rank = 1;
    s->dim[0] = 1;
    for (int i = 0; i < n_in; i++) s->stride[i][0] = 0;
}

/* As long as the tile's share of everything fits into the first-level cache, but not so short that
 * the calls show. Arrays mostly start at a page, so those read where they lie, and what comes in
 * ahead of them, meet in the same sets of that cache: from three on that go past the caches, only
 * short tiles leave room for the registers (RMSprop over 2.35 million elements: 2.6 -> 1.7 ms of
 * one thread; in the caches they would lose up to a fifth). */
static int64_t tile_size(const mg_fused_state *s, int n_in) {
    int in_place = 0;
    for (int i = 0; i < n_in; i++) in_place += s->reg[i] < 0;
    if (s->past_caches && in_place >= 3) return STREAMED_TILE;
    const int64_t n = CACHE / ((s->n_registers + n_in) * (int64_t)s->width) / MG_LANES * MG_LANES;
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
        s->pieces = (rows + s->rows - 1) / s->rows;
    }
    s->outer = 1;
    for (int k = 0; k < s->rank - 2; k++) s->outer *= s->dim[k];
    s->length = (s->rows * s->columns + MG_LANES - 1) / MG_LANES * MG_LANES;
}

/* ---- loops ---- */

/* Whether the result of instruction i is float32 and goes to one place, in an instruction. */
static bool goes_once(const mg_fused *e, int i) {
    const int result = e->n_inputs + e->n_imms + i;
    int readers = 0;
    for (int k = i + 1; k < e->n_instrs; k++)
        for (int a = 0; a < e->instr[k].n_args; a++) readers += e->instr[k].arg[a] == result;
    for (int o = 0; o < e->n_outputs; o++) readers += 2 * (e->output[o] == result);
    return readers == 1 && e->instr[i].dtype == MG_F32;
}

/* Turns the loop of an instruction into that of a pair, if it can take in the one that makes an
 * operand of it; returns that instruction, or -1. */
static int take_in(mg_fused_loop *loop, const mg_fused *e, const bool *paired) {
    const mg_instr *second = &e->instr[loop->instr];
    const int first = e->n_inputs + e->n_imms;
    for (int place = 0; place < second->n_args && second->n_args <= 2 && second->dtype == MG_F32;
         place++) {
        const int i = second->arg[place] - first;
        if (i < 0 || paired[i] || !goes_once(e, i)) continue;
        const mg_instr *made = &e->instr[i];
        loop->pair = mg_pair_loop(made->op, second->op, place);
        if (!loop->pair) continue;
        loop->n_args = 3;
        loop->arg[0] = made->arg[0];
        loop->arg[1] = made->arg[made->n_args - 1];
        loop->arg[2] = second->n_args == 2 ? second->arg[1 - place] : made->arg[0];
        return i;
    }
    return -1;
}

/* An instruction of a pair runs where the second one stands. */
static void choose_loops(mg_fused_state *s, const mg_fused *e) {
    bool paired[MG_FUSE_MAX_INSTRS] = {false}, gone[MG_FUSE_MAX_INSTRS] = {false};
    mg_fused_loop all[MG_FUSE_MAX_INSTRS];
    for (int i = 0; i < e->n_instrs; i++) {
        const mg_instr *instr = &e->instr[i];
        all[i] = (mg_fused_loop){.instr = i, .n_args = instr->n_args};
        for (int k = 0; k < instr->n_args; k++) all[i].arg[k] = instr->arg[k];
        const int taken = e->wide ? -1 : take_in(&all[i], e, paired);
        if (taken >= 0) paired[i] = gone[taken] = true;
    }
    for (int i = 0; i < e->n_instrs; i++)
        if (!gone[i]) s->loop[s->n_loops++] = all[i];
}

/* ---- registers ---- */

/* Whether an input lies as the tile wants it. */
static bool lies_ready(const mg_fused_state *s, const mg_fused *e, int i) {
    const int64_t *step = &s->stride[i][s->rank - 1];
    if (e->in_dtype[i] != (e->wide ? MG_F64 : MG_F32) || *step != 1) return false;
    return s->rank == 1 || s->rows <= 1 || step[-1] == s->columns;
}

/* The last loop that reads each operand; results are kept to the end. */
static void find_last_uses(const mg_fused_state *s, const mg_fused *e, int *last) {
    for (int i = 0; i < s->n_loops; i++) {
        last[e->n_inputs + e->n_imms + s->loop[i].instr] = i;
        for (int k = 0; k < s->loop[i].n_args; k++) last[s->loop[i].arg[k]] = i;
    }
    for (int o = 0; o < e->n_outputs; o++) last[e->output[o]] = s->n_loops;
}

/* Inputs that must be brought into shape and immediates have registers of their own, because a tile
 * may find there what an earlier one left; results of instructions share the others. */
static void give_registers(mg_fused_state *s, const mg_fused *e) {
    const int first = e->n_inputs + e->n_imms;
    int last[MG_FUSED_OPERANDS], unused[MG_FUSED_OPERANDS], n_unused = 0;
    s->n_registers = 0;
    for (int i = 0; i < first; i++)
        s->reg[i] = i < e->n_inputs && lies_ready(s, e, i) ? -1 : (int16_t)s->n_registers++;
    find_last_uses(s, e, last);
    for (int i = 0; i < s->n_loops; i++) {
        const mg_fused_loop *loop = &s->loop[i];
        const int result = first + loop->instr;
        for (int k = 0; k < loop->n_args; k++) {
            const int a = loop->arg[k];
            if (a < first || last[a] != i) continue;
            last[a] = -1; /* an operand may stand there twice */
            unused[n_unused++] = s->reg[a];
        }
        s->reg[result] = (int16_t)(n_unused ? unused[--n_unused] : s->n_registers++);
        if (last[result] == i) unused[n_unused++] = s->reg[result];
    }
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
    s->loops = mg_loops_best();
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
    s->thread_bytes = (size_t)s->n_registers * (size_t)s->length * s->width;
    plan->scratch = s->thread_bytes * (size_t)mg_cpu_team(s->count);
    return MG_OK;
}

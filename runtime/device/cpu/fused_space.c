/* Fused element-wise groups: layouts, the iteration space and its tiles, registers.
 *
 * Axes that all operands step through alike are merged; the last one or two make a tile. A register
 * is taken over as soon as no later instruction reads what it holds, so that few of them, and
 * longer tiles, fit into the first-level cache. */
#include "device/cpu/fused.h"
#include "core/alloc.h"

enum { TILE = 1024, LEAST_TILE = 256, CACHE = 16 << 10 };

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
 * the calls show. */
static int64_t tile_size(const mg_fused_state *s, int n_in) {
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

/* ---- registers ---- */

/* Whether an input lies as the tile wants it. */
static bool lies_ready(const mg_fused_state *s, const mg_fused *e, int i) {
    const int64_t *step = &s->stride[i][s->rank - 1];
    if (e->in_dtype[i] != (e->wide ? MG_F64 : MG_F32) || *step != 1) return false;
    return s->rank == 1 || s->rows <= 1 || step[-1] == s->columns;
}

/* The last instruction that reads each operand; results are kept to the end. */
static void find_last_uses(const mg_fused *e, int *last) {
    const int first = e->n_inputs + e->n_imms;
    for (int i = 0; i < e->n_instrs; i++) {
        last[first + i] = i;
        for (int k = 0; k < e->instr[i].n_args; k++) last[e->instr[i].arg[k]] = i;
    }
    for (int o = 0; o < e->n_outputs; o++) last[e->output[o]] = e->n_instrs;
}

/* Inputs that must be brought into shape and immediates have registers of their own, because a tile
 * may find there what an earlier one left; results of instructions share the others. */
static void give_registers(mg_fused_state *s, const mg_fused *e) {
    const int first = e->n_inputs + e->n_imms;
    int last[MG_FUSED_OPERANDS], unused[MG_FUSED_OPERANDS], n_unused = 0;
    s->n_registers = 0;
    for (int i = 0; i < first; i++)
        s->reg[i] = i < e->n_inputs && lies_ready(s, e, i) ? -1 : (int16_t)s->n_registers++;
    find_last_uses(e, last);
    for (int i = 0; i < e->n_instrs; i++) {
        const mg_instr *instr = &e->instr[i];
        for (int k = 0; k < instr->n_args; k++) {
            const int a = instr->arg[k];
            if (a < first || last[a] != i) continue;
            last[a] = -1; /* an operand may stand there twice */
            unused[n_unused++] = s->reg[a];
        }
        s->reg[first + i] = (int16_t)(n_unused ? unused[--n_unused] : s->n_registers++);
        if (last[first + i] == i) unused[n_unused++] = s->reg[first + i];
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
    give_registers(s, e);
    cut_tiles(s, e->n_inputs);
    give_registers(s, e);
    s->thread_bytes = (size_t)s->n_registers * (size_t)s->length * s->width;
    plan->scratch = s->thread_bytes * (size_t)mg_cpu_team(s->count);
    return MG_OK;
}

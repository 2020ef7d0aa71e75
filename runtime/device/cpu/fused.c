/* Fused element-wise groups: an interpreter over tiles.
 *
 * The iteration space is the output's elements in the order they lie in memory; every input is an
 * offset and strides over it, whatever its layout or broadcasting. Axes that all operands step
 * through alike are merged; the last one or two make a tile of up to TILE elements. Per tile each
 * instruction is one loop over registers of that length, which stay in the caches. An input that
 * lies as the tile wants it is read in place, one that is the same in the next tile is kept. */
#include "core/alloc.h"
#include "device/cpu/cpu.h"
#include "device/cpu/loops.h"
#include <omp.h>
#include <string.h>

enum {
    TILE = 1024,
    LEAST_TILE = 256,
    CACHE = 16 << 10,
    LAST_CACHE = 32 << 20,
    MAX_AXES = MG_MAX_RANK + 1
};

typedef struct fused_state {
    int rank; /* of the iteration space, after merging */
    int64_t dim[MAX_AXES];
    int64_t stride[MG_FUSE_MAX_INPUTS][MAX_AXES]; /* in elements of the input */
    int64_t count, outer;                         /* elements; tiles' origins outside the tile */
    int64_t rows, columns;                        /* of a full tile */
    int64_t pieces;                               /* tiles per origin */
    int64_t length;                               /* elements of a register */
    int n_registers;
    size_t width, thread_bytes; /* of a register's element; of scratch */
    bool past_caches;           /* float32 results that are too large to be found in a cache later */
    const mg_loops *loops;
} fused_state;

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
static void split_channels(fused_state *s, const mg_kernel_plan *plan) {
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

static void plain_axes(fused_state *s, const mg_kernel_plan *plan) {
    const mg_shape *shape = &plan->out[0].value->shape;
    s->rank = shape->rank;
    for (int k = 0; k < s->rank; k++) s->dim[k] = shape->dim[k];
    for (int i = 0; i < plan->step->n_in; i++)
        mg_shape_strides(&plan->in[i].value->shape, shape, s->stride[i]);
}

static void drop_axis(fused_state *s, int axis, int n_in) {
    s->rank--;
    for (int k = axis; k < s->rank; k++) {
        s->dim[k] = s->dim[k + 1];
        for (int i = 0; i < n_in; i++) s->stride[i][k] = s->stride[i][k + 1];
    }
}

static void merge_axes(fused_state *s, int n_in) {
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

/* As long as the registers fit into the first-level cache (7 instructions over 28 MB, one thread:
 * 2.85 ms with 1024 elements, 2.05 with 256), but not so short that the calls show. */
static int64_t tile_size(const fused_state *s) {
    const int64_t n = CACHE / (s->n_registers * (int64_t)s->width) / MG_LANES * MG_LANES;
    return n > TILE ? TILE : n < LEAST_TILE ? LEAST_TILE : n;
}

/* One axis makes the tile if it is long, else two; a single axis gets one of length 1 before it. */
static void cut_tiles(fused_state *s, int n_in) {
    const int64_t last = s->dim[s->rank - 1], size = tile_size(s);
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

/* What a group reads and writes, if more than the last cache holds, had better not be read into it
 * before it is written over: relu and its gradient over 51 MB, 1.3 -> 1.0 ms. */
static bool leaves_caches(const mg_kernel_plan *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->step->n_in; i++)
        bytes += mg_count(&plan->in[i]) * (int64_t)mg_dtype_size(plan->in[i].value->dtype);
    for (int o = 0; o < plan->step->n_out; o++)
        bytes += mg_count(&plan->out[o]) * (int64_t)mg_dtype_size(plan->out[o].value->dtype);
    return !plan->step->fused->wide && bytes > LAST_CACHE;
}

static mg_status prepare(mg_kernel_plan *plan) {
    const mg_fused *e = plan->step->fused;
    fused_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->loops = mg_loops_best();
    s->count = mg_count(&plan->out[0]);
    const bool any_blocked = choose_layouts(plan);
    if (s->count == 0) return MG_OK;
    if (any_blocked)
        split_channels(s, plan);
    else
        plain_axes(s, plan);
    s->n_registers = e->n_inputs + e->n_imms + e->n_instrs;
    s->width = e->wide ? sizeof(double) : sizeof(float);
    s->past_caches = leaves_caches(plan);
    merge_axes(s, e->n_inputs);
    cut_tiles(s, e->n_inputs);
    s->thread_bytes = (size_t)s->n_registers * (size_t)s->length * s->width;
    plan->scratch = s->thread_bytes * (size_t)mg_cpu_team(s->count);
    return MG_OK;
}

/* ---- one tile ---- */

typedef struct tile {
    const mg_call *call;
    const fused_state *s;
    char *registers;
    const void *operand[MG_FUSE_MAX_INPUTS + 2 * MG_FUSE_MAX_INSTRS]; /* where each operand lies */
    int64_t kept[MG_FUSE_MAX_INPUTS];   /* offset of what the register holds, or -1 */
    int64_t filled[MG_FUSE_MAX_INPUTS]; /* and how much of it */
    int direct[MG_FUSE_MAX_INSTRS];     /* output the instruction writes in place, or -1 */
    int64_t rows, columns, first;       /* of this tile; first element in the output */
    size_t in_size[MG_FUSE_MAX_INPUTS], out_size[MG_FUSE_MAX_OUTPUTS]; /* of an element */
} tile;

static void *register_at(const tile *t, int operand) {
    return t->registers + (size_t)operand * (size_t)t->s->length * t->s->width;
}

static void load(const tile *t, void *dst, const void *src, mg_dtype type, int64_t n) {
    if (t->call->plan->step->fused->wide)
        t->s->loops->load_f64(dst, src, type, (int)n);
    else
        t->s->loops->load_f32(dst, src, type, (int)n);
}

static void store(const tile *t, void *dst, const void *src, mg_dtype type, int64_t n) {
    if (t->call->plan->step->fused->wide)
        t->s->loops->store_f64(dst, src, type, (int)n);
    else
        t->s->loops->store_f32(dst, src, type, (int)n);
}

static void fill(const tile *t, void *dst, double value, int64_t n) {
    if (t->call->plan->step->fused->wide)
        for (int64_t i = 0; i < n; i++) ((double *)dst)[i] = value;
    else
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = (float)value;
}

/* n elements, `step` apart. */
static void load_run(const tile *t, char *dst, const char *src, mg_dtype type, int64_t step,
                     int64_t n) {
    const ptrdiff_t size = (ptrdiff_t)mg_dtype_size(type);
    double value;
    if (step == 1) {
        load(t, dst, src, type, n);
    } else if (step == 0) {
        mg_to_double(&value, src, type, 1);
        fill(t, dst, value, n);
    } else {
        for (int64_t i = 0; i < n; i++)
            load(t, dst + (size_t)i * t->s->width, src + size * i * step, type, 1);
    }
}

/* Rows of 16 floats are what a change of layout is made of. */
static void load_rows_of_16(float *restrict dst, const float *src, int64_t rows, int64_t step) {
    for (int64_t r = 0; r < rows; r++)
        memcpy(dst + r * MG_LANES, src + r * step, MG_LANES * sizeof(float));
}

/* Makes operand i of the tile readable; `offset` is the input's element at the tile's origin. */
static void load_input(tile *t, int i, int64_t offset) {
    const fused_state *s = t->s;
    const mg_fused *e = t->call->plan->step->fused;
    const mg_dtype type = (mg_dtype)e->in_dtype[i];
    const int64_t down = s->stride[i][s->rank - 2], along = s->stride[i][s->rank - 1];
    const char *src = (const char *)t->call->in[i] + (ptrdiff_t)t->in_size[i] * offset;
    const int64_t n = t->rows * t->columns;
    const bool natural = type == (e->wide ? MG_F64 : MG_F32);
    const bool dense = along == 1 && (t->rows == 1 || down == t->columns);
    char *dst = register_at(t, i);
    t->operand[i] = dst;
    if (dense && natural) {
        t->operand[i] = src;
        return;
    }
    const bool repeats = s->rows == 1 ? along == 0 : down == 0;
    if (repeats && t->kept[i] == offset && t->filled[i] >= n) return;
    t->kept[i] = repeats ? offset : -1;
    t->filled[i] = n;
    if (dense || (down == 0 && along == 0)) {
        load_run(t, dst, src, type, along, n);
    } else if (natural && !e->wide && along == 1 && t->columns == MG_LANES) {
        load_rows_of_16((float *)(void *)dst, (const float *)(const void *)src, t->rows, down);
    } else {
        for (int64_t r = 0; r < t->rows; r++)
            load_run(t, dst + (size_t)(r * t->columns) * s->width,
                     src + (ptrdiff_t)t->in_size[i] * r * down, type, along, t->columns);
    }
}

/* Whether every value of an op is one its result type can hold, given that its operands are. */
static bool needs_rounding(const mg_instr *instr, bool wide) {
    const enum mg_elementwise op = (enum mg_elementwise)instr->op;
    if (instr->dtype == (wide ? MG_F64 : MG_F32)) return false;
    return !(instr->dtype == MG_BOOL &&
             ((op >= MG_EW_gt && op <= MG_EW_logical_xor) || op == MG_EW_logical_not ||
              op == MG_EW_isnan || op == MG_EW_isfinite));
}

static void *output_at(const tile *t, int o) {
    return (char *)t->call->out[o] + (size_t)t->first * t->out_size[o];
}

/* Registers rounded to what the dtype holds, in place. */
static void round_to(const tile *t, char *y, mg_dtype type, int64_t n) {
    uint64_t typed[128];
    for (int64_t done = 0; done < n; done += 128) {
        const int64_t part = n - done < 128 ? n - done : 128;
        store(t, typed, y + (size_t)done * t->s->width, type, part);
        load(t, y + (size_t)done * t->s->width, typed, type, part);
    }
}

static void apply(const tile *t, const mg_instr *instr, void *y, int64_t n) {
    const mg_loops *loops = t->s->loops;
    const void *a[3];
    for (int k = 0; k < 3; k++) a[k] = t->operand[instr->arg[k < instr->n_args ? k : 0]];
    if (t->call->plan->step->fused->wide)
        loops->f64[instr->op](y, a[0], a[1], a[2], (int)n);
    else
        loops->f32[instr->op](y, a[0], a[1], a[2], (int)n);
}

static void compute(tile *t) {
    const mg_fused *e = t->call->plan->step->fused;
    const int first = e->n_inputs + e->n_imms;
    const int64_t n = t->rows * t->columns;
    for (int i = 0; i < e->n_instrs; i++) {
        const mg_instr *instr = &e->instr[i];
        void *y = t->direct[i] >= 0 ? output_at(t, t->direct[i]) : register_at(t, first + i);
        apply(t, instr, y, n);
        if (needs_rounding(instr, e->wide)) round_to(t, y, (mg_dtype)instr->dtype, n);
        t->operand[first + i] = y;
    }
    for (int o = 0; o < e->n_outputs; o++) {
        const void *y = t->operand[e->output[o]];
        void *to = output_at(t, o);
        const mg_dtype type = t->call->plan->out[o].value->dtype;
        if (t->s->past_caches && type == MG_F32)
            t->s->loops->stream_f32(to, y, (int)n);
        else if (y != to)
            store(t, to, y, type, n);
    }
}

/* ---- all tiles ---- */

/* An instruction may write its output's memory at once if no input lies there. */
static void find_direct(tile *t) {
    const mg_step *step = t->call->plan->step;
    const mg_fused *e = step->fused;
    for (int i = 0; i < e->n_instrs; i++) t->direct[i] = -1;
    if (t->s->past_caches) return;
    for (int o = 0; o < e->n_outputs; o++) {
        bool free_to_write = t->call->plan->out[o].value->dtype == (e->wide ? MG_F64 : MG_F32);
        for (int i = 0; i < e->n_inputs; i++) free_to_write &= t->call->in[i] != t->call->out[o];
        const int instr = e->output[o] - e->n_inputs - e->n_imms;
        if (free_to_write && instr >= 0) t->direct[instr] = o;
    }
}

static void set_up(tile *t, const mg_call *call, int thread) {
    const mg_fused *e = call->plan->step->fused;
    t->call = call;
    t->s = call->plan->state;
    t->registers = (char *)call->scratch + (size_t)thread * t->s->thread_bytes;
    for (int i = 0; i < e->n_inputs; i++) {
        t->kept[i] = -1;
        t->in_size[i] = mg_dtype_size((mg_dtype)e->in_dtype[i]);
    }
    for (int o = 0; o < e->n_outputs; o++)
        t->out_size[o] = mg_dtype_size(call->plan->out[o].value->dtype);
    for (int i = 0; i < e->n_imms; i++) {
        char *at = register_at(t, e->n_inputs + i);
        fill(t, at, e->imm[i], t->s->length);
        t->operand[e->n_inputs + i] = at;
    }
    find_direct(t);
}

static int64_t offset_of(const fused_state *s, int input, int64_t origin, int64_t piece) {
    const int64_t *stride = s->stride[input];
    int64_t offset = s->rows == 1 && s->dim[s->rank - 2] == 1
                         ? piece * s->columns * stride[s->rank - 1]
                         : piece * s->rows * stride[s->rank - 2];
    for (int k = s->rank - 3; k >= 0; k--) {
        offset += origin % s->dim[k] * stride[k];
        origin /= s->dim[k];
    }
    return offset;
}

static void run_tile(tile *t, int64_t number) {
    const fused_state *s = t->s;
    const int64_t origin = number / s->pieces, piece = number % s->pieces;
    const int64_t rows = s->dim[s->rank - 2], columns = s->dim[s->rank - 1];
    const bool long_rows = rows == 1;
    t->rows = s->rows;
    t->columns = s->columns;
    if (long_rows && t->columns > columns - piece * s->columns)
        t->columns = columns - piece * s->columns;
    if (!long_rows && t->rows > rows - piece * s->rows) t->rows = rows - piece * s->rows;
    t->first = origin * rows * columns + piece * s->rows * s->columns;
    for (int i = 0; i < t->call->plan->step->n_in; i++)
        load_input(t, i, offset_of(s, i, origin, piece));
    compute(t);
}

static mg_status run(const mg_call *call) {
    const fused_state *s = call->plan->state;
    if (s->count == 0) return MG_OK;
    const int team = mg_cpu_team(s->count);
#pragma omp parallel num_threads(team)
    {
        tile t;
        set_up(&t, call, omp_get_thread_num());
        const int64_t tiles = s->outer * s->pieces, n = omp_get_num_threads();
        const int64_t me = omp_get_thread_num();
        for (int64_t i = tiles * me / n; i < tiles * (me + 1) / n; i++) run_tile(&t, i);
        if (s->past_caches) s->loops->end_stream();
    }
    return MG_OK;
}

const mg_kernel mg_cpu_fused = {
    .op = "fused", .name = "tiles", .prepare = prepare, .run = run, .release = mg_free};

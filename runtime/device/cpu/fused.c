/* Fused element-wise groups: the interpreter over tiles. fused.h explains loops and threaded code.
 *
 * The iteration space is the elements of the output in the order in which they lie in memory. Every
 * input is an offset and strides over that space, whatever its layout or broadcasting. An input
 * that already lies as the tile wants it is read in place; others are copied into registers, and
 * what is the same in the next tile is kept there. */
#include "device/cpu/fused.h"
#include "core/alloc.h"
#include <omp.h>
#include <string.h>

/* ---- one tile ---- */

typedef struct tile {
    const mg_call *call;
    const mg_fused_state *s;
    char *registers, *pads;
    const void *operand[MG_FUSED_OPERANDS]; /* where each operand lies */
    int64_t kept[MG_FUSE_MAX_INPUTS];       /* offset of the input part in the register, or -1 */
    int64_t filled[MG_FUSE_MAX_INPUTS];     /* elements of it */
    int direct[MG_FUSE_MAX_INSTRS];         /* output the instruction writes in place, or
                                               -1 */
    bool streamed[MG_FUSE_MAX_OUTPUTS];     /* written past the caches */
    int64_t rows, columns, first;           /* of this tile; first element in the output */
    size_t in_size[MG_FUSE_MAX_INPUTS], out_size[MG_FUSE_MAX_OUTPUTS]; /* of an element */
} tile;

/* The register of an operand that has one. */
static void *register_at(const tile *t, int operand) {
    return t->registers + (size_t)t->s->reg[operand] * (size_t)t->s->length * t->s->width;
}

/* Elements of a dtype into a register, and back. Registers are double in wide groups. */
static void load_elements(const tile *t, void *dst, const void *src, mg_dtype type, int64_t n) {
    if (t->call->plan->step->fused->wide)
        t->s->loops->load_f64(dst, src, type, (int)n);
    else
        t->s->loops->load_f32(dst, src, type, (int)n);
}

static void store_elements(const tile *t, void *dst, const void *src, mg_dtype type, int64_t n) {
    if (t->call->plan->step->fused->wide)
        t->s->loops->store_f64(dst, src, type, (int)n);
    else
        t->s->loops->store_f32(dst, src, type, (int)n);
}

/* Sets n elements of a register to a number. */
static void fill_elements(const tile *t, void *dst, double value, int64_t n) {
    if (t->call->plan->step->fused->wide)
        for (int64_t i = 0; i < n; i++) ((double *)dst)[i] = value;
    else
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = (float)value;
}

/* How many copies of a single number a register must hold: threaded code reads one strip of them,
 * however long the tile is. */
static int64_t repeated(const mg_fused_state *s, int64_t n) {
    return s->single_pass && n > MG_STRIP ? MG_STRIP : n;
}

/* Loads n elements of an input that lie `step` elements apart. */
static void load_run(const tile *t, char *dst, const char *src, mg_dtype type, int64_t step,
                     int64_t n) {
    const ptrdiff_t size = (ptrdiff_t)mg_dtype_size(type);
    double value;
    if (step == 1) {
        load_elements(t, dst, src, type, n);
    } else if (step == 0) {
        mg_to_double(&value, src, type, 1);
        fill_elements(t, dst, value, n);
    } else {
        for (int64_t i = 0; i < n; i++)
            load_elements(t, dst + (size_t)i * t->s->width, src + size * i * step, type, 1);
    }
}

/* Prefetches pass i's share of the next tile, so that reading memory and computing overlap.
 * Threaded code goes through memory evenly, which processors detect by themselves. */
static void prefetch_share(const tile *t, int i) {
    const mg_fused *e = t->call->plan->step->fused;
    for (int k = 0; k < e->n_inputs; k++) {
        if (t->s->reg[k] >= 0) continue;
        const int64_t bytes = t->rows * t->columns * (int64_t)t->in_size[k];
        const int64_t lines = (bytes + MG_LINE - 1) / MG_LINE;
        const char *next = (const char *)t->operand[k] + bytes;
        const int n = t->s->n_passes;
        for (int64_t line = lines * i / n; line < lines * (i + 1) / n; line++)
            __builtin_prefetch(next + line * MG_LINE, 0, 2);
    }
}

/* Makes input i of the tile readable. `offset` is the input's element at the tile's origin. A
 * register that still holds that part of the input, from an earlier tile, is used again. */
static void load_input(tile *t, int i, int64_t offset) {
    const mg_fused_state *s = t->s;
    const mg_fused *e = t->call->plan->step->fused;
    const mg_dtype type = (mg_dtype)e->in_dtype[i];
    const int64_t down = s->stride[i][s->rank - 2], along = s->stride[i][s->rank - 1];
    const char *src = (const char *)t->call->in[i] + (ptrdiff_t)t->in_size[i] * offset;
    if (s->reg[i] < 0) {
        t->operand[i] = src;
        return;
    }
    const bool uniform = down == 0 && along == 0;
    const int64_t n = uniform ? repeated(s, t->rows * t->columns) : t->rows * t->columns;
    const bool dense = along == 1 && (t->rows == 1 || down == t->columns);
    char *dst = register_at(t, i);
    t->operand[i] = dst;
    /* whether the next tile of this thread reads the same part of the input */
    const bool repeats = s->rows == 1 ? along == 0 : down == 0;
    if (repeats && t->kept[i] == offset && t->filled[i] >= n) return;
    t->kept[i] = repeats ? offset : -1;
    t->filled[i] = n;
    /* one run of elements, rows of 16 floats, or rows one by one */
    if (dense || uniform) {
        load_run(t, dst, src, type, along, n);
    } else {
        for (int64_t r = 0; r < t->rows; r++)
            load_run(t, dst + (size_t)(r * t->columns) * s->width,
                     src + (ptrdiff_t)t->in_size[i] * r * down, type, along, t->columns);
    }
}

/* Where the tile begins in output o. */
static void *output_at(const tile *t, int o) {
    return (char *)t->call->out[o] + (size_t)t->first * t->out_size[o];
}

/* Rounds a register to what the dtype can hold, in place. */
static void round_to(const tile *t, char *y, mg_dtype type, int64_t n) {
    uint64_t typed[128];
    for (int64_t done = 0; done < n; done += 128) {
        const int64_t part = n - done < 128 ? n - done : 128;
        store_elements(t, typed, y + (size_t)done * t->s->width, type, part);
        load_elements(t, y + (size_t)done * t->s->width, typed, type, part);
    }
}

/* Runs one instruction over n elements. */
static void run_loop(const tile *t, const mg_instr *instr, void *y, int64_t n) {
    const void *a[3];
    for (int k = 0; k < 3; k++) a[k] = t->operand[instr->arg[k < instr->n_args ? k : 0]];
    if (t->call->plan->step->fused->wide)
        t->s->loops->f64[instr->op](y, a[0], a[1], a[2], (int)n);
    else
        t->s->loops->f32[instr->op](y, a[0], a[1], a[2], (int)n);
    if (mg_fused_rounds(instr, t->call->plan->step->fused->wide))
        round_to(t, y, (mg_dtype)instr->dtype, n);
}

/* The elements after the last whole strip: each operand that advances is completed to a strip in a
 * buffer, and results are copied out of theirs. */
static void run_threaded_rest(const tile *t, const mg_fused_pass *pass,
                              const mg_threaded_step *steps, int64_t done, int64_t n) {
    const mg_fused_step *step = &t->s->step[pass->step];
    const size_t bytes = (size_t)(n - done) * sizeof(float);
    mg_threaded_step rest[MG_FUSED_STEPS];
    for (int k = 0; k < pass->steps; k++) {
        rest[k] = (mg_threaded_step){step[k].code, steps[k].at, 0};
        if (step[k].pad < 0) continue;
        rest[k].at = t->pads + (size_t)step[k].pad * MG_STRIP * sizeof(float);
        memcpy(rest[k].at, steps[k].at + done * (int64_t)sizeof(float), bytes);
    }
    t->s->threaded->run(rest, 1, NULL, 0);
    for (int k = 0; k < pass->steps; k++)
        if (step[k].pad >= 0 && step[k].stores)
            memcpy(steps[k].at + done * (int64_t)sizeof(float), rest[k].at, bytes);
}

/* The arrays that threaded code should prefetch: inputs read in place, if no loop has prefetched
 * them and there are more than the processor can follow by itself. */
static int list_arrays(const tile *t, const char **arrays) {
    enum { FEW = 2 };
    int n = 0;
    for (int i = 0; i < t->call->plan->step->fused->n_inputs && t->s->single_pass; i++)
        if (t->s->reg[i] < 0) arrays[n++] = t->operand[i];
    return n > FEW ? n : 0;
}

/* The code of a step in this tile: a store becomes one past the caches where that is wanted and the
 * address allows it. */
static mg_threaded_code *code_of(const tile *t, const mg_fused_step *step, const char *at) {
    const mg_fused *e = t->call->plan->step->fused;
    if (!step->stores) return step->code;
    const int o = t->direct[step->operand - e->n_inputs - e->n_imms];
    const bool past = o >= 0 && t->streamed[o] && (uintptr_t)at % MG_LINE == 0;
    return past ? t->s->threaded->stream : step->code;
}

/* Runs a pass of threaded code over n elements: whole strips, then the rest. */
static void run_threaded(const tile *t, const mg_fused_pass *pass, int64_t n) {
    const mg_fused_step *step = &t->s->step[pass->step];
    const int64_t strip = t->s->threaded->strip, done = n / strip * strip;
    mg_threaded_step steps[MG_FUSED_STEPS];
    const char *arrays[MG_FUSE_MAX_INPUTS];
    for (int k = 0; k < pass->steps; k++) {
        char *at = (char *)(uintptr_t)t->operand[step[k].operand];
        const ptrdiff_t moves = step[k].pad < 0 ? 0 : -1;
        steps[k] = (mg_threaded_step){code_of(t, &step[k], at), at, moves};
    }
    t->s->threaded->run(steps, (int)(done / strip), arrays, list_arrays(t, arrays));
    if (done < n) run_threaded_rest(t, pass, steps, done, n);
}

/* Where instruction i puts its result: in an output, in a register, or nowhere (NULL). */
static void *place_of(const tile *t, int i) {
    const mg_fused *e = t->call->plan->step->fused;
    const int result = e->n_inputs + e->n_imms + i;
    if (t->direct[i] >= 0) return output_at(t, t->direct[i]);
    return t->s->reg[result] < 0 ? NULL : register_at(t, result);
}

/* Runs all passes, then stores the outputs that no instruction wrote directly. */
static void compute_tile(tile *t) {
    const mg_fused *e = t->call->plan->step->fused;
    const int first = e->n_inputs + e->n_imms;
    const int64_t n = t->rows * t->columns;
    for (int i = 0; i < t->s->n_passes; i++) {
        const mg_fused_pass *pass = &t->s->pass[i];
        for (int k = pass->from; k < pass->to; k++) t->operand[first + k] = place_of(t, k);
        if (!t->s->single_pass) prefetch_share(t, i);
        if (pass->steps)
            run_threaded(t, pass, n);
        else
            run_loop(t, &e->instr[pass->from], place_of(t, pass->from), n);
    }
    for (int o = 0; o < e->n_outputs; o++) {
        const void *y = t->operand[e->output[o]];
        void *to = output_at(t, o);
        const mg_dtype type = t->call->plan->out[o].value->dtype;
        if (y == to) continue;
        if (t->streamed[o])
            mg_simd_used->movement->stream(to, y, (int)n);
        else
            store_elements(t, to, y, type, n);
    }
}

/* ---- all tiles ---- */

/* Whether no instruction after `instr` reads input i. */
static bool read_until(const mg_fused *e, int i, int instr) {
    for (int k = instr + 1; k < e->n_instrs; k++)
        for (int a = 0; a < e->instr[k].n_args; a++)
            if (e->instr[k].arg[a] == i) return false;
    return true;
}

/* Decides which instructions write their output's memory themselves. One may if no later
 * instruction reads an input that lies in the same memory. Memory that is overwritten has been read
 * into the caches; other large results are stored past them. */
static void find_direct(tile *t) {
    const mg_step *step = t->call->plan->step;
    const mg_fused *e = step->fused;
    for (int i = 0; i < e->n_instrs; i++) t->direct[i] = -1;
    for (int o = 0; o < e->n_outputs; o++) {
        const mg_dtype type = t->call->plan->out[o].value->dtype;
        const int instr = e->output[o] - e->n_inputs - e->n_imms;
        /* wanted: a later instruction reads what lies in the output's memory */
        bool in_place = false, wanted = false;
        for (int i = 0; i < e->n_inputs; i++) {
            if (t->call->in[i] != t->call->out[o]) continue;
            in_place = true;
            wanted |= !read_until(e, i, instr);
        }
        t->streamed[o] = t->s->past_caches && type == MG_F32 && !in_place;
        if (!wanted && (!t->streamed[o] || t->s->single_pass) && instr >= 0 &&
            type == (e->wide ? MG_F64 : MG_F32))
            t->direct[instr] = o;
    }
}

/* Prepares a thread for the tiles of a call. `scratch` is the thread's own. */
static void set_up_tile(tile *t, const mg_call *call, char *scratch) {
    const mg_fused *e = call->plan->step->fused;
    t->call = call;
    t->s = call->plan->state;
    t->registers = scratch;
    t->pads = scratch + (size_t)t->s->n_registers * (size_t)t->s->length * t->s->width;
    for (int i = 0; i < e->n_inputs; i++) {
        t->kept[i] = -1;
        t->in_size[i] = mg_dtype_size((mg_dtype)e->in_dtype[i]);
    }
    for (int o = 0; o < e->n_outputs; o++)
        t->out_size[o] = mg_dtype_size(call->plan->out[o].value->dtype);
    for (int i = 0; i < e->n_imms; i++) {
        char *at = register_at(t, e->n_inputs + i);
        fill_elements(t, at, e->imm[i], repeated(t->s, t->s->length));
        t->operand[e->n_inputs + i] = at;
    }
    find_direct(t);
}

/* The element of an input at the origin of a tile. */
static int64_t offset_of(const mg_fused_state *s, int input, int64_t origin, int64_t piece) {
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

/* Tile `number` of the call; the last tile of a row may be shorter. */
static void run_tile(tile *t, int64_t number) {
    const mg_fused_state *s = t->s;
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
    compute_tile(t);
}

/* Tiles of a call; none if the output is empty. */
static int64_t tiles_of(const mg_call *call) {
    const mg_fused_state *s = call->plan->state;
    return s->count ? s->outer * s->pieces : 0;
}

/* Tiles [from, to) of the call, by one thread. */
static void run_tiles(const mg_call *call, char *scratch, int64_t from, int64_t to) {
    tile t;
    if (from >= to) return;
    set_up_tile(&t, call, scratch);
    for (int64_t i = from; i < to; i++) run_tile(&t, i);
    if (t.s->past_caches) mg_simd_used->movement->end_stream();
}

/* Scratch per thread of several calls that run together. */
static size_t thread_bytes(const mg_kernel_plan *const *plans, int n) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const mg_fused_state *s = plans[i]->state;
        if (s->thread_bytes > bytes) bytes = s->thread_bytes;
    }
    return bytes;
}

/* Threads for several calls: enough elements together make it worth sharing. */
static int team_of(const mg_kernel_plan *const *plans, int n) {
    int64_t count = 0;
    for (int i = 0; i < n; i++) count += ((const mg_fused_state *)plans[i]->state)->count;
    return mg_cpu_team(count);
}

/* Scratch for calls that run together: they take turns in it. */
static size_t fused_scratch_many(const mg_kernel_plan *const *plans, int n) {
    return thread_bytes(plans, n) * (size_t)team_of(plans, n);
}

/* Several calls at once (an optimizer's updates): the tiles of all of them, in a row, are dealt out
 * to the threads. */
static mg_status fused_run_many(const mg_call *calls, int n) {
    const mg_kernel_plan *plans[MG_MAX_LAUNCH];
    int64_t tiles = 0;
    for (int i = 0; i < n; i++) {
        plans[i] = calls[i].plan;
        tiles += tiles_of(&calls[i]);
    }
    if (tiles == 0) return MG_OK;
    const size_t bytes = thread_bytes(plans, n);
    const int team = team_of(plans, n);
#pragma omp parallel num_threads(team)
    {
        const int64_t me = omp_get_thread_num(), threads = omp_get_num_threads();
        /* a contiguous range of tiles per thread, which may span several calls */
        const int64_t from = tiles * me / threads, to = tiles * (me + 1) / threads;
        char *scratch = (char *)calls[0].scratch + (size_t)me * bytes;
        int64_t before = 0;
        for (int i = 0; i < n; i++) {
            const int64_t own = tiles_of(&calls[i]);
            const int64_t low = from > before ? from - before : 0;
            const int64_t high = to - before < own ? to - before : own;
            run_tiles(&calls[i], scratch, low, high);
            before += own;
        }
    }
    return MG_OK;
}

static mg_status fused_run(const mg_call *call) {
    return fused_run_many(call, 1);
}

const mg_kernel mg_cpu_fused = {.op = "fused",
                                .name = "tiles",
                                .prepare = mg_fused_prepare,
                                .run = fused_run,
                                .run_many = fused_run_many,
                                .scratch_many = fused_scratch_many,
                                .release = mg_free};

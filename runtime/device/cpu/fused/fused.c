/* Fused element-wise groups: runs a group's threaded code tile by tile. fused/space.c says what a
 * tile is.
 *
 * The iteration space is the elements of the output in the order in which they lie in memory. Every
 * input is an offset and strides over that space, whatever its layout or broadcasting. Copies of
 * inputs in scratch memory are used again if the next tile reads the same elements. */
#include "device/cpu/fused/fused.h"
#include "core/alloc.h"
#include <omp.h>
#include <stdint.h>
#include <string.h>

/* A thread's share of a call. */
typedef struct worker {
    const mg_call *call;
    const mg_fused_state *s;
    const mg_fused *e;
    char *scratch;
    char *at[MG_FUSED_OPERANDS];        /* where the tile's part of an operand begins */
    size_t size[MG_FUSED_OPERANDS];     /* of an element; 0: the operand does not advance */
    int64_t kept[MG_FUSE_MAX_INPUTS];   /* offset of the input's part in scratch memory, or -1 */
    int64_t filled[MG_FUSE_MAX_INPUTS]; /* elements of it */
    bool late[MG_FUSE_MAX_OUTPUTS];     /* stored after all inputs of the strip were read */
    bool streamed[MG_FUSE_MAX_OUTPUTS]; /* stored past the caches */
    int64_t rows, columns, first;       /* of this tile; first element in the output */
    const char *arrays[MG_FUSE_MAX_INPUTS]; /* to prefetch */
    int n_steps;
    const mg_fused_step *planned[MG_FUSED_STEPS]; /* the steps that this call takes */
    int n_row_steps;
    int16_t row_step[MG_FUSED_STEPS]; /* those of them that read rows */
    mg_threaded_step step[MG_FUSED_STEPS];
} worker;

/* ---- inputs ---- */

/* Converts n elements of an input to the registers' dtype. */
static void convert(const worker *w, void *dst, const void *src, mg_dtype type, int64_t n) {
    if (w->s->real == MG_F64)
        mg_simd_used->conversions->load_f64(dst, src, type, (int)n);
    else
        mg_simd_used->conversions->load_f32(dst, src, type, (int)n);
}

/* Fills a strip, or the tile of a plain loop, with copies of a number. */
static void fill_copies(const worker *w, void *dst, double value) {
    const int64_t n = w->s->copies;
    if (w->s->real == MG_F64)
        for (int64_t i = 0; i < n; i++) ((double *)dst)[i] = value;
    else
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = (float)value;
}

/* Copies n elements that lie `step` elements apart; 0: all are the same one. */
#define GATHER(type)                                                                               \
    static void gather_##type(type *dst, const type *src, int64_t step, int64_t n) {               \
        const type first = src[0];                                                                 \
        if (step == 0)                                                                             \
            for (int64_t i = 0; i < n; i++) dst[i] = first;                                        \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) dst[i] = src[i * step];                                \
    }
GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(uint64_t)

static void gather_run(void *dst, const void *src, size_t size, int64_t step, int64_t n) {
    if (step == 1) {
        memcpy(dst, src, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1: gather_uint8_t(dst, src, step, n); break;
    case 2: gather_uint16_t(dst, src, step, n); break;
    case 4: gather_uint32_t(dst, src, step, n); break;
    default: gather_uint64_t(dst, src, step, n); break;
    }
}

/* Copies a tile of an input whose elements are not contiguous in the order of the space. */
static void gather_tile(const worker *w, int i, char *dst, const char *src) {
    const int64_t *stride = &w->s->stride[i][w->s->rank - 2];
    const size_t size = mg_dtype_size((mg_dtype)w->e->in_dtype[i]);
    for (int64_t r = 0; r < w->rows; r++)
        gather_run(dst + (size_t)(r * w->columns) * size, src + (ptrdiff_t)size * r * stride[0],
                   size, stride[1], w->columns);
}

/* Converts a row and repeats it for a period, then for a strip more, so that a strip can begin
 * anywhere in the period. */
static void repeat_row(const worker *w, char *dst, const char *src, mg_dtype type) {
    const int64_t row = w->s->row, n = w->s->period + w->s->threaded->strip;
    convert(w, dst, src, type, row);
    for (int64_t done = row; done < n;) {
        const int64_t more = n - done < done ? n - done : done;
        memcpy(dst + (size_t)done * w->s->width, dst, (size_t)more * w->s->width);
        done += more;
    }
}

/* Makes input i of the tile readable. `offset` is the input's element at the tile's origin. A copy
 * in scratch memory is used again if it has the same elements. */
static void load_input(worker *w, int i, int64_t offset) {
    const mg_fused_state *s = w->s;
    const mg_dtype type = (mg_dtype)w->e->in_dtype[i];
    const char *src = (const char *)w->call->in[i] + (ptrdiff_t)mg_dtype_size(type) * offset;
    if (s->access[i] == MG_READ_IN_PLACE) {
        w->at[i] = (char *)(uintptr_t)src;
        return;
    }
    const int64_t n = w->rows * w->columns;
    /* whether the next tile of this thread reads the same part of the input */
    const bool repeats =
        s->access[i] != MG_READ_GATHERED || s->stride[i][s->rank - (s->rows == 1 ? 1 : 2)] == 0;
    if (repeats && w->kept[i] == offset && (s->access[i] != MG_READ_GATHERED || w->filled[i] >= n))
        return;
    w->kept[i] = repeats ? offset : -1;
    w->filled[i] = n;
    char *dst = w->at[i] = w->scratch + s->place[i];
    if (s->access[i] == MG_READ_ONE) {
        double value;
        mg_to_double(&value, src, type, 1);
        fill_copies(w, dst, value);
    } else if (s->access[i] == MG_READ_ROW) {
        repeat_row(w, dst, src, type);
    } else {
        gather_tile(w, i, dst, src);
    }
}

/* ---- one tile ---- */

/* Copies the last n elements of an operand, fewer than a strip, to its pad, and completes the strip
 * with zeros. Their results are discarded, but the conversion of 16-bit floats would branch on
 * uninitialised memory. */
static void fill_pad(const worker *w, char *pad, const char *from, size_t size, int64_t n) {
    const size_t bytes = (size_t)n * size;
    memcpy(pad, from, bytes);
    memset(pad + bytes, 0, (size_t)w->s->threaded->strip * size - bytes);
}

/* The elements after the last whole strip: each operand that advances is completed to a strip in
 * its pad, and results are copied out of theirs. */
static void run_rest(worker *w, const mg_threaded_strips *strips, int64_t done, int64_t n) {
    const mg_fused_state *s = w->s;
    mg_threaded_strips rest = {.n = 1};
    if (w->n_row_steps) rest.row = (strips->row + done * (ptrdiff_t)s->width) % strips->period;
    for (int k = 0; k < w->n_steps; k++) {
        const int operand = w->planned[k]->operand;
        if (!w->size[operand]) continue;
        char *pad = w->scratch + s->pad[operand];
        if (operand < w->e->n_inputs)
            fill_pad(w, pad, w->at[operand] + (size_t)done * w->size[operand], w->size[operand],
                     n - done);
        w->step[k] = (mg_threaded_step){w->planned[k]->code, pad, 0};
    }
    for (int k = 0; k < w->n_row_steps; k++)
        w->step[w->row_step[k]].at = w->at[w->planned[w->row_step[k]]->operand] + rest.row;
    s->threaded->run(w->step, &rest);
    for (int k = mg_fused_result(w->e, 0); k < mg_fused_output(w->e, w->e->n_outputs); k++)
        if (w->size[k])
            memcpy(w->at[k] + (size_t)done * w->size[k], w->scratch + s->pad[k],
                   (size_t)(n - done) * w->size[k]);
}

/* Fills in the addresses of a tile. A store becomes a non-temporal one if the output is stored past
 * the caches and the address is aligned. */
static void set_addresses(worker *w) {
    const mg_fused *e = w->e;
    for (int o = 0; o < e->n_outputs; o++) {
        const int number = mg_fused_output(e, o), result = e->output[o];
        const size_t size = mg_dtype_size(w->call->plan->out[o].value->dtype);
        w->at[number] = (char *)w->call->out[o] + (size_t)w->first * size;
        if (w->size[result]) w->at[result] = w->at[number];
    }
    for (int k = 0; k < w->n_steps; k++) {
        const mg_fused_step *step = w->planned[k];
        char *at = w->at[step->operand];
        w->step[k] = (mg_threaded_step){step->code, at, w->size[step->operand] ? -1 : 0};
        if (step->may_stream && w->s->past_caches && (uintptr_t)at % MG_LINE == 0)
            for (int o = 0; o < e->n_outputs; o++)
                if (e->output[o] == step->operand && w->streamed[o])
                    w->step[k].code = w->s->threaded->stream;
    }
}

/* The arrays to prefetch: inputs of the registers' dtype that are read in place, if there are more
 * than the processor's own prefetcher can follow. */
static int list_arrays(worker *w) {
    enum { FEW = 2 };
    int n = 0;
    for (int i = 0; i < w->e->n_inputs; i++)
        if (w->s->access[i] == MG_READ_IN_PLACE && w->e->in_dtype[i] == w->s->real)
            w->arrays[n++] = w->at[i];
    return n > FEW ? n : 0;
}

/* Runs the loop of the group's only instruction over the tile. */
static void run_loop(const worker *w) {
    const mg_instr *instr = w->e->instr;
    const void *first = w->at[instr->arg[0]], *second = w->at[instr->arg[instr->n_args - 1]];
    char *out = w->call->out[0];
    w->s->loop(out + (size_t)w->first * w->s->width, first, second, (int)(w->rows * w->columns));
}

/* Runs the steps over the tile: whole strips, then the rest. */
static void compute_tile(worker *w) {
    const mg_fused_state *s = w->s;
    if (s->loop) {
        run_loop(w);
        return;
    }
    const int64_t n = w->rows * w->columns, strip = s->threaded->strip, done = n / strip * strip;
    const ptrdiff_t period = (ptrdiff_t)s->period * (ptrdiff_t)s->width;
    mg_threaded_strips strips = {.n = done / strip,
                                 .row_step = w->row_step,
                                 .n_row_steps = w->n_row_steps,
                                 .period = period,
                                 .arrays = w->arrays,
                                 .n_arrays = list_arrays(w)};
    if (w->n_row_steps) strips.row = w->first * (ptrdiff_t)s->width % period;
    set_addresses(w);
    for (int k = 0; k < w->n_row_steps; k++) w->step[w->row_step[k]].at += strips.row;
    s->threaded->run(w->step, &strips);
    if (done < n) run_rest(w, &strips, done, n);
}

/* ---- all tiles ---- */

/* Whether an instruction after `instr` reads input i. */
static bool is_read_after(const mg_fused *e, int i, int instr) {
    for (int k = instr + 1; k < e->n_instrs; k++)
        for (int a = 0; a < e->instr[k].n_args; a++)
            if (e->instr[k].arg[a] == i) return true;
    return false;
}

/* Decides which outputs are stored late, because a later instruction reads an input in their
 * memory, and which past the caches. Memory of an input that is overwritten has been read into the
 * caches; other large results are stored past them. */
static void place_outputs(worker *w) {
    const mg_fused *e = w->e;
    for (int o = 0; o < e->n_outputs; o++) {
        const int instr = e->output[o] - mg_fused_result(e, 0);
        const mg_dtype type = w->call->plan->out[o].value->dtype;
        bool in_place = false;
        w->late[o] = false;
        for (int i = 0; i < e->n_inputs; i++) {
            if (w->call->in[i] != w->call->out[o]) continue;
            in_place = true;
            w->late[o] |= is_read_after(e, i, instr);
        }
        w->streamed[o] = w->s->past_caches && !in_place;
        if (type == w->s->real && !w->late[o])
            w->size[e->output[o]] = w->s->width;
        else
            w->size[mg_fused_output(e, o)] = mg_dtype_size(type);
    }
}

/* Prepares a thread for the tiles of a call. `scratch` is the thread's own. */
static void set_up(worker *w, const mg_call *call, char *scratch) {
    const mg_fused *e = w->e = call->plan->step->fused;
    const mg_fused_state *s = w->s = call->plan->state;
    w->call = call;
    w->scratch = scratch;
    const int n = mg_fused_converted(e, e->n_inputs);
    for (int k = 0; k < n; k++) {
        w->size[k] = 0;
        w->at[k] = s->place[k] < 0 ? NULL : scratch + s->place[k];
    }
    for (int i = 0; i < e->n_inputs; i++) {
        w->kept[i] = -1;
        if (s->access[i] == MG_READ_IN_PLACE || s->access[i] == MG_READ_GATHERED)
            w->size[i] = mg_dtype_size((mg_dtype)e->in_dtype[i]);
    }
    for (int i = 0; i < e->n_imms; i++) fill_copies(w, w->at[e->n_inputs + i], e->imm[i]);
    place_outputs(w);
    w->n_steps = w->n_row_steps = 0;
    for (int k = 0; k < s->n_steps; k++) {
        const int when = s->step[k].when;
        if (when > 0 && w->late[when - 1]) continue;
        if (when < 0 && !w->late[-when - 1]) continue;
        const int operand = s->step[k].operand;
        if (operand < e->n_inputs && s->access[operand] == MG_READ_ROW)
            w->row_step[w->n_row_steps++] = (int16_t)w->n_steps;
        w->planned[w->n_steps++] = &s->step[k];
    }
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
static void run_tile(worker *w, int64_t number) {
    const mg_fused_state *s = w->s;
    const int64_t origin = number / s->pieces, piece = number % s->pieces;
    const int64_t rows = s->dim[s->rank - 2], columns = s->dim[s->rank - 1];
    const bool long_rows = rows == 1;
    w->rows = s->rows;
    w->columns = s->columns;
    if (long_rows && w->columns > columns - piece * s->columns)
        w->columns = columns - piece * s->columns;
    if (!long_rows && w->rows > rows - piece * s->rows) w->rows = rows - piece * s->rows;
    w->first = origin * rows * columns + piece * s->rows * s->columns;
    for (int i = 0; i < w->e->n_inputs; i++) load_input(w, i, offset_of(s, i, origin, piece));
    compute_tile(w);
}

/* Tiles of a call; none if the output is empty. */
static int64_t tiles_of(const mg_call *call) {
    const mg_fused_state *s = call->plan->state;
    return s->count ? s->outer * s->pieces : 0;
}

/* Elements of a full tile. */
static int64_t tile_size(const mg_call *call) {
    const mg_fused_state *s = call->plan->state;
    return s->rows * s->columns;
}

/* Tiles [from, to) of the call, by one thread. */
static void run_tiles(const mg_call *call, char *scratch, int64_t from, int64_t to) {
    worker w;
    if (from >= to) return;
    set_up(&w, call, scratch);
    for (int64_t i = from; i < to; i++) run_tile(&w, i);
    if (w.s->past_caches) mg_simd_used->movement->end_stream();
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

/* Threads for several calls, by the number of elements of all of them. */
static int team_of(const mg_kernel_plan *const *plans, int n) {
    int64_t count = 0;
    for (int i = 0; i < n; i++) count += ((const mg_fused_state *)plans[i]->state)->count;
    return mg_cpu_team(count);
}

/* Scratch for calls that run together: they use the same memory one after another. */
static size_t fused_scratch_many(const mg_kernel_plan *const *plans, int n) {
    return thread_bytes(plans, n) * (size_t)team_of(plans, n);
}

/* Several calls at once (an optimizer's updates). The elements of all their tiles are numbered,
 * call after call, and each thread gets a contiguous range of numbers. A tile is run by the thread
 * whose range has its first element. */
static mg_status fused_run_many(const mg_call *calls, int n) {
    const mg_kernel_plan *plans[MG_MAX_LAUNCH];
    int64_t elements = 0;
    for (int i = 0; i < n; i++) {
        plans[i] = calls[i].plan;
        elements += tiles_of(&calls[i]) * tile_size(&calls[i]);
    }
    if (elements == 0) return MG_OK;
    const size_t bytes = thread_bytes(plans, n);
    const int team = team_of(plans, n);
#pragma omp parallel num_threads(team)
    {
        const int64_t me = omp_get_thread_num(), threads = omp_get_num_threads();
        /* a contiguous range per thread, which may span several calls */
        const int64_t from = elements * me / threads, to = elements * (me + 1) / threads;
        char *scratch = (char *)calls[0].scratch + (size_t)me * bytes;
        int64_t before = 0;
        for (int i = 0; i < n; i++) {
            const int64_t tiles = tiles_of(&calls[i]), size = tile_size(&calls[i]);
            if (tiles == 0) continue; /* an empty result has no tile size */
            const int64_t low = from > before ? mg_divide_up(from - before, size) : 0;
            const int64_t high = to > before ? mg_divide_up(to - before, size) : 0;
            run_tiles(&calls[i], scratch, low, mg_smaller(high, tiles));
            before += tiles * size;
        }
    }
    return MG_OK;
}

static mg_status fused_run(const mg_call *call) {
    return fused_run_many(call, 1);
}

/* Whether the results of the group are stored past the caches, so that their memory is not read
 * first: relu and its gradient over 51 MB took 1.0 instead of 1.3 ms. */
static bool leaves_caches(const mg_kernel_plan *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->step->n_in; i++) bytes += (int64_t)mg_value_bytes(plan->in[i].value);
    for (int o = 0; o < plan->step->n_out; o++)
        bytes += (int64_t)mg_value_bytes(plan->out[o].value);
    return bytes > MG_STREAM_ABOVE;
}

static mg_status fused_prepare(mg_kernel_plan *plan) {
    const mg_fused *e = plan->step->fused;
    mg_fused_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->real = e->wide ? MG_F64 : MG_F32;
    s->width = mg_dtype_size(s->real);
    s->threaded = mg_simd_used->threaded[mg_simd_index(s->real)];
    s->count = mg_count(&plan->out[0]);
    if (s->count == 0) return MG_OK;
    s->past_caches = leaves_caches(plan);
    mg_fused_cut(s, plan);
    mg_fused_write(s, plan);
    plan->scratch = s->thread_bytes * (size_t)mg_cpu_team(s->count);
    return MG_OK;
}

const mg_kernel mg_cpu_fused = {.op = "fused",
                                .name = "tiles",
                                .prepare = fused_prepare,
                                .run = fused_run,
                                .run_many = fused_run_many,
                                .scratch_many = fused_scratch_many,
                                .release = mg_free};

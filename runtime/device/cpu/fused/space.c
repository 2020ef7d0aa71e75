/* Fused element-wise groups: the iteration space and its tiles.
 *
 * Neighbouring axes are merged if every operand steps through them as through one axis
 * (device/axes.h). If each input is then contiguous, or a row of the last axis, or a single number,
 * the space is flat: a tile is any run of elements. Otherwise the last one or two axes make a tile.
 * An input may then have a different row or number for each step of the other axes, and inputs
 * whose elements lie in another order are copied tile by tile. */
#include "device/cpu/fused/fused.h"
#include "device/axes.h"

enum {
    FLAT_TILE = 8192,  /* elements of a tile of a flat space */
    TILE = 1024,       /* elements of other tiles */
    LONGEST_ROW = 4096 /* elements of a row that is kept in scratch memory, at most */
};

/* The axes of the output, and each input's strides over them. */
static void output_axes(mg_fused_state *s, const mg_kernel_plan *plan) {
    const mg_shape *shape = &plan->out[0].value->shape;
    s->rank = shape->rank;
    for (int k = 0; k < s->rank; k++) s->dim[k] = shape->dim[k];
    for (int i = 0; i < plan->step->n_in; i++)
        mg_shape_strides(&plan->in[i].value->shape, shape, s->stride[i]);
}

/* Merges axes where possible; leaves at least one. */
static void merge_axes(mg_fused_state *s, int n_in) {
    int64_t *strides[MG_FUSE_MAX_INPUTS];
    for (int i = 0; i < n_in; i++) strides[i] = s->stride[i];
    s->rank = mg_axes_merge(s->rank, s->dim, strides, n_in);
    if (s->rank > 0) return;
    s->rank = 1;
    s->dim[0] = 1;
    for (int i = 0; i < n_in; i++) s->stride[i][0] = 0;
}

/* Puts an axis of size 1 in front of the last one. */
static void split_last(mg_fused_state *s, int n_in) {
    for (int i = 0; i < n_in; i++) {
        s->stride[i][s->rank] = s->stride[i][s->rank - 1];
        s->stride[i][s->rank - 1] = 0;
    }
    s->dim[s->rank] = s->dim[s->rank - 1];
    s->dim[s->rank - 1] = 1;
    s->rank++;
}

/* How a flat space reads an input; MG_READ_GATHERED if this input makes the space not flat. */
static mg_fused_access flat_access(const mg_fused_state *s, int input) {
    const int64_t along = s->stride[input][s->rank - 1];
    const int64_t down = s->rank == 2 ? s->stride[input][0] : along * s->dim[0];
    const int64_t row = s->dim[s->rank - 1];
    if (along == 0 && down == 0) return MG_READ_ONE;
    if (along == 1 && down == row) return MG_READ_IN_PLACE;
    return along == 1 && down == 0 && row <= LONGEST_ROW && !s->loop ? MG_READ_ROW
                                                                     : MG_READ_GATHERED;
}

/* Makes the space one axis and returns true, if it is flat. */
static bool flatten(mg_fused_state *s, int n_in) {
    if (s->rank > 2) return false;
    for (int i = 0; i < n_in; i++)
        if ((s->access[i] = flat_access(s, i)) == MG_READ_GATHERED) return false;
    for (int i = 0; i < n_in; i++) s->stride[i][0] = s->access[i] == MG_READ_IN_PLACE;
    s->dim[0] = s->count;
    s->rank = 1;
    return true;
}

/* Whether each input is contiguous, repeats a row of the last axis, or is a single number along the
 * last two axes. Then no tile of an input is copied, and tiles may be long. */
static bool is_by_rows(const mg_fused_state *s, int n_in) {
    const int64_t last = s->dim[s->rank - 1];
    if (s->loop || s->rank < 2 || last > LONGEST_ROW) return false;
    for (int i = 0; i < n_in; i++) {
        const int64_t *step = &s->stride[i][s->rank - 1];
        if (step[0] == 1 ? step[-1] != last && step[-1] != 0 : step[0] != 0 || step[-1] != 0)
            return false;
    }
    return true;
}

/* A tile is a part of the last axis if that is long, otherwise several rows of it. In a plain loop
 * over a space that is not flat, the last elements of a tile may be rounded differently from
 * others. Such spaces are cut without regard to the number of threads, so that results do not
 * depend on it. */
static void cut_tiles(mg_fused_state *s, int n_in, int64_t size, bool flat) {
    enum { LEAST = 256 }; /* elements */
    const int64_t last = s->dim[s->rank - 1], strip = s->threaded->strip;
    const int64_t team = s->loop && !flat ? 1 : mg_cpu_team(s->count);
    s->outer = 1;
    if (s->rank == 1 || last >= size / 2) {
        split_last(s, n_in);
        for (int k = 0; k < s->rank - 2; k++) s->outer *= s->dim[k];
        const int64_t strips =
            mg_even_share(s->outer, mg_divide_up(last, strip), size / strip, LEAST / strip, team);
        s->rows = 1;
        s->columns = mg_smaller(strips * strip, last);
        s->pieces = mg_divide_up(last, s->columns);
    } else {
        const int64_t rows = s->dim[s->rank - 2];
        for (int k = 0; k < s->rank - 2; k++) s->outer *= s->dim[k];
        int64_t unit = 1; /* rows that are whole strips */
        while (unit * last % strip) unit *= 2;
        if (unit >= size / last) unit = 1;
        s->columns = last;
        s->rows = unit * mg_even_share(s->outer, mg_divide_up(rows, unit), size / last / unit,
                                       mg_divide_up(LEAST, unit * last), team);
        s->rows = mg_smaller(s->rows, rows);
        s->pieces = mg_divide_up(rows, s->rows);
    }
}

/* How a tile of a space that is not flat reads an input. */
static mg_fused_access tile_access(const mg_fused_state *s, int input) {
    const int64_t *step = &s->stride[input][s->rank - 1];
    if (step[0] == 0 && (s->rows == 1 || step[-1] == 0)) return MG_READ_ONE;
    if (step[0] == 1 && (s->rows == 1 || step[-1] == s->columns)) return MG_READ_IN_PLACE;
    return step[0] == 1 && step[-1] == 0 && s->columns <= LONGEST_ROW && !s->loop
               ? MG_READ_ROW
               : MG_READ_GATHERED;
}

/* The plain loop for a group of one instruction that reads and writes only the registers' dtype, or
 * NULL. A plain loop cannot store past the caches. */
static mg_threaded_loop *loop_of(const mg_fused_state *s, const mg_kernel_plan *plan) {
    const mg_fused *e = plan->step->fused;
    bool fits = e->n_instrs == 1 && !s->past_caches && plan->out[0].value->dtype == s->real;
    for (int i = 0; i < e->n_inputs; i++) fits &= e->in_dtype[i] == s->real;
    return fits ? s->threaded->loop[e->instr[0].op] : NULL;
}

void mg_fused_cut(mg_fused_state *s, const mg_kernel_plan *plan) {
    const int n_in = plan->step->fused->n_inputs;
    output_axes(s, plan);
    merge_axes(s, n_in);
    s->loop = loop_of(s, plan);
    s->row = s->dim[s->rank - 1];
    s->period = s->row * ((s->threaded->strip + s->row - 1) / s->row);
    if (flatten(s, n_in)) {
        cut_tiles(s, n_in, s->loop ? TILE : FLAT_TILE, true);
    } else {
        cut_tiles(s, n_in, is_by_rows(s, n_in) ? FLAT_TILE : TILE, false);
        for (int i = 0; i < n_in; i++) s->access[i] = tile_access(s, i);
    }
    s->copies = s->loop ? s->rows * s->columns : s->threaded->strip;
}

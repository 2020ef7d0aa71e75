/* Channel views: how a tensor is cut into units, and how the rows of a unit are found. */
#include "device/cpu/channel_view.h"

enum {
    CHUNK = 32768, /* the most elements of a unit, about what a second-level cache holds */
    NORM = 16384,  /* and the fewest of a norm, which joins the units in one thread */
    EVENLY = 64    /* chunks are a multiple of this number, or of a power of two below it */
};

const mg_simd_folds *mg_folds_of(mg_dtype t) {
    return mg_simd_used->folds[mg_simd_index(t)];
}

const char *mg_folds_refuse(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

/* ---- cutting ---- */

/* The number of chunks: one that 4, 8, 16 and 64 threads can share evenly, if units have `smallest`
 * elements then. */
static int64_t even_chunks(int64_t rows, int64_t width, int64_t smallest) {
    const int64_t fewest = mg_divide_up(rows * width, CHUNK), most = rows * width / smallest;
    int64_t step = EVENLY;
    while (step > 1 && mg_divide_up(fewest, step) * step > most) step /= 2;
    return mg_divide_up(fewest, step) * step;
}

/* Completes a view whose lanes, rows and tile width are set: the number of tiles, the rows of a
 * chunk and the number of chunks. A left-over row counts as one more chunk. */
static mg_channel_view cut_view(mg_channel_view s, int64_t smallest) {
    s.tiles = mg_divide_up(s.lanes, s.width);
    s.chunk_rows = s.rows ? mg_divide_up(s.rows, even_chunks(s.rows, s.width, smallest)) : 1;
    s.chunks = mg_divide_up(s.rows, s.chunk_rows) + (s.tail > 0);
    return s;
}

/* Where a tile has room for several pixels, a row takes as many as fit, so that tensors with few
 * channels fill vectors too. What is left after the last whole row becomes the tail. */
mg_channel_view mg_channel_view_of_rows(int64_t count, int64_t channels, int64_t smallest) {
    if (count == 0 || channels == 0) return (mg_channel_view){.channels = channels, .width = 1};
    const int64_t pixels = channels < MG_TILE ? MG_TILE / channels : 1, lanes = pixels * channels;
    return cut_view((mg_channel_view){.channels = channels,
                                      .lanes = lanes,
                                      .rows = count / lanes,
                                      .row_step = lanes,
                                      .tail = count % lanes,
                                      .width = lanes < MG_TILE ? lanes : MG_TILE},
                    smallest);
}

mg_channel_view mg_channel_view_of(const mg_value *x) {
    return mg_channel_view_of_rows(mg_shape_count(&x->shape), x->shape.dim[x->shape.rank - 1],
                                   NORM);
}

/* Whether the unit is the left-over row: the last chunk of a view that has a tail. */
static bool is_tail(const mg_channel_view *s, int64_t unit) {
    return s->tail > 0 && unit / s->tiles == s->chunks - 1;
}

/* Lanes of the unit's tile; 0 for a tile that the left-over row does not reach. */
int64_t mg_channel_view_unit_width(const mg_channel_view *s, int64_t unit) {
    const int64_t lanes = is_tail(s, unit) ? s->tail : s->lanes;
    const int64_t left = lanes - unit % s->tiles * s->width;
    if (left >= s->width) return s->width;
    return left > 0 ? left : 0;
}

int64_t mg_channel_view_unit_rows(const mg_channel_view *s, int64_t unit) {
    const int64_t left = s->rows - unit / s->tiles * s->chunk_rows;
    if (is_tail(s, unit)) return 1;
    return left < s->chunk_rows ? left : s->chunk_rows;
}

/* The left-over row follows the last whole one. */
mg_piece mg_channel_view_piece(const mg_channel_view *s, int64_t unit) {
    const int64_t row = is_tail(s, unit) ? s->rows : unit / s->tiles * s->chunk_rows;
    mg_piece p = {.offset = row * s->row_step + unit % s->tiles * s->width,
                  .width = (int)mg_channel_view_unit_width(s, unit)};
    if (p.width > 0) p.rows = mg_channel_view_unit_rows(s, unit);
    return p;
}

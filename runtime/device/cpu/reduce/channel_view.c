/* Channel views: how a tensor is cut into units, and how the rows of a unit are found. */
#include "device/cpu/reduce/channel_view.h"

enum {
    CHUNK = 32768, /* the most elements of a unit, about what a second-level cache holds */
    NORM = 1024,   /* and the fewest of a norm: so few that 64 threads share images of 7x7 pixels
                      evenly. With one thread, these take 1.15 times as long, forward and backward, as
                      with units of 16384 elements; larger images take equally long */
    EVENLY = 64    /* chunks are a multiple of this number, or of a power of two below it */
};

const mg_simd_folds *mg_folds_of(mg_dtype t) {
    return mg_simd_used->folds[mg_dtype_is_half(t) ? MG_F32 : t];
}

const char *mg_folds_refuse(const mg_kernel_plan *plan) {
    return mg_dtype_is_half(plan->in[0].value->dtype) ? "16-bit floats" : NULL;
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

/* The elements of tile `tile` of a chunk. The left-over row is the last chunk, after the last whole
 * row. */
static mg_piece piece_of(const mg_channel_view *s, int64_t chunk, int64_t tile) {
    const bool is_tail = s->tail > 0 && chunk == s->chunks - 1;
    const int64_t first = is_tail ? s->rows : chunk * s->chunk_rows;
    const int64_t lanes = (is_tail ? s->tail : s->lanes) - tile * s->width;
    mg_piece p = {.offset = first * s->row_step + tile * s->width};
    if (lanes > 0) p.width = (int)mg_smaller(lanes, s->width);
    if (lanes > 0) p.rows = is_tail ? 1 : mg_smaller(s->chunk_rows, s->rows - first);
    return p;
}

mg_piece mg_channel_view_piece(const mg_channel_view *s, int64_t unit) {
    return piece_of(s, unit / s->tiles, unit % s->tiles);
}

/* ---- halves ---- */

mg_unit_rows mg_channel_view_read(const mg_channel_view *s, mg_piece p, const void *x, mg_dtype t,
                                  float *copy) {
    const void *at = (const char *)x + p.offset * (int64_t)mg_dtype_size(t);
    if (!mg_dtype_is_half(t)) return (mg_unit_rows){at, s->row_step};
    mg_simd_used->conversions->load_rows(copy, at, s->row_step, p.rows, p.width, t);
    return (mg_unit_rows){copy, p.width};
}

void mg_channel_view_write(const mg_channel_view *s, mg_piece p, const float *copy, void *y,
                           mg_dtype t) {
    mg_simd_used->conversions->store_rows((uint16_t *)y + p.offset, s->row_step, copy, p.rows,
                                          p.width, t);
}

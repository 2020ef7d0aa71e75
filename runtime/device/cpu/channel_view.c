/* Channel views: how a tensor is cut into units, and how the rows of a unit are found. */
#include "device/cpu/channel_view.h"

enum { CHUNK = 32768 }; /* elements of a chunk, about what a second-level cache holds */

const mg_simd_folds *mg_folds_of(mg_dtype t) {
    return mg_simd_used->folds[mg_simd_index(t)];
}

const char *mg_folds_refuse(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

/* ---- cutting ---- */

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Completes a view whose lanes, rows and tile width are set: the number of tiles, the rows of a
 * chunk and the number of chunks. A left-over row counts as one more chunk. */
static mg_channel_view cut_view(mg_channel_view s) {
    s.tiles = divide_up(s.lanes, s.width);
    s.chunk_rows = CHUNK / s.width;
    s.chunks = divide_up(s.images * s.rows, s.chunk_rows) + (s.tail > 0);
    return s;
}

/* Where a tile has room for several pixels, a row takes as many as fit, so that tensors with few
 * channels fill vectors too. What is left after the last whole row becomes the tail. */
mg_channel_view mg_channel_view_of_rows(int64_t count, int64_t channels) {
    if (count == 0 || channels == 0) return (mg_channel_view){.channels = channels, .width = 1};
    const int64_t pixels = channels < MG_TILE ? MG_TILE / channels : 1, lanes = pixels * channels;
    return cut_view((mg_channel_view){.channels = channels,
                                      .lanes = lanes,
                                      .images = 1,
                                      .rows = count / lanes,
                                      .row_step = lanes,
                                      .tile_step = MG_TILE,
                                      .tail = count % lanes,
                                      .width = lanes < MG_TILE ? lanes : MG_TILE});
}

/* Row-major tensors are seen as a matrix with the channels as columns. A blocked image has one tile
 * per block of 16 channels, whose pixels lie side by side within an image. */
mg_channel_view mg_channel_view_of(const mg_value *x, int layout) {
    const int64_t *n = x->shape.dim, count = mg_shape_count(&x->shape);
    if (layout != MG_BLOCKED || count == 0)
        return mg_channel_view_of_rows(count, n[x->shape.rank - 1]);
    const int64_t pixels = n[1] * n[2];
    return cut_view((mg_channel_view){.channels = n[3],
                                      .lanes = n[3],
                                      .images = n[0],
                                      .rows = pixels,
                                      .image_step = n[3] * pixels,
                                      .row_step = MG_LANES,
                                      .tile_step = pixels * MG_LANES,
                                      .width = MG_LANES});
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
    const int64_t left = s->images * s->rows - unit / s->tiles * s->chunk_rows;
    if (is_tail(s, unit)) return 1;
    return left < s->chunk_rows ? left : s->chunk_rows;
}

/* A piece ends where an image ends, because the next image's rows of this tile lie elsewhere. The
 * left-over row follows the last whole one. */
bool mg_channel_view_next(const mg_channel_view *s, int64_t unit, mg_piece *p) {
    const bool tail = is_tail(s, unit);
    if (p->end == 0) {
        p->next = tail ? s->rows : unit / s->tiles * s->chunk_rows;
        p->end = p->next + mg_channel_view_unit_rows(s, unit);
        p->width = (int)mg_channel_view_unit_width(s, unit);
    }
    if (p->next >= p->end || p->width == 0) return false;
    const int64_t image = tail ? 0 : p->next / s->rows, row = p->next - image * s->rows;
    const int64_t left = tail ? 1 : s->rows - row, wanted = p->end - p->next;
    p->offset = image * s->image_step + unit % s->tiles * s->tile_step + row * s->row_step;
    p->rows = left < wanted ? left : wanted;
    p->next += p->rows;
    return true;
}

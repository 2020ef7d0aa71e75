/* Channel views: a tensor seen as rows of lanes, for operations that treat each channel (the last
 * axis) separately: batch norm and reductions.
 *
 * A row is one pixel's channels, or those of several pixels where channels are few: lane j holds
 * channel j % channels. The elements after the last whole row are the tail. Rows are cut into
 * chunks and lanes into tiles; a unit is one chunk of one tile, and threads share the units. The
 * cut depends on the shape only. So does every sum that adds up units in order, whatever the number
 * of threads. */
#ifndef MG_DEVICE_CPU_REDUCE_CHANNEL_VIEW_H
#define MG_DEVICE_CPU_REDUCE_CHANNEL_VIEW_H

#include "device/cpu/cpu.h"

typedef struct mg_channel_view {
    int64_t channels, lanes;    /* lanes of a whole row, without padding */
    int64_t rows, row_step;     /* whole rows; from one to the next, in elements */
    int64_t tail;               /* elements of the left-over row; 0: there is none */
    int64_t width, tiles;       /* lanes of a tile; tiles of a row */
    int64_t chunk_rows, chunks; /* rows of a chunk; chunks, the tail's included */
} mg_channel_view;

/* The elements of a unit. */
typedef struct mg_piece {
    int64_t offset, rows; /* of the first element; rows, row_step apart */
    int width;            /* lanes; 0: the left-over row does not reach the tile */
} mg_piece;

mg_channel_view mg_channel_view_of(const mg_value *x);
/* The view of `count` row-major elements in rows of `channels`, whose units have `smallest`
 * elements or more where threads can then share them evenly. */
mg_channel_view mg_channel_view_of_rows(int64_t count, int64_t channels, int64_t smallest);
/* unit = chunk * tiles + tile */
mg_piece mg_channel_view_piece(const mg_channel_view *s, int64_t unit);
/* The channel of lane j of a tile, or -1 if it is padding. */
static inline int64_t mg_channel_view_channel(const mg_channel_view *s, int64_t tile, int64_t j) {
    const int64_t lane = tile * s->width + j;
    return lane < s->lanes ? lane % s->channels : -1;
}
static inline int64_t mg_channel_view_units(const mg_channel_view *s) {
    return s->chunks * s->tiles;
}

/* ---- units of float16 and bfloat16, which the loops take as floats ---- */

/* Floats of a copy of MG_FOLD_ROWS rows, which are converted at a time: it stays in the L1 cache,
 * and sums have the same order as those of float32. */
enum { MG_HALVES_PART = MG_FOLD_ROWS * MG_TILE };

/* The first rows of a unit of elements of dtype t: all of them, or those that are converted at a
 * time. */
static inline mg_piece mg_first_part(mg_piece unit, mg_dtype t) {
    if (mg_dtype_is_half(t)) unit.rows = mg_smaller(unit.rows, MG_FOLD_ROWS);
    return unit;
}
/* The rows after part p; none if it is the last. */
static inline mg_piece mg_next_part(const mg_channel_view *s, mg_piece unit, mg_piece p) {
    const int64_t done = (p.offset - unit.offset) / s->row_step + p.rows;
    return (mg_piece){unit.offset + done * s->row_step, mg_smaller(p.rows, unit.rows - done),
                      unit.width};
}

/* The rows of a unit, or of a part of it, as the loops take them: `step` elements apart. */
typedef struct mg_unit_rows {
    const void *at;
    int64_t step;
} mg_unit_rows;

/* Rows of x: in place, or halves converted to `copy`. */
mg_unit_rows mg_channel_view_read(const mg_channel_view *s, mg_piece p, const void *x, mg_dtype t,
                                  float *copy);
/* Rounds rows, which follow each other in `copy`, to those of y in dtype t, a half. */
void mg_channel_view_write(const mg_channel_view *s, mg_piece p, const float *copy, void *y,
                           mg_dtype t);

/* The loops for elements of a dtype; halves are given to them as floats. */
const mg_simd_folds *mg_folds_of(mg_dtype t);
/* Why the loops cannot take the dtype of input 0 in place; NULL if they can. */
const char *mg_folds_refuse(const mg_kernel_plan *plan);

#endif

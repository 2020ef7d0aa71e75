/* Channel views: a tensor seen as rows of lanes, for what treats each channel (last axis) by
 * itself.
 *
 * Row-major, a row is one pixel's channels, or several pixels' where channels are few: lane j holds
 * channel j % channels, and a row cut short may be left over. Blocked, a row is a pixel's 16 lanes,
 * and the rows of a tile lie apart image by image. Rows are cut into chunks and lanes into tiles; a
 * unit is one chunk of one tile. The cut depends on shapes only, and so do the bits of every sum
 * that adds units in order, however many threads there are. */
#ifndef MG_DEVICE_CPU_CHANNEL_VIEW_H
#define MG_DEVICE_CPU_CHANNEL_VIEW_H

#include "device/cpu/cpu.h"

typedef struct mg_channel_view {
    int64_t channels, lanes; /* lanes of a whole row that hold something */
    int64_t images, rows;    /* rows an image */
    int64_t image_step, row_step, tile_step;
    int64_t tail; /* lanes of the row left over; a chunk of its own */
    int64_t width, tiles, chunk_rows, chunks;
} mg_channel_view;

/* Rows of one unit that lie evenly. */
typedef struct mg_piece {
    int64_t offset, rows; /* in elements */
    int width;
    int64_t next, end; /* row numbers */
} mg_piece;

mg_channel_view mg_channel_view_of(const mg_value *x, int layout);
/* count elements, row-major, in rows of `channels`. */
mg_channel_view mg_channel_view_of_rows(int64_t count, int64_t channels);
/* The pieces of a unit (chunk * tiles + tile): start from zero; false when there are no more. */
bool mg_channel_view_next(const mg_channel_view *s, int64_t unit, mg_piece *p);
/* A unit's size. */
int64_t mg_channel_view_unit_rows(const mg_channel_view *s, int64_t unit);
int64_t mg_channel_view_unit_width(const mg_channel_view *s, int64_t unit);
/* The channel of lane j of a tile, or -1 if it is padding. */
static inline int64_t mg_channel_view_channel(const mg_channel_view *s, int64_t tile, int64_t j) {
    const int64_t lane = tile * s->width + j;
    return lane < s->lanes ? lane % s->channels : -1;
}
static inline int64_t mg_channel_view_units(const mg_channel_view *s) {
    return s->chunks * s->tiles;
}

/* For float32 or float64. */
const mg_simd_folds *mg_folds_of(mg_dtype t);
/* The reason for accepting neither, or NULL. */
const char *mg_folds_refuse(const mg_kernel_plan *plan);

#endif

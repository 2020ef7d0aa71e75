/* The windows of a convolution: see conv/windows.h. */
#include "device/cpu/conv/windows.h"
#include <string.h>

/* Finds the taps whose pixels are neighbours in a line: with all channels (no groups), they are
 * contiguous in memory and can be read together. */
static void join_taps(mg_windows *w) {
    for (int64_t t = w->taps - 1; t >= 0; t--) {
        mg_tap *now = &w->tap[t], *next = now + 1;
        const bool joined = t + 1 < w->taps && w->depth == w->image[3] && next->y == now->y &&
                            next->x == now->x + 1;
        now->run = joined ? next->run + 1 : 1;
    }
}

void mg_look_forward(mg_windows *w, const mg_conv_attrs *a, const int64_t *image,
                     const int64_t *grid, const int64_t *filters) {
    const int64_t *apart = a->dilations.v, *pad = a->pads.v;
    w->lines = grid[1], w->columns = grid[2];
    w->stride_y = a->strides.v[0], w->stride_x = a->strides.v[1];
    memcpy(w->image, image, sizeof w->image);
    w->first = 0, w->line = grid[2] * grid[3], w->pixel = grid[3];
    w->depth = w->channels = filters[2];
    for (int64_t y = 0; y < filters[0]; y++)
        for (int64_t x = 0; x < filters[1]; x++)
            w->tap[w->taps++] =
                (mg_tap){y * apart[0] - pad[0], x * apart[1] - pad[2], y * filters[1] + x, 1};
    join_taps(w);
}

/* The number of places along one axis. */
static int64_t places_within(int64_t stride, int64_t size) {
    return stride < size ? stride : size;
}

int64_t mg_look_back_places(const mg_conv_attrs *a, const int64_t *grid) {
    return places_within(a->strides.v[0], grid[1]) * places_within(a->strides.v[1], grid[2]);
}

/* Tap t of the filter connects pixel p of the image with the result at (p + pad - t * dilation) /
 * stride, if that is an integer. */
void mg_look_back(mg_windows *w, const mg_conv_attrs *a, const int64_t *dy, const int64_t *grid,
                  const int64_t *filters, int64_t place) {
    const int64_t *apart = a->dilations.v, *pad = a->pads.v, *stride = a->strides.v;
    const int64_t wide = places_within(stride[1], grid[2]), y = place / wide, x = place % wide;
    w->lines = (grid[1] - y + stride[0] - 1) / stride[0];
    w->columns = (grid[2] - x + stride[1] - 1) / stride[1];
    w->stride_y = w->stride_x = 1;
    memcpy(w->image, dy, sizeof w->image);
    w->first = (y * grid[2] + x) * grid[3];
    w->line = stride[0] * grid[2] * grid[3], w->pixel = stride[1] * grid[3];
    w->depth = filters[3] / a->groups, w->channels = filters[2];
    /* in reverse, so that taps of neighbouring pixels follow each other in memory order */
    for (int64_t i = filters[0] - 1; i >= 0; i--)
        for (int64_t j = filters[1] - 1; j >= 0; j--) {
            const int64_t row = y + pad[0] - i * apart[0], column = x + pad[2] - j * apart[1];
            if (row % stride[0] || column % stride[1]) continue;
            w->tap[w->taps++] =
                (mg_tap){row / stride[0], column / stride[1], i * filters[1] + j, 1};
        }
    join_taps(w);
}

/* The random choices of an augmentation, a function of seed, epoch and row.
 *
 * Every choice uses its own Philox word: the row is part of the counter's index, the epoch is its
 * ordinal, and the seed is the key. */
#include "core/philox.h"
#include "data/transforms/augment.h"
#include <assert.h>
#include <math.h>

/* Indices of the words. Each try of the random resized crop has four words. */
enum {
    ROTATION,
    SHEAR,
    HEIGHT_SHIFT,
    HEIGHT_SIGN,
    WIDTH_SHIFT,
    WIDTH_SIGN,
    ZOOM_ROWS,
    ZOOM_COLUMNS,
    HORIZONTAL_FLIP,
    VERTICAL_FLIP,
    CHANNEL_SHIFT,
    BRIGHTNESS,
    CONTRAST,
    SATURATION,
    HUE,
    CROP_ROW,
    CROP_COLUMN,
    CUTOUT_ROW,
    CUTOUT_COLUMN,
    BRIGHTNESS_FACTOR,
    N_WORDS, /* a multiple of 4 */
    TRIES = 10,
    FIRST_TRY = N_WORDS / 4, /* block */
    BLOCKS = 16              /* of a row, at least N_WORDS / 4 + TRIES */
};
static_assert(N_WORDS % 4 == 0 && BLOCKS >= FIRST_TRY + TRIES, "the words of a row");

/* Block number `block` of the row, as numbers in [0, 1). */
static void draw(const mg_augment_spec *s, mg_row_key key, int block, double u[4]) {
    uint32_t word[4];
    const uint64_t index = (uint64_t)key.row * BLOCKS + (uint64_t)block;
    const uint32_t stream = 0x61756700u ^ (uint32_t)(s->seed >> 32);
    mg_philox(word, index, key.epoch, (uint32_t)s->seed, stream);
    for (int i = 0; i < 4; i++) u[i] = word[i] * 0x1p-32;
}

static double from_range(const mg_range *r, double u, double otherwise) {
    return r->on ? r->lo + u * (r->hi - r->lo) : otherwise;
}

static double shift_pixels(const mg_shift *s, double u, double sign, int64_t size) {
    double v = 0;
    switch (s->kind) {
    case MG_SHIFT_NONE: return 0;
    case MG_SHIFT_REAL: v = s->lo + u * (s->hi - s->lo); break;
    case MG_SHIFT_WHOLE: v = s->lo + floor(u * (s->hi - s->lo + 1)); break;
    case MG_SHIFT_CHOICE: v = s->choice[(int)(u * s->n_choices)] * (sign < 0.5 ? -1 : 1); break;
    }
    return s->fraction ? v * (double)size : v;
}

mg_augment_choice mg_augment_choose(const mg_augment_spec *s, mg_row_key key, int64_t height,
                                    int64_t width) {
    double u[N_WORDS];
    for (int block = 0; block < N_WORDS / 4; block++) draw(s, key, block, u + 4 * block);
    return (mg_augment_choice){
        .rotation = from_range(&s->rotation, u[ROTATION], 0),
        .shear = from_range(&s->shear, u[SHEAR], 0),
        .height_shift = shift_pixels(&s->height_shift, u[HEIGHT_SHIFT], u[HEIGHT_SIGN], height),
        .width_shift = shift_pixels(&s->width_shift, u[WIDTH_SHIFT], u[WIDTH_SIGN], width),
        .zoom_rows = from_range(&s->zoom_rows, u[ZOOM_ROWS], 1),
        .zoom_columns = from_range(&s->zoom_columns, u[ZOOM_COLUMNS], 1),
        .horizontal_flip = u[HORIZONTAL_FLIP] < s->horizontal_flip,
        .vertical_flip = u[VERTICAL_FLIP] < s->vertical_flip,
        .channel_shift = from_range(&s->channel_shift, u[CHANNEL_SHIFT], 0),
        .brightness_factor = from_range(&s->brightness_factor, u[BRIGHTNESS_FACTOR], 1),
        .brightness = from_range(&s->brightness, u[BRIGHTNESS], 0),
        .contrast = from_range(&s->contrast, u[CONTRAST], 1),
        .saturation = from_range(&s->saturation, u[SATURATION], 1),
        .hue = from_range(&s->hue, u[HUE], 0),
        .crop_row = u[CROP_ROW],
        .crop_column = u[CROP_COLUMN],
        .cutout_row = u[CUTOUT_ROW],
        .cutout_column = u[CUTOUT_COLUMN],
    };
}

/* The largest centered window whose aspect is in the range. */
static mg_region middle_window(const mg_augment_spec *s, int64_t height, int64_t width) {
    const double h = (double)height, w = (double)width, aspect = w / h;
    mg_region m = {.height = height, .width = width};
    if (aspect < s->aspect.lo) m.height = (int64_t)fmax(1, rint(w / s->aspect.lo));
    if (aspect > s->aspect.hi) m.width = (int64_t)fmax(1, rint(h * s->aspect.hi));
    m.row = (height - m.height) / 2;
    m.column = (width - m.width) / 2;
    return m;
}

/* As in Inception: up to ten tries of an area and a logarithmically uniform aspect. */
mg_region mg_augment_choose_window(const mg_augment_spec *s, mg_row_key key, int64_t height,
                                   int64_t width) {
    for (int k = 0; k < TRIES; k++) {
        double u[4];
        draw(s, key, FIRST_TRY + k, u);
        const double area = from_range(&s->area, u[0], 1) * (double)height * (double)width;
        const double lo = log(s->aspect.lo), hi = log(s->aspect.hi);
        const double aspect = exp(lo + u[1] * (hi - lo));
        const double w = rint(sqrt(area * aspect)), h = rint(sqrt(area / aspect));
        if (w < 1 || h < 1 || w > (double)width || h > (double)height) continue;
        return (mg_region){.height = (int64_t)h,
                           .width = (int64_t)w,
                           .row = (int64_t)(u[2] * ((double)height - h + 1)),
                           .column = (int64_t)(u[3] * ((double)width - w + 1))};
    }
    return middle_window(s, height, width);
}

/* The geometric steps: resize, crops, and the affine map with the flips.
 *
 * Resize and crops are tables of rows and columns. The affine map is also a table if rows and
 * columns are independent (no rotation, no shear). Flips are merged into the last of these, so that
 * they cost nothing. */
#include "core/alloc.h"
#include "data/transforms/steps.h"
#include <math.h>
#include <string.h>

static bool crops(const mg_augment_spec *s) {
    return s->crop_height || s->center_height;
}

static bool resizes(const mg_augment_spec *s) {
    return s->resize_height || s->resize_shorter || s->zoomed_height;
}

/* The new size of the side `this` of an image whose shorter side becomes n; `other` is the other
 * side. */
static int64_t shorter_side(int64_t this, int64_t other, int64_t n) {
    if (this < 0 || other < 0) return -1;
    if (this <= other) return n;
    const double v = rint((double)this * (double)n / (double)other);
    return v > 65500 ? 65500 : (int64_t)v; /* MG_IMAGE_SIDE; reached only by extreme shapes */
}

mg_sizes mg_augment_resized(const mg_augment_spec *s, mg_sizes z) {
    if (s->resize_height) return (mg_sizes){s->resize_height, s->resize_width, z.channels};
    if (!s->resize_shorter) return z;
    return (mg_sizes){shorter_side(z.height, z.width, s->resize_shorter),
                      shorter_side(z.width, z.height, s->resize_shorter), z.channels};
}

/* The part of `this` side of an image that remains when the other side, whole, gets the size
 * `other_to`. With Keras's arithmetic, as the padding. */
static int64_t side_to_fit(int64_t this, int64_t to, int64_t other, int64_t other_to) {
    const int64_t n = (int64_t)((float)(other * to) / (float)other_to);
    return n > this ? this : n < 1 ? 1 : n;
}

/* A side of n positions becomes `to` of them: n / ratio, and what is left is outside. */
static mg_status pad_to_fit(const mg_augment_spec *s, mg_axis *a, int64_t n, int64_t to,
                            float ratio) {
    const float size = (float)n / ratio, left = floorf(((float)to - size) / 2);
    const int64_t whole = size < 1 ? 1 : (int64_t)size;
    MG_TRY(mg_axis_resize(a, 0, n, whole, s->resize_kind, s->antialias));
    return mg_axis_crop(a, left > 0 ? -(int64_t)left : 0, to, MG_FILL_CONSTANT);
}

/* The tables of a resize to the size z. */
static mg_status make_resize(const mg_augment_spec *s, const mg_pixels *in, mg_sizes z,
                             mg_axis *rows, mg_axis *columns) {
    const int64_t height = in->height, width = in->width;
    int64_t h = height, w = width;
    if (s->resize_fit == MG_PAD_TO_FIT) {
        const float ratio = fmaxf((float)width / (float)z.width, (float)height / (float)z.height);
        MG_TRY(pad_to_fit(s, rows, height, z.height, ratio));
        return pad_to_fit(s, columns, width, z.width, ratio);
    }
    if (s->resize_fit == MG_CROP_TO_FIT) {
        h = side_to_fit(height, z.height, width, z.width);
        w = side_to_fit(width, z.width, height, z.height);
    }
    MG_TRY(mg_axis_resize(rows, (height - h) / 2, h, z.height, s->resize_kind, s->antialias));
    return mg_axis_resize(columns, (width - w) / 2, w, z.width, s->resize_kind, s->antialias);
}

/* The tables of rows and columns: resize, crops, or the random resized crop. */
static mg_status make_tables(const mg_augment_spec *s, mg_row_key key, const mg_augment_choice *c,
                             const mg_pixels *in, mg_axis *rows, mg_axis *columns) {
    const mg_sizes z = mg_augment_resized(s, (mg_sizes){in->height, in->width, in->channels});
    if (s->zoomed_height) {
        const mg_region w = mg_augment_choose_window(s, key, in->height, in->width);
        MG_TRY(
            mg_axis_resize(rows, w.row, w.height, s->zoomed_height, s->resize_kind, s->antialias));
        return mg_axis_resize(columns, w.column, w.width, s->zoomed_width, s->resize_kind,
                              s->antialias);
    }
    MG_TRY(make_resize(s, in, z, rows, columns));
    if (s->center_height) {
        const int64_t h = s->center_height, w = s->center_width;
        MG_TRY(mg_axis_crop(rows, (z.height - h) / 2, h, MG_FILL_CONSTANT));
        MG_TRY(mg_axis_crop(columns, (z.width - w) / 2, w, MG_FILL_CONSTANT));
    }
    if (s->crop_height) {
        const int64_t h = s->crop_height, w = s->crop_width;
        const double down = (double)(rows->n + 2 * s->padding_rows - h + 1);
        const double right = (double)(columns->n + 2 * s->padding_columns - w + 1);
        MG_TRY(mg_axis_crop(rows, (int64_t)(c->crop_row * down) - s->padding_rows, h,
                            s->padding_fill));
        MG_TRY(mg_axis_crop(columns, (int64_t)(c->crop_column * right) - s->padding_columns, w,
                            s->padding_fill));
    }
    return MG_OK;
}

mg_status mg_augment_region(const mg_augment_spec *s, mg_row_key key, mg_sizes z, mg_region *r) {
    *r = (mg_region){.height = z.height, .width = z.width};
    if (!crops(s) && !s->zoomed_height && s->resize_fit != MG_CROP_TO_FIT) return MG_OK;
    const mg_augment_choice choice = mg_augment_choose(s, key, z.height, z.width);
    const mg_pixels in = {.height = z.height, .width = z.width, .channels = z.channels};
    mg_axis rows = {0}, columns = {0};
    const mg_status status = make_tables(s, key, &choice, &in, &rows, &columns);
    if (status == MG_OK) {
        mg_axis_span(&rows, &r->row, &r->height);
        mg_axis_span(&columns, &r->column, &r->width);
    }
    mg_axis_free(&rows);
    mg_axis_free(&columns);
    return status;
}

/* a = a b, 3 x 3. */
static void multiply(double a[9], const double b[9]) {
    double product[9];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            product[3 * i + j] =
                a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
    memcpy(a, product, sizeof product);
}

/* The map of output (row, column, 1) to input, as Keras's apply_affine_transform composes it, about
 * the center of the image, after the flips. RETURNS false for the identity without flips. */
static bool affine_map(const mg_augment_choice *c, int64_t height, int64_t width, double m[9]) {
    const double radians = 3.14159265358979323846 / 180;
    const double angle = c->rotation * radians, shear = c->shear * radians;
    const double y = (double)height / 2 - 0.5, x = (double)width / 2 - 0.5;
    const double rotation[9] = {cos(angle), sin(angle), 0, -sin(angle), cos(angle), 0, 0, 0, 1};
    const double shift[9] = {1, 0, c->height_shift, 0, 1, c->width_shift, 0, 0, 1};
    const double shearing[9] = {cos(shear), 0, 0, -sin(shear), 1, 0, 0, 0, 1};
    const double zoom[9] = {c->zoom_rows, 0, 0, 0, c->zoom_columns, 0, 0, 0, 1};
    const double back[9] = {1, 0, -y, 0, 1, -x, 0, 0, 1};
    const double start[9] = {1, 0, y, 0, 1, x, 0, 0, 1};
    memcpy(m, start, sizeof start);
    if (c->rotation != 0) multiply(m, rotation);
    if (c->height_shift != 0 || c->width_shift != 0) multiply(m, shift);
    if (c->shear != 0) multiply(m, shearing);
    if (c->zoom_rows != 1 || c->zoom_columns != 1) multiply(m, zoom);
    multiply(m, back);
    return c->rotation != 0 || c->shear != 0 || c->height_shift != 0 || c->width_shift != 0 ||
           c->zoom_rows != 1 || c->zoom_columns != 1;
}

/* For independent rows and columns: resampling by tables. */
static mg_status map_axes(const mg_augment_spec *s, const mg_augment_choice *c, const double m[9],
                          const mg_pixels *in, mg_pixels *out) {
    mg_axis rows = {0}, columns = {0};
    mg_status status =
        mg_axis_affine(&rows, in->height, out->height, m[0], m[2], s->interpolation, s->fill);
    if (status == MG_OK)
        status =
            mg_axis_affine(&columns, in->width, out->width, m[4], m[5], s->interpolation, s->fill);
    if (status == MG_OK) {
        if (c->vertical_flip) mg_axis_flip(&rows);
        if (c->horizontal_flip) mg_axis_flip(&columns);
        status = mg_resample(in, &rows, &columns, s->cval, out);
    }
    mg_axis_free(&rows);
    mg_axis_free(&columns);
    return status;
}

/* The affine map and the flips, in one resampling. */
static mg_status apply_map(const mg_augment_spec *s, const mg_augment_choice *c, double m[9],
                           const mg_pixels *in, mg_pixels *out) {
    if (m[1] == 0 && m[3] == 0) return map_axes(s, c, m, in, out);
    const double h = (double)out->height - 1, w = (double)out->width - 1;
    const double flips[9] = {c->vertical_flip ? -1 : 1,
                             0,
                             c->vertical_flip ? h : 0,
                             0,
                             c->horizontal_flip ? -1 : 1,
                             c->horizontal_flip ? w : 0,
                             0,
                             0,
                             1};
    multiply(m, flips);
    mg_affine a = {.method = s->interpolation, .fill = s->fill, .constant = s->cval};
    memcpy(a.map, m, sizeof a.map);
    return mg_resample_affine(in, &a, out);
}

/* Resize, crops and, if nothing follows, flips. */
static mg_status apply_tables(const mg_augment_spec *s, mg_row_key key, const mg_augment_choice *c,
                              bool flip, const mg_pixels *in, mg_pixels *out) {
    mg_axis rows = {0}, columns = {0};
    mg_status status = make_tables(s, key, c, in, &rows, &columns);
    if (status == MG_OK) {
        if (flip && c->vertical_flip) mg_axis_flip(&rows);
        if (flip && c->horizontal_flip) mg_axis_flip(&columns);
        status = mg_resample(in, &rows, &columns, s->cval, out);
    }
    mg_axis_free(&rows);
    mg_axis_free(&columns);
    return status;
}

mg_status mg_augment_geometry(const mg_augment_spec *s, mg_row_key key, const mg_augment_choice *c,
                              const mg_pixels *in, mg_pixels *out) {
    double m[9];
    const bool tables = resizes(s) || crops(s), flips = c->horizontal_flip || c->vertical_flip;
    const bool mapped = affine_map(c, out->height, out->width, m);
    if (!tables && !mapped && !flips) {
        mg_pixels_convert(out->data, out->dtype, in->data, in->dtype, mg_pixels_count(in));
        return MG_OK;
    }
    if (!mapped) return apply_tables(s, key, c, true, in, out);
    if (!tables) return apply_map(s, c, m, in, out);
    mg_pixels middle = *out;
    middle.data = mg_alloc((size_t)mg_pixels_count(out) * mg_dtype_size(out->dtype));
    if (!middle.data) return MG_OOM;
    mg_status status = apply_tables(s, key, c, false, in, &middle);
    if (status == MG_OK) status = apply_map(s, c, m, &middle, out);
    mg_free(middle.data);
    return status;
}

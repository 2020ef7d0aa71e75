/* The transform "augment": the shapes of its results, and the steps of one image.
 *
 * An image is resampled at most twice: first by tables for its rows and columns (resize, crops),
 * then by an affine map; shifts and zooms alone are tables too. It stays uint8 as long as the
 * result is uint8; otherwise it becomes float32 with the first resampling. */
#include "data/transforms/augment.h"
#include "core/alloc.h"
#include "data/transforms/steps.h"
#include <string.h>

typedef struct augment {
    mg_transform base;
    mg_augment_spec spec; /* with its own copies of the arrays */
} augment;

static const mg_augment_spec *spec_of(const mg_transform *t) {
    return &((const augment *)t)->spec;
}

/* ---- what the steps need ---- */

static bool maps(const mg_augment_spec *s) {
    return s->rotation.on || s->shear.on || s->zoom_rows.on || s->zoom_columns.on ||
           s->height_shift.kind || s->width_shift.kind;
}

/* Whether a step may mix several pixels into one. */
static bool mixes(const mg_augment_spec *s) {
    return ((s->resize_height || s->resize_shorter || s->zoomed_height) &&
            s->resize_kind != MG_RESIZE_NEAREST) ||
           (maps(s) && s->interpolation != MG_NEAREST);
}

/* Whether a step computes values, for which uint8 is too coarse. */
static bool computes(const mg_augment_spec *s) {
    return s->channel_shift.on || s->brightness_factor.on || s->brightness.on || s->contrast.on ||
           s->saturation.on || s->hue.on || s->rescale != 0 || s->standardize || s->n_mean ||
           s->n_std || s->n_whitening;
}

static mg_dtype result_dtype(const mg_augment_spec *s, mg_dtype in) {
    if (s->dtype >= 0) return (mg_dtype)s->dtype;
    return computes(s) && !mg_dtype_is_float(in) ? MG_F32 : in;
}

/* The dtype in which the steps work. */
static mg_dtype work_dtype(const mg_augment_spec *s, mg_dtype in) {
    const mg_dtype out = result_dtype(s, in);
    return in == out && !computes(s) && (in == MG_U8 || !mixes(s)) ? in : MG_F32;
}

/* ---- shapes ---- */

static mg_sizes sizes_of(const mg_augment_spec *s, const mg_shape *shape) {
    const int64_t *d = shape->dim;
    if (shape->rank == 2) return (mg_sizes){d[0], d[1], 1};
    return s->channels_first ? (mg_sizes){d[1], d[2], d[0]} : (mg_sizes){d[0], d[1], d[2]};
}

static void set_sizes(const mg_augment_spec *s, mg_shape *shape, mg_sizes z) {
    const int first = shape->rank == 3 && s->channels_first;
    shape->dim[first] = z.height;
    shape->dim[first + 1] = z.width;
}

static mg_status check_crop(const char *option, int64_t h, int64_t w, mg_sizes in, int64_t rows,
                            int64_t columns) {
    if (in.height >= 0 && h > in.height + 2 * rows)
        return mg_fail(MG_DATA,
                       "augment: %s wants %lld rows, but the image has %lld%s: give a smaller "
                       "size, or `resize`",
                       option, (long long)h, (long long)(in.height + 2 * rows),
                       rows ? " with its padding" : "");
    if (in.width >= 0 && w > in.width + 2 * columns)
        return mg_fail(MG_DATA,
                       "augment: %s wants %lld columns, but the image has %lld%s: give a smaller "
                       "size, or `resize`",
                       option, (long long)w, (long long)(in.width + 2 * columns),
                       columns ? " with its padding" : "");
    return MG_OK;
}

static mg_status check_channels(const mg_augment_spec *s, mg_sizes z) {
    const int64_t c = z.channels;
    if (c < 0) return MG_OK;
    if ((s->saturation.on || s->hue.on) && c != 3 && c != 4)
        return mg_fail(MG_DATA, "augment: %s needs 3 or 4 channels, but the image has %lld",
                       s->saturation.on ? "saturation" : "hue", (long long)c);
    const int numbers[] = {s->n_mean, s->n_std};
    for (int i = 0; i < 2; i++)
        if (numbers[i] > 1 && numbers[i] != c)
            return mg_fail(MG_DATA, "augment: %s has %d numbers, but the image has %lld channels",
                           i ? "std" : "mean", numbers[i], (long long)c);
    return MG_OK;
}

/* The sizes of the result, after all checks of the image. */
static mg_status result_sizes(const mg_augment_spec *s, mg_sizes z, mg_sizes *out) {
    MG_TRY(check_channels(s, z));
    z = mg_augment_resized(s, z);
    if (s->center_height) {
        MG_TRY(check_crop("center_crop", s->center_height, s->center_width, z, 0, 0));
        z.height = s->center_height, z.width = s->center_width;
    }
    if (s->crop_height) {
        MG_TRY(check_crop("random_crop", s->crop_height, s->crop_width, z, s->padding_rows,
                          s->padding_columns));
        z.height = s->crop_height, z.width = s->crop_width;
    }
    if (s->zoomed_height) z.height = s->zoomed_height, z.width = s->zoomed_width;
    if (s->n_whitening && z.height >= 0 && z.width >= 0 && z.channels >= 0 &&
        z.height * z.width * z.channels != s->n_whitening)
        return mg_fail(MG_DATA,
                       "augment: the whitening was fitted to images of %lld values, but the image "
                       "has %lld",
                       (long long)s->n_whitening, (long long)(z.height * z.width * z.channels));
    *out = z;
    return MG_OK;
}

/* Checks that the sizes of an image are from 1 to INT32_MAX, or -1 if they may vary. */
static mg_status check_sizes(const mg_shape *shape, bool varies) {
    const bool rank = shape->rank == 2 || shape->rank == 3;
    for (int i = 0; i < shape->rank && rank; i++) {
        const int64_t d = shape->dim[i];
        if (varies && d == -1) continue;
        if (d < 1 || d > INT32_MAX)
            return mg_fail(MG_DATA, "augment: an image of shape %s has no pixels, or too many",
                           MG_SHAPE_TEXT(shape));
    }
    if (rank) return MG_OK;
    return mg_fail(
        MG_USAGE,
        "augment: a field of shape %s is not an image: {rows, columns} or {rows, columns, "
        "channels}",
        MG_SHAPE_TEXT(shape));
}

static mg_status augment_infer(const mg_transform *t, const mg_field *in, mg_field *out) {
    const mg_augment_spec *s = spec_of(t);
    if (in->text)
        return mg_fail(MG_USAGE, "augment: the field holds strings: decode the images first");
    MG_TRY(check_sizes(&in->shape, true));
    mg_sizes z;
    MG_TRY(result_sizes(s, sizes_of(s, &in->shape), &z));
    const mg_dtype dtype = result_dtype(s, in->dtype);
    const bool whole = !mg_dtype_is_float(in->dtype) && in->dtype != MG_U8;
    if (whole && dtype == in->dtype && mixes(s))
        return mg_fail(MG_USAGE,
                       "augment: pixels of %s cannot be mixed: give interpolation = \"nearest\" "
                       "(and so for resize), or dtype = \"float32\"",
                       mg_dtype_name(in->dtype));
    *out = *in;
    out->dtype = dtype;
    set_sizes(s, &out->shape, z);
    return MG_OK;
}

/* ---- one image ---- */

/* The image as the steps read it: channels last, and uint8, float32 or the dtype they work in.
 * *block: what was allocated for it, or NULL. */
static mg_status read_image(const mg_augment_spec *s, const mg_cell *cell, mg_dtype dtype,
                            mg_dtype work, mg_pixels *image, void **block) {
    const mg_sizes z = sizes_of(s, &cell->shape);
    *image = (mg_pixels){z.height, z.width, z.channels, dtype, cell->data};
    const bool turn = s->channels_first && z.channels > 1 && cell->shape.rank == 3;
    const bool convert = dtype != work && dtype != MG_U8 && dtype != MG_F32;
    if (!turn && !convert) return MG_OK;
    const int64_t n = mg_pixels_count(image), pixels = z.height * z.width;
    const size_t size = mg_dtype_size(dtype);
    *block = mg_alloc((size_t)n * (sizeof(float) + size));
    if (!*block) return MG_OOM;
    char *turned = (char *)*block + (size_t)n * sizeof(float);
    if (turn) {
        mg_pixels_channels_last(turned, cell->data, z.channels, pixels, size);
        image->data = turned;
    }
    if (convert) {
        mg_pixels_convert(*block, MG_F32, image->data, dtype, n);
        image->data = *block;
        image->dtype = MG_F32;
    }
    return MG_OK;
}

/* Writes the finished image into the cell: its dtype, its order of channels. */
static mg_status write_image(const mg_augment_spec *s, const mg_pixels *image, mg_dtype dtype,
                             const mg_cell *cell) {
    const int64_t n = mg_pixels_count(image);
    if (!(s->channels_first && cell->shape.rank == 3 && image->channels > 1)) {
        mg_pixels_convert(cell->data, dtype, image->data, image->dtype, n);
        return MG_OK;
    }
    void *converted = mg_alloc((size_t)n * mg_dtype_size(dtype));
    if (!converted) return MG_OOM;
    mg_pixels_convert(converted, dtype, image->data, image->dtype, n);
    mg_pixels_channels_first(cell->data, converted, image->channels, image->height * image->width,
                             mg_dtype_size(dtype));
    mg_free(converted);
    return MG_OK;
}

/* The shape of the cell, and room if it has none. */
static mg_status prepare_cell(const mg_augment_spec *s, const mg_shape *in, mg_sizes z,
                              mg_dtype dtype, mg_cell *out) {
    mg_shape shape = *in;
    set_sizes(s, &shape, z);
    MG_TRY(mg_shape_check(&shape, "augment"));
    if (!out->data) {
        size_t bytes;
        if (!mg_size_mul((size_t)mg_shape_count(&shape), mg_dtype_size(dtype), &bytes))
            return mg_fail(MG_OOM, "augment: an image of shape %s is too large",
                           MG_SHAPE_TEXT(&shape));
        out->data = mg_alloc(bytes);
        if (!out->data) return MG_OOM;
    }
    out->shape = shape;
    return MG_OK;
}

static mg_status augment_apply(const mg_transform *t, mg_row_key key, const mg_field *field,
                               const mg_cell *in, mg_cell *out) {
    const mg_augment_spec *s = spec_of(t);
    const mg_dtype dtype = result_dtype(s, field->dtype), work = work_dtype(s, field->dtype);
    mg_sizes z;
    MG_TRY(check_sizes(&in->shape, false));
    MG_TRY(result_sizes(s, sizes_of(s, &in->shape), &z));
    MG_TRY(prepare_cell(s, &in->shape, z, dtype, out));
    const mg_augment_choice choice = mg_augment_choose(s, key, z.height, z.width);
    const bool direct = work == dtype && !(s->channels_first && z.channels > 1);
    mg_pixels image, result = {z.height, z.width, z.channels, work, out->data};
    void *input = NULL, *scratch = NULL;
    mg_status status = read_image(s, in, field->dtype, work, &image, &input);
    if (status != MG_OK) goto done;
    if (!direct) {
        scratch = result.data = mg_alloc((size_t)mg_pixels_count(&result) * mg_dtype_size(work));
        if (!scratch) status = MG_OOM;
    }
    if (status == MG_OK) status = mg_augment_geometry(s, key, &choice, &image, &result);
    if (status == MG_OK && computes(s)) status = mg_augment_values(s, &choice, &result);
    if (status == MG_OK && s->cutout_height) status = mg_augment_cutout(s, &choice, &result);
    if (status == MG_OK && !direct) status = write_image(s, &result, dtype, out);
done:
    mg_free(scratch);
    mg_free(input);
    return status;
}

/* For an image for which apply will fail, the region is the whole image. */
static mg_status augment_region(const mg_transform *t, mg_row_key key, const mg_field *field,
                                int64_t height, int64_t width, mg_region *r) {
    const mg_augment_spec *s = spec_of(t);
    mg_sizes z = {height, width, field->shape.rank == 3 ? field->shape.dim[2] : 1}, result;
    *r = (mg_region){.height = height, .width = width};
    const bool rows_first = !s->channels_first || field->shape.rank == 2;
    if (!rows_first || result_sizes(s, z, &result) != MG_OK) return MG_OK;
    return mg_augment_region(s, key, z, r);
}

/* ---- making it ---- */

static void augment_free(mg_transform *t) {
    augment *a = (augment *)t;
    mg_free((void *)a->spec.mean);
    mg_free((void *)a->spec.std);
    mg_free((void *)a->spec.whitening);
    mg_free(a);
}

static const mg_transform_api api = {.name = "augment",
                                     .infer = augment_infer,
                                     .apply = augment_apply,
                                     .region = augment_region,
                                     .free = augment_free};

/* A copy of the bytes; NULL if there are none, or after MG_OOM, which sets *short_of. */
static void *copy_of(const void *from, size_t bytes, bool *short_of) {
    if (!bytes) return NULL;
    void *copy = mg_alloc(bytes);
    if (copy)
        memcpy(copy, from, bytes);
    else
        *short_of = true;
    return copy;
}

mg_transform *mg_augment_new(const mg_augment_spec *spec) {
    const mg_range *area = &spec->area, *aspect = &spec->aspect;
    if (spec->zoomed_height &&
        !(area->lo > 0 && area->lo <= area->hi && aspect->lo > 0 && aspect->lo <= aspect->hi)) {
        mg_fail(MG_USAGE, "augment: the random resized crop needs an area and an aspect above 0");
        return NULL;
    }
    augment *a = mg_transform_alloc(&api, sizeof *a);
    if (!a) return NULL;
    bool short_of = false;
    const size_t n = (size_t)spec->n_whitening;
    a->spec = *spec;
    a->spec.mean = copy_of(spec->mean, (size_t)spec->n_mean * sizeof(double), &short_of);
    a->spec.std = copy_of(spec->std, (size_t)spec->n_std * sizeof(double), &short_of);
    a->spec.whitening = copy_of(spec->whitening, n * n * sizeof(float), &short_of);
    if (!short_of) return &a->base;
    augment_free(&a->base);
    return NULL;
}

const mg_augment_spec *mg_augment_spec_of(const mg_transform *t) {
    return t->api == &api ? spec_of(t) : NULL;
}

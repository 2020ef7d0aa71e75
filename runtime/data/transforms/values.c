/* The steps on values: colors and normalization, then cutout. */
#include "core/alloc.h"
#include "data/transforms/color.h"
#include "data/transforms/steps.h"
#include <math.h>
#include <string.h>

static mg_status whiten(const mg_augment_spec *s, float *x) {
    const int64_t n = s->n_whitening;
    float *y = mg_alloc_zero((size_t)n * sizeof *y);
    if (!y) return MG_OOM;
    for (int64_t i = 0; i < n; i++) {
        const float *row = s->whitening + i * n;
        for (int64_t k = 0; k < n; k++) y[k] += x[i] * row[k];
    }
    memcpy(x, y, (size_t)n * sizeof *y);
    mg_free(y);
    return MG_OK;
}

static void normalize(const mg_augment_spec *s, float *x, int64_t n, int64_t c) {
    /* A single mean or deviation for all channels: all values are treated as one channel. */
    if (s->n_mean > 0) {
        const bool each = s->n_mean > 1;
        mg_color_normalize(x, each ? n : n * c, each ? c : 1, s->mean, NULL);
    }
    if (s->n_std > 0) {
        const bool each = s->n_std > 1;
        mg_color_normalize(x, each ? n : n * c, each ? c : 1, NULL, s->std);
    }
}

mg_status mg_augment_values(const mg_augment_spec *s, const mg_augment_choice *c,
                            const mg_pixels *image) {
    float *x = image->data;
    const int64_t n = image->height * image->width, ch = image->channels, count = n * ch;
    if (s->channel_shift.on) mg_color_channel_shift(x, n, ch, (float)c->channel_shift);
    if (s->brightness_factor.on) mg_color_brightness_factor(x, n, ch, (float)c->brightness_factor);
    if (s->brightness.on) mg_color_brightness(x, n, ch, (float)c->brightness);
    if (s->contrast.on) mg_color_contrast(x, n, ch, (float)c->contrast);
    if (s->saturation.on) mg_color_saturation(x, n, ch, (float)c->saturation);
    if (s->hue.on) mg_color_hue(x, n, ch, (float)c->hue);
    if (s->rescale != 0) mg_color_scale(x, count, (float)s->rescale);
    mg_sample_norm how = {.only_center = s->standardize == MG_STANDARDIZE_CENTER};
    if (s->standardize == MG_STANDARDIZE_TF) how.least = 1 / sqrt((double)count);
    if (s->standardize == MG_STANDARDIZE_KERAS) how.more = 1e-6;
    if (s->standardize) mg_color_standardize(x, count, how);
    normalize(s, x, n, ch);
    return s->n_whitening ? whiten(s, x) : MG_OK;
}

mg_status mg_augment_cutout(const mg_augment_spec *s, const mg_augment_choice *c,
                            const mg_pixels *image) {
    const int64_t h = image->height, w = image->width;
    const int64_t row = (int64_t)(c->cutout_row * (double)h) - s->cutout_height / 2;
    const int64_t column = (int64_t)(c->cutout_column * (double)w) - s->cutout_width / 2;
    const int64_t top = row > 0 ? row : 0, left = column > 0 ? column : 0;
    const int64_t bottom = row + s->cutout_height < h ? row + s->cutout_height : h;
    const int64_t right = column + s->cutout_width < w ? column + s->cutout_width : w;
    const size_t size = (size_t)image->channels * mg_dtype_size(image->dtype);
    char *pixel = mg_alloc(size);
    if (!pixel) return MG_OOM;
    mg_pixels_constant(pixel, image->dtype, image->channels, s->cutout_value);
    for (int64_t r = top; r < bottom; r++)
        for (int64_t k = left; k < right; k++)
            memcpy((char *)image->data + (size_t)(r * w + k) * size, pixel, size);
    mg_free(pixel);
    return MG_OK;
}

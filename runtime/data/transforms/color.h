/* Colors and normalization of images in float32: n pixels of c channels each, changed in place.
 *
 * With four channels the last one is alpha, which color changes do not touch. The channel shift and
 * the normalizations treat all channels alike. */
#ifndef MG_DATA_TRANSFORMS_COLOR_H
#define MG_DATA_TRANSFORMS_COLOR_H

#include <stdint.h>

/* Adds `amount` to all channels, limited to the range of the image's values (as in Keras). */
void mg_color_channel_shift(float *x, int64_t n, int64_t c, float amount);
/* Multiplies by the factor, on integers from 0 to 255 as Keras does with Pillow. An image with
 * values outside of 0 to 255 is scaled to this range and back. */
void mg_color_brightness_factor(float *x, int64_t n, int64_t c, float factor);
/* x + delta, (x - mean) * factor + mean with the mean of each channel: tf.image.adjust_... */
void mg_color_brightness(float *x, int64_t n, int64_t c, float delta);
void mg_color_contrast(float *x, int64_t n, int64_t c, float factor);
/* Multiply the saturation; rotate the hue by delta (1: a full turn). c: 3 or 4. */
void mg_color_saturation(float *x, int64_t n, int64_t c, float factor);
void mg_color_hue(float *x, int64_t n, int64_t c, float delta);

void mg_color_scale(float *x, int64_t count, float factor);
/* (x - mean) / deviation, over all values of the image. The deviation is at least `least`, and
 * `more` is added to it; only_center: 1 is used instead. */
typedef struct mg_sample_norm {
    double least, more;
    int only_center;
} mg_sample_norm;
void mg_color_standardize(float *x, int64_t count, mg_sample_norm how);
/* (x - mean) / deviation with a mean and a deviation for each channel; NULL: 0 and 1. */
void mg_color_normalize(float *x, int64_t n, int64_t c, const double *mean,
                        const double *deviation);

#endif

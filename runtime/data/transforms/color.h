/* Colors and normalization of images in float32: n pixels of c channels each, changed in place.
 *
 * Of four channels the last is alpha, which changes of color leave as it is. The channel shift and
 * the normalizations treat all channels alike. */
#ifndef MG_DATA_TRANSFORMS_COLOR_H
#define MG_DATA_TRANSFORMS_COLOR_H

#include <stdint.h>

/* Adds to all channels, within the least and the greatest value of the image (Keras). */
void mg_color_channel_shift(float *x, int64_t n, int64_t c, float amount);
/* Multiplies, in whole steps of 0 to 255 as Keras does with Pillow. An image with values outside
 * of 0 to 255 is scaled to them and back. */
void mg_color_brightness_factor(float *x, int64_t n, int64_t c, float factor);
/* x + delta, (x - mean) * factor + mean with the mean of each channel: tf.image.adjust_... */
void mg_color_brightness(float *x, int64_t n, int64_t c, float delta);
void mg_color_contrast(float *x, int64_t n, int64_t c, float factor);
/* Multiply the saturation, turn the hue by delta (1: all around) of red, green, blue. c: 3 or 4. */
void mg_color_saturation(float *x, int64_t n, int64_t c, float factor);
void mg_color_hue(float *x, int64_t n, int64_t c, float delta);

void mg_color_scale(float *x, int64_t count, float factor);
/* (x - mean) / deviation, over all values of the image. The deviation is at least `least`, and
 * `more` is added to it; only_center: it is taken for 1. */
typedef struct mg_sample_norm {
    double least, more;
    int only_center;
} mg_sample_norm;
void mg_color_standardize(float *x, int64_t count, mg_sample_norm how);
/* (x - mean) / deviation with numbers for each channel; NULL: 0 and 1. */
void mg_color_normalize(float *x, int64_t n, int64_t c, const double *mean,
                        const double *deviation);

#endif

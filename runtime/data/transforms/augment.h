/* Image augmentation: geometric changes, colors and normalization of one image, in one transform.
 *
 * The steps have a fixed order, whatever the order of the options: resize, crop, affine map and
 * flips, channel shift, brightness, contrast, saturation, hue, rescale, standardization, mean and
 * deviation, whitening, cutout. Each random choice uses its own random word, so that switching on
 * one option does not change the choices of the others. Two transforms with one seed make the same
 * geometric choices for a row: an image and its mask stay together. */
#ifndef MG_DATA_TRANSFORMS_AUGMENT_H
#define MG_DATA_TRANSFORMS_AUGMENT_H

#include "data/transform.h"
#include "data/transforms/axis.h"

/* A uniform choice from [lo, hi); not made unless `on`. */
typedef struct mg_range {
    bool on;
    double lo, hi;
} mg_range;

enum { MG_SHIFT_CHOICES = 256 };

typedef enum mg_shift_kind {
    MG_SHIFT_NONE,
    MG_SHIFT_REAL,  /* uniform from [lo, hi) */
    MG_SHIFT_WHOLE, /* a whole number from lo to hi, both included */
    MG_SHIFT_CHOICE /* one of the choices, with a random sign: Keras's shift by an array */
} mg_shift_kind;

typedef struct mg_shift {
    mg_shift_kind kind;
    bool fraction; /* of the image's size; else pixels */
    double lo, hi;
    int n_choices;
    double choice[MG_SHIFT_CHOICES];
} mg_shift;

typedef enum mg_standardize {
    MG_STANDARDIZE_NONE,
    MG_STANDARDIZE_TF,     /* (x - mean) / max(deviation, 1 / sqrt(n)) */
    MG_STANDARDIZE_CENTER, /* x - mean */
    MG_STANDARDIZE_KERAS   /* (x - mean) / (deviation + 1e-6) */
} mg_standardize;

/* How an image gets other proportions: stretched, cut at two sides, or padded with cval there. */
typedef enum mg_fit { MG_STRETCH, MG_CROP_TO_FIT, MG_PAD_TO_FIT } mg_fit;

/* The options of mg_augment_new; all zero: a transform that changes nothing. */
typedef struct mg_augment_spec {
    uint64_t seed;
    int dtype; /* an mg_dtype of the result, or -1: see mg_augment_new */
    bool channels_first;
    mg_interpolation interpolation; /* of the affine map: bilinear or nearest */
    mg_fill fill;
    double cval;

    int resize_kind; /* enum mg_resize_kind, for resize and the random resized crop */
    bool antialias;
    int64_t resize_height, resize_width; /* 0: no resize */
    mg_fit resize_fit;                   /* of an image of other proportions */
    int64_t resize_shorter;              /* size of the shorter side; 0: not used */
    int64_t center_height, center_width; /* center crop; 0: none */
    int64_t crop_height, crop_width;     /* random crop; 0: none */
    int64_t padding_rows, padding_columns;
    mg_fill padding_fill;
    int64_t zoomed_height, zoomed_width; /* random resized crop; 0: none */
    mg_range area, aspect;               /* its share of the image; width / height */

    mg_range rotation, shear;         /* degrees */
    mg_range zoom_rows, zoom_columns; /* above 1: smaller */
    mg_shift height_shift, width_shift;
    double horizontal_flip, vertical_flip; /* probabilities */

    mg_range channel_shift, brightness_factor, brightness, contrast, saturation, hue;

    double rescale; /* 0: not */
    mg_standardize standardize;
    int n_mean, n_std; /* 0: not, 1: one number for all channels, else one for each */
    const double *mean, *std;
    int64_t n_whitening;                 /* values of an image; 0: none */
    const float *whitening;              /* {n_whitening, n_whitening}, symmetric */
    int64_t cutout_height, cutout_width; /* 0: none */
    double cutout_value;
} mg_augment_spec;

/* The random choices for one image. Angles are in degrees, shifts in pixels. */
typedef struct mg_augment_choice {
    double rotation, shear, height_shift, width_shift, zoom_rows, zoom_columns;
    bool horizontal_flip, vertical_flip;
    double channel_shift, brightness_factor, brightness, contrast, saturation, hue;
    double crop_row,
        crop_column; /* in [0, 1): position between the first and the last possible place */
    double cutout_row, cutout_column; /* the same for the center of the hole */
} mg_augment_choice;

/* Makes the transform of an image {rows, columns} or {rows, columns, channels}. The spec is copied,
 * with its arrays. The result has spec->dtype if that is given; else the dtype of the image, but
 * float32 for an integer image if a step computes new values (any step from the channel shift to
 * the whitening). Values of uint8 results are rounded and saturate. Owned. NULL: MG_OOM, or
 * MG_USAGE for a random resized crop without area and aspect. */
mg_transform *mg_augment_new(const mg_augment_spec *spec);

/* The choices that the transform makes for an image of height x width pixels. */
mg_augment_choice mg_augment_choose(const mg_augment_spec *s, mg_row_key key, int64_t height,
                                    int64_t width);
/* The part of an image that the random resized crop takes. */
mg_region mg_augment_choose_window(const mg_augment_spec *s, mg_row_key key, int64_t height,
                                   int64_t width);
/* The spec of a transform that mg_augment_new made; NULL for another one. */
const mg_augment_spec *mg_augment_spec_of(const mg_transform *t);

#endif

/* The steps of an augmentation (augment.h): each group of steps has its own file. */
#ifndef MG_DATA_TRANSFORMS_STEPS_H
#define MG_DATA_TRANSFORMS_STEPS_H

#include "data/transforms/augment.h"
#include "data/transforms/resample.h"

/* The sizes of an image; -1: differs from image to image. */
typedef struct mg_sizes {
    int64_t height, width, channels;
} mg_sizes;

/* geometry.c: the sizes after `resize`, before the crops. */
mg_sizes mg_augment_resized(const mg_augment_spec *s, mg_sizes z);
/* The part of an image that the geometric steps read for this row. MG_OOM. */
mg_status mg_augment_region(const mg_augment_spec *s, mg_row_key key, mg_sizes z, mg_region *r);
/* All geometric steps: from `in` to `out`, whose sizes and memory the caller provides. The dtypes
 * must be those that resample.h allows. MG_OOM. */
mg_status mg_augment_geometry(const mg_augment_spec *s, mg_row_key key, const mg_augment_choice *c,
                              const mg_pixels *in, mg_pixels *out);

/* values.c: from the channel shift to the whitening, on float32. MG_OOM. */
mg_status mg_augment_values(const mg_augment_spec *s, const mg_augment_choice *c,
                            const mg_pixels *image);
/* Fills a hole of the given size around a random pixel, cut off at the borders. MG_OOM. */
mg_status mg_augment_cutout(const mg_augment_spec *s, const mg_augment_choice *c,
                            const mg_pixels *image);

#endif

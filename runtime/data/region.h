/* Regions: which part of an image will be looked at, told to whoever makes the image, so that the
 * rest need not be made. */
#ifndef MG_DATA_REGION_H
#define MG_DATA_REGION_H

#include "core/status.h"
#include <stdint.h>

/* A rectangle of pixels. */
typedef struct mg_region {
    int64_t row, column, height, width;
} mg_region;

typedef struct mg_wanted mg_wanted;
/* The part of an image that its reader will look at. It is asked for when the size of the image is
 * known. The answer lies within the image, has at least one pixel, and is the same each time.
 *
 * The image is then made in its full size and layout, with the right pixels in the region. Those
 * outside of it may be undefined. */
struct mg_wanted {
    mg_status (*region)(const mg_wanted *w, int64_t height, int64_t width, mg_region *r);
};

#endif

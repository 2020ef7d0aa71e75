/* Regions: the part of an image that will be used. The producer of the image gets it, so that it
 * need not compute the rest. */
#ifndef MG_DATA_REGION_H
#define MG_DATA_REGION_H

#include "core/status.h"
#include <stdint.h>

/* A rectangle of pixels. */
typedef struct mg_region {
    int64_t row, column, height, width;
} mg_region;

typedef struct mg_wanted mg_wanted;
/* Returns the part of an image that its reader will use. It is called when the size of the image is
 * known. The region lies within the image, has at least one pixel, and is the same in every call.
 *
 * The image is then made in its full size and layout, with correct pixels in the region. Pixels
 * outside of it may be undefined. */
struct mg_wanted {
    mg_status (*region)(const mg_wanted *w, int64_t height, int64_t width, mg_region *r);
};

#endif

/* Transforms: what is done to a cell of a row after it was read: resizing an image, flipping it,
 * changing its colors.
 *
 * A transform is immutable and is used by several threads at once. Its random choices depend on its
 * seed, the epoch and the row alone: not on the batch, the thread or the device. */
#ifndef MG_DATA_TRANSFORM_H
#define MG_DATA_TRANSFORM_H

#include "data/source.h"

typedef struct mg_transform mg_transform;

/* A kind of transform. */
typedef struct mg_transform_api {
    const char *name; /* begins messages: "augment" */
    /* Sets *out to the field after the transform. MG_USAGE: it cannot be done to this field. */
    mg_status (*infer)(const mg_transform *t, const mg_field *in, mg_field *out);
    /* Computes the cell of the row. If the field set by infer has a fixed shape, the cell has this
     * shape and memory at data. If the field varies, the cell is empty, and apply sets shape and
     * data, a block for mg_free, which the caller owns also after a failure. `in` matches its
     * field. MG_DATA, MG_OOM. */
    mg_status (*apply)(const mg_transform *t, mg_row_key key, const mg_field *field,
                       const mg_cell *in, mg_cell *out);
    /* Sets *r to the part of an image of height x width pixels that apply reads for this row; the
     * source of the image then need not make the rest (region.h). If apply would fail, any part may
     * be returned. NULL: all of it. MG_OOM. */
    mg_status (*region)(const mg_transform *t, mg_row_key key, const mg_field *field,
                        int64_t height, int64_t width, mg_region *r);
    /* Frees what the transform owns, and the transform. */
    void (*free)(mg_transform *t);
} mg_transform_api;

/* The first member of every transform's struct. */
struct mg_transform {
    const mg_transform_api *api;
    atomic_int references;
};

/* A block of size bytes, zeroed, that begins with a transform with one reference. NULL: MG_OOM. */
void *mg_transform_alloc(const mg_transform_api *api, size_t size);
mg_transform *mg_transform_retain(mg_transform *t);
/* The last release frees the transform. Accepts NULL. */
void mg_transform_release(mg_transform *t);

#endif

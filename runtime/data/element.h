/* Elements: rows of a source, put together into batches.
 *
 * An element is made in three steps: mg_element_new makes room for its rows, mg_element_read reads
 * a range of them (several threads may read different ranges), and mg_element_finish joins the
 * cells whose sizes were not known before. */
#ifndef MG_DATA_ELEMENT_H
#define MG_DATA_ELEMENT_H

#include "core/placement.h"
#include "core/tensor.h"
#include "data/order.h"

/* The rows of a batch that are needed where several processes share its rows: those of the devices
 * first .. first + n - 1 out of `total`, over which they are dealt (mg_shards_deal). A total of 0:
 * all rows. */
typedef struct mg_share {
    int first, n, total;
    const double *weights; /* of all devices, or NULL; the owner's */
} mg_share;

/* Sets [*from, *to) to the rows of the share in a batch of `rows` rows. */
void mg_share_rows(const mg_share *share, int64_t rows, int64_t *from, int64_t *to);

/* Where the rows of elements come from and where batches are put. */
typedef struct mg_element_kind {
    mg_source *source;        /* retained by the owner of this struct */
    mg_device *const *device; /* where the batches of each field go */
    mg_device *host; /* host-visible: where batches are put together for a device that is not */
    bool ahead;      /* elements are made ahead of need: copies are staged */
    mg_device *shard[MG_MAX_DEVICES]; /* devices over which the rows of a batch on a host-visible
                                         device will be sharded: staged, too */
    int n_shards;
    const double *weights; /* of the shards, or NULL; the owner's */
    mg_share share;        /* of the outermost batch; then the shards are its devices, or none */
    int dense;             /* this many of the innermost batches become axes of one
                              buffer; each entry of the batches around them becomes a part */
    bool (*stop)(
        void *context); /* polled while rows are read: true ends reading with MG_INTERRUPTED */
    void *context;
} mg_element_kind;

/* The values of a field in one part. */
typedef struct mg_field_value {
    mg_shape shape;    /* of a text: of the batches alone */
    mg_buffer *buffer; /* owned; NULL for a text */
    mg_cell
        *cell; /* owned: the rows of a text and, until mg_element_finish, of a field that varies */
} mg_field_value;

typedef struct mg_element {
    mg_shape outer; /* sizes of the batches that give parts; n_parts is their product */
    mg_shape inner; /* sizes of the batches that are axes */
    int64_t n_parts, part_rows;
    int64_t from, to; /* the rows to be read. The values of the others are undefined: they belong
                         to other processes, and their memory is not touched */
    int n_fields;
    mg_field *field;        /* of each field; in the memory block of the element, like cell_bytes */
    size_t *cell_bytes;     /* of fields that do not vary, else 0 */
    size_t bytes;           /* of all values */
    mg_field_value value[]; /* of field k in part p: [p * n_fields + k] */
} mg_element;

/* An element of these rows, which are not read yet. Owned. NULL: MG_OOM. */
mg_element *mg_element_new(const mg_element_kind *kind, const mg_rows *rows);
/* Reads rows from .. to-1, which are among those to be read. Fails at the first row that cannot be
 * read and sets *failed to it: the source's errors; MG_INTERRUPTED. */
mg_status mg_element_read(mg_element *e, const mg_element_kind *kind, const mg_rows *rows,
                          int64_t from, int64_t to, int64_t *failed);
/* After the rows were read; where sizes vary, it also reads the first row of a batch, which gives
 * the batch its shape. Besides the errors of reading, MG_USAGE: cells of different shapes in a
 * batch. MG_OOM, MG_DEVICE. Staged copies may still be in progress. */
mg_status mg_element_finish(mg_element *e, const mg_element_kind *kind, const mg_rows *rows);
/* Orders all later work of its devices after the staged copies to them. */
mg_status mg_element_join(const mg_element *e);
/* Accepts NULL. */
void mg_element_free(mg_element *e);
/* How many rows this process has read for elements, in all streams. */
int64_t mg_element_rows_read(void);

/* ---- stack.c: tensors in host memory become one, along a new first axis ---- */

/* A tensor of shape {rows, cell...}: tensor i is copied into the corner of cell first + i, and the
 * rest of the cell is filled with `fill`; other cells are undefined. The n >= 1 tensors are
 * evaluated, in host memory, of the same dtype, and of the cell's rank; none is larger than the
 * cell. The result is on the first one's device. Owned; NULL: MG_OOM, or MG_USAGE for tensors that
 * break these rules. */
mg_tensor *mg_stack(mg_tensor *const *tensors, int64_t n, const mg_shape *cell, double fill,
                    int64_t rows, int64_t first);

#endif

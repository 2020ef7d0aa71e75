/* Sources: where the rows of a data set come from: tensors, files of records, folders of images.
 *
 * A source has a fixed number of rows, and any of them can be read at any time, by several threads
 * at once. order.h decides the order of rows, transform.h changes a row after it was read, and
 * stream.h combines the three. A row has one cell for each field of the source, such as an image
 * and its label. */
#ifndef MG_DATA_SOURCE_H
#define MG_DATA_SOURCE_H

#include "core/dtype.h"
#include "core/shape.h"
#include "data/region.h"
#include <stdatomic.h>

/* The maximum number of fields of a row: arrays with a cell for each are on the stack. */
enum { MG_SOURCE_FIELDS = 1024 };

/* The common properties of a field's cells. */
typedef struct mg_field {
    mg_dtype dtype;
    mg_shape shape; /* of one row; a size of -1 differs from row to row */
    bool text;      /* bytes (uint8 {-1}) that Lua gets as a string, */
    int texts;      /* or, if this is not 0, as an array of this many strings */
} mg_field;

/* The value of a field in one row. */
typedef struct mg_cell {
    mg_shape shape;
    void *data; /* row-major */
} mg_cell;

typedef struct mg_source mg_source;

/* Identifies one reading of a row. */
typedef struct mg_row_key {
    uint64_t epoch; /* the pass over the source: a different number in each pass */
    int64_t row;    /* in the source, from 0 */
} mg_row_key;

/* A kind of source. */
typedef struct mg_source_api {
    const char *name; /* of the function that users call; begins messages: "tfrecord" */
    /* Reads a row, 0 <= row < n_rows, into cell[0 .. n_fields-1]. May be called by several threads
     * at once. For a field of a fixed shape the cell has this shape and room for the values at
     * data, which read fills. For a field that varies the cell is empty ({0}): read sets shape and
     * data, a block for mg_free, which the caller owns also if read fails. The message of a failure
     * says where it happened: file and offset, or line, or the row's number. MG_IO, MG_DATA,
     * MG_OOM. */
    mg_status (*read)(mg_source *s, int64_t row, mg_cell cell[]);
    /* Frees what the source owns, and the source. Accepts a partly constructed source. */
    void (*free)(mg_source *s);
    /* Replaces read for sources whose rows differ between epochs, or that need not make whole
     * images. wanted: NULL, or for each field NULL or the part of its image (in the first two axes)
     * that will be used. Sources may ignore it. */
    mg_status (*read_wanted)(mg_source *s, mg_row_key key, const mg_wanted *const wanted[],
                             mg_cell cell[]);
    /* Work that is done once before rows are read and may take long; it polls for Ctrl-C
     * (MG_INTERRUPTED). Several threads may call it. NULL: nothing. */
    mg_status (*prepare)(mg_source *s);
    /* Copies n rows, for sources where reading a row is a memory copy and no field varies: the
     * values of the first row go to the cells' data, the values of the next rows follow them. NULL:
     * rows are read one by one. */
    void (*copy_rows)(const mg_source *s, const int64_t row[], int n, const mg_cell cell[]);
    /* Writes the origin of a row, such as "cats.tfrecord: record 7": at most `room` bytes. NULL:
     * rows are described by their numbers. */
    void (*describe)(const mg_source *s, int64_t row, char *text, size_t room);
} mg_source_api;

/* The first member of every source's struct. Immutable once it is made, apart from the counter and
 * members that the kind protects itself. */
struct mg_source {
    const mg_source_api *api;
    atomic_int references;
    int n_fields;    /* at least 1 */
    mg_field *field; /* in the block of the source */
    int64_t n_rows;
    bool cheap; /* reading a row is a memory copy: by default no further threads are used */
};

/* A block of size bytes, zeroed, that begins with a source of n_fields fields, with one reference.
 * NULL: MG_OOM; MG_USAGE: more fields than MG_SOURCE_FIELDS. */
void *mg_source_alloc(const mg_source_api *api, size_t size, int n_fields);
/* After a source could not be made: puts the function's name before the stored message, unless the
 * message begins with it. Messages of MG_OOM and MG_INTERRUPTED are not changed. */
void mg_source_name_error(const char *who);
mg_source *mg_source_retain(mg_source *s);
/* The last release frees the source. Accepts NULL. */
void mg_source_release(mg_source *s);

/* Reads a row into cell[0 .. n_fields-1]; see mg_source_api.read. */
mg_status mg_source_read(mg_source *s, mg_row_key key, mg_cell cell[]);
/* The same, but for each image for which wanted[k] is not NULL, only the region that it returns is
 * guaranteed to be made (region.h). wanted may be NULL. */
mg_status mg_source_read_wanted(mg_source *s, mg_row_key key, const mg_wanted *const wanted[],
                                mg_cell cell[]);
/* To be called before the first row is read. */
mg_status mg_source_prepare(mg_source *s);

/* Writes the origin of a row: its kind's description, or "row 7", counted from 1. */
void mg_source_describe(const mg_source *s, int64_t row, char *text, size_t room);

/* Whether a size of the field differs from row to row. */
bool mg_field_varies(const mg_field *f);
/* Bytes of a cell of this shape. */
size_t mg_cell_bytes(const mg_field *f, const mg_shape *shape);
/* Gives s the fields and the number of rows of another source of as many fields. */
void mg_source_copy_fields(mg_source *s, const mg_source *other);

/* ---- several strings in one cell ---- */

/* A string of any bytes. */
typedef struct mg_text {
    const void *bytes; /* borrowed */
    size_t n;
} mg_text;

/* Returns the size of a cell with these strings; and writes the cell to dst: for each string its
 * length (8 bytes) and its bytes. */
size_t mg_texts_size(const mg_text *texts, size_t n);
void mg_texts_pack(const mg_text *texts, size_t n, void *dst);
/* Sets *text to the string at *at, and moves *at past it. False: the bytes up to `end` are not a
 * valid string. */
bool mg_texts_next(const char **at, const char *end, mg_text *text);

#endif

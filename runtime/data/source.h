/* Sources: where the rows of a data set come from: tensors, files of records, folders of images.
 *
 * A source has a fixed number of rows, and any of them can be read at any time, by several threads
 * at once. Which rows come when is the business of order.h; what is done to a row after it was
 * read, that of transform.h; stream.h puts the three together. A row has one cell for each field of
 * the source, such as an image and its label. */
#ifndef MG_DATA_SOURCE_H
#define MG_DATA_SOURCE_H

#include "core/dtype.h"
#include "core/shape.h"
#include "data/region.h"
#include <stdatomic.h>

/* The most fields of a row: arrays with a cell for each are on the stack. */
enum { MG_SOURCE_FIELDS = 1024 };

/* What the cells of a field have in common. */
typedef struct mg_field {
    mg_dtype dtype;
    mg_shape shape; /* of one row; a size of -1 differs from row to row */
    bool text;      /* bytes (uint8 {-1}) that Lua gets as a string, */
    int texts;      /* or, if this is not 0, as an array of so many strings */
} mg_field;

/* The value of a field in one row. */
typedef struct mg_cell {
    mg_shape shape;
    void *data; /* row-major */
} mg_cell;

typedef struct mg_source mg_source;

/* Which reading of which row this is. */
typedef struct mg_row_key {
    uint64_t epoch; /* the pass over the source: another number each time */
    int64_t row;    /* in the source, from 0 */
} mg_row_key;

/* A kind of source. */
typedef struct mg_source_api {
    const char *name; /* of the function that users call; begins messages: "tfrecord" */
    /* Reads a row, 0 <= row < n_rows, into cell[0 .. n_fields-1]. May be called by several threads
     * at once. For a field of a fixed shape the cell has this shape and room for the values at
     * data, which read fills. For one that varies the cell comes empty ({0}): read sets shape and
     * data, a block for mg_free, which is the caller's also if read fails. A failure says where:
     * file and offset, or line, or the row's number. MG_IO, MG_DATA, MG_OOM. */
    mg_status (*read)(mg_source *s, int64_t row, mg_cell cell[]);
    /* Frees what the source owns, and the source. Accepts one that was made in part. */
    void (*free)(mg_source *s);
    /* In place of read, for sources whose rows are not the same in each epoch, or that need not
     * make whole images. wanted: NULL, or for each field NULL or what of its image, in the first
     * two axes, will be looked at. Sources may ignore it. */
    mg_status (*read_wanted)(mg_source *s, mg_row_key key, const mg_wanted *const wanted[],
                             mg_cell cell[]);
    /* What must be done once before rows are read, and may take long; it looks for Ctrl-C
     * (MG_INTERRUPTED). Several threads may call it. NULL: nothing. */
    mg_status (*prepare)(mg_source *s);
    /* Copies n rows, where reading one is a copy of memory and no field varies: the values of the
     * first go to the cells' places, those of the next ones behind them. NULL: row by row. */
    void (*copy_rows)(const mg_source *s, const int64_t row[], int n, const mg_cell cell[]);
    /* Writes where a row comes from, such as "cats.tfrecord: record 7": at most `room` bytes. NULL:
     * the row has only its number. */
    void (*describe)(const mg_source *s, int64_t row, char *text, size_t room);
} mg_source_api;

/* The beginning of every source. What a kind adds comes behind it. Immutable after it was made,
 * apart from the counter and what the kind guards itself. */
struct mg_source {
    const mg_source_api *api;
    atomic_int references;
    int n_fields;    /* at least 1 */
    mg_field *field; /* in the block of the source */
    int64_t n_rows;
    bool cheap; /* reading a row is a copy of memory: several threads do not pay by default */
};

/* A block of size bytes, zeroed, that begins with a source of n_fields fields, with one reference.
 * NULL: MG_OOM; MG_USAGE: more fields than MG_SOURCE_FIELDS. */
void *mg_source_alloc(const mg_source_api *api, size_t size, int n_fields);
/* After a source could not be made: puts the function's name before the stored message, unless it
 * stands there. Memory and Ctrl-C read the same everywhere. */
void mg_source_name_error(const char *who);
mg_source *mg_source_retain(mg_source *s);
/* The last release frees the source. Accepts NULL. */
void mg_source_release(mg_source *s);

/* Reads a row into cell[0 .. n_fields-1], as mg_source_api says of read. */
mg_status mg_source_read(mg_source *s, mg_row_key key, mg_cell cell[]);
/* The same, but of each image for which wanted[k] is not NULL, only the region that this tells is
 * sure to be made (region.h). wanted may be NULL. */
mg_status mg_source_read_wanted(mg_source *s, mg_row_key key, const mg_wanted *const wanted[],
                                mg_cell cell[]);
/* Before the first row is read. */
mg_status mg_source_prepare(mg_source *s);

/* Writes where a row comes from: what its kind says, or "row 7", from 1. */
void mg_source_describe(const mg_source *s, int64_t row, char *text, size_t room);

/* Whether a size of the field differs from row to row. */
bool mg_field_varies(const mg_field *f);
/* Bytes of a cell of this shape. */
size_t mg_cell_bytes(const mg_field *f, const mg_shape *shape);
/* Gives s the fields and the number of rows of another source of as many fields. */
void mg_source_copy_fields(mg_source *s, const mg_source *other);

/* ---- several strings in one cell ---- */

/* A string, which any byte may be in. */
typedef struct mg_text {
    const void *bytes; /* borrowed */
    size_t n;
} mg_text;

/* The bytes of a cell with these strings; and writes them to dst: each string as its length, 8
 * bytes, and its bytes, one behind the other. */
size_t mg_texts_size(const mg_text *texts, size_t n);
void mg_texts_pack(const mg_text *texts, size_t n, void *dst);
/* Sets *text to the string at *at, and *at to the place behind it. False: what is there up to `end`
 * is no string. */
bool mg_texts_next(const char **at, const char *end, mg_text *text);

#endif

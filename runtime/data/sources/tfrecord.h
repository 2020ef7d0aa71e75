/* Rows of TFRecord files: each record is a message of type tf.train.Example (data/example.h), and a
 * schema says which of its features become the cells of a row, and how. */
#ifndef MG_DATA_SOURCES_TFRECORD_H
#define MG_DATA_SOURCES_TFRECORD_H

#include "data/source.h"
#include "io/unpack.h"

/* How a feature holds a cell. */
typedef enum mg_record_form {
    MG_RECORD_LIST, /* a list of floats (dtype float32) or integers (int64, int32) */
    MG_RECORD_RAW,  /* one string: the elements as they are in memory, little-endian */
    MG_RECORD_TEXT, /* one string, or several */
    MG_RECORD_IMAGE /* one string: a PNG or JPEG file, decoded to uint8 */
} mg_record_form;

typedef struct mg_record_field {
    char *name; /* of the feature; owned */
    mg_record_form form;
    mg_dtype dtype;
    /* The shape of a cell. One size of a list or of raw elements may be -1, which fits any number
     * of elements; then a missing feature gives an empty cell. For images {height, width,
     * channels}, where -1 stands for the size of each image, or {height, width} for gray ones. For
     * text {}, or {n} for n strings. */
    mg_shape shape;
    int channels;   /* images are decoded to 1, 3 or 4 channels; 0: the channels of each image */
    void *fallback; /* owned: the cell to use if the feature is missing; NULL: a missing feature is
                       an error */
    size_t fallback_bytes;
    int quality; /* for writing images: of JPEG, 1 to 100; 0: PNG */
} mg_record_field;

typedef struct mg_tfrecord_spec {
    const char *const *paths; /* borrowed */
    int n_paths;
    mg_packing packing;     /* MG_PACKED_AUTO: found by content */
    mg_record_field *field; /* mg_tfrecord_source takes over their contents, also if it fails */
    int n_fields;           /* 1 to MG_SOURCE_FIELDS */
    bool skip_bad;          /* leave out damaged records; see tfrecord_index.h */
} mg_tfrecord_spec;

/* A source of the records of the files, in their order. Owned. NULL: as mg_file_set_open and
 * mg_record_index_build. */
mg_source *mg_tfrecord_source(const mg_tfrecord_spec *spec);
/* With skip_bad: the number of records left out, and of bytes after positions at which a file
 * cannot be read further. */
void mg_tfrecord_source_skipped(const mg_source *s, int64_t *records, int64_t *bytes);

/* Whether a cell of the field may have this shape. */
bool mg_record_shape_fits(const mg_record_field *f, const mg_shape *shape);
/* Frees what the field owns. */
void mg_record_field_clear(mg_record_field *f);

#endif

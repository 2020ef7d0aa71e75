/* The records by which the library and the program mgpu-h5 exchange the contents of an HDF5 file.
 *
 * A record is an mg_h5_header followed by path, name and payload, without padding; numbers are
 * little-endian. A group comes before what it contains, an object before its attributes. The stream
 * ends with MG_H5_END, so that a truncated one is detected. Both directions use the same
 * records. */
#ifndef MG_IO_H5_PROTOCOL_H
#define MG_IO_H5_PROTOCOL_H

#include <stdint.h>

enum {
    MG_H5_MAX_RANK = 8,
    MG_H5_MAX_NAME = 4096, /* bytes of a path or name */
    MG_H5_FREE_BYTES = 64 << 20,
    MG_H5_MAX_RATIO = 32 /* the records of a file: at most FREE_BYTES + MAX_RATIO times its size */
};

/* The CPU time for input of this size; ten megabytes take less than a second. */
static inline uint64_t mg_h5_seconds(uint64_t size) {
    return 60 + size / (10 << 20);
}

typedef enum mg_h5_kind {
    MG_H5_GROUP = 1, /* path */
    MG_H5_DATASET,   /* path, type, shape, payload */
    MG_H5_ATTRIBUTE, /* path of the object, name, type, shape, payload */
    MG_H5_ERROR,     /* payload: a sentence; the last record */
    MG_H5_END        /* the last record */
} mg_h5_kind;

/* Element types. The payload of MG_H5_TEXT is, for each element, 4 bytes of length and the text. */
typedef enum mg_h5_type {
    MG_H5_BOOL,
    MG_H5_U8,
    MG_H5_I32,
    MG_H5_I64,
    MG_H5_BF16,
    MG_H5_F16,
    MG_H5_F32,
    MG_H5_F64,
    MG_H5_TEXT
} mg_h5_type;

/* Integers that were widened to the record's type. Records to be written have only MG_H5_FROM_I8,
 * with MG_H5_U8: the bytes are those of int8. */
typedef enum mg_h5_stored {
    MG_H5_NOT_WIDENED,
    MG_H5_FROM_I8,
    MG_H5_FROM_I16,
    MG_H5_FROM_U16,
    MG_H5_FROM_U32,
    MG_H5_FROM_U64,
    MG_H5_N_STORED
} mg_h5_stored;

typedef struct mg_h5_header {
    uint32_t kind, type, rank, path_length, name_length, stored; /* mg_h5_stored */
    uint64_t shape[MG_H5_MAX_RANK];                              /* zero from `rank` on */
    uint64_t bytes;                                              /* of the payload */
} mg_h5_header;

_Static_assert(sizeof(mg_h5_header) == 24 + 8 * MG_H5_MAX_RANK + 8, "no padding");

#endif

/* Element types of files that tensors do not have. Reading widens each to a dtype that holds all of
 * its values: integers to int32 or int64, the 8-bit floats to float32. */
#ifndef MG_IO_STORED_TYPE_H
#define MG_IO_STORED_TYPE_H

#include "core/dtype.h"
#include "core/status.h"
#include <stdbool.h>

typedef struct mg_stored_type mg_stored_type;
struct mg_stored_type {
    const char *name; /* "int16" */
    const char *npy;  /* NumPy's name, after the byte order: "i2"; NULL: NumPy has none */
    const char *safetensors;
    mg_dtype dtype;  /* of the tensor */
    size_t size;     /* bytes of an element in the file */
    bool on_request; /* the file's reader must ask for the widening */
    /* An 8-bit float: the bits of the mantissa, the bias of the exponent, and the special values */
    int mantissa, bias;
    enum { MG_IEEE, MG_NO_INFINITY, MG_ONE_NAN } special;
};

/* The type of that name in NumPy's files or in safetensors files; NULL: none. */
const mg_stored_type *mg_stored_type_of_npy(const char *name);
const mg_stored_type *mg_stored_type_of_safetensors(const char *name);
/* The bytes of an element in the file; `stored` is NULL for a type that tensors have. */
static inline size_t mg_stored_size(const mg_stored_type *stored, mg_dtype dtype) {
    return stored ? stored->size : mg_dtype_size(dtype);
}

/* Widens n elements in place. The block has room for n elements of stored->dtype, and the
 * little-endian elements of the file are its last bytes. A uint64 above the range of int64 is
 * MG_UNSUPPORTED; `path` and `name` are for its message. */
mg_status mg_stored_widen(const mg_stored_type *stored, void *block, size_t n, const char *path,
                          const char *name);

#endif

/* NumPy's files: .npy (one array) and .npz (a zip archive of .npy files), as formats of stores.
 *
 * A .npy file is a magic string, a version (1 to 3), a header that is a Python dictionary, and the
 * elements. Both byte orders and Fortran order are read. Little-endian C order is written, with the
 * same bytes as numpy.save writes. NumPy's dtypes are supported where the library has the same one,
 * and other integers are widened (io/stored_type.h); NumPy has no bfloat16. The array of a .npy
 * file gets the name "arr_0", as in numpy.savez. Neither format can hold notes. */
#ifndef MG_IO_NPY_H
#define MG_IO_NPY_H

#include "io/store.h"

extern const mg_store_format mg_npy, mg_npz;

/* ---- npy.c, for both ---- */

/* Reads exactly n bytes, or fails with MG_DATA. */
typedef mg_status mg_npy_source(void *context, void *dst, size_t n);

/* An array being read. */
typedef struct mg_npy_array {
    const char *path, *name; /* borrowed: for messages */
    int64_t bytes;           /* of the array with its header */
    mg_npy_source *source;
    void *context;
    /* from the header: */
    mg_dtype dtype;
    const mg_stored_type *stored; /* the elements in the file, if they are widened to dtype */
    mg_shape shape;
    bool fortran, big_endian;
} mg_npy_array;

/* Reads the header and compares it with a->bytes. MG_DATA, MG_UNSUPPORTED for other dtypes. */
mg_status mg_npy_read_header(mg_npy_array *a);
/* Reads the elements after the header to dst, row-major, little-endian and widened. */
mg_status mg_npy_read_values(mg_npy_array *a, void *dst);
/* Swaps the bytes of n elements of `size` bytes: from big-endian to little-endian. */
void mg_npy_swap(void *bytes, size_t size, size_t n);
/* Reads the elements after the header and adds the tensor of entry `e` to f->store. */
mg_status mg_npy_read_elements(mg_npy_array *a, mg_store_file *f, mg_store_entry *e);

enum { MG_NPY_HEADER = 512 }; /* room for the header of any tensor */
/* Writes the header of a tensor, the beginning of the file. Returns its length; 0 after
 * MG_UNSUPPORTED for bfloat16. */
size_t mg_npy_header(const mg_tensor *t, const char *path, const char *name,
                     char header[MG_NPY_HEADER]);

#endif

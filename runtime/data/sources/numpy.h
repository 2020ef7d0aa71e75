/* Arrays of NumPy's files, .npy and .npz, by rows. */
#ifndef MG_DATA_SOURCES_NUMPY_H
#define MG_DATA_SOURCES_NUMPY_H

#include "data/source.h"

/* An array in a file. */
typedef struct mg_numpy_field {
    const char *path;
    const char *name; /* in a .npz file; NULL: the one of a .npy file */
} mg_numpy_field;

/* A source whose fields are arrays, which have the same number of rows (entries of the first axis).
 * Rows stay in the file and are read when they are wanted, except for arrays that are compressed or
 * in Fortran's order: those are loaded. `who` begins messages: "npz". Owned. NULL: MG_IO, MG_OOM,
 * MG_INTERRUPTED; MG_DATA: a damaged file; MG_UNSUPPORTED: other dtypes; MG_USAGE: an array that is
 * not there, has no rows, or another number of them. */
mg_source *mg_numpy_source(const char *who, const mg_numpy_field *fields, int n);

#endif

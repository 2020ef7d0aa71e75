/* The kinds of sources that need only one or two functions. CSV files, TFRecord files and folders
 * of images have their own headers. */
#ifndef MG_DATA_SOURCES_SOURCES_H
#define MG_DATA_SOURCES_SOURCES_H

#include "core/tensor.h"
#include "data/transform.h"

/* ---- tensors.c: rows of tensors in host memory ---- */

/* A source of the rows (entries of the first axis) of n evaluated tensors, which it retains. Owned.
 * NULL: MG_OOM, or MG_USAGE for tensors that have no rows, different numbers of rows or no values
 * in host memory. */
mg_source *mg_tensors_source(mg_tensor *const *tensors, int n);

/* ---- joined.c: several sources, side by side or one after the other ---- */

/* Row i has the cells of row i of each of the n sources, as many rows as the shortest has. Retains
 * them. Owned. NULL: MG_OOM, or MG_USAGE for more fields than MG_SOURCE_FIELDS. */
mg_source *mg_zipped_source(mg_source *const *sources, int n);
/* The rows of the first source, then those of the second, and so on. A size that differs between
 * the sources becomes -1 (differs from row to row). Retains them. Owned. NULL: MG_OOM, or MG_USAGE
 * for sources whose fields differ in number, dtype or rank. */
mg_source *mg_concatenated_source(mg_source *const *sources, int n);

/* ---- transformed.c: rows of another source with transforms applied ---- */

/* The source with a transform of one field (from 0) appended to its transforms. Retains both.
 * Owned. NULL: MG_OOM, or MG_USAGE, as the transform's infer says. */
mg_source *mg_transformed_source(mg_source *inner, int field, mg_transform *transform);

/* ---- cached.c, cache_file.c: rows of another source that are read once and kept ---- */

/* Rows are cached after the transforms so far, with the random choices of epoch 0: random choices
 * before a cache are the same in every pass.
 *
 * mg_cached_source keeps each row in memory when it is read for the first time. If reading is
 * cheap, it returns the source itself. Retains the source. Owned. NULL: MG_OOM. A read fails with
 * MG_OOM if there is no room for a row. */
mg_source *mg_cached_source(mg_source *inner);

/* Keeps all rows in the file at `path`. If the file does not exist, mg_source_prepare writes it
 * atomically, reading `inner` with several threads; then the rows are read from the file. Retains
 * the source. Owned. NULL: MG_OOM.
 *
 * mg_source_prepare fails with MG_IO, MG_INTERRUPTED or the errors of reading `inner`; with MG_DATA
 * for a file that is damaged or of another kind; with MG_USAGE if the file holds the rows of
 * another data set. A read fails with MG_DATA for a damaged row. The file must not be shortened
 * while it is in use, but it may be removed. */
mg_source *mg_cache_file_source(mg_source *inner, const char *path);

/* ---- numpy.c: arrays of NumPy's files, .npy and .npz, by rows ---- */

/* An array in a file. */
typedef struct mg_numpy_field {
    const char *path;
    const char *name; /* in a .npz file; NULL: the one of a .npy file */
} mg_numpy_field;

/* A source whose fields are arrays, which have the same number of rows (entries of the first axis).
 * Rows are read from the file when they are needed, except for arrays that are compressed or in
 * Fortran order, which are loaded into memory. `who` begins messages: "npz". Owned. NULL: MG_IO,
 * MG_OOM, MG_INTERRUPTED; MG_DATA: a damaged file; MG_UNSUPPORTED: other dtypes; MG_USAGE: an array
 * that is not there, has no rows, or another number of them. */
mg_source *mg_numpy_source(const char *who, const mg_numpy_field *fields, int n);

/* ---- text_lines.c: lines of text files ---- */

enum { MG_TEXT_LINE = 64 << 20 }; /* maximum bytes of a line */

/* A source of the lines of n files, one after another, as texts without their ends (LF or CRLF).
 * The first `skip` lines of each file are left out, and so is a byte order mark. The last line may
 * lack its line end; a line end at the end of a file does not start another, empty line. gzip is
 * unpacked. Files are read once to find the lines, and again when lines are wanted. Owned. NULL:
 * MG_IO, MG_OOM, MG_INTERRUPTED; MG_DATA: no lines, a line that is too long, damaged gzip data. */
mg_source *mg_text_lines_source(const char *const *paths, int n, int64_t skip);

#endif

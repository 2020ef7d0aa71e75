/* HDF5 files as a flat list: groups, datasets and their attributes, by path.
 *
 * libhdf5 is not safe on hostile files. It is used only by the program mgpu-h5 (h5_helper/), a
 * process with limits on memory, time and system calls, which turns a file into records
 * (h5_protocol.h) and back. Its output is checked like a file. */
#ifndef MG_IO_H5_H
#define MG_IO_H5_H

#include "core/tensor.h"
#include "io/zip.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct mg_h5_entry {
    char *path;         /* owned: "model_weights/dense"; "" is the root */
    char *attribute;    /* owned: an attribute's name; NULL: the group or dataset itself */
    mg_tensor *tensor;  /* retained: numbers; NULL: a group, or text */
    const char *stored; /* "int16": the type in the file, if it was widened; else NULL. To write:
                           "int8", if a tensor of uint8 holds the bytes of such numbers */
    char **texts;       /* owned, zero-terminated: of an attribute that holds text; else NULL */
    size_t n_texts;
    bool single; /* one text, no array */
} mg_h5_entry;

/* In the file's order: a group before its contents, an object before its attributes. */
typedef struct mg_h5_tree {
    mg_h5_entry *entries; /* owned */
    size_t n, room;       /* room: entries allocated */
} mg_h5_tree;

/* An empty tree. Owned. NULL: MG_OOM. */
mg_h5_tree *mg_h5_new(void);
/* Accepts NULL. */
void mg_h5_free(mg_h5_tree *tree);
/* Adds an entry: path and attribute (NULL: none) are copied, the tensor (NULL: none) is retained.
 * Returns the entry, borrowed until the next is added, so that texts can be added to it. NULL:
 * MG_OOM, MG_USAGE for a path or name that is too long. */
mg_h5_entry *mg_h5_add(mg_h5_tree *tree, const char *path, const char *attribute,
                       mg_tensor *tensor);
/* Adds a text of n bytes, which is copied. MG_OOM. */
mg_status mg_h5_add_text(mg_h5_entry *entry, const char *text, size_t n);

/* Reads an HDF5 file. Owned. NULL: MG_IO, MG_OOM, MG_DATA for a damaged file, MG_UNSUPPORTED
 * without mgpu-h5, MG_INTERRUPTED. */
mg_h5_tree *mg_h5_load(const char *path);
/* The same for an entry of an archive; `who` names it in messages. */
mg_h5_tree *mg_h5_load_zipped(mg_zip *zip, const mg_zip_entry *entry, const char *who);
/* Writes the tree to the path, atomically. Tensors are evaluated. Errors as mg_h5_load. */
mg_status mg_h5_save(const mg_h5_tree *tree, const char *path);
/* Writes the tree to a file in memory and returns its descriptor, to be closed. -1: errors as
 * mg_h5_save; `who` names it in messages. */
int mg_h5_make(const mg_h5_tree *tree, const char *who);

/* ---- records (h5_records.c) ---- */

/* Parses the records that mgpu-h5 has written. Owned. NULL: MG_DATA, MG_OOM; `who` begins the
 * message. */
mg_h5_tree *mg_h5_parse_records(const unsigned char *bytes, size_t n, const char *who);
/* Writes the tree's records to a file in memory. MG_OOM; MG_IO: the limit on file sizes. */
mg_status mg_h5_write_records(const mg_h5_tree *tree, int fd);
/* Writes bytes to a file in memory; the same errors. */
mg_status mg_h5_put(int fd, const void *bytes, size_t n);

#endif

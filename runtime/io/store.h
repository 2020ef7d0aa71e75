/* Stores: named tensors and some text (notes, the file's metadata), read from or written to one
 * file. Model weights, optimizer state and data sets on disk all go through this.
 *
 * A file format is a row mg_store_format in the list of store.c. Files are written atomically: the
 * old file stays until the new one is complete. Reading checks every size that the file claims
 * before memory is taken for it. */
#ifndef MG_IO_STORE_H
#define MG_IO_STORE_H

#include "core/io.h"
#include "core/tensor.h"
#include <stdbool.h>

typedef struct mg_stored {
    char *name;        /* owned */
    mg_tensor *tensor; /* retained */
} mg_stored;

typedef struct mg_store_note {
    char *key, *text; /* owned */
} mg_store_note;

/* In the order of insertion, or of the file. */
typedef struct mg_store {
    size_t n_tensors, n_notes, tensor_room, note_room; /* room: entries allocated */
    mg_stored *tensors;                                /* owned */
    mg_store_note *notes;                              /* owned */
} mg_store;

typedef struct mg_store_format {
    const char *name, *extension; /* "safetensors", ".safetensors" */
    /* True if a file of `size` bytes that begins with the n bytes at `head` has this format. */
    bool (*recognise)(const unsigned char *head, size_t n, int64_t size);
    /* Adds the contents of f, which stands at its beginning, to `into`; `path` is for messages. */
    mg_status (*load)(mg_file *f, const char *path, mg_store *into);
    /* Writes the store to `path`, atomically. */
    mg_status (*save)(const mg_store *s, const char *path);
} mg_store_format;

/* An empty store. Owned. NULL: MG_OOM. */
mg_store *mg_store_new(void);
/* Frees the store, its names and notes, and releases its tensors. Accepts NULL. */
void mg_store_free(mg_store *s);
/* Adds a tensor under a name; the name is copied, the tensor retained. Names are not compared here:
 * mg_store_save refuses duplicates. MG_OOM. */
mg_status mg_store_add(mg_store *s, const char *name, mg_tensor *tensor);
/* Adds a line of metadata; both strings are copied. MG_OOM. */
mg_status mg_store_add_note(mg_store *s, const char *key, const char *text);
/* The tensor of that name, borrowed from the store; NULL if there is none. */
mg_tensor *mg_store_find(const mg_store *s, const char *name);

/* Writes the store in the format that the path's extension names. MG_USAGE for an unknown extension
 * (the message lists the known ones) and for names that the format cannot hold; MG_IO, MG_OOM.
 * Tensors that have no value yet are evaluated. */
mg_status mg_store_save(const mg_store *s, const char *path);
/* Reads a file; the format is recognised by the contents, else by the extension. Owned. NULL:
 * MG_IO, MG_OOM, MG_DATA for a damaged file, MG_UNSUPPORTED for HDF5 and unknown dtypes. */
mg_store *mg_store_load(const char *path);

#endif

/* Stores: named tensors and a few words of text (metadata), kept in one file.
 *
 * A file format is a row mg_store_format in store.c. A file is written whole or not at all; reading
 * checks all that the file says about itself before memory is taken for it. */
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

typedef struct mg_store {
    size_t n_tensors, n_notes, tensor_room, note_room;
    mg_stored *tensors;
    mg_store_note *notes;
} mg_store;

typedef struct mg_store_format {
    const char *name, *extension;
    /* Does a file of `size` bytes that begins with head[0..n) look like this format? */
    bool (*recognise)(const unsigned char *head, size_t n, int64_t size);
    mg_status (*load)(mg_file *f, const char *path, mg_store *into);
    mg_status (*save)(const mg_store *s, const char *path);
} mg_store_format;

/* Empty. Owned. */
mg_store *mg_store_new(void);
void mg_store_free(mg_store *s);
/* Copies the name, retains the tensor. */
mg_status mg_store_add(mg_store *s, const char *name, mg_tensor *tensor);
mg_status mg_store_add_note(mg_store *s, const char *key, const char *text);
/* Borrowed; NULL if not there. */
mg_tensor *mg_store_find(const mg_store *s, const char *name);

/* The format follows from the extension; MG_USAGE names the known ones. */
mg_status mg_store_save(const mg_store *s, const char *path);
/* The format follows from the contents, then from the extension. Owned. */
mg_store *mg_store_load(const char *path);

#endif

/* Stores: named tensors and some text (notes, the file's metadata), read from or written to one
 * file. Model weights, optimizer state and data sets on disk all go through this.
 *
 * A file format is a row mg_store_format in the list of store.c. Files are written atomically: the
 * old file stays until the new one is complete. Reading has two parts: mg_store_open reads names,
 * shapes, dtypes and notes, so that they can be checked first; mg_store_read reads the tensors.
 * Every size in the file is checked before memory is allocated for it. */
#ifndef MG_IO_STORE_H
#define MG_IO_STORE_H

#include "core/io.h"
#include "core/tensor.h"
#include "io/stored_type.h"
#include <stdbool.h>

/* ---- stores in memory ---- */

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

/* ---- files ---- */

typedef struct mg_store_format mg_store_format;

/* A tensor of an open file. */
typedef struct mg_store_entry {
    char *name; /* owned */
    mg_dtype dtype;
    const mg_stored_type *stored; /* the elements in the file, if they are widened to dtype */
    mg_shape shape;
    int64_t begin, end; /* where its bytes are; the format says how that is counted */
    bool nonfinite;     /* after reading: a NaN or an infinity is in it */
} mg_store_entry;

/* An open file: its entries are known, its tensors are not read yet. */
typedef struct mg_store_file {
    char *path;    /* owned: for messages */
    mg_file *file; /* owned */
    int64_t size;
    const mg_store_format *format;
    mg_store *store;         /* owned: its notes are there from the start */
    mg_store_entry *entries; /* owned */
    int n_entries, entry_room;
    bool widen;  /* as requested: also types that are widened on request only */
    void *state; /* owned by the format */
} mg_store_file;

/* Opens a file; the format is recognised by the contents, else by the extension. widen: also reads
 * the types that are widened on request only. Owned. NULL: MG_IO, MG_OOM, MG_DATA for a damaged
 * file, MG_UNSUPPORTED for HDF5 and unknown dtypes. */
mg_store_file *mg_store_open(const char *path, bool widen);
/* Opens an ONNX model, whatever its contents look like; io/onnx.h says what its notes and entries
 * are. Owned. NULL: as mg_store_open. */
mg_store_file *mg_store_open_onnx(const char *path);
/* Reads the tensors, onto the default device; f->store then has them. Called once. */
mg_status mg_store_read(mg_store_file *f);
/* Closes the file and frees the store. Accepts NULL. */
void mg_store_close(mg_store_file *f);

/* Opens and reads a whole file, without widening on request. Owned. NULL: as mg_store_open. */
mg_store *mg_store_load(const char *path);
/* Writes the store in the format of the path's extension. MG_USAGE for an unknown extension (the
 * message lists the known ones) and for names that the format cannot hold; MG_IO, MG_OOM. Tensors
 * that have no value yet are evaluated. */
mg_status mg_store_save(const mg_store *s, const char *path);
/* The same in the format of that name, whatever the path's extension. */
mg_status mg_store_save_as(const mg_store *s, const char *path, const char *format);

/* ---- formats ---- */

struct mg_store_format {
    const char *name, *extension; /* "safetensors", ".safetensors" */
    /* True if a file of `size` bytes that begins with the n bytes at `head` has this format. */
    bool (*recognise)(const unsigned char *head, size_t n, int64_t size);
    /* Adds the entries and notes of f, which stands at its beginning. */
    mg_status (*open)(mg_store_file *f);
    /* Reads the entries; mg_store_file_take makes their tensors. */
    mg_status (*read)(mg_store_file *f);
    /* Frees f->state, which may be NULL. */
    void (*close)(mg_store_file *f);
    /* Writes the store to `path`, atomically. */
    mg_status (*save)(const mg_store *s, const char *path);
};

/* Adds an entry; the name is copied. Borrowed until the next one; NULL: MG_OOM. */
mg_store_entry *mg_store_file_add(mg_store_file *f, const char *name);
/* The memory that a tensor's elements are read into, row-major and little-endian. On devices with
 * host memory it is the tensor's own memory, so that nothing is copied. */
typedef struct mg_store_room {
    void *bytes;       /* to be filled */
    mg_buffer *buffer; /* owned: of the tensor */
    void *block;       /* owned: the memory at `bytes` if that is not in the buffer, else NULL */
} mg_store_room;
/* Makes room for the entry's tensor. Call mg_store_room_free also on failure. MG_OOM. */
mg_status mg_store_room_new(mg_store_room *room, const mg_store_entry *e);
void mg_store_room_free(mg_store_room *room);
/* The last bytes of the room, as many as the entry's elements have in the file. */
void *mg_store_room_end(const mg_store_room *room, const mg_store_entry *e);
/* Widens the elements that were read to the end of the room, if the entry has a stored type. Sets
 * e->nonfinite then. MG_UNSUPPORTED: see io/stored_type.h. */
mg_status mg_store_room_widen(const mg_store_room *room, mg_store_entry *e, const char *path);
/* Whether a NaN or an infinity is among n elements. */
bool mg_store_has_nonfinite(mg_dtype dtype, const void *bytes, size_t n);
/* Adds the tensor of entry `e` to the store; the room has its elements. MG_DATA for booleans other
 * than 0 and 1. The caller sets e->nonfinite. */
mg_status mg_store_file_take(mg_store_file *f, const mg_store_entry *e, const mg_store_room *room);
/* Sets *bytes to the elements of a tensor, which is evaluated if need be. They are in its own
 * memory, or in *block, which the caller frees (mg_free), also on failure. */
mg_status mg_store_view(mg_tensor *t, const void **bytes, void **block);
/* Reads n bytes, or fails with MG_DATA: the file ends within `what`. */
mg_status mg_store_file_exactly(mg_store_file *f, void *dst, size_t n, const char *what);

#endif

/* ONNX models (onnx/onnx.proto) as files of a store: the tensors of a model are the store's
 * entries, and its graph is the note "model", as JSON.
 *
 * The note has the fields of ModelProto under their own names, without documentation. In place of
 * each TensorProto stands {"tensor": ENTRY, "name": NAME}: the entries are called "t0", "t1", ...
 * Numbers that JSON has no words for are the texts "inf", "-inf" and "nan". Unknown fields are
 * skipped, as protocol buffers require; types that are no tensors (sequences, maps) are null.
 *
 * Opening reads the structure of the messages through a small window, and of the tensors' bytes
 * only packed varints, to count them. mg_store_read later reads the bytes straight into the
 * tensors' memory, from this file or from files of external data. These lie in the model's folder
 * or below it: absolute paths, "..", and symbolic links are refused. Every length is checked
 * against the message around it and the sizes of a tensor against its bytes, before memory is
 * taken.
 *
 * Limits: 2,097,152 fields, 262,144 tensors, 64 MiB of text, 32 nested messages, 64 files of
 * external data. Refused as unsupported: element types that tensors do not have, texts among them,
 * and sparse tensors. */
#ifndef MG_IO_ONNX_H
#define MG_IO_ONNX_H

#include "io/store.h"

extern const mg_store_format mg_onnx;

/* ---- for the files of the reader: onnx.c, onnx_message.c, onnx_tensor.c ---- */

/* The position in a file of messages. The bytes around it are in a window of memory. */
typedef struct onnx_reader {
    mg_store_file *f; /* borrowed */
    int64_t at;       /* the next byte */
    int64_t first;    /* of the window's bytes */
    size_t filled;
    unsigned char *window; /* owned */
    int64_t fields, text;  /* read so far: see the limits above */
    int depth;
} onnx_reader;

/* Wire types of protocol buffers. */
enum { ONNX_VARINT = 0, ONNX_FIXED64 = 1, ONNX_BYTES = 2, ONNX_FIXED32 = 5 };

/* MG_DATA: "PATH: the ONNX file is damaged at byte N: WHAT". */
mg_status onnx_damaged(const onnx_reader *r, const char *what);
/* Read a varint, or n bytes, that end before `end`. */
mg_status onnx_read_varint(onnx_reader *r, int64_t end, uint64_t *value);
mg_status onnx_read_bytes(onnx_reader *r, int64_t end, void *dst, size_t n);
/* Reads what begins a field: its number and its wire type, and of ONNX_BYTES the length. *field_end
 * is the byte after a field of ONNX_BYTES, which lies in the message, and else `end`. */
mg_status onnx_read_key(onnx_reader *r, int64_t end, uint64_t *number, int *type,
                        int64_t *field_end);
/* Moves behind the value of a field that onnx_read_key has begun. */
mg_status onnx_skip(onnx_reader *r, int type, int64_t field_end);
/* The bytes up to `end` as text of *n bytes and a zero; owned. NULL: MG_OOM, MG_DATA. */
char *onnx_read_text(onnx_reader *r, int64_t end, size_t *n);

/* Where the bytes of a tensor are. */
typedef struct onnx_source {
    enum { ONNX_RAW, ONNX_VARINTS } kind; /* little-endian elements; packed varints */
    int file;                             /* of external data, or -1: the model's file */
    int64_t at, bytes;
} onnx_source;

/* A file of external data. */
typedef struct onnx_external {
    char *location; /* owned */
    mg_file *file;  /* owned */
    int64_t size, used;
} onnx_external;

enum { ONNX_MOST_EXTERNAL = 64 };

/* The state of an open file. */
typedef struct onnx_state {
    onnx_reader reader;
    onnx_source *sources; /* owned: one for each entry */
    int n_sources, source_room;
    onnx_external external[ONNX_MOST_EXTERNAL];
    int n_external;
} onnx_state;

/* Reads a TensorProto, which ends at `end`, as one more entry of the file, without its elements.
 * *name: owned, of *n bytes. */
mg_status onnx_read_tensor(onnx_reader *r, int64_t end, char **name, size_t *n);
/* Reads the elements of all entries. */
mg_status onnx_read_elements(mg_store_file *f);

#endif

/* Streams: rows of tensors in host memory, copied in a given order into batches.
 *
 * With depth > 0, a thread of the stream makes up to that many elements ahead of need
 * (prefetching); with depth 0 the caller's thread does the work when it asks. Both give the same
 * elements. A stream is used by one thread. */
#ifndef MG_DATA_STREAM_H
#define MG_DATA_STREAM_H

#include "core/tensor.h"
#include "data/order.h"

enum { MG_STREAM_TENSORS = 8 }; /* the most tensors that go together: x, y, weights, ... */

/* What mg_stream_new is to make; the caller's. */
typedef struct mg_stream_spec {
    mg_tensor *tensors[MG_STREAM_TENSORS]; /* evaluated, on a host device, with equal
                                              first axes; retained by the stream */
    int n_tensors;
    const mg_stage *stages; /* copied */
    int n_stages;
    int dense;     /* this many of the innermost batches become axes of one tensor; each entry of
                      the batches around them becomes a part, with tensors of its own */
    uint64_t pass; /* the pass, and the element in it, to begin with */
    int64_t element;
    int64_t depth; /* elements to make ahead; 0: no thread */
} mg_stream_spec;

/* An element: its rows copied into buffers. Part p has one buffer for each tensor k: buffer[p *
 * n_tensors + k]. */
typedef struct mg_element {
    mg_shape outer; /* sizes of the batches that give parts; n_parts is their product */
    mg_shape shape[MG_STREAM_TENSORS]; /* of the tensors of each part */
    mg_dtype dtype[MG_STREAM_TENSORS];
    int64_t n_parts;
    int n_tensors;
    size_t bytes;            /* of all buffers */
    struct mg_element *next; /* in the stream's queue */
    mg_buffer *buffer[];     /* owned */
} mg_element;

typedef struct mg_stream mg_stream;

/* Makes a stream; with a depth, its thread begins to work. Owned. NULL: MG_OOM, or MG_USAGE for
 * tensors that have no rows, different numbers of rows or no values in host memory, and for results
 * of more than MG_MAX_RANK axes. */
mg_stream *mg_stream_new(const mg_stream_spec *spec);
/* Sets *element to the next element (owned by the caller; free it with mg_element_free), or to NULL
 * at the end of the pass. Failures of the thread are reported here: MG_OOM, MG_USAGE,
 * MG_INTERRUPTED. After a failure, the next call tries the same element again. */
mg_status mg_stream_next(mg_stream *s, mg_element **element);
/* Stops the thread, waits for it and frees everything. Accepts NULL. */
void mg_stream_free(mg_stream *s);

/* Frees the element and releases its buffers. Accepts NULL. */
void mg_element_free(mg_element *e);

#endif

/* Streams: rows of tensors in the host's memory, copied in a given order, ahead of need if wished.
 *
 * With depth > 0 a thread of the stream's own makes that many elements ahead; else the caller does
 * the work when it asks. Both give the same elements. A stream belongs to one thread. */
#ifndef MG_DATA_STREAM_H
#define MG_DATA_STREAM_H

#include "core/tensor.h"
#include "data/order.h"

enum { MG_STREAM_TENSORS = 8 };

typedef struct mg_stream_spec {
    mg_tensor *tensors[MG_STREAM_TENSORS]; /* values with the same first axis; retained */
    int n_tensors;
    const mg_stage *stages; /* read while the stream is made */
    int n_stages;
    int dense; /* this many of the innermost batches become axes; the outer ones give parts */
    uint64_t pass;
    int64_t element, depth;
} mg_stream_spec;

/* An element. A part holds a buffer for each tensor: buffer[part * n_tensors + tensor]. */
typedef struct mg_element {
    mg_shape outer;                    /* the batches that are no axes: their product is n_parts */
    mg_shape shape[MG_STREAM_TENSORS]; /* of a part's tensors */
    mg_dtype dtype[MG_STREAM_TENSORS];
    int64_t n_parts;
    int n_tensors;
    size_t bytes; /* of all buffers */
    struct mg_element *next;
    mg_buffer *buffer[]; /* owned */
} mg_element;

typedef struct mg_stream mg_stream;

/* Owned. MG_USAGE: tensors without rows, of different lengths or elsewhere; too many axes. */
mg_stream *mg_stream_new(const mg_stream_spec *spec);
/* The next element into *element (owned by the caller), NULL at the end. What failed in the
 * thread fails here. After a failure the next call tries the same element again. */
mg_status mg_stream_next(mg_stream *s, mg_element **element);
/* Stops the thread and waits for it. NULL is fine. */
void mg_stream_free(mg_stream *s);

void mg_element_free(mg_element *e);

#endif

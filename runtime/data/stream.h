/* Streams: the rows of a source, put together into elements in a given order.
 *
 * With depth > 0, threads of the stream make up to that many elements ahead of need (prefetching),
 * several of them at one element if it has many rows; with depth 0 the caller's thread does the
 * work when it asks. The elements and their order do not depend on depth and threads. A stream is
 * used by one thread. */
#ifndef MG_DATA_STREAM_H
#define MG_DATA_STREAM_H

#include "data/element.h"

enum { MG_STREAM_THREADS = 64 }; /* at most */

/* The arguments of mg_stream_new. Pointers are borrowed unless stated otherwise. */
typedef struct mg_stream_spec {
    mg_source *source;        /* retained by the stream */
    mg_device *const *device; /* where the batches of each field go; copied */
    mg_device *host; /* where they are put together first if those devices are not host-visible */
    mg_device *shard[MG_MAX_DEVICES]; /* devices over which the rows of a batch in host memory will
                                         be sharded; the rows are staged on them */
    int n_shards;
    double weight[MG_MAX_DEVICES]; /* of the shards, if weighted */
    bool weighted;
    mg_share share;         /* of a batch: the rows to read, unless the source has texts; copied */
    const mg_stage *stages; /* copied */
    int n_stages;
    int dense; /* this many of the innermost batches become axes of one tensor; each entry of the
                  batches around them becomes a part with its own tensors */
    uint64_t pass; /* the pass, and the element in it, to begin with */
    int64_t element;
    int64_t depth; /* elements to make ahead; 0: no thread */
    int threads;   /* number of threads if depth > 0, at least 1 */
} mg_stream_spec;

typedef struct mg_stream mg_stream;

/* Makes a stream; with a depth, its threads begin to work. Owned. NULL: MG_OOM, MG_USAGE for
 * results of more than MG_MAX_RANK axes, or the errors of mg_source_prepare. */
mg_stream *mg_stream_new(const mg_stream_spec *spec);
/* Sets *element to the next element (owned by the caller; free it with mg_element_free), or to NULL
 * at the end of the pass. Failures of the threads are reported here, after the elements that
 * precede them: errors of the source, MG_OOM, MG_USAGE, MG_DEVICE, MG_INTERRUPTED. After a failure,
 * the next call tries the same element again. */
mg_status mg_stream_next(mg_stream *s, mg_element **element);
/* Writes where the rows of part number `part`, from 0, of `parts` equal parts of the last element
 * come from: "row 3, row 9, ... (32 rows)"; at most `room` bytes, and "" before the first element.
 */
void mg_stream_describe(const mg_stream *s, int64_t part, int64_t parts, char *text, size_t room);
/* Stops the threads, waits for them and frees everything. Accepts NULL. */
void mg_stream_free(mg_stream *s);

#endif

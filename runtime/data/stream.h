/* Streams: rows of host tensors, copied into batches by a thread that works ahead of its reader.
 *
 * The reader says which rows each batch is made of, some batches ahead, and takes them in this
 * order. A failure of the thread is raised where its batch is taken. */
#ifndef MG_DATA_STREAM_H
#define MG_DATA_STREAM_H

#include "core/tensor.h"

typedef struct mg_stream mg_stream;

enum { MG_STREAM_TENSORS = 8 };

/* From n tensors (retained; evaluated, in host memory, of at least one axis and equally many rows).
 * At most `depth` batches are ahead. NULL on failure. */
mg_stream *mg_stream_new(mg_tensor *const *tensors, int n, int depth);
/* The next batch is to have these rows; MG_DATA if one is not there, MG_USAGE if `depth` are ahead.
 */
mg_status mg_stream_push(mg_stream *s, const int32_t *rows, int64_t n);
/* The batches pushed and not taken. */
int mg_stream_ahead(const mg_stream *s);
/* The first batch pushed: an owned tensor of each of the stream's. MG_USAGE if none was. */
mg_status mg_stream_pop(mg_stream *s, mg_tensor **batch);
/* Ends the thread and drops what was not taken. */
void mg_stream_free(mg_stream *s);

#endif

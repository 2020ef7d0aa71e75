/* The order of rows: which rows of a table of data come next, after shuffling, batching and so on.
 *
 * Row numbers only; stream.h moves the rows themselves. An order is a chain of stages, each drawing
 * elements from the one before; an element is a row number, or after batches a block of them. A
 * pass over it is a function of the stages and the pass's number alone, and can be entered
 * anywhere. */
#ifndef MG_DATA_ORDER_H
#define MG_DATA_ORDER_H

#include "core/shape.h"

typedef enum mg_stage_kind {
    MG_SHUFFLE, /* through a window of n elements; n at least the length is a permutation */
    MG_BATCH,   /* n elements become one; the last may be smaller, or is dropped */
    MG_CYCLE,   /* n passes in a row, MG_ENDLESS for no end */
    MG_TAKE,    /* the first n */
    MG_SKIP     /* all but the first n */
} mg_stage_kind;

#define MG_ENDLESS INT64_MAX

typedef struct mg_stage {
    mg_stage_kind kind;
    int64_t n;
    uint64_t seed;       /* of a shuffle */
    bool drop_remainder; /* of a batch */
} mg_stage;

/* An element: n row numbers, the product of dim[0..rank-1]. dim[0] is the innermost batch. */
typedef struct mg_rows {
    int rank;
    int64_t dim[MG_MAX_RANK];
    int64_t n, capacity;
    int64_t *row; /* owned */
} mg_rows;

typedef struct mg_order mg_order;

/* An order of rows 0..n_rows-1. Owned. MG_USAGE: more than MG_MAX_RANK batches. */
mg_order *mg_order_new(int64_t n_rows, const mg_stage *stages, int n_stages);
/* stop(context) is asked now and then during long work; true ends it with MG_INTERRUPTED. */
void mg_order_set_stop(mg_order *o, bool (*stop)(void *context), void *context);
void mg_order_free(mg_order *o);
/* Elements in a pass, or MG_ENDLESS. */
int64_t mg_order_length(const mg_order *o);
/* Goes to element number `element` of pass number `pass`, both from 0. It must come first. */
mg_status mg_order_seek(mg_order *o, uint64_t pass, int64_t element);
/* The next element into *rows (its block is reused), *got = false at the end. MG_USAGE: a batch of
 * elements of different sizes. After a failure, seek again. */
mg_status mg_order_next(mg_order *o, mg_rows *rows, bool *got);

#endif

/* The order of a data set's rows: which rows come next, after shuffling, batching, repeating and so
 * on.
 *
 * An order deals with row numbers only; stream.h moves the rows. It is a chain of stages, each of
 * which draws elements from the stage before it. An element is one row number, or after a batch
 * stage a block of them. The elements of a pass are a function of the stages and the pass's number
 * alone, and a pass can be entered at any element; this is how training is resumed. */
#ifndef MG_DATA_ORDER_H
#define MG_DATA_ORDER_H

#include "data/source.h"

typedef enum mg_stage_kind {
    MG_SHUFFLE, /* gives out random elements of a window of n; n >= the length: a permutation */
    MG_BATCH,   /* n elements become one; a smaller last one is kept or dropped */
    MG_CYCLE,   /* n passes of the stages before, one after another; may be MG_ENDLESS */
    MG_TAKE,    /* the first n */
    MG_SKIP,    /* all but the first n */
    MG_SHARD,   /* every n-th, from number `index` on */
    MG_WINDOW   /* n elements, `stride` apart, become one; the next begins `shift` further. Like a
                   batch, whose shift is n; smaller last ones are kept or dropped */
} mg_stage_kind;

#define MG_ENDLESS INT64_MAX

/* One stage, as the caller describes it. */
typedef struct mg_stage {
    mg_stage_kind kind;
    int64_t n;             /* at least 0 for cycle, take and skip, else at least 1 */
    uint64_t seed;         /* shuffle only */
    bool drop_remainder;   /* batch and window: drop smaller last ones */
    int64_t index;         /* shard only: 0 .. n-1 */
    int64_t shift, stride; /* window only: at least 1 */
} mg_stage;

/* Whether the elements of such a stage have one axis more than the elements before it. */
static inline bool mg_stage_is_batch(const mg_stage *s) {
    return s->kind == MG_BATCH || s->kind == MG_WINDOW;
}

/* An element: n rows, n being the product of dim[0 .. rank-1]. A batch of batches has rank 2;
 * dim[0] is the size of the innermost batch. A number encodes a row and the pass over the rows that
 * it belongs to (row + passes * n_rows) in 8 bytes; mg_rows_key decodes it. */
typedef struct mg_rows {
    int rank;
    int64_t dim[MG_MAX_RANK];
    int64_t n, capacity; /* numbers; room for them */
    int64_t *number;     /* owned */
    int64_t n_rows;      /* of the order */
    uint64_t epoch;      /* of the numbers below n_rows */
} mg_rows;

/* The i-th row, and the pass over the rows that it belongs to: each round of a cycle is another. */
static inline mg_row_key mg_rows_key(const mg_rows *rows, int64_t i) {
    const int64_t number = rows->number[i];
    if (number < rows->n_rows) return (mg_row_key){rows->epoch, number};
    return (mg_row_key){rows->epoch + (uint64_t)(number / rows->n_rows), number % rows->n_rows};
}

typedef struct mg_order mg_order;

/* An order of rows 0 .. n_rows-1. The stages are copied. Owned. NULL: MG_OOM, or MG_USAGE for more
 * than MG_MAX_RANK batches of batches. Seek before the first next. */
mg_order *mg_order_new(int64_t n_rows, const mg_stage *stages, int n_stages);
/* stop(context) is called now and then during long work (a shuffle that fills its window, a long
 * skip); if it returns true, the work ends with MG_INTERRUPTED. */
void mg_order_set_stop(mg_order *o, bool (*stop)(void *context), void *context);
/* Accepts NULL. */
void mg_order_free(mg_order *o);
/* The number of elements in a pass, or MG_ENDLESS. */
int64_t mg_order_length(const mg_order *o);
/* Goes to element number `element` of pass number `pass`, both from 0. Call it before the first
 * mg_order_next and after every failure. */
mg_status mg_order_seek(mg_order *o, uint64_t pass, int64_t element);
/* Puts the next element into *rows, whose block is reused (the caller frees rows->number with
 * mg_free); *got is false at the end of the pass. MG_USAGE: batches of different sizes cannot be
 * batched again. MG_OOM, MG_INTERRUPTED. */
mg_status mg_order_next(mg_order *o, mg_rows *rows, bool *got);

/* The index of the element that a shuffle gives out as element number `at` (from 0) of a pass,
 * among the `held` elements (at least 1) in its window. A function of its arguments alone. */
int64_t mg_order_draw(uint64_t seed, uint64_t pass, uint64_t at, int64_t held);

#endif

/* Where a value lies on several devices: the words that op rules, the partition pass and devices
 * share, and how the rows of a batch are dealt out.
 *
 * A tensor lies on one device (mg_tensor.device). Inside a step that runs on several devices, each
 * value has a *sharding*: an axis number, or one of the names below. To shard, to split and to deal
 * out rows mean the same: each device gets a contiguous run of them. */
#ifndef MG_CORE_PLACEMENT_H
#define MG_CORE_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

/* The maximum number of devices of one kind, of logical devices on one GPU, and of devices of one
 * process in one step. Sets of devices or stages are kept as bits of a uint64_t. MG_MAX_SHARDS: of
 * devices that share the rows of a step, in all processes. */
enum { MG_MAX_DEVICES = 64, MG_MAX_SHARDS = 1024 };

/* ---- shardings ---- */

/* A number >= 0: sharded along that axis, so each device holds its rows of it. Else: */
enum mg_sharding_kind {
    MG_REPLICATED = -1,  /* every device holds the whole value */
    MG_PARTIAL_SUM = -2, /* every device holds one term of a sum that is still to be added up */
    MG_PARTIAL_MAX = -3, /* likewise of a maximum */
    MG_PARTIAL_MIN = -4, /* likewise of a minimum */
    MG_ANY_SHARDING = -5 /* a literal or a random draw: a device can make the whole value or any
                            part of it, always with the same numbers */
};

static inline bool mg_sharding_is_partial(int sharding) {
    return sharding <= MG_PARTIAL_SUM && sharding >= MG_PARTIAL_MIN;
}

/* How a collective combines the devices' terms. */
enum mg_reduce_kind { MG_REDUCE_SUM, MG_REDUCE_MAX, MG_REDUCE_MIN };

/* ---- rows ---- */

typedef struct mg_shards { /* which rows of the global batch each of n devices has */
    int n;
    int64_t rows;                 /* of the whole batch; 0: nothing is sharded */
    int64_t first[MG_MAX_SHARDS]; /* device i has rows [first[i], first[i] + count[i]) */
    int64_t count[MG_MAX_SHARDS]; /* may be 0 */
} mg_shards;

/* Deals rows out over n devices in order: in proportion to weights, or evenly if weights is NULL
 * (10 rows over 4 devices: 3 3 2 2). */
void mg_shards_deal(mg_shards *s, int n, int64_t rows, const double *weights);

#endif

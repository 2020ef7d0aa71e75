/* Shardings of a step's nodes: sharding.c decides them, partition.c builds each device's IR from
 * them.
 *
 * The terms are defined in core/placement.h. The decisions are the same for every device, so all
 * devices build matching collectives. */
#ifndef MG_GRAPH_SHARDING_H
#define MG_GRAPH_SHARDING_H

#include "graph/partition.h"

enum {
    /* One more sharding, only known here: every device has a value of its own, from its own rows
     * (batch statistics that are kept apart). */
    MG_PER_DEVICE = -6,
    /* MG_MIXED_ROWS - n: the rows of a matrix that was {n, batch, ...}. A device has its rows of
     * each of the n blocks, so a contraction over all rows gives a term of a sum; nothing else can
     * read it. */
    MG_MIXED_ROWS = -16,
    NOT_MADE = -1,                /* no local node yet, or making it failed */
    N_SHARDINGS = MG_MAX_RANK + 2 /* replicated, along each axis, per device */
};

typedef struct node_sharding {
    int produced; /* the sharding in which the op makes its result */
    int sharding; /* the sharding that readers see: `produced`, or MG_REPLICATED if a reader needs
                     partial terms whole, because they are then reduced once for all readers */
    int *in;      /* per input: the sharding that this op needs */
    int *results; /* per result of an op that has several: its sharding; the node itself counts as
                     replicated */
    struct partition *body; /* of a scan: the decisions about its body */
    int given;              /* of a parameter: the sharding in which it is given */
    int depth;              /* length of the longest path from a source */
} node_sharding;

/* The work of building one device's IR. Arrays are indexed by node of the global IR. */
typedef struct partition {
    const mg_ir *global;
    const mg_shards *shards;
    const mg_partition_spec *spec;
    int stage, device; /* whose IR is built */
    int central;       /* number of the only device that has the variables, or -1 */
    bool local_norm;
    mg_ir *part; /* the IR being built; its memory also holds these arrays */
    int capacity;
    node_sharding *shardings;
    bool *reduced;                 /* its partial terms are reduced right after it, or its rows are
                                      not to be mixed, because a reader needs it whole */
    int *stages;                   /* the stage that computes it */
    uint64_t (*sent)[N_SHARDINGS]; /* per sharding: bits of the stages that it is sent to */
    int (*made)[N_SHARDINGS];      /* per sharding: its local node, or NOT_MADE */
    int *raw;                      /* its local node in the sharding that readers see, so after the
                                      reduction where `reduced`. NOT_MADE if this device does not
                                      compute it, or its sharding is MG_ANY_SHARDING */
    int collectives, last_collective;
    int *after;       /* the latest bucket whose reductions it needs; 0: none */
    bool *replicated; /* with a central device: whether other devices compute or read it */
    bool *gradient;   /* a reduction that no other collective waits for: partition_buckets.c */
    int *turn;        /* the part of the order of nodes that it belongs to: there, too */
    int64_t gradient_bytes;         /* of all such reductions */
    struct mg_gradients *gradients; /* per dtype and kind: those that are still to be reduced */
    struct {                        /* the bucket of other all-reduces being filled */
        int number;                 /* from 1 */
        int tensors;                /* 0: the next all-reduce opens a new one */
        int kind;
        int64_t bytes;
        mg_dtype dtype;
    } bucket;
} partition;

/* Position of a sharding in the tables made and sent; partial shardings have none. */
static inline int index_of_sharding(int sharding) {
    return sharding == MG_REPLICATED ? 0 : sharding >= 0 ? 1 + sharding : N_SHARDINGS - 1;
}

/* The sharding at a position of these tables. */
static inline int sharding_of_index(int index) {
    return index == 0 ? MG_REPLICATED : index == N_SHARDINGS - 1 ? MG_PER_DEVICE : index - 1;
}

static inline bool is_mixed_rows(int sharding) {
    return sharding <= MG_MIXED_ROWS;
}

static inline bool is_any_sharding(const partition *p, int i) {
    return p->shardings[i].sharding == MG_ANY_SHARDING;
}

/* Fills p->shardings and p->reduced. wanted[i]: some reader or root needs node i replicated
 * although its sharding is another. split_roots[r]: root r may stay sharded along its first axis.
 */
mg_status mg_sharding_decide(partition *p, const bool *split_roots, bool *wanted);
/* Sets d->sharding, the sharding in which node i is produced, and d->in, the shardings that its
 * inputs must have. */
mg_status mg_sharding_decide_node(partition *p, int i, node_sharding *d);
/* Whether node i is the mean and variance of a sharded batch that must cover the rows of all
 * devices. */
bool mg_sharding_has_joint_moments(const partition *p, int i);
/* Fills p->stages and p->sent: which stage computes a node, and to which stages it is sent. */
void mg_sharding_assign_stages(partition *p);

/* partition.c, for the bodies of loops. mg_partition_allocate: the arrays of a partition whose
 * decisions are made. mg_partition_make: node i as its op makes it. mg_partition_local: in this
 * sharding. mg_partition_copy: its op over this device's inputs. All give a node of the device's
 * IR, or NOT_MADE. */
mg_status mg_partition_allocate(partition *p);
int mg_partition_make(partition *p, int i);
int mg_partition_local(partition *p, int i, int sharding);
int mg_partition_copy(partition *p, int i, int sharding);

#endif

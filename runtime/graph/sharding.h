/* The ways in which a step's values lie on its devices: what partition.c works from, and sharding.c
 * finds. */
#ifndef MG_GRAPH_SHARDING_H
#define MG_GRAPH_SHARDING_H

#include "graph/partition.h"
#include <string.h>

/* Besides the ways of op.h: every device has its own value (batch statistics of its rows). */
enum { LOCAL = -6, NOT_MADE = -1, N_WAYS = MG_MAX_RANK + 2 };

typedef struct decision {
    int born;  /* as the op makes it */
    int how;   /* as it lies for those who read it: terms that somebody wants whole are reduced */
    int *in;   /* per input: as it must lie */
    int depth; /* longest way from a source */
} decision;

typedef struct partition {
    const mg_ir *global;
    const mg_shards *shards;
    const mg_partition_spec *spec;
    int stage, device, keeper;
    bool local_norm;
    mg_ir *part;
    int capacity;
    decision *decisions;
    bool *reduced;            /* per global node: its terms are reduced at once */
    int *stages;              /* per global node: where it is computed */
    uint64_t (*sent)[N_WAYS]; /* per global node and way: the stages it is sent to */
    int (*made)[N_WAYS]; /* per global node: its local node as it lies whole [0], by axis [1 + a] */
    int *raw;            /* per global node: its terms, or its device's own value */
    int collectives, last_collective;
    int *after; /* per global node: the latest bucket that it needs the reductions of */
    struct {
        int number, tensors, kind; /* numbers begin with 1; tensors 0: the next opens another */
        int64_t bytes;
        mg_dtype dtype;
    } bucket;         /* that is being filled */
    bool *replicated; /* with a keeper: per global node, whether others compute or read it */
} partition;

static inline bool is_term(int how) {
    return how == MG_SUM || how == MG_MAX || how == MG_MIN;
}

/* The place of a way in the tables: whole, by axis, or as it was born. */
static inline int slot_of(int how) {
    return how == MG_WHOLE ? 0 : how >= 0 ? 1 + how : N_WAYS - 1;
}

static inline int way_of(int slot) {
    return slot == 0 ? MG_WHOLE : slot == N_WAYS - 1 ? LOCAL : slot - 1;
}

static inline bool anywhere(const partition *p, int i) {
    return p->decisions[i].how == MG_ANY;
}

/* How every node lies and its inputs must lie: the same for all devices. `wanted`: nodes that must
 * be had whole although they lie otherwise. */
mg_status mg_sharding_decide(partition *p, const bool *split_roots, bool *wanted);
/* Where every node is computed, and to which stages it is sent. */
void mg_sharding_mark_sent(partition *p);

#endif

/* Partition: from the IR of a step over the global batch to the IR of one device.
 *
 * All decisions about several devices are made here. `shard` nodes shard the batch by rows; the
 * ops' split rules give the shardings of the other nodes. Where a rule does not apply, or a value
 * leaves the plan, partial terms are reduced and shards gathered, in the same order on every
 * device. */
#ifndef MG_GRAPH_PARTITION_H
#define MG_GRAPH_PARTITION_H

#include "core/placement.h"
#include "graph/ir.h"

/* The number of rows that the step's `shard` nodes agree on; 0 if there is none. MG_USAGE if they
 * differ. */
mg_status mg_partition_rows(const mg_ir *global, int64_t *rows);

typedef struct mg_partition_spec {
    const mg_ir *global;
    const mg_shards *shards;
    bool local_norm; /* batch statistics are those of each device's rows */
    int central;  /* the only device that has the variables, which are broadcast to the others and
                     whose gradients are reduced to it; -1: all devices have them */
    int n_stages; /* groups of devices, each with its part of the model: rank = stage * n + device
                   */
    mg_device *const *stages; /* per stage: its first device, on which the traced tensors lie */
} mg_partition_spec;

/* The number of the stage whose first device is d; 0 if none. */
int mg_partition_stage(const mg_partition_spec *spec, const mg_device *d);

/* The IR of device number `device` of a stage. On entry split_roots[r] says whether root r, an
 * output, may stay sharded; on return, whether the part holds only its own rows of it. With a
 * central device, the other devices have only a placeholder for a root that is not sharded. Further
 * roots may follow, which keep collectives alive. */
mg_status mg_partition(const mg_partition_spec *spec, int stage, int device, mg_ir *part,
                       bool *split_roots);

#endif

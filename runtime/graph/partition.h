/* Partition: from the IR of a step over the global batch to the IR of one device.
 *
 * The only place where "many devices" is decided. Nodes marked by `shard` are dealt out by rows;
 * the ops' split rules say what becomes of the rest; where a rule cannot go on, or a value leaves
 * the plan, terms are reduced and parts are gathered, in an order that is the same on every device.
 */
#ifndef MG_GRAPH_PARTITION_H
#define MG_GRAPH_PARTITION_H

#include "core/placement.h"
#include "graph/ir.h"

/* The rows that the step's `shard` nodes agree on; 0 if there is none. MG_USAGE if they differ. */
mg_status mg_partition_rows(const mg_ir *global, int64_t *rows);

typedef struct mg_partition_spec {
    const mg_ir *global;
    const mg_shards *shards;
    bool local_norm; /* batch statistics are those of each device's rows */
    int central;     /* the only device that has the variables: the others are sent their values and
                       send back terms; -1: all have them */
    int n_stages; /* groups of devices, each with its part of the model: rank = stage * n + device
                   */
    mg_device *const *stages; /* the first device of each: where the traced tensors say they lie */
} mg_partition_spec;

/* The stage that a device stands for; 0 if it is none of them. */
int mg_partition_stage(const mg_partition_spec *spec, const mg_device *d);

/* The IR of device number `device` of a stage. Root i is whole, or (an output, split_roots[i] true)
 * the device's rows of it; with a central device other devices have nothing where it is not split.
 * Roots may follow that keep collectives alive. `collectives`: how many the device takes part in,
 * the same for all. */
mg_status mg_partition(const mg_partition_spec *spec, int stage, int device, mg_ir *part,
                       bool *split_roots, int *collectives);

#endif

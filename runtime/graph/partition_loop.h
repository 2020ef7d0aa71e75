/* Loops on several devices: see partition_loop.c. */
#ifndef MG_GRAPH_PARTITION_LOOP_H
#define MG_GRAPH_PARTITION_LOOP_H

#include "graph/sharding.h"

/* For a scan node n: fills s->in, s->results and s->body. */
mg_status mg_sharding_decide_loop(const partition *p, const mg_node *n, node_sharding *s);
/* The device's loop of global node i. NULL on failure. */
mg_ir_loop *mg_partition_loop(partition *p, int i);

#endif

/* Which units of an IR may be joined. A unit is a set of nodes that run as one step: a fused group,
 * or a single node. */
#ifndef MG_GRAPH_UNIT_ORDER_H
#define MG_GRAPH_UNIT_ORDER_H

#include "graph/ir.h"

typedef struct mg_unit_order mg_unit_order;

/* Every node of the IR as a unit of its own. In the IR's memory, whose nodes must stay as they are
 * while it is used. NULL: MG_OOM. */
mg_unit_order *mg_unit_order_new(mg_ir *ir);
/* Joins the units of nodes a and b, which must differ. False, and nothing is done, if a path leads
 * from one to the other through a third unit: the joined unit would wait for itself. */
bool mg_unit_order_join(mg_unit_order *o, int a, int b);

#endif

/* The gradient of a scan: a scan in the other direction. */
#ifndef MG_GRAPH_SCAN_GRAD_H
#define MG_GRAPH_SCAN_GRAD_H

#include "core/loop.h"

/* From the gradients of a scan's results (NULL where there is none) to those of its inputs, in the
 * innermost scope of ops/build.h: grads[i] is borrowed, or NULL where nothing flows. Adds results
 * to the scan's loop: the values of its steps that the gradient reads. */
mg_status mg_scan_gradients(mg_tensor *scan, mg_tensor *const *dys, mg_tensor **grads);

#endif

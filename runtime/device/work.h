/* Estimates of what a step computes, from the shapes of its operands. Accurate enough to
 * distinguish a step of milliseconds from one of seconds before it runs, and arithmetic from
 * memory. */
#ifndef MG_DEVICE_WORK_H
#define MG_DEVICE_WORK_H

#include "device/kernel_graph.h"

typedef struct mg_work {
    double products; /* multiplications of matrix products and convolutions */
    double elements; /* read or written */
    double bytes;    /* of these */
    double flops;    /* twice the products, and one for each element and element-wise op besides */
} mg_work;

mg_work mg_step_work(const mg_kernel_graph *graph, const mg_step *s);
/* Of all steps. */
mg_work mg_graph_count_work(const mg_kernel_graph *graph);
/* About how many operations a run of the graph takes. */
double mg_graph_work(const mg_kernel_graph *graph);

#endif

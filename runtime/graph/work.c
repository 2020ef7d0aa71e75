/* Estimates how many operations a step takes: accurate enough to distinguish a step of milliseconds
 * from one of seconds before it runs. */
#include "graph/plan.h"
#include <math.h>
#include <string.h>

enum { PER_ELEMENT = 4 }; /* operations for each element that a kernel reads or writes */

static double elements(const mg_kernel_graph *graph, int value) {
    return (double)mg_shape_count(&graph->values[value].shape);
}

static bool is_contraction(const mg_step *s) {
    return s->op && s->n_in >= 2 &&
           (strcmp(s->op->name, "matmul") == 0 || strncmp(s->op->name, "conv", 4) == 0);
}

/* A product of matrices with a, b and c elements takes sqrt(a b c) multiplications, a convolution
 * more by the length of its filters' side. */
static double step_work(const mg_kernel_graph *graph, const mg_step *s) {
    double sum = 0;
    for (int i = 0; i < s->n_in; i++) sum += elements(graph, s->in[i]);
    for (int i = 0; i < s->n_out; i++) sum += elements(graph, s->out[i]);
    if (is_contraction(s))
        sum += sqrt(elements(graph, s->in[0]) * elements(graph, s->in[1]) *
                    elements(graph, s->out[0]));
    return PER_ELEMENT * sum;
}

double mg_graph_work(const mg_kernel_graph *graph) {
    double sum = 0;
    for (int i = 0; i < graph->n_steps; i++) sum += step_work(graph, &graph->steps[i]);
    return sum;
}

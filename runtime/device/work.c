/* Counting what steps compute: see work.h. */
#include "device/work.h"
#include <math.h>
#include <string.h>

enum { PER_ELEMENT = 4 }; /* operations for each element that a kernel reads or writes */

static double elements(const mg_kernel_graph *graph, int value) {
    return (double)mg_shape_count(&graph->values[value].shape);
}

/* Of the last two axes. */
static double matrix_size(const mg_kernel_graph *graph, int value) {
    const mg_shape *s = &graph->values[value].shape;
    return s->rank < 2 ? elements(graph, value)
                       : (double)s->dim[s->rank - 2] * (double)s->dim[s->rank - 1];
}

/* Each element of the result is a sum of k products: m k times k n elements over m n are k^2. */
static double matmul_products(const mg_kernel_graph *graph, const mg_step *s) {
    const double result = matrix_size(graph, s->out[0]);
    if (result == 0) return 0;
    return elements(graph, s->out[0]) *
           sqrt(matrix_size(graph, s->in[0]) * matrix_size(graph, s->in[1]) / result);
}

/* Of images and filters as a whole: each pixel of the convolution's result, or of its gradient,
 * meets each element of the filters that make its channel. */
static double conv_products(const mg_kernel_graph *graph, const mg_step *s) {
    const bool forward = strcmp(s->op->name, "conv2d") == 0,
               of_weight = strcmp(s->op->name, "conv2d_grad_weight") == 0;
    const int pixels = forward ? s->out[0] : s->in[of_weight],
              filters = of_weight ? s->out[0] : s->in[1];
    const mg_shape *shape = &graph->values[pixels].shape;
    const int64_t channels = shape->rank ? shape->dim[shape->rank - 1] : 0;
    return channels ? elements(graph, pixels) * elements(graph, filters) / (double)channels : 0;
}

static void add_value(mg_work *w, const mg_kernel_graph *graph, int value) {
    w->elements += elements(graph, value);
    w->bytes += (double)mg_value_bytes(&graph->values[value]);
}

/* These read as much of their first operand as they return: not all of a data set for a batch. */
static bool picks(const mg_step *s) {
    static const char *const ops[] = {"gather", "slice", "take_along_axis"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (s->op && strcmp(s->op->name, ops[i]) == 0) return true;
    return false;
}

/* An op that is no product counts one operation for each element of its largest operand. */
static double other_flops(const mg_kernel_graph *graph, const mg_step *s) {
    double most = 0;
    for (int k = picks(s) ? 1 : 0; k < s->n_in; k++) most = fmax(most, elements(graph, s->in[k]));
    for (int k = 0; k < s->n_out; k++) most = fmax(most, elements(graph, s->out[k]));
    return s->fused ? most * s->fused->n_instrs : most;
}

static mg_work loop_work(const mg_step_loop *loop) {
    const double n = (double)loop->steps;
    const mg_work step = mg_graph_count_work(loop->graph);
    return (mg_work){n * step.products, n * step.elements, n * step.bytes, n * step.flops};
}

mg_work mg_step_work(const mg_kernel_graph *graph, const mg_step *s) {
    mg_work w = {0};
    if (s->loop) return loop_work(s->loop);
    for (int k = 0; k < s->n_in; k++) add_value(&w, graph, s->in[k]);
    for (int k = 0; k < s->n_out; k++) add_value(&w, graph, s->out[k]);
    if (s->n_in > 0 && s->n_out > 0 && picks(s))
        w.bytes -= fmax(0, (double)mg_value_bytes(&graph->values[s->in[0]]) -
                               (double)mg_value_bytes(&graph->values[s->out[0]]));
    if (s->op && s->n_in >= 2 && s->n_out > 0) {
        if (strcmp(s->op->name, "matmul") == 0) w.products = matmul_products(graph, s);
        if (strncmp(s->op->name, "conv2d", 6) == 0) w.products = conv_products(graph, s);
    }
    if (s->op && strcmp(s->op->name, "reshape") == 0) { /* its result shares the memory */
        w.bytes = 0;
        return w;
    }
    w.flops = w.products > 0 ? 2 * w.products : other_flops(graph, s);
    return w;
}

mg_work mg_graph_count_work(const mg_kernel_graph *graph) {
    mg_work sum = {0};
    for (int i = 0; i < graph->n_steps; i++) {
        const mg_work w = mg_step_work(graph, &graph->steps[i]);
        sum.products += w.products;
        sum.elements += w.elements;
        sum.bytes += w.bytes;
        sum.flops += w.flops;
    }
    return sum;
}

double mg_graph_work(const mg_kernel_graph *graph) {
    const mg_work w = mg_graph_count_work(graph);
    return PER_ELEMENT * (w.elements + w.products);
}

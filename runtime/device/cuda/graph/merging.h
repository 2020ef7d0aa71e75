/* Steps of a kernel graph while some of them are merged: for epilogue_fusion.c and loss_fusion.c.
 *
 * They work on a copy of the graph's steps. A step that is merged into another one stays, empty, so
 * that steps keep their numbers. */
#ifndef MG_DEVICE_CUDA_GRAPH_MERGING_H
#define MG_DEVICE_CUDA_GRAPH_MERGING_H

#include "device/kernel_graph.h"
#include <string.h>

/* Whether the step is an op of this name that has not been merged into another one. */
static inline bool mg_step_is(const mg_step *s, const char *name) {
    return s->op && s->n_out && strcmp(s->op->name, name) == 0;
}

static inline bool mg_step_reads(const mg_step *s, int value) {
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] == value) return true;
    return false;
}

/* The number of the compute step that makes the value, or -1. */
static inline int mg_step_making(const mg_kernel_graph *graph, const mg_step *steps, int value) {
    for (int i = 0; i < graph->n_compute; i++)
        for (int o = 0; o < steps[i].n_out; o++)
            if (steps[i].out[o] == value) return i;
    return -1;
}

static inline void mg_step_remove(mg_step *s) {
    s->n_in = s->n_out = 0;
}

#endif

/* Steps that one kernel of this device does at once.
 *
 * A step and the sums of columns of what it reads or makes: the step gets them as one more result;
 * the step that they were of stays, empty, so that steps keep their numbers. Where no kernel does
 * both, both are as they were. */
#ifndef MG_DEVICE_CUDA_JOIN_H
#define MG_DEVICE_CUDA_JOIN_H

#include "device/program/program.h"

/* The steps of `work`, as many, joined where that is possible. A block from mg_alloc, to be kept as
 * long as a program made of them. */
mg_status mg_cuda_join(mg_device *d, const mg_kernel_graph *graph, mg_step **steps);

/* ---- for the kinds of joining ---- */

typedef struct mg_joiner {
    mg_device *device;
    const mg_kernel_graph *graph;
    mg_step *steps; /* the new ones */
    int *room;      /* for lists of joined steps */
    int *origin;    /* per value: what it is a reshape of, however often; or itself */
} mg_joiner;

bool mg_join_is_op(const mg_step *s, const char *name);
const mg_value *mg_join_value(const mg_joiner *j, int value);
bool mg_join_reads(const mg_step *s, int value);

/* Gives step `into` the result of step `sum`, and if it is a fused group `number` as attrs, if that
 * is what `kernel` accepts. */
bool mg_join_sum(mg_joiner *j, int into, int sum, int number, const mg_kernel *kernel);

/* Each looks for a step that `sum`, which adds up columns, can go with, and joins them. */
bool mg_join_matmul(mg_joiner *j, int sum);
bool mg_join_fused(mg_joiner *j, int sum);

#endif

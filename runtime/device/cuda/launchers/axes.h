/* Axes of an iteration space as the kernels take them: with what division by their size needs. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_AXES_H
#define MG_DEVICE_CUDA_LAUNCHERS_AXES_H

#include "core/shape.h"

typedef struct mg_axis { /* as kernels/elements.h has it: for dividing by its size */
    int64_t size;
    uint32_t magic, shift;
} mg_axis;

/* For dividends below 2^31 if the size is, too; others are divided by the size itself. */
mg_axis mg_axis_of(int64_t size);

typedef struct mg_axes {
    int rank;
    int64_t dim[MG_MAX_RANK];
} mg_axes;

#endif

/* The parameters of kernels/movement.cu. Counts, sizes and strides are in units (kernels/index.h),
 * and counts below 2^31. */
#ifndef MG_DEVICE_CUDA_MOVEMENT_PARAMS_H
#define MG_DEVICE_CUDA_MOVEMENT_PARAMS_H

#include "device/cuda/kernels/divisor.h"

enum { MG_WALK_AXES = 8, MG_FEW_SOURCES = 16, MG_MANY_SOURCES = 255 };

/* The result in row-major order; for each of its axes, where that leads to in x. */
typedef struct walk_params {
    const void *in;
    void *out;
    unsigned count;
    int rank;
    mg_divisor n[MG_WALK_AXES];
    long long from[MG_WALK_AXES]; /* stride in x */
} walk_params;

/* Element (at - before) / gap of x where that is one of its `inside`, else the value. */
typedef struct pad_params {
    walk_params walk;
    long long before[MG_WALK_AXES], inside[MG_WALK_AXES];
    mg_divisor gap[MG_WALK_AXES];
    /* A unit of it; aligned because kernels read it by units of up to 16 bytes. */
    unsigned long long value[2] __attribute__((aligned(16)));
} pad_params;

/* Squares of rows and columns, turned: rows lie one after another in the result, columns in x. The
 * other axes count the squares. */
#define MG_TURN_SIDE(unit_bytes) ((unit_bytes) <= 2 ? 64 : 32)

typedef struct turn_params {
    const void *in;
    void *out;
    unsigned tiles;
    int rank;
    mg_divisor down, across; /* squares along the rows and the columns */
    unsigned rows, columns;
    long long from_row, to_column;
    mg_divisor n[MG_WALK_AXES];
    long long from[MG_WALK_AXES], to[MG_WALK_AXES];
} turn_params;

/* Rows of `run` units, one after another in x and `pitch` bytes apart in the result. */
typedef struct concat_source {
    const void *in;
    void *out;
    mg_divisor run;
    unsigned count, unit; /* units; bytes of one */
    unsigned end;         /* the pieces up to its last */
} concat_source;

typedef struct concat_head {
    long long pitch;
    int n;
} concat_head;

typedef struct concat_few_params {
    concat_head head;
    concat_source source[MG_FEW_SOURCES];
} concat_few_params;

typedef struct concat_many_params {
    concat_head head;
    concat_source source[MG_MANY_SOURCES];
} concat_many_params;

#endif

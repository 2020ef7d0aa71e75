/* The parameters of movement.cu. Counts, sizes and strides are in units (index.h); counts are below
 * 2^31.
 */
#ifndef MG_DEVICE_CUDA_MOVEMENT_PARAMS_H
#define MG_DEVICE_CUDA_MOVEMENT_PARAMS_H

#include "device/cuda/kernels/divisor.h"

enum { MG_WALK_AXES = 8, MG_FEW_SOURCES = 16, MG_MANY_SOURCES = 255 };

/* Walks the result in row-major order; each axis of the result has a stride in x (0: broadcast). */
typedef struct walk_params {
    const void *in;
    void *out;
    unsigned count; /* units of the result */
    int rank;
    mg_divisor n[MG_WALK_AXES];   /* sizes of the result */
    long long from[MG_WALK_AXES]; /* strides in x */
} walk_params;

/* At coordinate `at` of an axis the result has element (at - before) / gap of x if that is a whole
 * number in 0 .. inside - 1, else the padding value. gap > 1 puts zeros between elements
 * (dilation). */
typedef struct pad_params {
    walk_params walk;
    long long before[MG_WALK_AXES], inside[MG_WALK_AXES];
    mg_divisor gap[MG_WALK_AXES];
    /* One unit of padding; aligned because kernels read up to 16 bytes at once. */
    unsigned long long value[2] __attribute__((aligned(16)));
} pad_params;

/* A transposition by squares: rows are adjacent in the result, columns in x. The other axes count
 * the matrices that are transposed. */
#define MG_TURN_SIDE(unit_bytes) ((unit_bytes) <= 2 ? 64 : 32)

typedef struct turn_params {
    const void *in;
    void *out;
    unsigned tiles;
    int rank;
    mg_divisor down, across; /* squares along the rows and along the columns */
    unsigned rows, columns;
    long long from_row, to_column;
    mg_divisor n[MG_WALK_AXES];
    long long from[MG_WALK_AXES], to[MG_WALK_AXES];
} turn_params;

/* A source of a concat: rows of `run` units, adjacent in x and `pitch` bytes apart in the result.
 */
typedef struct concat_source {
    const void *in;
    void *out;
    mg_divisor run;
    unsigned count, unit; /* units; bytes of a unit */
    unsigned end;         /* pieces of the sources up to and with this one */
} concat_source;

typedef struct concat_head {
    long long pitch; /* bytes from row to row of the result */
    int n;           /* sources */
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

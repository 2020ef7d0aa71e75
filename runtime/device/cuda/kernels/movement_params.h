/* The parameters of the kernels that move and make elements: movement.cu, gather.cu, scatter.cu,
 * along_axis.cu, create.cu and random.cu. */
#ifndef MG_DEVICE_CUDA_KERNELS_MOVEMENT_PARAMS_H
#define MG_DEVICE_CUDA_KERNELS_MOVEMENT_PARAMS_H

#include "device/cuda/kernels/divisor.h"
#include "device/cuda/kernels/params.h"

/* ---- movement.cu. Counts, sizes and strides are in units (index.h); counts are below 2^31 ---- */

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

/* A source of a concat, or a part of a split: rows of `run` units. */
typedef struct concat_source {
    const void *in;
    void *out;
    mg_divisor run;
    unsigned count, unit; /* units; bytes of a unit */
    unsigned end;         /* pieces of the sources up to and with this one */
} concat_source;

typedef struct concat_head {
    long long from_pitch, to_pitch; /* bytes from row to row; 0: they are adjacent */
    int n;                          /* sources */
} concat_head;

typedef struct concat_few_params {
    concat_head head;
    concat_source source[MG_FEW_SOURCES];
} concat_few_params;

typedef struct concat_many_params {
    concat_head head;
    concat_source source[MG_MANY_SOURCES];
} concat_many_params;

/* ---- gather.cu and scatter.cu ---- */

typedef struct gather_params {
    const void *x, *ids;
    void *out;
    int id_bytes;        /* size of an id */
    unsigned count;      /* units that this launch writes */
    unsigned first;      /* the slice of the whole result that `out` begins with */
    mg_divisor inner, n; /* units of a slice; number of ids */
    long long rows;      /* size of x along the axis */
    /* One unit, written where an id is out of range; aligned because kernels read up to 16 bytes at
     * once. */
    unsigned long long value[2] __attribute__((aligned(16)));
} gather_params;

/* The sort of scatter.cu: values of a digit of 8 bits; threads of a block; maximum number of
 * blocks. */
enum { MG_DIGITS = 256, MG_SORT_THREADS = 256, MG_SORT_BLOCKS = 512 };

/* One pass of a radix sort of entries (id << 32 | position) by the digit at bit `shift`. The first
 * pass makes the entries from ids; ids outside 0 .. size - 1 become `size`, which sorts last. */
typedef struct sort_params {
    const void *ids;              /* first pass; else NULL */
    const unsigned long long *in; /* later passes */
    unsigned long long *out;
    unsigned *counts; /* {blocks, MG_DIGITS} */
    long long size;
    unsigned n, per_block, shift; /* entries; entries of a block; bits below the digit */
    int id_bytes;
} sort_params;

/* Adds dy {outer, n, inner} into dx {outer, size, inner} by sorted entries. A column is one of the
 * outer * inner positions of a slice. */
typedef struct scatter_params {
    const void *dy, *ids;
    void *dx, *partial; /* partial: sums {pieces, 2, columns} of runs that cross pieces */
    const unsigned long long *entries;
    long long n, size, inner, columns;
    long long piece, pieces; /* entries of a piece; how many pieces there are */
    int id_bytes;
    int width; /* columns of a block of scatter_join, a power of two */
} scatter_params;

/* ---- along_axis.cu ---- */

/* x {outer, n, inner}; ids {outer, k, inner}, or {outer, k, 1} if by_row. */
typedef struct along_params {
    const void *x, *ids;
    void *out;
    long long n, count;  /* size of the axis; elements or columns that the threads share */
    mg_divisor k, inner; /* ids of a column; size after the axis */
    int id_bytes, by_row;
    /* One element, written where an id is out of range; aligned because kernels read up to 16 bytes
     * at once. */
    unsigned long long value[2] __attribute__((aligned(16)));
} along_params;

/* The maximum number of entries that a block sorts, and the dtypes. */
enum { MG_SORT_ROOM = 2048 };
enum {
    MG_SORT_BOOL,
    MG_SORT_U8,
    MG_SORT_I32,
    MG_SORT_I64,
    MG_SORT_F16,
    MG_SORT_BF16,
    MG_SORT_F32,
    MG_SORT_F64
};

typedef struct sort_lines_params {
    const void *x; /* {outer, n, inner}: `lines` is outer * inner */
    int *out;      /* {outer, count, inner} */
    long long lines, inner;
    int n, count, room, type; /* room: n rounded up to a power of two */
    int flip, unused;         /* descending */
} sort_lines_params;

/* ---- create.cu and random.cu ---- */

typedef struct fill_params {
    void *out;
    long long bytes;
    unsigned long long value[2]; /* 16 bytes: the element, repeated */
} fill_params;

/* out {outer, n, inner} gets 0 .. n - 1 along the middle axis; count: all elements. */
typedef struct iota_params {
    void *out;
    long long count, n, inner;
} iota_params;

/* A device computes its shard of a draw: elements [first, first + count) of the whole tensor. */
typedef struct random_params {
    mg_draw draw;
    void *out;
    long long first, count;   /* in elements */
    double a, b;              /* low, high; or mean, deviation; randint: a is the lowest value */
    unsigned long long range; /* randint: how many values there are */
    unsigned threshold;       /* bernoulli: true for 24-bit numbers below this */
    int aligned;              /* four elements can be stored in one access */
} random_params;

#endif

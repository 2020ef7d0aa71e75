/* Attribute structs that files outside the op's own family read: device kernels, graph passes and
 * builders. Plain data without padding bytes, because they are compared with memcmp. The tables
 * that describe the fields to Lua stand in ops/<family>.c. */
#ifndef MG_OPS_ATTRS_H
#define MG_OPS_ATTRS_H

#include "ops/op.h"

typedef struct mg_cast_attrs { /* cast */
    int64_t dtype;
} mg_cast_attrs;

typedef struct mg_full_attrs { /* full */
    mg_ints shape;
    double value;
    int64_t dtype;
} mg_full_attrs;

typedef struct mg_iota_attrs { /* iota */
    mg_ints shape;
    int64_t axis, dtype;
} mg_iota_attrs;

typedef struct mg_reduce_attrs { /* sum max min prod all any */
    mg_ints axes;                /* none: all axes */
    int64_t keepdims;
} mg_reduce_attrs;

typedef struct mg_axis_attrs { /* argmax argmin cumsum softmax log_softmax concat gather reverse
                                  take_along_axis linear_scan */
    int64_t axis;
} mg_axis_attrs;

typedef struct mg_ints_attrs { /* reshape broadcast_to: shape; permute: order */
    mg_ints list;
} mg_ints_attrs;

typedef struct mg_slice_attrs { /* slice: 0-based, half-open */
    mg_ints start, stop, step;
} mg_slice_attrs;

typedef struct mg_pad_attrs { /* pad; interior: cells put between neighbours */
    mg_ints before, after, interior;
    double value;
} mg_pad_attrs;

typedef struct mg_sort_attrs { /* argsort: the first `count` positions */
    int64_t axis, descending, count;
} mg_sort_attrs;

typedef struct mg_scatter_attrs { /* scatter_add scatter_along_axis: the result has `size` slices
                                     along `axis` */
    int64_t axis, size;
} mg_scatter_attrs;

typedef struct mg_matmul_attrs { /* matmul */
    int64_t transpose_a, transpose_b, relu;
} mg_matmul_attrs;

typedef struct mg_conv_attrs { /* conv2d conv2d_grad_input conv2d_grad_weight */
    mg_ints strides, pads,
        dilations; /* 2, 4 (top, bottom, left, right) and 2 entries after inference */
    mg_ints shape; /* input_shape, kernel_shape of the backward ops: 4 entries */
    int64_t groups, relu;
} mg_conv_attrs;

/* The activation of conv2d_int8, in the order of its names. */
enum { MG_INT8_LINEAR, MG_INT8_RELU, MG_INT8_RELU6 };

typedef struct mg_int8_attrs {              /* conv2d_int8 */
    mg_ints size, strides, pads, dilations; /* 2, 2, 4 and 2 entries after inference */
    int64_t activation;
} mg_int8_attrs;

typedef struct mg_pool_attrs {   /* max_pool2d avg_pool2d and their backward ops */
    mg_ints size, strides, pads; /* 2, 2 and 4 entries after inference */
    mg_ints shape;               /* input_shape of avg_pool2d_grad: 4 entries */
} mg_pool_attrs;

typedef struct mg_resize_attrs {      /* image_resize image_resize_grad */
    mg_ints size;                     /* rows, columns of the result: 2 entries after inference */
    int64_t interpolation, antialias; /* enum mg_resize_kind */
} mg_resize_attrs;

/* The names of enum mg_resize_kind, then NULL. */
extern const char *const mg_resize_kinds[];

typedef struct mg_transform_attrs { /* affine_transform affine_transform_grad */
    mg_ints size;                   /* rows, columns of the result: 2 entries after inference */
    int64_t interpolation;          /* 0 nearest, 1 bilinear */
    int64_t fill_mode;              /* enum mg_transform_fill */
    double fill_value;
} mg_transform_attrs;

typedef struct mg_spectrum_attrs { /* rfft_transpose */
    int64_t length;
} mg_spectrum_attrs;

typedef struct mg_norm_attrs { /* batch_norm batch_norm_reduce */
    double epsilon;
} mg_norm_attrs;

typedef struct mg_random_attrs { /* random */
    mg_ints shape;
    int64_t kind; /* enum mg_random_kind */
    double a, b;
    int64_t dtype, stream;
} mg_random_attrs;

enum { MG_MOST_PARTS = 64 }; /* of a split */

typedef struct mg_split_attrs { /* split: into `parts` equal parts of the axis */
    int64_t axis, parts;
} mg_split_attrs;

typedef struct mg_result_attrs { /* result */
    int64_t number;              /* from 0 */
} mg_result_attrs;

typedef struct mg_place_attrs { /* place */
    int64_t device; /* the address of its mg_device: devices live as long as the process */
} mg_place_attrs;

typedef struct mg_collective_attrs {
    int64_t kind;     /* all_reduce, reduce: 0 sum, 1 max, 2 min */
    int64_t axis;     /* all_gather: the axis along which the parts are joined */
    int64_t number;   /* every device meets the collectives in the order of their numbers */
    int64_t root, to; /* reduce, broadcast: rank `root` has the value. transfer: it goes from stage
                         `root` to stage `to`, between the devices of equal rank in them */
    int64_t bucket;   /* all_reduce: those of one bucket (never 0) are reduced together */
    int64_t one_each; /* all_gather: each device has an equal part of the axis, not its rows' */
} mg_collective_attrs;

/* mg_random_attrs.kind; a and b are its parameters. */
enum mg_random_kind {
    MG_RANDOM_UNIFORM,          /* [a, b) */
    MG_RANDOM_NORMAL,           /* mean a, standard deviation b */
    MG_RANDOM_TRUNCATED_NORMAL, /* the same, cut off at two standard deviations */
    MG_RANDOM_BERNOULLI,        /* true with probability a */
    MG_RANDOM_RANDINT           /* integers a .. b-1 */
};

#endif

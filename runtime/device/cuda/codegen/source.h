/* Generating the source of a fused group's kernel.
 *
 * Sizes, strides and immediates are parameters of the kernel and not part of its source, so that a
 * script needs few kernels. The generated functions are put into the frame of kernels/fused.h. */
#ifndef MG_DEVICE_CUDA_CODEGEN_SOURCE_H
#define MG_DEVICE_CUDA_CODEGEN_SOURCE_H

#include "core/string_buffer.h"
#include "ops/fused_expr.h"
#include <stdint.h>

/* Threads of a block; and how many blocks of a kernel with sums a multiprocessor runs at once. */
enum { MG_FUSED_THREADS = 256, MG_FUSED_FULL = 4 };

/* How an input is indexed as the kernel walks over the outputs. */
enum mg_way {
    MG_WAY_WHOLE,  /* as the outputs: element by element */
    MG_WAY_ONE,    /* a single element */
    MG_WAY_ALONG,  /* by strides, contiguous along the last axis */
    MG_WAY_ACROSS, /* by strides, broadcast along the last axis */
};

typedef struct mg_fused_form {
    int rank;        /* of the iteration space; 0: flat, every tensor is walked as one run */
    int vector;      /* elements that a thread loads and stores at once */
    int tensors;     /* how many tensors of each input one launch may take (multi-tensor updates) */
    int summed;      /* 1 + the number of the result whose columns are summed too; 0: none */
    bool wide_index; /* positions need 64 bits */
    uint8_t way[MG_FUSE_MAX_INPUTS]; /* enum mg_way */
    uint8_t out_dtype[MG_FUSE_MAX_OUTPUTS];
} mg_fused_form;

/* Appends the source of the group; its kernel is called "fused". */
void mg_fused_source(mg_string_buffer *t, const mg_fused *e, const mg_fused_form *form);

/* The name of a dtype in kernels/elements.h: "f32", or "bool8", as C has a type bool. */
const char *mg_element_name(mg_dtype t);

#endif

/* The source of a fused group's kernel.
 *
 * It does not depend on sizes, strides or immediates, which are parameters; so a script needs few
 * kernels. kernels/fused.h has what all have in common. */
#ifndef MG_DEVICE_CUDA_CODEGEN_SOURCE_H
#define MG_DEVICE_CUDA_CODEGEN_SOURCE_H

#include "core/string_buffer.h"
#include "ops/fused_expr.h"
#include <stdint.h>

/* Threads of a block, and blocks with sums that run at once on a multiprocessor. */
enum { MG_FUSED_THREADS = 256, MG_FUSED_FULL = 4 };

/* How an input goes along with the outputs. */
enum mg_way {
    MG_WAY_WHOLE,  /* element by element */
    MG_WAY_ONE,    /* a single element for all */
    MG_WAY_ALONG,  /* by strides; element by element along the last axis */
    MG_WAY_ACROSS, /* by strides; the same element all along the last axis */
};

typedef struct mg_fused_form {
    int rank;                        /* of the iteration space; 0: flat */
    int vector, tensors;             /* elements that a thread takes at once; most tensors */
    int summed;                      /* 1 + the result whose columns it adds up, too; 0: none */
    bool wide_index;                 /* positions need 64 bits */
    uint8_t way[MG_FUSE_MAX_INPUTS]; /* enum mg_way */
    uint8_t out_dtype[MG_FUSE_MAX_OUTPUTS];
} mg_fused_form;

/* Appends the text; its kernel is called "fused". */
void mg_fused_source(mg_string_buffer *t, const mg_fused *e, const mg_fused_form *form);

/* "f32", "bool8" (C has a bool): the name of a dtype in kernels/elements.h. */
const char *mg_element_name(mg_dtype t);

#endif

/* What the kernels of fused groups have in common on the host: their form and parameters.
 *
 * What the parameters say is settled when a call is prepared, but for the addresses. They are words
 * of 8 bytes, in the order of `params` in kernels/fused.h. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_FUSED_PARAMS_H
#define MG_DEVICE_CUDA_LAUNCHERS_FUSED_PARAMS_H

#include "device/cuda/codegen/module.h"
#include "device/cuda/codegen/source.h"

enum {
    MG_TENSOR_WORDS = 3 + MG_FUSE_MAX_INPUTS + MG_FUSE_MAX_OUTPUTS,
    MG_HEAD_WORDS = MG_FUSE_MAX_INSTRS + MG_MAX_RANK * (2 + MG_FUSE_MAX_INPUTS) + MG_FUSE_MAX_INPUTS
};

typedef struct mg_fused_params {
    int64_t n; /* elements */
    mg_fused_form form;
    int n_head;
    uint64_t head[MG_HEAD_WORDS]; /* the parameters up to those of how the work is dealt out */
} mg_fused_params;

/* Fills a zeroed one, of elements, for a step's values; `summed` as mg_fused_form has it. Its form
 * is for one tensor. */
void mg_fused_params_init(const mg_kernel_plan *plan, int summed, mg_fused_params *g);

/* Asks for the kernel. */
mg_status mg_fused_kernel_want(const mg_kernel_plan *plan, const mg_fused_params *g,
                               const mg_cuda_module **kernel);

/* The shortest run of whole rows of so many columns that is also whole vectors: elements. */
int64_t mg_fused_row(int64_t columns, int vector);

/* Writes the addresses as a `tensor` with this n and first. Returns the place behind it. */
uint64_t *mg_fused_put_tensor(const mg_fused_params *g, const mg_call *call, int64_t n,
                              int64_t first, uint64_t *at);

#endif

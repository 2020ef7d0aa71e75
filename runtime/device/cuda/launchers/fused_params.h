/* The form and the parameters of a fused group's kernel, for the launchers of such groups.
 *
 * Except for addresses, the parameters are known when a step is prepared. They are words of 8 bytes
 * in the order of the struct `params` in kernels/fused.h. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_FUSED_PARAMS_H
#define MG_DEVICE_CUDA_LAUNCHERS_FUSED_PARAMS_H

#include "core/shape.h"
#include "ops/attrs.h"
#include "device/cuda/codegen/module.h"
#include "device/cuda/codegen/codegen.h"

enum {
    /* Words of one tensor: n, first, aligned, and an address for each input, image and output. */
    MG_TENSOR_WORDS = 4 + MG_FUSE_MAX_INPUTS + MG_FUSE_MAX_OUTPUTS,
    /* Words of the head: immediates, and axes with strides. */
    MG_HEAD_WORDS = MG_FUSE_MAX_INSTRS + MG_MAX_RANK * (2 + MG_FUSE_MAX_INPUTS) + MG_FUSE_MAX_INPUTS
};

/* What graph/epilogue_fusion.c has added to a fused group: mg_step.attrs, or NULL. */
typedef struct mg_fused_extra {
    int summed; /* the result whose columns are summed, or -1. The sums are the last result */
    int spread; /* the result that is spread over the windows of a max pool, or -1: then that result
                   of the step is the pool's gradient, and the last input is the image */
    int pooled; /* the input that is an image in place of its max pool, or -1: then the pooled image
                   may be one more result */
    const mg_pool_attrs *pool;
    const mg_shape *shape; /* of the iteration space */
} mg_fused_extra;

static inline const mg_fused_extra *mg_fused_extra_of(const mg_step *step) {
    return step->attrs;
}

/* The iteration space of a group. */
static inline const mg_shape *mg_fused_shape(const mg_kernel_plan *plan) {
    const mg_fused_extra *extra = mg_fused_extra_of(plan->step);
    return extra && extra->pool ? extra->shape : &plan->out[0].value->shape;
}

/* Groups with such additions need NVRTC: the host fallback runs groups without them. */
bool mg_fused_has_compiler(void);

typedef struct mg_fused_params {
    int64_t n; /* elements */
    mg_fused_form form;
    int n_head;
    uint64_t head[MG_HEAD_WORDS]; /* the parameters that precede those that divide the work */
} mg_fused_params;

/* Fills *g, which must be zeroed, for a step that has elements. `summed` is as in mg_fused_form.
 * The form is for one tensor per launch. */
void mg_fused_params_init(const mg_kernel_plan *plan, int summed, mg_fused_params *g);

/* Requests the kernel from the device. */
mg_status mg_fused_kernel_want(const mg_kernel_plan *plan, const mg_fused_params *g,
                               const mg_cuda_module **kernel);

/* The smallest number of elements that is both whole rows of `columns` and whole vectors. */
int64_t mg_fused_row(int64_t columns, int vector);

/* Writes the words of one `tensor` of kernels/fused.h: the call's addresses, with this n and first.
 * Returns the position after them. */
uint64_t *mg_fused_put_tensor(const mg_fused_params *g, const mg_call *call, int64_t n,
                              int64_t first, uint64_t *at);

/* An axis of an iteration space, with what division by its size needs. */
typedef struct mg_axis { /* as in kernels/elements.h: for dividing by its size */
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

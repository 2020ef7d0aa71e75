/* The gradients of a 1x1 convolution in float32 as matrix products: over all pixels p,
 *     dx {p, c} = dy {p, k} w' {k, c}     dw {c, k} = x' {c, p} dy {p, k}
 *
 * oneDNN's kernels for them on row-major images take up to 5 times as long (dw of 12,544 pixels, 64
 * to 256 channels: 17.5 ms with AVX2 and one thread, 3.6 as a product; with AVX-512 3.8 and 1.9).
 * The forward pass takes equally long either way, and oneDNN adds bias and relu on the way. */
#include "core/alloc.h"
#include "device/cpu/onednn/matmul.h"
#include "ops/attrs.h"

/* Why the step is no plain product, or NULL: without strides and padding, x and dy have the same
 * pixels. */
static const char *refusal(const mg_kernel_plan *plan, const mg_value *w, const mg_value *x) {
    const mg_conv_attrs *a = plan->step->attrs;
    if (!mg_dnnl_engine()) return "oneDNN is not used";
    if (!mg_all_f32(plan)) return "not float32";
    if (w->shape.dim[0] != 1 || w->shape.dim[1] != 1 || a->groups != 1) return "not 1x1, or groups";
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i]) return "padded";
    if (a->strides.v[0] != 1 || a->strides.v[1] != 1) return "strides";
    const bool empty = mg_shape_count(&x->shape) == 0 || mg_shape_count(&w->shape) == 0;
    return empty ? "empty" : NULL;
}

static const char *grad_input_accepts(const mg_kernel_plan *plan) {
    return refusal(plan, plan->in[1].value, plan->out[0].value);
}

static const char *grad_weight_accepts(const mg_kernel_plan *plan) {
    return refusal(plan, plan->out[0].value, plan->in[0].value);
}

/* Keeps the product as the kernel's state. */
static mg_status keep(mg_kernel_plan *plan, mg_product p) {
    mg_product *kept = plan->state = mg_alloc(sizeof *kept);
    if (!kept) return MG_OOM;
    *kept = p;
    plan->scratch = mg_product_scratch(&p);
    return MG_OK;
}

static mg_status grad_input_prepare(mg_kernel_plan *plan) {
    const int64_t *w = plan->in[1].value->shape.dim;
    return keep(
        plan, (mg_product){
                  .m = mg_count(&plan->out[0]) / w[2], .n = w[2], .k = w[3], .transpose_b = true});
}

static mg_status grad_weight_prepare(mg_kernel_plan *plan) {
    const int64_t *w = plan->out[0].value->shape.dim;
    return keep(plan,
                (mg_product){
                    .m = w[2], .n = w[3], .k = mg_count(&plan->in[0]) / w[2], .transpose_a = true});
}

static mg_status conv_1x1_run(const mg_call *call) {
    return mg_dnnl_check(
        mg_product_run(call->plan->state, call->in[0], call->in[1], call->out[0], call->scratch),
        call->plan);
}

#define PRODUCT(id)                                                                                \
    const mg_kernel mg_cpu_onednn_1x1_conv2d_##id = {.op = "conv2d_" #id,                          \
                                                     .name = "matrix product",                     \
                                                     .accepts = id##_accepts,                      \
                                                     .prepare = id##_prepare,                      \
                                                     .run = conv_1x1_run,                          \
                                                     .release = mg_free}
PRODUCT(grad_input);
PRODUCT(grad_weight);
#undef PRODUCT

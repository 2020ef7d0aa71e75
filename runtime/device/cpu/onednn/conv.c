/* conv2d and its backward forms by oneDNN's direct kernels, in float32: every convolution that no
 * faster kernel of our own takes.
 *
 * Images stay row-major: oneDNN's kernels are as fast on them as on its blocked format. Weights are
 * reordered in scratch memory into the format that the primitive wants. relu is a pass of our own,
 * because oneDNN's turns NaN into 0. */
#include "core/alloc.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/conv/conv.h"
#include "device/cpu/onednn/onednn.h"
#include "ops/attrs.h"
#include <string.h>

/* The tensors of a convolution: image, weights, result. Each op computes one of them from the other
 * two. */
enum { X, W, Y, N_PARTS };

typedef struct part { /* one of the three tensors */
    const mg_value *value;
    /* format of the value in memory; format that the primitive wants */
    dnnl_memory_desc_t user, inner;
    mg_dnnl_call stage; /* the reorder between the two, if they differ */
    size_t at, pad_at;  /* offsets in scratch: the staged copy, the reorder's memory */
    bool packed;        /* the reorder is a packer's */
} part;

typedef struct conv_state {
    part parts[N_PARTS];
    int result;   /* X, W or Y */
    int input[2]; /* parts of call->in */
    bool bias, relu;
    mg_dnnl_call main; /* arguments: the two inputs, the result, scratchpad, bias */
    size_t pad_at;     /* offset of the primitive's scratchpad in scratch */
} conv_state;

/* ---- the case ---- */

/* Finds out which of x, w and y the op computes, and which are its inputs. */
static void name_parts(conv_state *s, mg_kernel_plan *plan) {
    const char *op = plan->step->op->name;
    s->result = strcmp(op, "conv2d") == 0 ? Y : strcmp(op, "conv2d_grad_input") == 0 ? X : W;
    s->input[0] = s->result == X ? Y : X;
    s->input[1] = s->result == W ? Y : W;
    for (int i = 0; i < 2; i++) s->parts[s->input[i]].value = plan->in[i].value;
    s->parts[s->result].value = plan->out[0].value;
    s->bias = plan->step->n_in == 3;
    s->relu = s->result == Y && ((const mg_conv_attrs *)plan->step->attrs)->relu;
}

/* Whether conv/direct.c has a kernel that accepts the step. */
static bool is_direct(const mg_kernel_plan *plan) {
    const char *op = plan->step->op->name;
    if (strcmp(op, "conv2d") == 0) return !mg_cpu_direct_conv2d.accepts(plan);
    return strcmp(op, "conv2d_grad_weight") == 0 && !mg_cpu_direct_conv2d_grad_weight.accepts(plan);
}

/* Whether one of our own kernels is faster.
 *
 * With AVX2 (one thread), three kinds. Strided convolutions with 65,536 weights and more, which are
 * matrix products: on a Zen 3, the three forms of 3x3, stride 2, 256 to 512 channels on 16 images
 * of 14x14 take 27.6, 27.2 and 32.0 ms instead of 33.0, 37.7 and 52.1. Large filters on few
 * channels, except for the input's gradient: on a Zen 4 limited to AVX2, 7x7, stride 2, 3 to 64
 * channels on 32 images of 224x224 take 73 and 93 ms instead of 82 and 124. The filters' gradient
 * of depthwise convolutions of large images: on a Zen 3, 3x3 on 32 images of 112x112x32 takes 11 ms
 * instead of 20.
 *
 * With AVX-512: the input's gradient of depthwise convolutions with 16 channels and more, and their
 * forward pass unless the images are too large for the L3 cache. On a Zen 4 with two threads, 3x3
 * on 32 images of 28x28x64 takes 0.20 ms in both forms instead of 0.24; on 64 images, forward takes
 * 1.5 ms instead of 1.0, and the input's gradient 1.3 instead of 1.5.
 *
 * With any instruction set: the filters' gradient of depthwise convolutions with ten taps and more
 * (5x5 on 32 images of 14x14x64: 0.30 ms instead of 1.24). */
static bool is_slow(const mg_kernel_plan *plan) {
    enum { LARGE_FILTERS = 1 << 16, LARGE_IMAGES = 1 << 20, FEWEST = 32, FEWEST_TAPS = 10 };
    enum { FEW = 4, MANY_TAPS = 49, CACHED_IMAGES = 1 << 21 };
    const mg_conv_attrs *a = plan->step->attrs;
    const bool of_weights = strcmp(plan->step->op->name, "conv2d_grad_weight") == 0;
    const mg_port *w = of_weights ? &plan->out[0] : &plan->in[1];
    const int64_t *d = w->value->shape.dim, taps = d[0] * d[1];
    const bool is_depthwise = d[2] == 1 && d[3] == a->groups && taps <= MG_DEPTHWISE_TAPS;
    if (is_depthwise && of_weights && d[3] >= MG_LANES / 2)
        return taps >= FEWEST_TAPS || (mg_dnnl_is_avx2() && mg_count(&plan->in[1]) >= LARGE_IMAGES);
    if (is_depthwise && !of_weights && d[3] >= MG_LANES && mg_dnnl_is_avx512())
        return mg_count(&plan->in[0]) < CACHED_IMAGES ||
               strcmp(plan->step->op->name, "conv2d_grad_input") == 0;
    if (!mg_dnnl_is_avx2() || a->groups > 1) return false;
    if (d[2] <= FEW && taps >= MANY_TAPS) return is_direct(plan);
    return (a->strides.v[0] > 1 || a->strides.v[1] > 1) && d[2] >= FEWEST &&
           mg_count(w) >= LARGE_FILTERS;
}

static const char *conv_accepts(const mg_kernel_plan *plan) {
    if (!mg_dnnl_engine()) return "oneDNN is not used";
    if (!mg_all_f32(plan)) return "not float32";
    if (mg_count(&plan->in[0]) == 0 || mg_count(&plan->in[1]) == 0 || mg_count(&plan->out[0]) == 0)
        return "empty";
    return is_slow(plan) ? "one of our own kernels is faster" : NULL;
}

/* Channels of an image. */
static int64_t channels_of(const conv_state *s, int i) {
    return s->parts[i].value->shape.dim[3];
}

/* ---- memory descriptors ---- */

/* oneDNN names an image's axes {N, C, H, W}, whatever their order in memory. */
static mg_status image_desc(dnnl_memory_desc_t *md, const mg_value *v, const mg_kernel_plan *plan) {
    const int64_t *d = v->shape.dim;
    const dnnl_dims_t dims = {d[0], d[3], d[1], d[2]};
    return mg_dnnl_check(dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32, dnnl_nhwc), plan);
}

/* Weights: our row-major {H, W, C, K}, or with `any` the format that oneDNN prefers. Groups are a
 * separate axis. */
static mg_status weight_desc(dnnl_memory_desc_t *md, const mg_value *v, int64_t groups, bool any,
                             const mg_kernel_plan *plan) {
    const int64_t *d = v->shape.dim; /* rows, columns, channels of a group, kernels */
    const dnnl_dims_t whole = {d[3], d[2], d[0], d[1]};
    const dnnl_dims_t split = {groups, d[3] / groups, d[2], d[0], d[1]};
    const dnnl_format_tag_t tag = any ? dnnl_format_tag_any : groups > 1 ? dnnl_hwigo : dnnl_hwio;
    return mg_dnnl_check(dnnl_memory_desc_init_by_tag(md, groups > 1 ? 5 : 4,
                                                      groups > 1 ? split : whole, dnnl_f32, tag),
                         plan);
}

/* Sets the descriptors of the values in the runtime's formats. */
static mg_status describe_outside(conv_state *s, const mg_conv_attrs *a,
                                  const mg_kernel_plan *plan) {
    MG_TRY(image_desc(&s->parts[X].user, s->parts[X].value, plan));
    MG_TRY(weight_desc(&s->parts[W].user, s->parts[W].value, a->groups, false, plan));
    return image_desc(&s->parts[Y].user, s->parts[Y].value, plan);
}

/* ---- primitives ---- */

/* Strides, dilations (0 is none, as oneDNN counts) and padding of a convolution. */
typedef struct geometry {
    dnnl_dims_t strides, dilations, before, after;
} geometry;

/* The descriptor of a forward convolution; also the hint that oneDNN asks for in backward
 * descriptors. */
static dnnl_status_t forward_desc(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t md[N_PARTS],
                                  const dnnl_memory_desc_t *bias, const geometry *g,
                                  dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t d;
    const dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_training, dnnl_convolution_direct, &md[X], &md[W], bias, &md[Y],
        g->strides, g->dilations, g->before, g->after);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(pd, &d, attr, mg_dnnl_engine(), NULL);
}

/* oneDNN's 1x1 kernels must not compute the weights' gradient of a strided convolution over
 * row-major images (all of ours are) when a group has fewer channels than a vector: they write past
 * their workspace, return other numbers in every run, or never return (uxlfoundation/oneDNN#6035;
 * open in 3.12). */
static bool is_faulty_1x1(const dnnl_memory_desc_t md[N_PARTS], const geometry *g) {
    const dnnl_memory_desc_t *w = &md[W];
    const bool strided = g->strides[0] > 1 || g->strides[1] > 1;
    return strided && w->dims[w->ndims - 3] < MG_LANES;
}

/* The first implementation that oneDNN offers whose name does not begin with `refused` (NULL
 * refuses none). */
static dnnl_status_t create_desc(dnnl_primitive_desc_t *pd, const dnnl_convolution_desc_t *d,
                                 dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint,
                                 const char *refused) {
    dnnl_primitive_desc_iterator_t it;
    dnnl_status_t status =
        dnnl_primitive_desc_iterator_create(&it, d, attr, mg_dnnl_engine(), hint);
    if (status != dnnl_success) return status;
    while (status == dnnl_success) {
        const char *name = "";
        *pd = dnnl_primitive_desc_iterator_fetch(it);
        dnnl_primitive_desc_query(*pd, dnnl_query_impl_info_str, 0, &name);
        if (!refused || strncmp(name, refused, strlen(refused)) != 0) break;
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
        status = dnnl_primitive_desc_iterator_next(it);
    }
    dnnl_primitive_desc_iterator_destroy(it);
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

/* The descriptor of a backward form; `result` is X or W. The 1x1 kernels are refused where they are
 * faulty. */
static dnnl_status_t backward_desc(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t md[N_PARTS],
                                   int result, const geometry *g, dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t hint;
    dnnl_status_t status = forward_desc(&hint, md, NULL, g, attr);
    if (status != dnnl_success) return status;
    status = result == X ? dnnl_dilated_convolution_backward_data_desc_init(
                               &d, dnnl_convolution_direct, &md[X], &md[W], &md[Y], g->strides,
                               g->dilations, g->before, g->after)
                         : dnnl_dilated_convolution_backward_weights_desc_init(
                               &d, dnnl_convolution_direct, &md[X], &md[W], NULL, &md[Y],
                               g->strides, g->dilations, g->before, g->after);
    if (status == dnnl_success)
        status =
            create_desc(pd, &d, attr, hint, result == W && is_faulty_1x1(md, g) ? "jit_1x1" : NULL);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* oneDNN counts a dilation of 1 as 0. */
static geometry geometry_of(const mg_conv_attrs *a) {
    geometry g = {{0}, {0}, {0}, {0}};
    for (int i = 0; i < 2; i++) {
        g.strides[i] = a->strides.v[i];
        g.dilations[i] = a->dilations.v[i] - 1;
        g.before[i] = a->pads.v[2 * i];
        g.after[i] = a->pads.v[2 * i + 1];
    }
    return g;
}

/* One number per filter. */
static mg_status bias_desc(dnnl_memory_desc_t *md, const conv_state *s,
                           const mg_kernel_plan *plan) {
    const dnnl_dims_t dims = {channels_of(s, Y)};
    return mg_dnnl_check(dnnl_memory_desc_init_by_tag(md, 1, dims, dnnl_f32, dnnl_a), plan);
}

/* oneDNN's first implementation of the convolution that is not refused. */
static mg_status find_primitive(dnnl_primitive_desc_t *pd, conv_state *s,
                                const mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    const geometry g = geometry_of(a);
    dnnl_memory_desc_t md[N_PARTS], bias;
    dnnl_primitive_attr_t attr;
    md[X] = s->parts[X].user;
    md[Y] = s->parts[Y].user;
    MG_TRY(weight_desc(&md[W], s->parts[W].value, a->groups, true, plan));
    MG_TRY(bias_desc(&bias, s, plan));
    MG_TRY(mg_dnnl_attributes(&attr, plan));
    const dnnl_status_t status = s->result == Y
                                     ? forward_desc(pd, md, s->bias ? &bias : NULL, &g, attr)
                                     : backward_desc(pd, md, s->result, &g, attr);
    dnnl_primitive_attr_destroy(attr);
    return mg_dnnl_check(status, plan);
}

/* The format that the primitive wants tensor i in. `result`: it is what the op computes. Backward
 * forms call dy and their result "diff". */
static const dnnl_memory_desc_t *inner_desc(const_dnnl_primitive_desc_t pd, int i, bool result,
                                            int result_part) {
    static const dnnl_query_t plain[] = {dnnl_query_src_md, dnnl_query_weights_md,
                                         dnnl_query_dst_md};
    static const dnnl_query_t diff[] = {dnnl_query_diff_src_md, dnnl_query_diff_weights_md,
                                        dnnl_query_diff_dst_md};
    /* forward, nothing is a gradient; backward, dy and the result are */
    const bool is_diff = result_part != Y && (result || i == Y);
    return dnnl_primitive_desc_query_md(pd, is_diff ? diff[i] : plain[i], 0);
}

/* The name of tensor i among the arguments of a primitive. */
static int argument(int i, bool result, int result_part) {
    static const int plain[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    static const int diff[] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
    return result_part != Y && (result || i == Y) ? diff[i] : plain[i];
}

/* Adds a reorder between the two formats of a tensor, if they differ, with scratch memory for the
 * copy and for the reorder itself. */
static mg_status stage_part(part *p, bool result, mg_kernel_plan *plan) {
    if (dnnl_memory_desc_equal(&p->user, &p->inner)) return MG_OK;
    p->at = plan->scratch;
    plan->scratch += (dnnl_memory_desc_get_size(&p->inner) + 63) & ~(size_t)63;
    p->pad_at = plan->scratch;
    return result ? mg_dnnl_reorder(&p->stage, &p->inner, &p->user, plan)
                  : mg_dnnl_reorder(&p->stage, &p->user, &p->inner, plan);
}

/* Adds inputs, result, scratchpad and bias to the primitive's arguments, in the order in which
 * conv_run gives their addresses. */
static mg_status add_arguments(conv_state *s, const_dnnl_primitive_desc_t pd,
                               mg_kernel_plan *plan) {
    const int order[] = {s->input[0], s->input[1], s->result};
    for (int k = 0; k < N_PARTS; k++) {
        part *p = &s->parts[order[k]];
        const bool result = k == 2;
        p->inner = *inner_desc(pd, order[k], result, s->result);
        MG_TRY(stage_part(p, result, plan));
        MG_TRY(mg_dnnl_add(&s->main, argument(order[k], result, s->result), &p->inner, plan));
    }
    s->pad_at = plan->scratch;
    plan->scratch += mg_dnnl_scratch(pd);
    MG_TRY(mg_dnnl_add(&s->main, DNNL_ARG_SCRATCHPAD,
                       dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), plan));
    if (!s->bias) return MG_OK;
    dnnl_memory_desc_t bias;
    MG_TRY(bias_desc(&bias, s, plan));
    return mg_dnnl_add(&s->main, DNNL_ARG_BIAS, &bias, plan);
}

/* Runs one reorder between a value and its staged copy. */
static mg_status run_stage(part *p, void *from, void *to, const mg_call *call) {
    return mg_dnnl_run(&p->stage, (void *[]){from, to, (char *)call->scratch + p->pad_at},
                       call->plan);
}

/* Weights that stay the same are brought into the primitive's format once. */
static mg_status pack_weights(const mg_call *call) {
    conv_state *s = call->plan->state;
    return run_stage(&s->parts[W], call->in[0], call->out[0], call);
}

static const mg_kernel weight_packer = {.name = "oneDNN reorder", .run = pack_weights};

/* If the weights are fixed and not in the primitive's format, a packer reorders them. Its scratch
 * is laid out as that of the call. */
static void ask_for_packing(conv_state *s, mg_kernel_plan *plan) {
    part *w = &s->parts[W];
    if (s->result != Y || !plan->in[1].fixed || !w->stage.primitive) return;
    w->packed = true;
    plan->packer = &weight_packer;
    plan->packed = 1;
    plan->packed_bytes = dnnl_memory_desc_get_size(&w->inner);
    plan->packer_scratch = plan->scratch;
}

/* Describes the values, then lets oneDNN choose the weights' format. */
static mg_status conv_prepare(mg_kernel_plan *plan) {
    const mg_conv_attrs *a = plan->step->attrs;
    conv_state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    name_parts(s, plan);
    MG_TRY(describe_outside(s, a, plan));
    dnnl_primitive_desc_t pd;
    MG_TRY(find_primitive(&pd, s, plan));
    mg_status status = mg_dnnl_create(&s->main.primitive, pd, plan);
    if (status == MG_OK) status = add_arguments(s, pd, plan);
    dnnl_primitive_desc_destroy(pd);
    if (status == MG_OK) ask_for_packing(s, plan);
    return status;
}

/* Reorders the inputs that need it into scratch, runs the primitive, and reorders the result. */
static mg_status conv_run(const mg_call *call) {
    conv_state *s = call->plan->state;
    char *scratch = call->scratch;
    void *at[5];
    /* at: the two inputs, the result, the scratchpad, the bias */
    for (int i = 0; i < 2; i++) {
        part *p = &s->parts[s->input[i]];
        at[i] = call->in[i];
        if (!p->stage.primitive || p->packed) continue;
        at[i] = scratch + p->at;
        MG_TRY(run_stage(p, call->in[i], at[i], call));
    }
    part *result = &s->parts[s->result];
    at[2] = result->stage.primitive ? scratch + result->at : call->out[0];
    at[3] = scratch ? scratch + s->pad_at : NULL;
    at[4] = s->bias ? call->in[2] : NULL;
    MG_TRY(mg_dnnl_run(&s->main, at, call->plan));
    if (result->stage.primitive) MG_TRY(run_stage(result, at[2], call->out[0], call));
    const int64_t *y = s->parts[Y].value->shape.dim;
    if (s->relu) mg_finish_rows(call->out[0], y[0] * y[1], y[2] * y[3], NULL, true);
    return MG_OK;
}

/* Also after a prepare that failed half-way: handles that were not created are NULL. */
static void conv_release(void *state) {
    conv_state *s = state;
    for (int i = 0; i < N_PARTS; i++) mg_dnnl_drop(&s->parts[i].stage);
    mg_dnnl_drop(&s->main);
    mg_free(s);
}

#define CONV(id)                                                                                   \
    const mg_kernel mg_cpu_onednn_##id = {.op = #id,                                               \
                                          .name = "oneDNN",                                        \
                                          .accepts = conv_accepts,                                 \
                                          .prepare = conv_prepare,                                 \
                                          .run = conv_run,                                         \
                                          .release = conv_release};
CONV(conv2d)
CONV(conv2d_grad_input)
CONV(conv2d_grad_weight)
#undef CONV

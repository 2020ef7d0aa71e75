/* cumsum, and prod_grad, the gradient of a product: see kernels/scan.h. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/source.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <string.h>

enum { THREADS = 256, WARP = 32 };

typedef struct state {
    CUfunction function;
    mg_axis_view view; /* of cumsum's axis; of prod_grad: groups, elements, 1 */
    int64_t across;
} state;

static bool is_wide_type(mg_dtype t) {
    return t == MG_F64 || t == MG_I32 || t == MG_I64;
}

/* Products leave the range of a float on the way. */
static mg_status compile(mg_kernel_plan *plan, state *s, bool sum) {
    const mg_dtype in = plan->in[0].value->dtype, out = plan->out[0].value->dtype;
    mg_text text = {0};
    mg_text_add(&text, "#define WIDE %d\n#define WIDE_INDEX 1\n#define THREADS %d\n",
                !sum || is_wide_type(in) || is_wide_type(out), THREADS);
    mg_text_add(&text, "#define IS_SUM %d\n#define IN %s\n#define OUT %s\n", sum,
                mg_element_name(in), mg_element_name(out));
    mg_text_add(&text, "#include \"device/cuda/kernels/scan.h\"\n");
    MG_TRY(mg_text_status(&text));
    const mg_status status = mg_cuda_compile(plan->device, "scan", text.s, &s->function);
    mg_free(text.s);
    return status;
}

static mg_status start(const mg_call *call, int64_t jobs, const void *params) {
    const mg_device *d = call->plan->device;
    const state *s = call->plan->state;
    return mg_cuda_launch(d, s->function, mg_cuda_blocks(d, jobs * THREADS, THREADS), THREADS, 0,
                          params);
}

/* ---- cumsum ---- */

static mg_status prepare_cumsum(mg_kernel_plan *plan) {
    const mg_shape *x = &plan->in[0].value->shape;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->view = mg_axis_view_of(x, ((const mg_axis_attrs *)plan->step->attrs)->axis);
    s->across = 1;
    while (s->across < WARP && s->across < s->view.inner) s->across *= 2;
    return mg_shape_count(x) ? compile(plan, s, true) : MG_OK;
}

static mg_status run_cumsum(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_axis_view *v = &s->view;
    const cumsum_params params = {call->in[0], call->out[0], v->outer, v->n, v->inner, s->across};
    if (v->n == 0) return MG_OK;
    return start(call, v->outer * ((v->inner + s->across - 1) / s->across), &params);
}

/* ---- prod_grad ---- */

static mg_status prepare_prod_grad(mg_kernel_plan *plan) {
    const mg_shape *x = &plan->in[0].value->shape;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->view = mg_axis_view_of(x, 1);
    plan->scratch = (size_t)mg_shape_count(x) * sizeof(double);
    return mg_shape_count(x) ? compile(plan, s, false) : MG_OK;
}

static mg_status run_prod_grad(const mg_call *call) {
    const mg_axis_view *v = &((const state *)call->plan->state)->view;
    const prod_grad_params params = {call->in[0],   call->in[1], call->out[0],
                                     call->scratch, v->outer,    v->n};
    return v->n == 0 ? MG_OK : start(call, v->outer, &params);
}

const mg_kernel mg_cuda_cumsum = {.op = "cumsum",
                                  .name = "generated",
                                  .prepare = prepare_cumsum,
                                  .run = run_cumsum,
                                  .release = mg_free};
const mg_kernel mg_cuda_prod_grad = {.op = "prod_grad",
                                     .name = "generated",
                                     .prepare = prepare_prod_grad,
                                     .run = run_prod_grad,
                                     .release = mg_free};

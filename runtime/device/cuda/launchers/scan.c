/* cumsum, and prod_grad, the gradient of a product along an axis (kernels/scan.h).
 *
 * cumsum sees x as {outer, n, inner} and scans along n. If there are too few scans to fill the GPU,
 * each is divided into pieces, in three launches: the sum of every piece, a scan over those sums,
 * and then the scans of the pieces, each starting from the sum before it. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/codegen/module.h"
#include "device/cuda/codegen/codegen.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <string.h>

enum {
    THREADS = 256,
    WARP = 32,
    FULL = 4, /* blocks per multiprocessor that keep it busy */
    TURNS = 8 /* minimum number of elements per thread in a piece */
};

typedef struct state {
    const mg_cuda_module *kernel;
    const mg_cuda_module *of_sums; /* cumsum: scans the sums of the pieces; NULL with one piece */
    mg_axis_view view;             /* cumsum: {outer, n, inner}; prod_grad: {groups, elements, 1} */
    int64_t across,
        pieces; /* cumsum: scans that threads of a block do side by side; pieces of each */
} state;

/* Requests the kernel for these dtypes: cumsum (`sum`) or prod_grad, computing in float32, float64
 * or int64 (`number`). */
static mg_status compile_scan(const mg_kernel_plan *plan, bool sum, mg_dtype number, mg_dtype in,
                              mg_dtype out, const mg_cuda_module **kernel) {
    mg_string_buffer text = {0};
    mg_string_buffer_add(&text, "#define WIDE %d\n#define INTEGER %d\n", number == MG_F64,
                         number == MG_I64);
    mg_string_buffer_add(&text, "#define WIDE_INDEX 1\n#define THREADS %d\n", THREADS);
    mg_string_buffer_add(&text, "#define IS_SUM %d\n#define IN %s\n#define OUT %s\n", sum,
                         mg_element_name(in), mg_element_name(out));
    mg_string_buffer_add(&text, "#include \"device/cuda/kernels/scan.h\"\n");
    MG_TRY(mg_string_buffer_status(&text));
    const mg_status status = mg_cuda_module_want(plan->device, "scan", text.s, kernel);
    mg_free(text.s);
    return status;
}

/* ---- cumsum ---- */

/* Blocks side by side, for one piece of all scans. */
static int64_t tiles_of(const state *s) {
    return (s->view.inner + s->across - 1) / s->across;
}

/* As many pieces as fill the GPU, if each gives its threads enough to do. */
static int64_t pieces_of(const mg_cuda *d, const state *s) {
    const int64_t jobs = s->view.outer * tiles_of(s), full = (int64_t)FULL * d->multiprocessors;
    const int64_t most = s->view.n * s->across / (THREADS * TURNS), wanted = full / jobs;
    const int64_t pieces = most < wanted ? most : wanted;
    return pieces > 1 ? pieces : 1;
}

static mg_status prepare_cumsum(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const mg_dtype out = plan->out[0].value->dtype;
    const mg_dtype number = mg_dtype_is_half(x->dtype) ? MG_F32 : mg_dtype_of_sums(x->dtype);
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->view = mg_axis_view_of(&x->shape, ((const mg_axis_attrs *)plan->step->attrs)->axis);
    if (mg_shape_count(&x->shape) == 0) return MG_OK;
    s->across = 1;
    while (s->across < WARP && s->across < s->view.inner) s->across *= 2;
    s->pieces = pieces_of(plan->device->state, s);
    MG_TRY(compile_scan(plan, true, number, x->dtype, out, &s->kernel));
    if (s->pieces == 1) return MG_OK;
    plan->scratch = (size_t)(s->view.outer * s->pieces * s->view.inner) * mg_dtype_size(number);
    return compile_scan(plan, true, number, number, number, &s->of_sums);
}

static mg_status launch_cumsum(const mg_call *call, const mg_cuda_module *kernel, cumsum_params p) {
    const mg_device *d = call->plan->device;
    const int64_t jobs = p.outer * p.pieces * tiles_of(call->plan->state);
    return mg_cuda_launch(d, kernel->function, mg_cuda_blocks(d, jobs * THREADS, THREADS), THREADS,
                          0, &p);
}

/* One launch; or three, if scans are cut into pieces. */
static mg_status run_cumsum(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_axis_view *v = &s->view;
    if (s->pieces == 0) return MG_OK; /* no elements */
    cumsum_params whole = {.in = call->in[0],
                           .out = call->out[0],
                           .outer = v->outer,
                           .n = v->n,
                           .inner = v->inner,
                           .pieces = s->pieces,
                           .across = s->across};
    if (s->pieces > 1) {
        cumsum_params sums = whole;
        sums.out = NULL;
        sums.carry = whole.carry = call->scratch;
        MG_TRY(launch_cumsum(call, s->kernel, sums));
        sums = (cumsum_params){.in = call->scratch,
                               .out = call->scratch,
                               .outer = v->outer,
                               .n = s->pieces,
                               .inner = v->inner,
                               .pieces = 1,
                               .across = s->across};
        MG_TRY(launch_cumsum(call, s->of_sums, sums));
    }
    return launch_cumsum(call, s->kernel, whole);
}

/* ---- prod_grad ---- */

/* In double, because intermediate products can exceed the range of a float. */
static mg_status prepare_prod_grad(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->view = mg_axis_view_of(&x->shape, 1);
    if (mg_shape_count(&x->shape) == 0) return MG_OK;
    plan->scratch = (size_t)mg_shape_count(&x->shape) * sizeof(double);
    return compile_scan(plan, false, MG_F64, x->dtype, plan->out[0].value->dtype, &s->kernel);
}

/* dx of an element is dy times the product of all others in its group, made of a scan from both
 * ends. */
static mg_status run_prod_grad(const mg_call *call) {
    const mg_device *d = call->plan->device;
    const state *s = call->plan->state;
    const prod_grad_params params = {call->in[0],   call->in[1],   call->out[0],
                                     call->scratch, s->view.outer, s->view.n};
    if (!s->kernel) return MG_OK; /* no elements */
    return mg_cuda_launch(d, s->kernel->function,
                          mg_cuda_blocks(d, s->view.outer * THREADS, THREADS), THREADS, 0, &params);
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

/* all_finite: whether all elements of all inputs are finite (kernels/finite.h).
 *
 * Inputs are grouped by dtype, up to MG_FINITE_TENSORS to a launch. The result is set to 1 first,
 * and any thread that meets an infinity or NaN sets it to 0. Inputs of integer dtypes are skipped.
 * Several checks of one tensor each, such as those of the gradients of a step, are one launch for
 * each dtype.
 */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/codegen/module.h"
#include "device/cuda/codegen/codegen.h"
#include <assert.h>

enum { THREADS = 256, ACCESS = 16 };

typedef struct state {
    const mg_cuda_module
        *kernel[MG_N_DTYPES]; /* for each floating dtype among the inputs; else NULL */
} state;

/* Elements of one 16-byte access. */
static int vector_of(mg_dtype t) {
    return ACCESS / (int)mg_dtype_size(t);
}

/* Requests the kernel for a dtype. */
static mg_status compile_check(const mg_kernel_plan *plan, mg_dtype t,
                               const mg_cuda_module **kernel) {
    mg_string_buffer text = {0};
    mg_string_buffer_add(&text, "#define WIDE %d\n#define WIDE_INDEX 1\n#define VECTOR %d\n",
                         t == MG_F64, vector_of(t));
    mg_string_buffer_add(&text, "#define IN %s\n", mg_element_name(t));
    mg_string_buffer_add(&text, "#include \"device/cuda/kernels/finite.h\"\n");
    MG_TRY(mg_string_buffer_status(&text));
    const mg_status status = mg_cuda_module_want(plan->device, "all_finite", text.s, kernel);
    mg_free(text.s);
    return status;
}

/* A kernel for each floating dtype among the inputs. */
static mg_status prepare_all_finite(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    for (int i = 0; i < plan->step->n_in; i++) {
        const mg_dtype t = plan->in[i].value->dtype;
        if (mg_dtype_is_float(t) && !s->kernel[t]) MG_TRY(compile_check(plan, t, &s->kernel[t]));
    }
    return MG_OK;
}

/* ---- running ---- */

/* Adds an input of a call to *p. */
static void add_tensor(finite_params *p, const mg_call *call, int i) {
    const mg_value *v = call->plan->in[i].value;
    const int64_t n = mg_shape_count(&v->shape);
    const bool aligned = (uintptr_t)call->in[i] % ACCESS == 0;
    p->t[p->tensors++] =
        (finite_tensor){call->in[i], call->out[0], n, aligned ? n / vector_of(v->dtype) : 0};
}

/* Launches the check of the tensors in *p, and empties it. */
static mg_status check_tensors(const mg_call *call, mg_dtype t, finite_params *p) {
    const mg_device *d = call->plan->device;
    const state *s = call->plan->state;
    int64_t most = 1;
    for (int i = 0; i < p->tensors; i++)
        if (p->t[i].n > most) most = p->t[i].n;
    const int64_t threads = (most + vector_of(t) - 1) / vector_of(t);
    const mg_status status = mg_cuda_launch(d, s->kernel[t]->function,
                                            mg_cuda_blocks(d, threads, THREADS), THREADS, 0, p);
    p->tensors = 0;
    return status;
}

static mg_status fill(const mg_call *call, void *at, unsigned char value, size_t bytes) {
    mg_device *d = call->plan->device;
    const mg_cuda *s = d->state;
    return mg_cuda_check(d,
                         mg_cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)at, value, bytes, s->stream),
                         "fill memory");
}

/* The result is a bool, set to 1 here and to 0 by any thread that finds an element that is not
 * finite. */
static mg_status run_all_finite(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    MG_TRY(fill(call, call->out[0], 1, 1));
    for (int t = 0; t < MG_N_DTYPES; t++) {
        finite_params p = {.tensors = 0};
        if (!((const state *)plan->state)->kernel[t]) continue;
        for (int i = 0; i < plan->step->n_in; i++) {
            if ((int)plan->in[i].value->dtype != t) continue;
            add_tensor(&p, call, i);
            if (p.tensors == MG_FINITE_TENSORS) MG_TRY(check_tensors(call, (mg_dtype)t, &p));
        }
        if (p.tensors) MG_TRY(check_tensors(call, (mg_dtype)t, &p));
    }
    return MG_OK;
}

/* ---- several checks ---- */

static_assert((int)MG_MAX_LAUNCH <= (int)MG_FINITE_TENSORS, "a launch takes all calls");

/* Scratch: a counter of blocks for each dtype, then a byte for each call. */
static size_t scratch_many(const mg_kernel_plan *const *plans, int n) {
    (void)plans;
    return MG_N_DTYPES * sizeof(unsigned) + (size_t)n;
}

/* Whether a call checks one tensor of floating-point numbers. */
static bool is_single(const mg_call *call) {
    return call->plan->step->n_in == 1 && mg_dtype_is_float(call->plan->in[0].value->dtype);
}

/* Runs the single checks of a dtype as one launch; *bad is its part of the scratch. */
static mg_status check_each(const mg_call *calls, int n, int dtype, unsigned char **bad) {
    finite_params p = {.done = (unsigned *)calls[0].scratch + dtype, .bad = *bad};
    const mg_call *last = NULL;
    for (int i = 0; i < n; i++) {
        if (!is_single(&calls[i]) || (int)calls[i].plan->in[0].value->dtype != dtype) continue;
        last = &calls[i];
        add_tensor(&p, last, 0);
    }
    *bad += p.tensors;
    return last ? check_tensors(last, (mg_dtype)dtype, &p) : MG_OK;
}

static mg_status run_many(const mg_call *calls, int n) {
    unsigned char *bad = (unsigned char *)calls[0].scratch + MG_N_DTYPES * sizeof(unsigned);
    MG_TRY(fill(calls, calls[0].scratch, 0, scratch_many(NULL, n)));
    for (int t = 0; t < MG_N_DTYPES; t++) MG_TRY(check_each(calls, n, t, &bad));
    for (int i = 0; i < n; i++)
        if (!is_single(&calls[i])) MG_TRY(run_all_finite(&calls[i]));
    return MG_OK;
}

const mg_kernel mg_cuda_all_finite = {.op = "all_finite",
                                      .name = "generated",
                                      .prepare = prepare_all_finite,
                                      .run = run_all_finite,
                                      .run_many = run_many,
                                      .scratch_many = scratch_many,
                                      .release = mg_free};

/* all_finite: whether all elements of all inputs are finite (kernels/finite.cu).
 *
 * Neighbouring checks are one launch, such as those of the gradients of a step, whatever their
 * dtypes and layouts. Inputs of integer dtypes are skipped. A launch has up to MG_FINITE_TENSORS
 * tensors; more need further launches. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/context/context.h"
#include <assert.h>
#include <pthread.h>

enum { THREADS = 256, ACCESS = 16 };

/* ---- cells ----
 *
 * Each call has a cell of its own on its device, since branches of a graph may run at the same
 * time. The numbers are those of all devices together. */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool taken[MG_FINITE_CELLS];

/* The number of a cell that becomes the caller's, or -1. */
static int take_cell(void) {
    int cell = 0;
    pthread_mutex_lock(&mutex);
    while (cell < MG_FINITE_CELLS && taken[cell]) cell++;
    if (cell < MG_FINITE_CELLS) taken[cell] = true;
    pthread_mutex_unlock(&mutex);
    return cell < MG_FINITE_CELLS ? cell : -1;
}

typedef struct state {
    CUfunction function;
    int cell; /* -1: none */
} state;

static void release_all_finite(void *kept) {
    state *s = kept;
    if (s->cell >= 0) {
        pthread_mutex_lock(&mutex);
        taken[s->cell] = false;
        pthread_mutex_unlock(&mutex);
    }
    mg_free(s);
}

/* The order of elements does not matter. Without a free cell the host checks. */
static mg_status prepare_all_finite(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->cell = take_cell();
    if (s->cell < 0) return mg_fail(MG_UNSUPPORTED, "all cells are taken");
    for (int i = 0; i < plan->step->n_in; i++) plan->in[i].layout = MG_ANY_LAYOUT;
    return mg_cuda_find(plan->device, "all_finite", &s->function);
}

/* ---- running ---- */

/* A launch that is being assembled. */
typedef struct launch {
    finite_params p;
    int64_t threads;
} launch;

/* Adds input i of a call. */
static void add_tensor(launch *l, const mg_call *call, int i) {
    static const unsigned exponents[MG_N_DTYPES] = {
        [MG_F16] = 0x7c00, [MG_BF16] = 0x7f80, [MG_F32] = 0x7f800000, [MG_F64] = 0x7ff00000};
    const mg_value *v = call->plan->in[i].value;
    const int size = (int)mg_dtype_size(v->dtype);
    const unsigned bits = exponents[v->dtype];
    finite_tensor *t = &l->p.t[l->p.tensors++];
    *t = (finite_tensor){.in = call->in[i],
                         .n = mg_shape_count(&v->shape),
                         .size = size,
                         .high = size == 2 ? bits << 16 : bits,
                         .low = size == 2 ? bits : 0};
    if ((uintptr_t)t->in % ACCESS == 0) t->vectors = t->n * size / ACCESS;
    const int64_t threads = (t->n * size + ACCESS - 1) / ACCESS;
    if (threads > l->threads) l->threads = threads;
}

/* Begins the list of tensors for the call's result. */
static void add_result(launch *l, const mg_call *call) {
    const int first = l->p.tensors;
    l->p.r[l->p.results++] = (finite_result){call->out[0], first, first};
}

/* Launches the check, and begins another one with the cell of the same call. */
static mg_status check_tensors(launch *l, const mg_call *head) {
    const mg_device *d = head->plan->device;
    const state *s = head->plan->state;
    l->p.cell = s->cell;
    const mg_status status = mg_cuda_launch(
        d, s->function, mg_cuda_blocks(d, l->threads ? l->threads : 1, THREADS), THREADS, 0, &l->p);
    l->p.tensors = l->p.results = l->p.continues = 0;
    l->threads = 0;
    return status;
}

static mg_status run_many(const mg_call *calls, int n) {
    launch l = {.threads = 0};
    for (int c = 0; c < n; c++) {
        const mg_call *call = &calls[c];
        if (l.p.results == MG_FINITE_TENSORS) MG_TRY(check_tensors(&l, calls));
        add_result(&l, call);
        for (int i = 0; i < call->plan->step->n_in; i++) {
            if (!mg_dtype_is_float(call->plan->in[i].value->dtype)) continue;
            if (l.p.tensors == MG_FINITE_TENSORS) {
                const bool begun = l.p.r[l.p.results - 1].end > l.p.r[l.p.results - 1].first;
                if (!begun) l.p.results--;
                MG_TRY(check_tensors(&l, calls));
                l.p.continues = begun;
                add_result(&l, call);
            }
            add_tensor(&l, call, i);
            l.p.r[l.p.results - 1].end = l.p.tensors;
        }
    }
    return check_tensors(&l, calls);
}

static mg_status run_all_finite(const mg_call *call) {
    return run_many(call, 1);
}

static size_t scratch_many(const mg_kernel_plan *const *plans, int n) {
    (void)plans;
    (void)n;
    return 0;
}

const mg_kernel mg_cuda_all_finite = {.op = "all_finite",
                                      .name = "finite",
                                      .prepare = prepare_all_finite,
                                      .run = run_all_finite,
                                      .run_many = run_many,
                                      .scratch_many = scratch_many,
                                      .release = release_all_finite};

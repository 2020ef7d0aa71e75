/* rfft and its transpose: each row is a transform of complex numbers, in double; threads share the
 * rows. Rows are not joined in pairs, as real and imaginary parts of one transform: a NaN, or large
 * numbers, in one row would spoil the other. */
#include "core/alloc.h"
#include "device/cpu/spectra/spectra.h"
#include <omp.h>
#include <string.h>

typedef struct state {
    mg_fft *fft;
    int64_t n, rows;
    int team;
    int64_t thread_doubles; /* a row's complex numbers, and the room of its transform */
} state;

static void rfft_release(void *p) {
    state *s = p;
    mg_fft_free(s->fft);
    mg_free(s);
}

/* Halves are upcast first. */
static const char *rfft_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

/* `time` is the port of the real rows. */
static mg_status prepare(mg_kernel_plan *plan, const mg_port *time) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->n = mg_dims(time)[time->value->shape.rank - 1];
    s->rows = mg_count(time) / s->n;
    s->fft = mg_fft_make(s->n);
    if (!s->fft) return MG_OOM;
    s->team = mg_cpu_team(mg_count(time) * 4);
    if (s->team > s->rows) s->team = s->rows ? (int)s->rows : 1;
    s->thread_doubles = 2 * s->n + mg_fft_room(s->fft);
    plan->scratch = (size_t)s->team * (size_t)s->thread_doubles * sizeof(double);
    return MG_OK;
}

static mg_status rfft_prepare(mg_kernel_plan *plan) {
    return prepare(plan, &plan->in[0]);
}

static mg_status transpose_prepare(mg_kernel_plan *plan) {
    return prepare(plan, &plan->out[0]);
}

/* Element i of floats or doubles. */
static double get(const void *x, bool wide, int64_t i) {
    return wide ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void put(void *y, bool wide, int64_t i, double value) {
    if (wide)
        ((double *)y)[i] = value;
    else
        ((float *)y)[i] = (float)value;
}

static void rfft_row(const state *s, bool wide, int64_t row, const void *x, void *y, double *room) {
    const int64_t n = s->n, m = n / 2 + 1;
    double *real = room, *imaginary = room + n;
    for (int64_t t = 0; t < n; t++) real[t] = get(x, wide, row * n + t);
    memset(imaginary, 0, (size_t)n * sizeof *imaginary);
    mg_fft_run(s->fft, real, imaginary, room + 2 * n);
    for (int64_t k = 0; k < m; k++) {
        put(y, wide, row * 2 * m + k, real[k]);
        put(y, wide, row * 2 * m + m + k, imaginary[k]);
    }
}

/* The real part of the sums with e^(+2 pi i k t / n); terms that are not given are 0. */
static void transpose_row(const state *s, bool wide, int64_t row, const void *x, void *y,
                          double *room) {
    const int64_t n = s->n, m = n / 2 + 1;
    double *real = room, *imaginary = room + n;
    memset(room, 0, (size_t)n * 2 * sizeof *room);
    for (int64_t k = 0; k < m; k++) {
        real[k] = get(x, wide, row * 2 * m + k);
        imaginary[k] = get(x, wide, row * 2 * m + m + k);
    }
    mg_fft_run(s->fft, imaginary, real, room + 2 * n);
    for (int64_t t = 0; t < n; t++) put(y, wide, row * n + t, real[t]);
}

static mg_status run(const mg_call *call,
                     void (*each)(const state *, bool, int64_t, const void *, void *, double *)) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    const bool wide = plan->in[0].value->dtype == MG_F64;
#pragma omp parallel num_threads(s->team)
    {
        double *room = (double *)call->scratch + omp_get_thread_num() * s->thread_doubles;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->rows; i++) each(s, wide, i, call->in[0], call->out[0], room);
    }
    return MG_OK;
}

static mg_status rfft_run(const mg_call *call) {
    return run(call, rfft_row);
}

static mg_status transpose_run(const mg_call *call) {
    return run(call, transpose_row);
}

const mg_kernel mg_cpu_rfft = {.op = "rfft",
                               .name = "rfft",
                               .accepts = rfft_accepts,
                               .prepare = rfft_prepare,
                               .run = rfft_run,
                               .release = rfft_release};
const mg_kernel mg_cpu_rfft_transpose = {.op = "rfft_transpose",
                                         .name = "rfft",
                                         .accepts = rfft_accepts,
                                         .prepare = transpose_prepare,
                                         .run = transpose_run,
                                         .release = rfft_release};

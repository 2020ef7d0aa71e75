/* Finding, starting and timing kernels. */
#include "core/alloc.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/memory.h"
#include "device/cuda/state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding ---- */

enum { SLOTS = 1024, LONGEST = 48 }; /* a power of two, several times the number of kernels */

struct mg_cuda_found {
    char name[LONGEST]; /* "": an empty slot */
    CUfunction function;
};

/* The slot of a name, or the one that it gets. */
static struct mg_cuda_found *slot_of(const mg_cuda *s, const char *name) {
    uint32_t h = 2166136261u;
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 16777619u;
    while (*s->found[h % SLOTS].name && strcmp(s->found[h % SLOTS].name, name) != 0) h++;
    return &s->found[h % SLOTS];
}

static CUresult look_for(const mg_cuda *s, const char *name, CUfunction *function) {
    CUresult r = CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < MG_CUDA_FILES && s->kernels[i] && r == CUDA_ERROR_NOT_FOUND; i++)
        r = mg_cu.cuModuleGetFunction(function, s->kernels[i], name);
    return r == CUDA_SUCCESS ? mg_cu.cuFuncLoad(*function) : r;
}

static mg_status find(mg_device *d, const char *name, CUfunction *function) {
    mg_cuda *s = d->state;
    if (!s->found && !(s->found = mg_alloc_zero(SLOTS * sizeof *s->found))) return MG_OOM;
    struct mg_cuda_found *slot = slot_of(s, name);
    *function = slot->function;
    if (*slot->name) return MG_OK;
    const CUresult r = look_for(s, name, function);
    if (r == CUDA_ERROR_NOT_FOUND || strlen(name) >= LONGEST)
        return mg_fail(MG_INTERNAL, "%s: there is no kernel %s", d->name, name);
    MG_TRY(mg_cuda_check(d, r, name));
    memcpy(slot->name, name, strlen(name) + 1);
    slot->function = *function;
    return MG_OK;
}

mg_status mg_cuda_find(mg_device *d, const char *name, CUfunction *function) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->finding);
    const mg_status status = find(d, name, function);
    pthread_mutex_unlock(&s->finding);
    return status;
}

void mg_cuda_forget_found(mg_cuda *s) {
    mg_free(s->found);
    s->found = NULL;
}

mg_status mg_cuda_find_typed(mg_device *d, const char *name, mg_dtype t, CUfunction *function) {
    static const char *const types[MG_N_DTYPES] = {"bool", "u8",  "i32", "i64",
                                                   "bf16", "f16", "f32", "f64"};
    char full[64];
    snprintf(full, sizeof full, "%s_%s", name, types[t]);
    return mg_cuda_find(d, full, function);
}

/* ---- starting ---- */

mg_status mg_cuda_launch(const mg_device *d, CUfunction f, int64_t blocks, int threads, int shared,
                         const void *params) {
    const mg_cuda *s = d->state;
    void *list[] = {(void *)(uintptr_t)params};
    if (blocks == 0) return MG_OK;
    if (blocks < 0 || blocks > INT32_MAX)
        return mg_fail(MG_UNSUPPORTED, "%s: a kernel over %lld blocks", d->name, (long long)blocks);
    const CUresult r = mg_cu.cuLaunchKernel(f, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                                            (unsigned)shared, s->stream, list, NULL);
    return r == CUDA_SUCCESS ? MG_OK
                             : mg_cuda_check((mg_device *)(uintptr_t)d, r, "start a kernel");
}

int64_t mg_cuda_blocks(const mg_device *d, int64_t n, int threads) {
    const mg_cuda *s = d->state;
    const int64_t wanted = (n + threads - 1) / threads;
    const int64_t most = (int64_t)s->multiprocessors * (2048 / threads) * 4;
    return wanted < most ? wanted : most;
}

/* ---- timing ---- */

enum { RUNS = 5, TOGETHER = 8 };

static const float SHORT = 0.1F; /* milliseconds: less than that is timed several at once */

static int by_size(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The milliseconds of one among n in a row. */
static mg_status time_some(mg_device *d, CUevent begin, CUevent end, mg_cuda_work *start,
                           void *context, int n, float *ms) {
    const mg_cuda *s = d->state;
    CUresult r = mg_cu.cuEventRecord(begin, s->stream);
    for (int i = 0; i < n; i++) MG_TRY(start(context));
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventRecord(end, s->stream);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventSynchronize(end);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventElapsedTime(ms, begin, end);
    *ms /= (float)n;
    return mg_cuda_check(d, r, "time a kernel");
}

/* What the first runs take, which warm up, is not counted. */
static mg_status time_runs(mg_device *d, CUevent begin, CUevent end, mg_cuda_work *start,
                           void *context, float *ms) {
    for (int i = 0; i < 2; i++) MG_TRY(time_some(d, begin, end, start, context, 1, ms));
    const int n = *ms < SHORT ? TOGETHER : 1;
    for (int i = 0; i < RUNS; i++) MG_TRY(time_some(d, begin, end, start, context, n, &ms[i]));
    return MG_OK;
}

mg_status mg_cuda_time(mg_device *d, mg_cuda_work *start, void *context, float *ms) {
    CUevent begin = NULL, end = NULL;
    float times[RUNS] = {0};
    MG_TRY(mg_cuda_enter(d));
    CUresult r = mg_cu.cuEventCreate(&begin, CU_EVENT_DEFAULT);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventCreate(&end, CU_EVENT_DEFAULT);
    mg_status status = mg_cuda_check(d, r, "time a kernel");
    pthread_mutex_lock(&mg_cuda_of(d)->turn);
    if (status == MG_OK) status = time_runs(d, begin, end, start, context, times);
    pthread_mutex_unlock(&mg_cuda_of(d)->turn);
    if (begin) mg_cu.cuEventDestroy(begin);
    if (end) mg_cu.cuEventDestroy(end);
    qsort(times, RUNS, sizeof *times, by_size);
    *ms = times[RUNS / 2];
    return status;
}

bool mg_cuda_keeps_nan(mg_device *d, mg_cuda_work *start, void *context, const mg_value *result,
                       const void *at) {
    const int64_t *dim = result->shape.dim;
    const bool image = result->shape.rank == 4; /* whose middle no window lies beside altogether */
    const int64_t element = image ? (dim[1] / 2 * dim[2] + dim[2] / 2) * dim[3] : 0;
    const size_t size = mg_dtype_size(result->dtype);
    uint64_t bits = 0;
    double value = 0;
    if (mg_cuda_enter(d) != MG_OK) return false;
    pthread_mutex_lock(&mg_cuda_of(d)->turn);
    mg_status status = start(context);
    pthread_mutex_unlock(&mg_cuda_of(d)->turn);
    if (status == MG_OK)
        status = mg_cuda_copy_out(d, &bits, (const char *)at + (size_t)element * size, size);
    mg_to_double(&value, &bits, result->dtype, 1);
    return status == MG_OK && isnan(value);
}

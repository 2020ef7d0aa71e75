/* The autotuner: trial memory, checks, timing, and the disk cache of choices.
 *
 * Timing on a GPU is noisy in two ways that this file guards against. The clock of an idle GPU is
 * low and rises under load, so all candidates run in turns for WARM_UP_SECONDS before anything
 * counts. Other work on the GPU can only make a sample longer, so candidates take turns in rounds
 * (a disturbance hits all of them alike) and each one's minimum is compared, not its mean. */
#include "device/cuda/autotune.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/precision.h"
#include "core/threads.h"
#include "device/cuda/context/context.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 5, RUNS_OF_SHORT = 8 };

static const double WARM_UP_SECONDS = 0.02;
/* A candidate that takes less than this many milliseconds is run RUNS_OF_SHORT times per sample:
 * events resolve about half a microsecond. */
static const float SHORT_MS = 0.1F;

/* The cache entry for a problem for which no candidate passed the checks. */
static const char no_candidate[] = "none";

typedef struct trial { /* the candidates' results so far */
    CUevent begin, end;
    bool out[MG_AUTOTUNE_CANDIDATES];
    float ms[MG_AUTOTUNE_CANDIDATES]; /* the minimum of the samples */
    int runs[MG_AUTOTUNE_CANDIDATES]; /* per sample */
    mg_status failure;                /* of the last candidate that failed; else MG_OK */
} trial;

/* ---- trial memory ---- */

/* Frees the buffers of alloc_buffers, also after it has failed half way. */
static void free_buffers(mg_autotune *t) {
    for (int i = 0; i < MG_AUTOTUNE_BUFFERS; i++) {
        if (t->buffers[i]) mg_device_free(t->device, t->buffers[i], t->buffer_bytes[i]);
        t->buffers[i] = NULL;
    }
    if (t->workspace) mg_device_free(t->device, t->workspace, t->workspace_bytes);
    t->workspace = NULL;
}

/* After an error, free_buffers must still be called. */
static mg_status alloc_buffers(mg_autotune *t) {
    for (int i = 0; i < MG_AUTOTUNE_BUFFERS; i++)
        if (t->buffer_bytes[i])
            MG_TRY(mg_device_alloc(t->device, t->buffer_bytes[i], &t->buffers[i]));
    if (!t->workspace_bytes) return MG_OK;
    return mg_device_alloc(t->device, t->workspace_bytes, &t->workspace);
}

/* Sets all operands and results to one byte. The workspace is left as it is: no candidate may
 * rely on its contents. */
static mg_status fill_buffers(mg_autotune *t, uint8_t byte) {
    for (int i = 0; i < MG_AUTOTUNE_BUFFERS; i++)
        if (t->buffers[i]) MG_TRY(mg_cuda_fill(t->device, t->buffers[i], byte, t->buffer_bytes[i]));
    return MG_OK;
}

/* ---- checks ---- */

/* The element that is checked. Of an image {N, H, W, C} it is one in the middle, because windows at
 * the border may lie in the padding altogether; of other results it is the first. */
static int64_t checked_element(const mg_value *result) {
    const int64_t *dim = result->shape.dim;
    return result->shape.rank == 4 ? (dim[1] / 2 * dim[2] + dim[2] / 2) * dim[3] : 0;
}

/* Runs candidate i on buffers filled with `byte`; *is_nan: whether the result is NaN. */
static mg_status run_over(mg_autotune *t, int i, uint8_t byte, bool *is_nan) {
    const size_t size = mg_dtype_size(t->result->dtype);
    const char *result = t->buffers[t->result_buffer];
    uint64_t bits = 0;
    double value = 0;
    MG_TRY(fill_buffers(t, byte));
    pthread_mutex_lock(&mg_cuda_of(t->device)->turn);
    const mg_status status = t->run(t, i);
    pthread_mutex_unlock(&mg_cuda_of(t->device)->turn);
    MG_TRY(status);
    MG_TRY(mg_cuda_copy_out(t->device, &bits, result + (size_t)checked_element(t->result) * size,
                            size));
    mg_to_double(&value, &bits, t->result->dtype, 1);
    *is_nan = isnan(value) != 0;
    return MG_OK;
}

/* A candidate that failed is out, and the trial continues with the others. After an interrupt or on
 * a lost device the trial ends with that failure. */
static mg_status drop_candidate(const mg_autotune *t, int i, trial *r, mg_status failure) {
    r->out[i] = true;
    r->failure = failure;
    const bool ends = failure == MG_INTERRUPTED || mg_device_is_lost(t->device);
    return ends ? failure : MG_OK;
}

/* Sets trial.out[i]. Bytes of 0xff are NaN in every floating dtype. */
static mg_status check_candidate(mg_autotune *t, int i, trial *r) {
    bool of_nan = true, of_zeros = false;
    mg_status status = MG_OK;
    if (t->must_keep_nan) status = run_over(t, i, 0xff, &of_nan);
    if (status == MG_OK) status = run_over(t, i, 0, &of_zeros);
    if (status != MG_OK) return drop_candidate(t, i, r, status);
    r->out[i] = !of_nan || of_zeros;
    return MG_OK;
}

/* ---- timing; the caller holds the device's turn ---- */

/* Milliseconds of one run, from `n` runs in a row. */
static mg_status sample(mg_autotune *t, int i, const trial *r, int n, float *ms) {
    const mg_cuda *s = mg_cuda_of(t->device);
    CUresult e = mg_cu.cuEventRecord(r->begin, s->stream);
    for (int k = 0; k < n; k++) MG_TRY(t->run(t, i));
    if (e == CUDA_SUCCESS) e = mg_cu.cuEventRecord(r->end, s->stream);
    MG_TRY(mg_cuda_check(t->device, e, "time a kernel"));
    MG_TRY(mg_cuda_wait(t->device, r->end, &mg_cuda_on_interrupt));
    e = mg_cu.cuEventElapsedTime(ms, r->begin, r->end);
    *ms /= (float)n;
    return mg_cuda_check(t->device, e, "time a kernel");
}

/* One sample of every candidate still in; those that fail are out. */
static mg_status sample_all(mg_autotune *t, trial *r, bool counts) {
    for (int i = 0; i < t->n; i++) {
        float ms = 0;
        if (r->out[i]) continue;
        const mg_status status = sample(t, i, r, counts ? r->runs[i] : 1, &ms);
        if (status != MG_OK) {
            MG_TRY(drop_candidate(t, i, r, status));
        } else if (!counts) {
            r->runs[i] = ms < SHORT_MS ? RUNS_OF_SHORT : 1;
        } else if (ms < r->ms[i]) {
            r->ms[i] = ms;
        }
    }
    return MG_OK;
}

/* How many candidates are still in. */
static int count_in(const mg_autotune *t, const trial *r) {
    int n = 0;
    for (int i = 0; i < t->n; i++) n += !r->out[i];
    return n;
}

/* Warms up, then takes ROUNDS samples of every candidate. */
static mg_status time_candidates(mg_autotune *t, trial *r) {
    const double began = mg_seconds();
    CUresult e = mg_cu.cuEventCreate(&r->begin, CU_EVENT_DEFAULT);
    if (e == CUDA_SUCCESS) e = mg_cu.cuEventCreate(&r->end, CU_EVENT_DEFAULT);
    mg_status status = mg_cuda_check(t->device, e, "time a kernel");
    if (status == MG_OK) {
        do status = sample_all(t, r, false);
        while (status == MG_OK && count_in(t, r) > 1 && mg_seconds() - began < WARM_UP_SECONDS);
    }
    for (int round = 0; round < ROUNDS && status == MG_OK; round++) status = sample_all(t, r, true);
    if (r->begin) mg_cu.cuEventDestroy(r->begin);
    if (r->end) mg_cu.cuEventDestroy(r->end);
    return status;
}

/* ---- choosing ---- */

/* One line of the dispatch log: the time of a candidate, or that it is out. */
static void log_candidate(const mg_autotune *t, int i, const trial *r) {
    const char *device = t->device->name;
    char number[24];
    snprintf(number, sizeof number, "candidate %d", i + 1);
    const char *name = t->names[i] ? t->names[i] : number;
    if (r->out[i])
        mg_log("dispatch", "%s: %s: %s is out", device, t->what, name);
    else if (isfinite(r->ms[i]))
        mg_log("dispatch", "%s: %s: %s takes %.4f ms", device, t->what, name, (double)r->ms[i]);
}

/* The fastest candidate, the first one of equals; -1 if all are out. */
static int fastest(const mg_autotune *t, const trial *r) {
    int best = -1;
    for (int i = 0; i < t->n; i++)
        if (!r->out[i] && (best < 0 || r->ms[i] < r->ms[best])) best = i;
    return best;
}

/* Under mgpu.deterministic(true): the first candidate that passes the checks. */
static mg_status choose_by_rule(mg_autotune *t, trial *r, int *best) {
    for (int i = 0; i < t->n && *best < 0; i++) {
        MG_TRY(check_candidate(t, i, r));
        if (!r->out[i]) *best = i;
    }
    return MG_OK;
}

/* Checks all candidates, and times those that pass if there are several. */
static mg_status choose_by_time(mg_autotune *t, trial *r, int *best) {
    for (int i = 0; i < t->n; i++) MG_TRY(check_candidate(t, i, r));
    if (count_in(t, r) > 1) {
        pthread_mutex_lock(&mg_cuda_of(t->device)->turn);
        const mg_status status = time_candidates(t, r);
        pthread_mutex_unlock(&mg_cuda_of(t->device)->turn);
        MG_TRY(status);
    }
    if (mg_log_on("dispatch"))
        for (int i = 0; i < t->n; i++) log_candidate(t, i, r);
    *best = fastest(t, r);
    return MG_OK;
}

/* The outcome of a choice, which decides what is written to the cache. */
typedef enum outcome { UNTRIED, CHOSEN, NONE_PASSES } outcome;

/* The error for a problem for which every candidate loses or makes NaN. */
static mg_status none_passes(const mg_autotune *t) {
    return mg_fail(MG_UNSUPPORTED, "%s: no candidate treats NaN correctly", t->what);
}

/* Allocates the trial memory and chooses by rule or by time. */
static mg_status choose_by_trial(mg_autotune *t, int *best, outcome *known) {
    trial r = {.failure = MG_OK};
    for (int i = 0; i < t->n; i++) r.ms[i] = INFINITY;
    MG_TRY(mg_deterministic() ? choose_by_rule(t, &r, best) : choose_by_time(t, &r, best));
    if (*best < 0 && r.failure != MG_OK) return r.failure;
    mg_error_clear();
    MG_TRY(mg_cuda_enter(t->device)); /* a failure may have made the device unusable */
    *known = *best < 0 ? NONE_PASSES : CHOSEN;
    return MG_OK;
}

/* Chooses the first candidate if there is no memory for a trial, or nothing to compare or to
 * check. */
static mg_status choose(mg_autotune *t, int *best, outcome *known) {
    *best = -1;
    *known = UNTRIED;
    if (!t->must_keep_nan && (t->n == 1 || mg_deterministic())) {
        *best = 0;
        *known = CHOSEN;
        return MG_OK;
    }
    mg_status status = mg_cuda_enter(t->device);
    if (status == MG_OK) status = alloc_buffers(t);
    const bool has_memory = status == MG_OK;
    if (has_memory) status = choose_by_trial(t, best, known);
    free_buffers(t);
    if (has_memory || status != MG_OOM) return status;
    mg_error_clear();
    if (t->must_keep_nan)
        return mg_fail(MG_UNSUPPORTED, "%s: no memory to check whether relu keeps NaN", t->what);
    *best = 0;
    return MG_OK;
}

/* ---- the cache ---- */

/* Whether the cache has the choice; *none: it says that no candidate passes the checks. */
static bool load_choice(mg_autotune *t, bool *none) {
    size_t bytes = 0;
    void *data = mg_cuda_cache_read(t->kind, t->key, &bytes);
    *none = data && bytes == sizeof no_candidate && memcmp(data, no_candidate, bytes) == 0;
    const bool loaded = data && (*none || t->load(t, data, bytes));
    if (data && !loaded) mg_error_clear();
    mg_free(data);
    return loaded;
}

/* A choice that cannot be saved is made again by the next process. */
static void save_choice(mg_autotune *t, int best) {
    size_t bytes = 0;
    void *data = t->save(t, best, &bytes);
    if (data) mg_cuda_cache_write(t->kind, t->key, data, bytes);
    mg_free(data);
}

mg_status mg_cuda_autotune(mg_autotune *t, int *best) {
    const bool cached = t->key && !mg_deterministic();
    bool none = false;
    outcome known;
    *best = -1;
    if (cached && load_choice(t, &none)) return none ? none_passes(t) : MG_OK;
    MG_TRY(t->list(t));
    const mg_status status = choose(t, best, &known);
    if (cached && known == CHOSEN) save_choice(t, *best);
    if (cached && known == NONE_PASSES)
        mg_cuda_cache_write(t->kind, t->key, no_candidate, sizeof no_candidate);
    return known == NONE_PASSES ? none_passes(t) : status;
}

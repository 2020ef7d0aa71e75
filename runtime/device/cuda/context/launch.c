/* Looking up kernels by name, and launching them. */
#include "core/alloc.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/context/context.h"
#include <stdio.h>
#include <string.h>

/* ---- looking up ---- */

/* The table of kernels looked up so far: a hash table with linear probing. SLOTS is a power of two
 * and several times the number of kernels, so it never fills up. LONGEST: bytes of a name. */
enum { SLOTS = 1024, LONGEST = 48 };

struct mg_cuda_found {
    char name[LONGEST]; /* "": an empty slot */
    CUfunction function;
};

/* The slot that holds the name, or the empty one that it would get. The hash is FNV-1a. */
static struct mg_cuda_found *slot_of(const mg_cuda *s, const char *name) {
    uint32_t h = 2166136261u;
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 16777619u;
    while (*s->found[h % SLOTS].name && strcmp(s->found[h % SLOTS].name, name) != 0) h++;
    return &s->found[h % SLOTS];
}

/* Searches all modules. */
static CUresult find_in_modules(const mg_cuda *s, const char *name, CUfunction *function) {
    CUresult r = CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < MG_CUDA_FILES && s->kernels[i] && r == CUDA_ERROR_NOT_FOUND; i++)
        r = mg_cu.cuModuleGetFunction(function, s->kernels[i], name);
    return r == CUDA_SUCCESS ? mg_cu.cuFuncLoad(*function) : r;
}

/* The caller holds `finding`. */
static mg_status find_kernel(mg_device *d, const char *name, CUfunction *function) {
    mg_cuda *s = d->state;
    if (!s->found && !(s->found = mg_alloc_zero(SLOTS * sizeof *s->found))) return MG_OOM;
    struct mg_cuda_found *slot = slot_of(s, name);
    *function = slot->function;
    if (*slot->name) return MG_OK;
    const CUresult r = find_in_modules(s, name, function);
    if (r == CUDA_ERROR_NOT_FOUND || strlen(name) >= LONGEST)
        return mg_fail(MG_INTERNAL, "%s: the plug-in has no kernel called %s", d->name, name);
    MG_TRY(mg_cuda_check(d, r, name));
    memcpy(slot->name, name, strlen(name) + 1);
    slot->function = *function;
    return MG_OK;
}

/* Several threads may prepare kernels at once, so the table has a mutex. */
mg_status mg_cuda_find(mg_device *d, const char *name, CUfunction *function) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->finding);
    const mg_status status = find_kernel(d, name, function);
    pthread_mutex_unlock(&s->finding);
    return status;
}

/* The functions themselves belong to the modules. */
void mg_cuda_free_kernel_table(mg_cuda *s) {
    mg_free(s->found);
    s->found = NULL;
}

/* In the order of mg_dtype. */
mg_status mg_cuda_find_typed(mg_device *d, const char *name, mg_dtype t, CUfunction *function) {
    static const char *const types[MG_N_DTYPES] = {"bool", "u8",  "i32", "i64",
                                                   "bf16", "f16", "f32", "f64"};
    char full[64];
    snprintf(full, sizeof full, "%s_%s", name, types[t]);
    return mg_cuda_find(d, full, function);
}

/* ---- launching ---- */

/* A grid has at most 2^31 - 1 blocks. */
mg_status mg_cuda_launch(const mg_device *d, CUfunction f, int64_t blocks, int threads, int shared,
                         const void *params) {
    const mg_cuda *s = d->state;
    void *list[] = {(void *)(uintptr_t)params};
    if (blocks == 0) return MG_OK;
    if (blocks < 0 || blocks > INT32_MAX)
        return mg_fail(MG_UNSUPPORTED,
                       "%s: a kernel would need %lld blocks, more than a launch can have", d->name,
                       (long long)blocks);
    const CUresult r = mg_cu.cuLaunchKernel(f, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                                            (unsigned)shared, s->stream, list, NULL);
    return r == CUDA_SUCCESS ? MG_OK
                             : mg_cuda_check((mg_device *)(uintptr_t)d, r, "start a kernel");
}

/* A multiprocessor runs up to 2,048 threads at once. Four times that many balances blocks that end
 * at different times. */
int64_t mg_cuda_blocks(const mg_device *d, int64_t n, int threads) {
    const mg_cuda *s = d->state;
    const int64_t wanted = (n + threads - 1) / threads;
    const int64_t most = (int64_t)s->multiprocessors * (2048 / threads) * 4;
    return wanted < most ? wanted : most;
}

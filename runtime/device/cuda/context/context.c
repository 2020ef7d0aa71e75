/* Opening and closing a cuda device, and its errors.
 *
 * A device is a stream with its own memory pool in the primary context of its GPU. Closing follows
 * the reverse order of opening, and also cleans up after an opening that failed half way. */
#include "device/cuda/context/context.h"
#include "core/alloc.h"
#include "device/cuda/cublas/cublas.h"
#include "device/cuda/cudnn/cudnn.h"
#include "device/cuda/kernels/params.h"
#include "device/cuda/codegen/module.h"
#include "device/cuda/context/stage.h"
#include "device/cuda/context/stamps.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- errors ---- */

/* The first fatal error is remembered: later ones are only its consequences. */
mg_status mg_cuda_check(mg_device *d, CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return MG_OK;
    mg_cuda *s = d->state;
    const mg_status status = mg_cuda_result(result, what);
    if (mg_cuda_is_fatal(result) && !s->dead) {
        snprintf(s->death, sizeof s->death, "%s", mg_error_message());
        s->dead = true;
    }
    mg_error_prefix(d->name);
    return status;
}

/* Any thread may use the device; setting the context again is cheap. */
mg_status mg_cuda_enter(mg_device *d) {
    const mg_cuda *s = d->state;
    if (mg_device_is_lost(d)) return mg_device_check(d);
    if (s->dead)
        return mg_fail(MG_DEVICE, "%s is lost: start the program again: %s", d->name, s->death);
    return mg_cuda_check(d, mg_cu.cuCtxSetCurrent(s->context), "choose the GPU");
}

/* ---- opening ---- */

/* An attribute of the GPU; 0 if the driver does not know it. */
static int gpu_attribute(const mg_cuda *s, CUdevice_attribute which) {
    int value = 0;
    mg_cu.cuDeviceGetAttribute(&value, which, s->handle);
    return value;
}

/* A pool that never gives memory back to the driver automatically; by default it does so at every
 * synchronisation. */
static CUresult make_pool(mg_cuda *s) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->handle}};
    cuuint64_t keep = UINT64_MAX;
    const CUresult r = mg_cu.cuMemPoolCreate(&s->pool, &props);
    if (r != CUDA_SUCCESS) return r;
    return mg_cu.cuMemPoolSetAttribute(s->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
}

/* How many bytes of freed memory the device keeps for itself (memory.c): MGPU_CUDA_KEPT, or 256
 * MiB. */
static size_t most_kept_bytes(void) {
    enum { KEPT = 256 << 20 };
    const char *text = getenv("MGPU_CUDA_KEPT");
    return text && *text ? (size_t)strtoull(text, NULL, 10) : KEPT;
}

/* The stream, its events, its pool, and memory that it needs from the beginning. */
static CUresult make_streams(mg_cuda *s) {
    CUresult r = mg_cu.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING);
    if (r == CUDA_SUCCESS) r = mg_cuda_channel_open(&s->in, s->stream, &s->turn);
    if (r == CUDA_SUCCESS) r = mg_cuda_channel_open(&s->out, s->stream, &s->turn);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventCreate(&s->reached, CU_EVENT_DISABLE_TIMING);
    for (int i = 0; i < MG_READBACKS && r == CUDA_SUCCESS; i++)
        r = mg_cu.cuEventCreate(&s->answered[i], CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS) r = mg_cu.cuMemAllocHost((void **)&s->answer, MG_READBACKS);
    if (r == CUDA_SUCCESS) r = make_pool(s);
    if (r == CUDA_SUCCESS)
        r = mg_cu.cuMemAllocFromPoolAsync(&s->rng, sizeof(mg_rng_cell) + 1, s->pool, s->stream);
    return r;
}

/* Loads the compiled kernels that the plug-in carries, one module per kernels/<file>.cu. */
static mg_status load_kernels(mg_device *d, mg_cuda *s) {
    for (int i = 0; mg_cuda_images[i]; i++) {
        if (i + 1 == MG_CUDA_FILES)
            return mg_fail(MG_INTERNAL, "more than %d files of kernels", MG_CUDA_FILES - 1);
        const CUresult r = mg_cu.cuModuleLoadData(&s->kernels[i], mg_cuda_images[i]);
        MG_TRY(mg_cuda_check(d, r, "load the kernels"));
    }
    return MG_OK;
}

/* Everything a device needs to run its first kernel. The libraries are opened when they are first
 * used. */
static mg_status open_gpu(mg_device *d, mg_cuda *s) {
    MG_TRY(mg_cuda_check(d, mg_cu.cuDeviceGet(&s->handle, s->gpu), "find the GPU"));
    s->major = gpu_attribute(s, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    s->minor = gpu_attribute(s, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    s->multiprocessors = gpu_attribute(s, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    mg_cu.cuDeviceGetName(s->gpu_name, sizeof s->gpu_name, s->handle);
    int least;
    if (s->major < 8)
        return mg_fail(MG_UNSUPPORTED,
                       "%s: the %s has compute capability %d.%d, 8.0 or newer is needed", d->name,
                       s->gpu_name, s->major, s->minor);
    MG_TRY(
        mg_cuda_check(d, mg_cu.cuDevicePrimaryCtxRetain(&s->context, s->handle), "make a context"));
    MG_TRY(mg_cuda_enter(d));
    if (mg_cu.cuCtxGetStreamPriorityRange(&least, &s->urgent) != CUDA_SUCCESS) s->urgent = 0;
    s->kept_most = most_kept_bytes();
    MG_TRY(mg_cuda_check(d, make_streams(s), "make a stream"));
    MG_TRY(load_kernels(d, s));
    return mg_cuda_find(d, "rng_advance", &s->rng_advance);
}

/* Waits until the GPU has done all its work, unless an earlier wait was interrupted. Returns
 * whether the GPU is idle. */
static bool is_idle(mg_cuda *s) {
    if (!s->reached || mg_cu.cuEventRecord(s->reached, s->stream) != CUDA_SUCCESS) return true;
    if (s->interrupted && mg_cu.cuEventQuery(s->reached) == CUDA_ERROR_NOT_READY) return false;
    const mg_status status = mg_cuda_wait(s->device, s->reached, &mg_cuda_on_interrupt);
    return status != MG_INTERRUPTED && !mg_device_is_lost(s->device);
}

/* Frees everything that was made so far. On a lost GPU setting the context fails, and its resources
 * are gone anyway. On a GPU that is still busy every call could block, so nothing is freed. */
static void close_gpu(mg_cuda *s) {
    if (mg_device_is_lost(s->device)) return;
    if (s->context && mg_cu.cuCtxSetCurrent(s->context) == CUDA_SUCCESS) {
        if (!is_idle(s)) return;
        mg_blas_close(s); /* the libraries before the stream that they use */
        mg_dnn_close(s);
        for (int i = 0; i < MG_CUDA_FILES && s->kernels[i]; i++)
            mg_cu.cuModuleUnload(s->kernels[i]);
        if (s->rng) mg_cu.cuMemFreeAsync(s->rng, s->stream);
        mg_cuda_free_kept(s->device);
        mg_cuda_stage_close(s);
        mg_cuda_channel_close(&s->in);
        mg_cuda_channel_close(&s->out);
        mg_cuda_stamps_close(s);
        if (s->reached) mg_cu.cuEventDestroy(s->reached);
        if (s->answer) mg_cu.cuMemFreeHost(s->answer);
        for (int i = 0; i < MG_READBACKS; i++)
            if (s->answered[i]) mg_cu.cuEventDestroy(s->answered[i]);
        if (s->stream) mg_cu.cuStreamDestroy(s->stream);
        if (s->pool) mg_cu.cuMemPoolDestroy(s->pool);
    }
    mg_cuda_modules_drop(s);
    if (s->context) mg_cu.cuDevicePrimaryCtxRelease(s->handle);
    pthread_mutex_destroy(&s->turn);
    pthread_mutex_destroy(&s->in.busy);
    pthread_mutex_destroy(&s->out.busy);
    mg_cuda_free_kernel_table(s);
    pthread_mutex_destroy(&s->compiling);
    pthread_mutex_destroy(&s->finding);
    mg_free(s);
}

/* After an error there is no device: everything made so far is freed. */
mg_status mg_cuda_open(mg_device *d) {
    MG_TRY(mg_cuda_driver_open());
    mg_cuda *s = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    pthread_mutex_init(&s->turn, NULL);
    pthread_mutex_init(&s->in.busy, NULL);
    pthread_mutex_init(&s->out.busy, NULL);
    pthread_mutex_init(&s->compiling, NULL);
    pthread_mutex_init(&s->finding, NULL);
    s->device = d;
    s->gpu = d->ordinal;
    s->logical = d->logical;
    d->state = s;
    const mg_status status = open_gpu(d, s);
    if (status == MG_OK) return MG_OK;
    close_gpu(s);
    d->state = NULL;
    return status;
}

/* Also for a device that could not be opened. */
void mg_cuda_close(mg_device *d) {
    if (d->state) close_gpu(d->state);
    d->state = NULL;
}

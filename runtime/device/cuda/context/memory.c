/* Memory of a cuda device, and copies to and from the host.
 *
 * Memory comes from a pool of the device's own and is taken and given in the order of its stream:
 * what is given back may be taken again while earlier work still reads it, because later work comes
 * later. Some is not given back to the pool but kept for the next who wants as much: that costs no
 * call, and a loop's steps meet the same addresses again (record.c). The pool keeps what it has.
 * Both are emptied before memory is said to be short. Large copies
 * to the GPU go through two pinned halves in turn: the host fills one while the other travels. Of
 * small ones the driver keeps a copy itself, and the host need not wait. */
#include "device/cuda/context/memory.h"
#include "device/cuda/context/context.h"
#include <string.h>

enum { PIECE = 4 << 20, SMALL = 64 << 10 };

static void give(const mg_cuda *s, void *data) {
    mg_cu.cuMemFreeAsync((CUdeviceptr)(uintptr_t)data, s->stream);
}

static void give_kept(mg_cuda *s) {
    size_t bytes;
    void *data;
    while ((data = mg_block_cache_drop(&s->kept, &bytes))) give(s, data);
}

static CUresult take(mg_cuda *s, CUdeviceptr *address, size_t bytes) {
    CUresult r = mg_cu.cuMemAllocFromPoolAsync(address, bytes, s->pool, s->stream);
    if (r != CUDA_ERROR_OUT_OF_MEMORY) return r;
    give_kept(s);
    if (mg_cu.cuStreamSynchronize(s->stream) == CUDA_SUCCESS) {
        mg_cu.cuMemPoolTrimTo(s->pool, 0);
        r = mg_cu.cuMemAllocFromPoolAsync(address, bytes, s->pool, s->stream);
    }
    return r;
}

mg_status mg_cuda_alloc(mg_device *d, size_t bytes, void **data) {
    mg_cuda *s = d->state;
    CUdeviceptr address = 0;
    CUresult r = CUDA_SUCCESS;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    *data = mg_block_cache_take(&s->kept, bytes);
    if (!*data) r = take(s, &address, bytes);
    pthread_mutex_unlock(&s->turn);
    if (address) *data = (void *)(uintptr_t)address;
    return mg_cuda_check(d, r, "take memory"); /* also what earlier work did wrong */
}

void mg_cuda_free(mg_device *d, void *data, size_t bytes) {
    mg_cuda *s = d->state;
    size_t old_bytes;
    void *old;
    if (mg_cu.cuCtxSetCurrent(s->context) != CUDA_SUCCESS) return;
    pthread_mutex_lock(&s->turn);
    if (bytes > s->kept_most) {
        give(s, data);
    } else {
        while ((old = mg_block_cache_excess(&s->kept, bytes, s->kept_most, &old_bytes)))
            give(s, old);
        mg_block_cache_add(&s->kept, data, bytes);
    }
    pthread_mutex_unlock(&s->turn);
}

void mg_cuda_free_kept(mg_device *d) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->turn);
    give_kept(s);
    pthread_mutex_unlock(&s->turn);
}

/* ---- copies ---- */

/* The pinned memory, made at the first large copy; without it copies are only slower. */
static bool has_staging(mg_cuda *s) {
    if (s->staging) return true;
    if (mg_cu.cuMemAllocHost(&s->staging, 2 * (size_t)PIECE) != CUDA_SUCCESS) s->staging = NULL;
    return s->staging != NULL;
}

/* One piece by way of a half whose last piece has left. */
static CUresult send_piece(mg_cuda *s, int half, char *dst, const char *src, size_t bytes) {
    char *place = (char *)s->staging + (size_t)half * PIECE;
    CUresult r = mg_cu.cuEventSynchronize(s->sent[half]);
    if (r != CUDA_SUCCESS) return r;
    memcpy(place, src, bytes);
    r = mg_cu.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)dst, place, bytes, s->stream);
    return r == CUDA_SUCCESS ? mg_cu.cuEventRecord(s->sent[half], s->stream) : r;
}

static CUresult send(mg_cuda *s, void *dst, const void *src, size_t bytes) {
    CUresult r = CUDA_SUCCESS;
    if (bytes <= SMALL || !has_staging(s))
        return mg_cu.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)dst, src, bytes, s->stream);
    for (size_t at = 0; at < bytes && r == CUDA_SUCCESS; at += PIECE, s->half ^= 1)
        r = send_piece(s, s->half, (char *)dst + at, (const char *)src + at,
                       bytes - at < PIECE ? bytes - at : PIECE);
    return r;
}

mg_status mg_cuda_copy_in(mg_device *d, void *dst, const void *src, size_t bytes) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    if (bytes == 0) return MG_OK;
    pthread_mutex_lock(&s->turn);
    const CUresult r = send(s, dst, src, bytes);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "copy to the GPU");
}

mg_status mg_cuda_fill(mg_device *d, void *dst, uint8_t byte, size_t bytes) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)dst, byte, bytes, s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "fill memory");
}

mg_status mg_cuda_copy_out(mg_device *d, void *dst, const void *src, size_t bytes) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    CUresult r = CUDA_SUCCESS;
    pthread_mutex_lock(&s->turn);
    if (bytes) r = mg_cu.cuMemcpyDtoHAsync(dst, (CUdeviceptr)(uintptr_t)src, bytes, s->stream);
    if (r == CUDA_SUCCESS) r = mg_cu.cuStreamSynchronize(s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "copy from the GPU");
}

mg_status mg_cuda_copy(mg_device *d, void *dst, const void *src, size_t bytes) {
    const mg_cuda *s = d->state;
    if (bytes == 0) return MG_OK;
    const CUresult r = mg_cu.cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)dst,
                                               (CUdeviceptr)(uintptr_t)src, bytes, s->stream);
    return mg_cuda_check(d, r, "copy on the GPU");
}

mg_status mg_cuda_sync(mg_device *d) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuStreamSynchronize(s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "wait for the GPU");
}

/* ---- questions ---- */

mg_status mg_cuda_readback_begin(mg_device *d, const void *byte) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    CUresult r = mg_cu.cuMemcpyDtoHAsync(s->answer, (CUdeviceptr)(uintptr_t)byte, 1, s->stream);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventRecord(s->answered, s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "ask the GPU");
}

mg_status mg_cuda_readback_wait(mg_device *d, uint8_t *answer) {
    const mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    MG_TRY(mg_cuda_check(d, mg_cu.cuEventSynchronize(s->answered), "wait for the GPU"));
    *answer = *s->answer;
    return MG_OK;
}

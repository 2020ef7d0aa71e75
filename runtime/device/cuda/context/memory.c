/* Memory of a cuda device, and copies to and from the host.
 *
 * Each device has a memory pool, and allocates and frees in stream order: freed memory may be
 * allocated again while earlier work still reads it, because the new owner's work comes later on
 * the same stream. Freed blocks are first kept in a cache (`kept`) for the next request of the same
 * size. That saves the driver call, and it lets the steps of a loop reuse the same addresses, which
 * CUDA graphs need. Before an allocation fails for want of memory, the cache and the pool are
 * emptied.
 *
 * Large copies to the GPU go through two pinned halves in turns: the host fills one while the other
 * travels. The driver itself buffers small copies, and the host does not wait for them. */
#include "device/cuda/context/context.h"
#include <string.h>

/* Bytes: of a pinned half, and of the largest copy that the driver buffers itself. */
enum { PIECE = 4 << 20, SMALL = 64 << 10 };

static void free_to_pool(const mg_cuda *s, void *data) {
    mg_cu.cuMemFreeAsync((CUdeviceptr)(uintptr_t)data, s->stream);
}

/* Empties the cache into the pool. */
static void free_cached(mg_cuda *s) {
    size_t bytes;
    void *data;
    while ((data = mg_block_cache_drop(&s->kept, &bytes))) free_to_pool(s, data);
}

/* Allocates from the pool; when it is full, once more after all unused memory was given back. */
static CUresult alloc_from_pool(mg_cuda *s, CUdeviceptr *address, size_t bytes) {
    CUresult r = mg_cu.cuMemAllocFromPoolAsync(address, bytes, s->pool, s->stream);
    if (r != CUDA_ERROR_OUT_OF_MEMORY) return r;
    free_cached(s);
    if (mg_cu.cuStreamSynchronize(s->stream) == CUDA_SUCCESS) {
        mg_cu.cuMemPoolTrimTo(s->pool, 0);
        r = mg_cu.cuMemAllocFromPoolAsync(address, bytes, s->pool, s->stream);
    }
    return r;
}

/* From the cache if a block of this size was freed, else from the pool. */
mg_status mg_cuda_alloc(mg_device *d, size_t bytes, void **data) {
    mg_cuda *s = d->state;
    CUdeviceptr address = 0;
    CUresult r = CUDA_SUCCESS;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    *data = mg_block_cache_take(&s->kept, bytes);
    if (!*data) r = alloc_from_pool(s, &address, bytes);
    pthread_mutex_unlock(&s->turn);
    if (address) *data = (void *)(uintptr_t)address;
    return mg_cuda_check(d, r, "allocate memory"); /* reports errors of earlier work, too */
}

/* To the cache, from which the oldest blocks go to the pool until `kept_most` bytes are left. On
 * a lost GPU there is nothing to free. */
void mg_cuda_free(mg_device *d, void *data, size_t bytes) {
    mg_cuda *s = d->state;
    size_t old_bytes;
    void *old;
    if (mg_cu.cuCtxSetCurrent(s->context) != CUDA_SUCCESS) return;
    pthread_mutex_lock(&s->turn);
    if (bytes > s->kept_most) {
        free_to_pool(s, data);
    } else {
        while ((old = mg_block_cache_excess(&s->kept, bytes, s->kept_most, &old_bytes)))
            free_to_pool(s, old);
        mg_block_cache_add(&s->kept, data, bytes);
    }
    pthread_mutex_unlock(&s->turn);
}

void mg_cuda_free_kept(mg_device *d) {
    mg_cuda *s = d->state;
    pthread_mutex_lock(&s->turn);
    free_cached(s);
    pthread_mutex_unlock(&s->turn);
}

/* ---- copies ---- */

/* Whether there is pinned memory. It is allocated at the first large copy; without it copies are
 * only slower. */
static bool has_staging(mg_cuda *s) {
    if (s->staging) return true;
    if (mg_cu.cuMemAllocHost(&s->staging, 2 * (size_t)PIECE) != CUDA_SUCCESS) s->staging = NULL;
    return s->staging != NULL;
}

/* Copies one piece through a pinned half, once the half's previous piece has left. */
static CUresult send_piece(mg_cuda *s, int half, char *dst, const char *src, size_t bytes) {
    char *place = (char *)s->staging + (size_t)half * PIECE;
    CUresult r = mg_cu.cuEventSynchronize(s->sent[half]);
    if (r != CUDA_SUCCESS) return r;
    memcpy(place, src, bytes);
    r = mg_cu.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)dst, place, bytes, s->stream);
    return r == CUDA_SUCCESS ? mg_cu.cuEventRecord(s->sent[half], s->stream) : r;
}

/* Small copies go straight to the driver, which buffers them; large ones piece by piece. */
static CUresult send_bytes(mg_cuda *s, void *dst, const void *src, size_t bytes) {
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
    const CUresult r = send_bytes(s, dst, src, bytes);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "copy to the GPU");
}

/* Used for trial memory and peer access tests; ops are filled by kernels of their own. */
mg_status mg_cuda_fill(mg_device *d, void *dst, uint8_t byte, size_t bytes) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)dst, byte, bytes, s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "fill memory");
}

/* Waits for the stream, and so for whatever computes the source. */
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

/* ---- readback of a byte, such as a guard's verdict, without stopping the stream ---- */

mg_status mg_cuda_readback_begin(mg_device *d, const void *byte) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    CUresult r = mg_cu.cuMemcpyDtoHAsync(s->answer, (CUdeviceptr)(uintptr_t)byte, 1, s->stream);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventRecord(s->answered, s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "read a byte back");
}

mg_status mg_cuda_readback_wait(mg_device *d, uint8_t *answer) {
    const mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    MG_TRY(mg_cuda_check(d, mg_cu.cuEventSynchronize(s->answered), "wait for the GPU"));
    *answer = *s->answer;
    return MG_OK;
}

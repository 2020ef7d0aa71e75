/* Memory of a cuda device, and copies to and from the host.
 *
 * Each device has a memory pool, and allocates and frees in stream order: freed memory may be
 * allocated again while earlier work still reads it, because the new owner's work comes later on
 * the same stream. Freed blocks are first kept in a cache (`kept`) for the next request of the same
 * size. That saves the driver call, and it lets the steps of a loop reuse the same addresses, which
 * CUDA graphs need. Before an allocation fails because memory is full, the cache and the pool are
 * emptied.
 *
 * Copies from and to the host go through a channel (channel.c), except small copies to the GPU: the
 * driver buffers these, so the host does not wait for them. */
#include "device/cuda/context/context.h"
#include "device/cuda/context/stage.h"

enum { SMALL = 64 << 10 }; /* bytes of the largest copy that the driver buffers itself */

static void free_to_pool(const mg_cuda *s, void *data) {
    mg_cu.cuMemFreeAsync((CUdeviceptr)(uintptr_t)data, s->stream);
}

/* Empties the cache into the pool. */
static void free_cached(mg_cuda *s) {
    size_t bytes;
    void *data;
    while ((data = mg_block_cache_drop(&s->kept, &bytes))) free_to_pool(s, data);
    while ((data = mg_cuda_stage_drop(s))) free_to_pool(s, data);
}

/* Waits until the stream has done all work enqueued so far. */
static mg_status finish_stream(mg_device *d, const mg_cuda_stop *stop) {
    mg_cuda *s = d->state;
    CUevent end;
    MG_TRY(mg_cuda_check(d, mg_cu.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING), "make an event"));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuEventRecord(end, s->stream);
    pthread_mutex_unlock(&s->turn);
    mg_status status = mg_cuda_check(d, r, "record an event");
    if (status == MG_OK) status = mg_cuda_wait(d, end, stop);
    mg_cu.cuEventDestroy(end);
    return status;
}

/* When the pool is full: gives all unused memory back, after waiting for the stream. */
static mg_status make_room(mg_device *d, const mg_cuda_stop *stop) {
    mg_cuda *s = d->state;
    mg_cuda_free_kept(d);
    MG_TRY(finish_stream(d, stop));
    pthread_mutex_lock(&s->turn);
    mg_cu.cuMemPoolTrimTo(s->pool, 0);
    pthread_mutex_unlock(&s->turn);
    return MG_OK;
}

/* Takes memory from the cache if it has a block of this size, else from the pool. */
static CUresult take_memory(mg_cuda *s, size_t bytes, void **data) {
    CUdeviceptr address = 0;
    CUresult r = CUDA_SUCCESS;
    pthread_mutex_lock(&s->turn);
    *data = mg_block_cache_take(&s->kept, bytes);
    if (!*data) r = mg_cu.cuMemAllocFromPoolAsync(&address, bytes, s->pool, s->stream);
    pthread_mutex_unlock(&s->turn);
    if (address) *data = (void *)(uintptr_t)address;
    return r;
}

mg_status mg_cuda_alloc_or_stop(mg_device *d, size_t bytes, const mg_cuda_stop *stop, void **data) {
    MG_TRY(mg_cuda_enter(d));
    CUresult r = take_memory(d->state, bytes, data);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) {
        MG_TRY(make_room(d, stop));
        r = take_memory(d->state, bytes, data);
    }
    return mg_cuda_check(d, r, "allocate memory"); /* reports errors of earlier work, too */
}

mg_status mg_cuda_alloc(mg_device *d, size_t bytes, void **data) {
    return mg_cuda_alloc_or_stop(d, bytes, &mg_cuda_on_interrupt, data);
}

/* Puts the block into the cache, whose oldest blocks go to the pool until `kept_most` bytes are
 * left. On a lost GPU there is nothing to free. */
void mg_cuda_free(mg_device *d, void *data, size_t bytes) {
    mg_cuda *s = d->state;
    size_t old_bytes;
    void *old;
    if (mg_cu.cuCtxSetCurrent(s->context) != CUDA_SUCCESS) return;
    pthread_mutex_lock(&s->turn);
    if (mg_cuda_stage_free(s, data)) {
        data = NULL; /* the stage keeps it */
    } else if (bytes > s->kept_most) {
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

mg_status mg_cuda_send(mg_device *d, void *dst, const void *src, size_t bytes,
                       const mg_cuda_stop *stop) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    if (bytes > SMALL) {
        pthread_mutex_lock(&s->in.busy);
        const mg_status status = mg_cuda_channel_send(d, &s->in, dst, src, bytes, stop);
        pthread_mutex_unlock(&s->in.busy);
        return status;
    }
    if (bytes == 0) return MG_OK;
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)dst, src, bytes, s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "copy to the GPU");
}

mg_status mg_cuda_copy_in(mg_device *d, void *dst, const void *src, size_t bytes) {
    return mg_cuda_send(d, dst, src, bytes, &mg_cuda_on_interrupt);
}

/* Used for trial memory and peer access tests; ops have their own fill kernels. */
mg_status mg_cuda_fill(mg_device *d, void *dst, uint8_t byte, size_t bytes) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)dst, byte, bytes, s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "fill memory");
}

/* Waits for the stream, and so for the work that computes the source. */
mg_status mg_cuda_fetch(mg_device *d, void *dst, const void *src, size_t bytes,
                        const mg_cuda_stop *stop) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    if (bytes == 0) return finish_stream(d, stop);
    pthread_mutex_lock(&s->out.busy);
    const mg_status status = mg_cuda_channel_fetch(d, &s->out, dst, src, bytes, stop);
    pthread_mutex_unlock(&s->out.busy);
    return status;
}

mg_status mg_cuda_copy_out(mg_device *d, void *dst, const void *src, size_t bytes) {
    return mg_cuda_fetch(d, dst, src, bytes, &mg_cuda_on_interrupt);
}

mg_status mg_cuda_copy(mg_device *d, void *dst, const void *src, size_t bytes) {
    const mg_cuda *s = d->state;
    if (bytes == 0) return MG_OK;
    const CUresult r = mg_cu.cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)dst,
                                               (CUdeviceptr)(uintptr_t)src, bytes, s->stream);
    return mg_cuda_check(d, r, "copy on the GPU");
}

mg_status mg_cuda_finish(mg_device *d, const mg_cuda_stop *stop) {
    MG_TRY(mg_cuda_enter(d));
    return finish_stream(d, stop);
}

mg_status mg_cuda_sync(mg_device *d) {
    return mg_cuda_finish(d, &mg_cuda_on_interrupt);
}

/* ---- readback of a byte, such as a guard's verdict, without stopping the stream ---- */

mg_status mg_cuda_readback_begin(mg_device *d, const void *byte) {
    mg_cuda *s = d->state;
    const unsigned i = s->asked % MG_READBACKS;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    CUresult r = mg_cu.cuMemcpyDtoHAsync(s->answer + i, (CUdeviceptr)(uintptr_t)byte, 1, s->stream);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventRecord(s->answered[i], s->stream);
    pthread_mutex_unlock(&s->turn);
    s->asked += r == CUDA_SUCCESS;
    return mg_cuda_check(d, r, "read a byte back");
}

/* After an interrupt, the same readback can be waited for again. */
mg_status mg_cuda_readback_wait(mg_device *d, uint8_t *answer) {
    mg_cuda *s = d->state;
    const unsigned i = s->told % MG_READBACKS;
    const mg_status entered = mg_cuda_enter(d);
    const mg_status status =
        entered == MG_OK ? mg_cuda_wait(d, s->answered[i], &mg_cuda_on_interrupt) : entered;
    if (status == MG_INTERRUPTED) return status;
    s->told++;
    *answer = s->answer[i];
    return status;
}

/* Channels: copies between the host and a GPU by way of pinned memory.
 *
 * A channel has two pinned halves, which the pieces of a copy use alternately: the host fills or
 * reads one half while the other is being transferred. An event per half marks the end of its
 * transfer; the half is not used again before that, even if the copy has failed. */
#include "device/cuda/context/context.h"
#include <string.h>

/* Bytes of a half: enough for small copies, or for copies of any size. */
enum { SMALL = 64 << 10, PIECE = 4 << 20 };

CUresult mg_cuda_channel_open(mg_cuda_channel *c, CUstream stream, pthread_mutex_t *turn) {
    c->stream = stream;
    c->turn = turn;
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < 2 && r == CUDA_SUCCESS; i++)
        r = mg_cu.cuEventCreate(&c->done[i], CU_EVENT_DISABLE_TIMING);
    return r;
}

void mg_cuda_channel_close(const mg_cuda_channel *c) {
    if (c->pinned) mg_cu.cuMemFreeHost(c->pinned);
    for (int i = 0; i < 2; i++)
        if (c->done[i]) mg_cu.cuEventDestroy(c->done[i]);
}

/* *there: whether the halves are large enough for a copy of `bytes` bytes. They are allocated on
 * first use; without pinned memory, copies are slower but work. */
static mg_status want_pinned(mg_device *d, mg_cuda_channel *c, size_t bytes,
                             const mg_cuda_stop *stop, bool *there) {
    const size_t wanted = bytes <= SMALL ? SMALL : PIECE;
    *there = c->half_bytes >= wanted;
    if (*there) return MG_OK;
    for (int i = 0; i < 2; i++) MG_TRY(mg_cuda_wait(d, c->done[i], stop));
    if (c->pinned) mg_cu.cuMemFreeHost(c->pinned);
    *there = mg_cu.cuMemAllocHost(&c->pinned, 2 * wanted) == CUDA_SUCCESS;
    if (!*there) c->pinned = NULL;
    c->half_bytes = *there ? wanted : 0;
    return MG_OK;
}

/* Enqueues a copy of a piece to or from half i, and its event. */
static CUresult enqueue(const mg_cuda_channel *c, int i, bool to_gpu, void *device, void *host,
                        size_t bytes) {
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)device;
    if (c->turn) pthread_mutex_lock(c->turn);
    CUresult r = to_gpu ? mg_cu.cuMemcpyHtoDAsync(address, host, bytes, c->stream)
                        : mg_cu.cuMemcpyDtoHAsync(host, address, bytes, c->stream);
    if (r == CUDA_SUCCESS) r = mg_cu.cuEventRecord(c->done[i], c->stream);
    if (c->turn) pthread_mutex_unlock(c->turn);
    return r;
}

static char *half_of(const mg_cuda_channel *c, int i) {
    return (char *)c->pinned + (size_t)i * c->half_bytes;
}

static size_t piece_bytes(const mg_cuda_channel *c, size_t left) {
    return left < c->half_bytes ? left : c->half_bytes;
}

mg_status mg_cuda_channel_send(mg_device *d, mg_cuda_channel *c, void *dst, const void *src,
                               size_t bytes, const mg_cuda_stop *stop) {
    bool pinned;
    MG_TRY(want_pinned(d, c, bytes, stop, &pinned));
    if (!pinned)
        return mg_cuda_check(d, enqueue(c, 0, true, dst, (void *)(uintptr_t)src, bytes),
                             "copy to the GPU");
    for (size_t at = 0; at < bytes; at += c->half_bytes, c->next ^= 1) {
        const size_t n = piece_bytes(c, bytes - at);
        char *half = half_of(c, c->next);
        MG_TRY(mg_cuda_wait(d, c->done[c->next], stop));
        memcpy(half, (const char *)src + at, n);
        MG_TRY(mg_cuda_check(d, enqueue(c, c->next, true, (char *)dst + at, half, n),
                             "copy to the GPU"));
    }
    return MG_OK;
}

/* Without pinned memory the driver waits for the copy itself, so this waits for the earlier work
 * first. */
static mg_status fetch_unpinned(mg_device *d, const mg_cuda_channel *c, void *dst, void *src,
                                size_t bytes, const mg_cuda_stop *stop) {
    pthread_mutex_lock(c->turn);
    const CUresult r = mg_cu.cuEventRecord(c->done[0], c->stream);
    pthread_mutex_unlock(c->turn);
    MG_TRY(mg_cuda_check(d, r, "copy from the GPU"));
    MG_TRY(mg_cuda_wait(d, c->done[0], stop));
    MG_TRY(mg_cuda_check(d, enqueue(c, 0, false, src, dst, bytes), "copy from the GPU"));
    return mg_cuda_wait(d, c->done[0], stop);
}

/* Piece k is enqueued before the host waits for piece k - 1. */
mg_status mg_cuda_channel_fetch(mg_device *d, mg_cuda_channel *c, void *dst, const void *src,
                                size_t bytes, const mg_cuda_stop *stop) {
    bool pinned;
    void *from = (void *)(uintptr_t)src;
    size_t taken = 0;
    MG_TRY(want_pinned(d, c, bytes, stop, &pinned));
    if (!pinned) return fetch_unpinned(d, c, dst, from, bytes, stop);
    for (int i = 0; i < 2; i++) MG_TRY(mg_cuda_wait(d, c->done[i], stop));
    for (size_t at = 0; taken < bytes; at += c->half_bytes, c->next ^= 1) {
        if (at < bytes)
            MG_TRY(mg_cuda_check(d,
                                 enqueue(c, c->next, false, (char *)from + at, half_of(c, c->next),
                                         piece_bytes(c, bytes - at)),
                                 "copy from the GPU"));
        if (at == 0) continue;
        const int before = c->next ^ 1;
        const size_t n = piece_bytes(c, bytes - taken);
        MG_TRY(mg_cuda_wait(d, c->done[before], stop));
        memcpy((char *)dst + taken, half_of(c, before), n);
        taken += n;
    }
    return MG_OK;
}

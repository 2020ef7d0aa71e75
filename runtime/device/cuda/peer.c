/* Copies between cuda devices: see peer.h.
 *
 * The reader's stream copies: behind what the owner's stream had been given, which may still be
 * making the source; and the owner's stream goes on behind the copy, so that the source is neither
 * written nor given back before it was read. The host holds one turn at a time, so two devices may
 * copy from each other. */
#include "device/cuda/peer.h"
#include "device/cuda/memory.h"
#include "device/cuda/state.h"

bool mg_cuda_opens_to(const mg_device *owner, const mg_device *reader) {
    mg_cuda *from = owner->state;
    const mg_cuda *to = reader->state;
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = to->handle},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const uint64_t bit = (uint64_t)1 << to->gpu;
    int can = 0;
    if (from->gpu == to->gpu || from->open_to & bit) return true;
    if (mg_cu.cuDeviceCanAccessPeer(&can, to->handle, from->handle) != CUDA_SUCCESS || !can ||
        mg_cu.cuMemPoolSetAccess(from->pool, &access, 1) != CUDA_SUCCESS)
        return false;
    from->open_to |= bit;
    return true;
}

static CUdeviceptr address(const void *data) {
    return (CUdeviceptr)(uintptr_t)data;
}

/* Notes how far d's stream has got. */
static mg_status note(mg_device *d) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuEventRecord(s->reached, s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "record an event");
}

/* What d's stream is given next comes after what `other` has noted. */
static mg_status follow(mg_device *d, const mg_cuda *other) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuStreamWaitEvent(s->stream, other->reached, 0);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "wait for an event");
}

static mg_status enqueue(mg_device *d, void *dst, const mg_cuda *from, const void *src,
                         size_t bytes) {
    mg_cuda *s = d->state;
    CUresult r;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    if (from->gpu == s->gpu)
        r = mg_cu.cuMemcpyDtoDAsync(address(dst), address(src), bytes, s->stream);
    else
        r = mg_cu.cuMemcpyPeerAsync(address(dst), s->context, address(src), from->context, bytes,
                                    s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "copy between GPUs");
}

mg_status mg_cuda_copy_peer(mg_device *to, void *dst, mg_device *from, const void *src,
                            size_t bytes) {
    if (bytes == 0) return MG_OK;
    if (to == from) return enqueue(to, dst, from->state, src, bytes);
    MG_TRY(mg_cuda_enter(to));
    if (!mg_cuda_opens_to(from, to)) return MG_UNSUPPORTED;
    MG_TRY(note(from));
    MG_TRY(follow(to, from->state));
    MG_TRY(enqueue(to, dst, from->state, src, bytes));
    MG_TRY(note(to));
    return follow(from, to->state);
}

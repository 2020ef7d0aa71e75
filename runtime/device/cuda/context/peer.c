/* Copies between cuda devices.
 *
 * The reader's stream does the copy. It first waits for everything on the owner's stream so far,
 * which may still be writing the source. The owner's stream then waits for the copy, so that the
 * source is neither overwritten nor freed before it was read. The host never holds the turns of
 * both devices, so two devices may copy from each other at the same time. */
#include "device/cuda/context/context.h"
#include "core/log.h"
#include <string.h>

static CUdeviceptr address(const void *data) {
    return (CUdeviceptr)(uintptr_t)data;
}

/* Marks the current end of d's stream with its event `reached`. */
static mg_status mark_stream(mg_device *d) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuEventRecord(s->reached, s->stream);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "record an event");
}

/* Makes d's stream wait for the point that `other` has marked. */
static mg_status wait_for_mark(mg_device *d, const mg_cuda *other) {
    mg_cuda *s = d->state;
    MG_TRY(mg_cuda_enter(d));
    pthread_mutex_lock(&s->turn);
    const CUresult r = mg_cu.cuStreamWaitEvent(s->stream, other->reached, 0);
    pthread_mutex_unlock(&s->turn);
    return mg_cuda_check(d, r, "wait for an event");
}

/* Enqueues a copy on d's stream from memory of the device `from`. Devices on one GPU share a
 * context. */
static mg_status enqueue_copy(mg_device *d, void *dst, const mg_cuda *from, const void *src,
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

/* ---- peer access ---- */

enum { PATTERN = 64 }; /* bytes of a trial copy */

/* *right: whether bytes copied from `reader` to memory of `owner` and back are unchanged. Some
 * drivers report that peer access is on, but then copy nothing. */
static mg_status try_both_ways(mg_device *owner, void *there, mg_device *reader, char *here,
                               bool *right) {
    unsigned char sent[PATTERN], got[PATTERN];
    for (int i = 0; i < PATTERN; i++) sent[i] = (unsigned char)(i * 37 + 11);
    MG_TRY(mg_cuda_fill(owner, there, 0, PATTERN));
    MG_TRY(mg_cuda_sync(owner));
    MG_TRY(mg_cuda_copy_in(reader, here, sent, PATTERN));
    MG_TRY(mg_cuda_sync(reader));
    MG_TRY(enqueue_copy(owner, there, reader->state, here, PATTERN));
    MG_TRY(mg_cuda_sync(owner));
    MG_TRY(mg_cuda_fill(reader, here, 0, PATTERN));
    MG_TRY(enqueue_copy(reader, here, owner->state, there, PATTERN));
    MG_TRY(mg_cuda_copy_out(reader, got, here, PATTERN));
    *right = memcmp(sent, got, PATTERN) == 0;
    return MG_OK;
}

/* Allocates the memory for a trial of both directions. */
static mg_status try_copies(mg_device *owner, mg_device *reader, bool *right) {
    void *there = NULL, *here = NULL;
    mg_status status = mg_cuda_alloc(owner, PATTERN, &there);
    if (status == MG_OK) status = mg_cuda_alloc(reader, PATTERN, &here);
    if (status == MG_OK) status = try_both_ways(owner, there, reader, here, right);
    if (there) mg_cuda_free(owner, there, PATTERN);
    if (here) mg_cuda_free(reader, here, PATTERN);
    return status;
}

/* Sets the access rights of GPU `reader` to the pool of `owner`. */
static bool set_access(const mg_cuda *owner, const mg_cuda *reader, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = reader->handle}, .flags = flags};
    return mg_cu.cuMemPoolSetAccess(owner->pool, &access, 1) == CUDA_SUCCESS;
}

/* Turns access on and tries it; turns it off again, and logs why, if the trial fails. After an
 * interrupt or on a lost device, which may still be executing the trial's copies, access stays
 * on. */
static mg_status open_pool(mg_device *owner, mg_device *reader, bool *open) {
    const mg_cuda *from = owner->state, *to = reader->state;
    bool right = false;
    int can = 0;
    *open = false;
    if (mg_cu.cuDeviceCanAccessPeer(&can, to->handle, from->handle) != CUDA_SUCCESS || !can ||
        !set_access(from, to, CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
        return MG_OK;
    const mg_status status = try_copies(owner, reader, &right);
    *open = status == MG_OK && right;
    if (*open) return MG_OK;
    if (status == MG_INTERRUPTED || mg_device_is_lost(owner) || mg_device_is_lost(reader))
        return status;
    if (mg_log_on("fallback"))
        mg_log("fallback", "%s and %s copy through host memory: %s", owner->name, reader->name,
               status != MG_OK ? mg_error_message() : "bytes do not arrive");
    mg_error_clear();
    set_access(from, to, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    return MG_OK;
}

/* The outcome is kept as a bit per GPU, so the trial is made once. */
mg_status mg_cuda_enable_peer(mg_device *owner, mg_device *reader, bool *open) {
    mg_cuda *from = owner->state;
    const mg_cuda *to = reader->state;
    const uint64_t bit = (uint64_t)1 << to->gpu;
    *open = from->gpu == to->gpu || from->open_to & bit;
    if (*open || from->shut_to & bit) return MG_OK;
    MG_TRY(open_pool(owner, reader, open));
    *(*open ? &from->open_to : &from->shut_to) |= bit;
    return MG_OK;
}

/* ---- copies ---- */

/* Host threads of other devices may be working, so the functions called here lock the turn of each
 * device separately. */
mg_status mg_cuda_copy_peer(mg_device *to, void *dst, mg_device *from, const void *src,
                            size_t bytes) {
    if (bytes == 0) return MG_OK;
    if (to == from) return enqueue_copy(to, dst, from->state, src, bytes);
    bool open;
    MG_TRY(mg_cuda_enter(to));
    MG_TRY(mg_cuda_enable_peer(from, to, &open));
    if (!open) return MG_UNSUPPORTED;
    MG_TRY(mark_stream(from));
    MG_TRY(wait_for_mark(to, from->state));
    MG_TRY(enqueue_copy(to, dst, from->state, src, bytes));
    MG_TRY(mark_stream(to));
    return wait_for_mark(from, to->state);
}

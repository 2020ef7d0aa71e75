/* Copies and fills: cuMemcpy*Async and cuMemsetD8Async.
 *
 * Addresses are checked when a copy is enqueued: device memory must lie within one live allocation
 * of the right GPU, host memory must not be device memory. A recorded copy is checked again each
 * time its graph runs, since memory may have been freed in between. */
#include "gpu.h"
#include <stdlib.h>
#include <string.h>

typedef struct copy {
    CUcontext from, to; /* the GPUs that must own the memory; NULL: the host */
    const void *src;
    void *dst;
    size_t bytes;
    size_t rows, src_pitch, dst_pitch; /* 2D copies: rows of `bytes` bytes, `pitch` bytes apart */
    unsigned char fill;                /* without src: the byte to fill with */
    bool pinned;                       /* the host's side is pinned memory, and must stay so */
} copy;

/* Bytes from the first to the last of all rows. */
static size_t extent(const copy *c, size_t pitch) {
    return c->rows > 1 ? (c->rows - 1) * pitch + c->bytes : c->bytes;
}

/* Whether the memory belongs to the GPU `where`, or, for NULL, to the host: any that is not a
 * GPU's. */
static bool lies(CUcontext where, const void *address, size_t bytes) {
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    return where ? fake_cuda_holds(where, at, bytes) : address && !fake_cuda_holds(NULL, at, 1);
}

/* Which side of a copy lies in the wrong place; NULL: none. */
static const char *fault(const copy *c) {
    if (c->pinned && !fake_cuda_is_pinned(c->to ? c->src : c->dst, c->bytes))
        return "the pinned memory";
    if (!lies(c->to, c->dst, extent(c, c->dst_pitch))) return "the destination";
    if (c->src && !lies(c->from, c->src, extent(c, c->src_pitch))) return "the source";
    return NULL;
}

/* Does the copy; `args` is a struct copy. */
static void perform_copy(void *args) {
    const copy *c = args;
    const char *what = fault(c);
    if (what) {
        fake_cuda_fatal(fake_cuda_say(
            CUDA_ERROR_ILLEGAL_ADDRESS,
            "an enqueued copy of %zu bytes: %s is no longer memory of the GPU", c->bytes, what));
        return;
    }
    if (!c->src) memset(c->dst, c->fill, c->bytes);
    for (size_t i = 0; i < (c->rows ? c->rows : 1) && c->src; i++)
        memmove((char *)c->dst + i * c->dst_pitch, (const char *)c->src + i * c->src_pitch,
                c->bytes);
}

/* Checks a copy and enqueues it. A copy of 0 bytes succeeds and adds no node; its addresses are not
 * checked. */
static CUresult enqueue_copy(const char *function, CUstream stream, const copy *c) {
    if (c->bytes == 0) return CUDA_SUCCESS;
    const char *what = fault(c);
    if (what || !c->dst)
        return fake_cuda_say(CUDA_ERROR_INVALID_VALUE,
                             "%s of %zu bytes from %p to %p: %s does not lie where it should",
                             function, c->bytes, c->src, c->dst, what ? what : "NULL");
    return fake_cuda_enqueue(stream, function, perform_copy, c, sizeof *c);
}

/* The GPU that owns the memory. For other addresses any GPU will do, since the check then fails. */
static CUcontext owner(CUdeviceptr address) {
    for (int i = 0; fake_cuda_context_of(i); i++)
        if (fake_cuda_holds(fake_cuda_context_of(i), address, 1)) return fake_cuda_context_of(i);
    return fake_cuda_context_of(0);
}

/* A copy whose source was read in the call: the bytes follow the struct. */
typedef struct buffered_copy {
    copy c;
    char bytes[];
} buffered_copy;

static void perform_buffered(void *args) {
    buffered_copy *b = args;
    b->c.src = b->bytes;
    perform_copy(&b->c);
}

/* A GPU reads pinned memory when the copy's turn comes; other memory is read in the call. In a
 * graph, either is read when the graph runs. */
CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync);
    if (!src && bytes) return CUDA_ERROR_INVALID_VALUE;
    const copy c = {.to = owner(dst),
                    .dst = (void *)(uintptr_t)dst,
                    .src = src,
                    .bytes = bytes,
                    .pinned = fake_cuda_is_pinned(src, bytes)};
    if (bytes == 0 || c.pinned || fake_cuda_capturing(stream) || fault(&c))
        return enqueue_copy("cuMemcpyHtoDAsync", stream, &c);
    buffered_copy *b = malloc(sizeof *b + bytes);
    if (!b) return CUDA_ERROR_OUT_OF_MEMORY;
    b->c = c;
    memcpy(b->bytes, src, bytes);
    const CUresult r =
        fake_cuda_enqueue(stream, "cuMemcpyHtoDAsync", perform_buffered, b, sizeof *b + bytes);
    free(b);
    return r;
}

/* The call returns when memory that is not pinned has been written. */
CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync);
    if (!src && bytes) return CUDA_ERROR_INVALID_VALUE;
    const copy c = {.from = owner(src),
                    .dst = dst,
                    .src = (const void *)(uintptr_t)src,
                    .bytes = bytes,
                    .pinned = fake_cuda_is_pinned(dst, bytes)};
    const CUresult r = enqueue_copy("cuMemcpyDtoHAsync", stream, &c);
    if (r == CUDA_SUCCESS && !c.pinned && !fake_cuda_capturing(stream))
        fake_cuda_finish_stream(stream);
    return r;
}

/* Within a GPU, or between two GPUs that may access one another. */
CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync);
    if (!src && bytes) return CUDA_ERROR_INVALID_VALUE;
    const copy c = {.from = owner(src),
                    .to = owner(dst),
                    .dst = (void *)(uintptr_t)dst,
                    .src = (const void *)(uintptr_t)src,
                    .bytes = bytes};
    return enqueue_copy("cuMemcpyDtoDAsync", stream, &c);
}

/* Both contexts are given, and the memory must be theirs; the stream may belong to either. With
 * MGPU_FAKE_CUDA_DEAF this is a driver that reports success and copies nothing, as some machines
 * do. */
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from,
                           size_t bytes, CUstream stream) {
    ENTER(cuMemcpyPeerAsync);
    if (!to || !from) return CUDA_ERROR_INVALID_CONTEXT;
    if (!src && bytes) return CUDA_ERROR_INVALID_VALUE;
    if (getenv("MGPU_FAKE_CUDA_DEAF")) return CUDA_SUCCESS;
    const copy c = {.from = from,
                    .to = to,
                    .dst = (void *)(uintptr_t)dst,
                    .src = (const void *)(uintptr_t)src,
                    .bytes = bytes};
    return enqueue_copy("cuMemcpyPeerAsync", stream, &c);
}

/* Of the many things that the real function copies, only rows between GPU addresses. */
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *p, CUstream stream) {
    ENTER(cuMemcpy2DAsync);
    if (p->srcMemoryType != CU_MEMORYTYPE_DEVICE || p->dstMemoryType != CU_MEMORYTYPE_DEVICE ||
        p->WidthInBytes > p->srcPitch || p->WidthInBytes > p->dstPitch || !p->srcDevice)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->Height == 0) return CUDA_SUCCESS;
    const CUdeviceptr src = p->srcDevice + p->srcY * p->srcPitch + p->srcXInBytes;
    const CUdeviceptr dst = p->dstDevice + p->dstY * p->dstPitch + p->dstXInBytes;
    const copy c = {.from = owner(src),
                    .to = owner(dst),
                    .dst = (void *)(uintptr_t)dst,
                    .src = (const void *)(uintptr_t)src,
                    .bytes = p->WidthInBytes,
                    .rows = p->Height,
                    .src_pitch = p->srcPitch,
                    .dst_pitch = p->dstPitch};
    return enqueue_copy("cuMemcpy2DAsync", stream, &c);
}

/* Fills with one byte: a copy without a source. */
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream) {
    ENTER(cuMemsetD8Async);
    const copy c = {.to = owner(dst), .dst = (void *)(uintptr_t)dst, .bytes = bytes, .fill = value};
    return enqueue_copy("cuMemsetD8Async", stream, &c);
}

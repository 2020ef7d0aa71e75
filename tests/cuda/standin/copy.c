/* Copies: enqueued after their addresses were checked, and checked again when recorded ones run. */
#include "gpu.h"
#include <string.h>

typedef struct copy {
    CUcontext from, to; /* NULL: the host */
    const void *src;
    void *dst;
    size_t bytes;
    unsigned char fill; /* without src */
} copy;

static const char *fault(const copy *c) {
    const CUdeviceptr src = (CUdeviceptr)(uintptr_t)c->src, dst = (CUdeviceptr)(uintptr_t)c->dst;
    if (c->to ? !standin_holds(c->to, dst, c->bytes) : standin_holds(NULL, dst, 1))
        return "the destination";
    if (c->src && (c->from ? !standin_holds(c->from, src, c->bytes) : standin_holds(NULL, src, 1)))
        return "the source";
    return NULL;
}

static void perform(void *args) {
    const copy *c = args;
    const char *what = fault(c);
    if (what)
        standin_fatal(standin_say(CUDA_ERROR_ILLEGAL_ADDRESS,
                                  "a recorded copy of %zu bytes: %s is no longer memory of the GPU",
                                  c->bytes, what));
    else if (c->src)
        memmove(c->dst, c->src, c->bytes);
    else
        memset(c->dst, c->fill, c->bytes);
}

static CUresult enqueue(const char *function, CUstream stream, const copy *c) {
    if (c->bytes == 0) return CUDA_SUCCESS;
    const char *what = fault(c);
    if (what || !c->dst)
        return standin_say(CUDA_ERROR_INVALID_VALUE,
                           "%s of %zu bytes from %p to %p: %s does not lie where it should",
                           function, c->bytes, c->src, c->dst, what ? what : "NULL");
    return standin_enqueue(stream, function, perform, c, sizeof *c);
}

/* Any context will do for what is only said to be memory of a GPU. */
static CUcontext owner(CUdeviceptr address) {
    for (int i = 0; standin_context_of(i); i++)
        if (standin_holds(standin_context_of(i), address, 1)) return standin_context_of(i);
    return standin_context_of(0);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync);
    if (!src && bytes) return CUDA_ERROR_INVALID_VALUE;
    const copy c = {.to = owner(dst), .dst = (void *)(uintptr_t)dst, .src = src, .bytes = bytes};
    return enqueue("cuMemcpyHtoDAsync", stream, &c);
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync);
    if (!src && bytes) return CUDA_ERROR_INVALID_VALUE;
    const copy c = {
        .from = owner(src), .dst = dst, .src = (const void *)(uintptr_t)src, .bytes = bytes};
    return enqueue("cuMemcpyDtoHAsync", stream, &c);
}

static CUresult between(const char *function, CUdeviceptr dst, CUcontext to, CUdeviceptr src,
                        CUcontext from, size_t bytes, CUstream stream) {
    const copy c = {.from = from,
                    .to = to,
                    .dst = (void *)(uintptr_t)dst,
                    .src = (const void *)(uintptr_t)src,
                    .bytes = bytes};
    if ((!src || !to || !from) && bytes) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(function, stream, &c);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync);
    return between("cuMemcpyDtoDAsync", dst, owner(dst), src, owner(src), bytes, stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from,
                           size_t bytes, CUstream stream) {
    ENTER(cuMemcpyPeerAsync);
    return between("cuMemcpyPeerAsync", dst, to, src, from, bytes, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream) {
    ENTER(cuMemsetD8Async);
    const copy c = {.to = owner(dst), .dst = (void *)(uintptr_t)dst, .bytes = bytes, .fill = value};
    return enqueue("cuMemsetD8Async", stream, &c);
}

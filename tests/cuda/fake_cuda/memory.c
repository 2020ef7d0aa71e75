/* Device memory: the host's, in blocks with guards on both sides, by way of pools.
 *
 * A block given back stays in its pool for the next one of its size, full of a pattern that is no
 * number. Reading what was never written gives NaN; writing beside a block, or to one that was
 * given back, is found later: when it is given back, taken again, or a stream waited for.
 *
 * With MGPU_FAKE_CUDA_STRICT set, no address is ever given twice: a block that is given back
 * becomes inaccessible, and so is what lies behind each block. Then a kernel that touches such
 * memory stops at once, with its name. */
#include "gpu.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GRAIN = 512, GUARD = 256, EDGE = 4096, PAGE = 4096, FRESH = 0xff, BESIDE = 0xa5 };
#define STRICT_RANGE ((size_t)1 << 42)

typedef struct block {
    char *base;
    size_t bytes, room; /* asked for; a multiple of GRAIN */
    CUcontext context;  /* NULL: pinned memory of the host */
    CUmemoryPool pool;
    bool live;
} block;

struct CUmemPoolHandle_st {
    CUcontext context;
    size_t used, used_most, reserved, reserved_most;
    uint64_t keep; /* bytes that are not given back to the GPU */
};

static block *blocks; /* in the order of their addresses */
static size_t n_blocks, n_room;

/* ---- the table ---- */

/* The number of blocks that begin at or below the address. */
static size_t after(const char *address) {
    size_t low = 0, high = n_blocks;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (blocks[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The live block with all these addresses, or NULL. */
static block *holder(const void *address, size_t bytes) {
    const size_t i = after(address);
    block *b = i ? &blocks[i - 1] : NULL;
    if (!b || !b->live) return NULL;
    const size_t offset = (size_t)((const char *)address - b->base);
    return offset <= b->bytes && bytes <= b->bytes - offset ? b : NULL;
}

static bool insert(const block *b) {
    if (n_blocks == n_room) {
        block *more = realloc(blocks, (n_room * 2 + 64) * sizeof *blocks);
        if (!more) return false;
        blocks = more;
        n_room = n_room * 2 + 64;
    }
    const size_t at = after(b->base);
    memmove(&blocks[at + 1], &blocks[at], (n_blocks++ - at) * sizeof *blocks);
    blocks[at] = *b;
    return true;
}

/* ---- the memory itself ---- */

static bool is_strict(void) {
    static int strict = -1;
    if (strict < 0) strict = getenv("MGPU_FAKE_CUDA_STRICT") != NULL;
    return strict == 1;
}

static size_t strict_bytes(size_t room) {
    return (room + 2 * (size_t)GUARD + PAGE - 1) / PAGE * PAGE;
}

/* From a range of addresses that is used up from its beginning; the guard behind ends a page, and
 * one page is left out. */
static char *take_strictly(size_t room) {
    static char *next, *end;
    const size_t bytes = strict_bytes(room);
    if (!next) {
        next =
            mmap(NULL, STRICT_RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        end = next == MAP_FAILED ? next : next + STRICT_RANGE;
    }
    if (bytes + PAGE > (size_t)(end - next) || mprotect(next, bytes, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    char *memory = next + bytes - room - 2 * (size_t)GUARD;
    next += bytes + PAGE;
    return memory;
}

/* GUARD bytes, room, GUARD bytes; or NULL. */
static char *take_memory(size_t room) {
    return is_strict() ? take_strictly(room) : aligned_alloc(GUARD, room + 2 * (size_t)GUARD);
}

static void free_memory(const block *b) {
    const size_t bytes = strict_bytes(b->room);
    if (is_strict())
        mmap(b->base + b->room + GUARD - bytes, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    else
        free(b->base - GUARD);
}

static void drop(size_t i) {
    if (blocks[i].pool) {
        blocks[i].pool->reserved -= blocks[i].room;
        blocks[i].context->reserved -= blocks[i].room;
    }
    free_memory(&blocks[i]);
    memmove(&blocks[i], &blocks[i + 1], (--n_blocks - i) * sizeof *blocks);
}

bool fake_cuda_holds(CUcontext context, CUdeviceptr address, size_t bytes) {
    fake_cuda_lock();
    const block *b = holder((const void *)(uintptr_t)address, bytes);
    const bool holds = b && b->context && (!context || b->context == context);
    fake_cuda_unlock();
    return holds;
}

bool fake_cuda_owns(const void *address, size_t bytes) {
    return fake_cuda_holds(NULL, (CUdeviceptr)(uintptr_t)address, bytes);
}

/* ---- guards ---- */

static bool is_all(const char *bytes, int value, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)bytes[i] != value) return false;
    return true;
}

static void set_guards(const block *b) {
    memset(b->base - GUARD, BESIDE, GUARD);
    memset(b->base + b->bytes, BESIDE, b->room - b->bytes + GUARD);
}

static const char *damage(const block *b) {
    const size_t edge = b->room < EDGE ? b->room : EDGE;
    if (!is_all(b->base - GUARD, BESIDE, GUARD)) return "before";
    if (b->live)
        return is_all(b->base + b->bytes, BESIDE, b->room - b->bytes + GUARD) ? NULL : "behind";
    if (!is_all(b->base + b->room, BESIDE, GUARD)) return "behind";
    return is_all(b->base, FRESH, edge) && is_all(b->base + b->room - edge, FRESH, edge)
               ? NULL
               : "to (after it was given back)";
}

/* Told once: the guards are made whole again. */
static CUresult check(const block *b) {
    const char *where = damage(b);
    if (!where) return CUDA_SUCCESS;
    fake_cuda_say(CUDA_ERROR_ILLEGAL_ADDRESS, "something wrote %s a block of %zu bytes at %p",
                  where, b->bytes, (void *)b->base);
    set_guards(b);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

void fake_cuda_check_guards(void) {
    CUresult r = CUDA_SUCCESS;
    fake_cuda_lock();
    for (size_t i = 0; i < n_blocks; i++)
        if (blocks[i].live && check(&blocks[i])) r = CUDA_ERROR_ILLEGAL_ADDRESS;
    fake_cuda_unlock();
    if (r) fake_cuda_fatal(r);
}

/* ---- taking and giving ---- */

/* The block of the pool that fits and was given back last, or n_blocks. */
static size_t kept(CUmemoryPool pool, size_t room) {
    for (size_t i = 0; i < n_blocks; i++)
        if (!blocks[i].live && blocks[i].pool == pool && blocks[i].room == room) return i;
    return n_blocks;
}

static CUresult make(block *b) {
    if (b->pool && b->context->reserved + b->room > b->context->total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *memory = take_memory(b->room);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    b->base = memory + GUARD;
    if (!insert(b)) {
        free_memory(b);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(b->base, FRESH, b->room);
    if (!b->pool) return CUDA_SUCCESS;
    b->context->reserved += b->room;
    b->pool->reserved += b->room;
    if (b->pool->reserved > b->pool->reserved_most) b->pool->reserved_most = b->pool->reserved;
    return CUDA_SUCCESS;
}

static CUresult take(void **address, size_t bytes, CUcontext context, CUmemoryPool pool) {
    block fresh = {.bytes = bytes, .context = context, .pool = pool, .live = true};
    if (bytes == 0 || bytes > SIZE_MAX / 2) return CUDA_ERROR_INVALID_VALUE;
    fresh.room = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    const size_t i = pool ? kept(pool, fresh.room) : n_blocks;
    CUresult r = CUDA_SUCCESS;
    if (i < n_blocks) {
        r = check(&blocks[i]);
        fresh.base = blocks[i].base;
        blocks[i] = fresh;
    } else {
        r = make(&fresh);
    }
    if (r != CUDA_SUCCESS) return r;
    set_guards(&fresh);
    *address = fresh.base;
    if (!pool) return r;
    pool->used += bytes;
    if (pool->used > pool->used_most) pool->used_most = pool->used;
    return r;
}

static CUresult give(void *address, bool pinned) {
    const size_t i = after(address);
    block *b = i ? &blocks[i - 1] : NULL;
    if (!b || b->base != address || !b->live || !b->context != pinned)
        return fake_cuda_say(CUDA_ERROR_INVALID_VALUE, "%p is given back, but is no such memory",
                             address);
    const CUresult r = check(b);
    b->live = false;
    if (b->pool) b->pool->used -= b->bytes;
    memset(b->base, FRESH, b->room);
    if (!b->pool || b->pool->reserved > b->pool->keep || is_strict()) drop(i - 1);
    return r;
}

/* Errors of the memory's state are fatal, those of a call are not. */
static CUresult end(CUresult r) {
    fake_cuda_unlock();
    return r == CUDA_ERROR_ILLEGAL_ADDRESS ? fake_cuda_fatal(r) : r;
}

static CUresult forbid(CUstream stream, const char *function) {
    const CUresult r = fake_cuda_stream_error(stream);
    if (r != CUDA_SUCCESS || !fake_cuda_capturing(stream)) return r;
    fake_cuda_forbid_capture();
    return fake_cuda_say(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s while its stream captures",
                         function);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    ENTER(cuMemAllocFromPoolAsync);
    void *memory = NULL;
    const CUresult refused = forbid(stream, "cuMemAllocFromPoolAsync");
    if (refused) return refused;
    fake_cuda_lock();
    const CUresult r = take(&memory, bytes, pool->context, pool);
    *address = (CUdeviceptr)(uintptr_t)memory;
    return end(r);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    ENTER(cuMemFreeAsync);
    const CUresult refused = forbid(stream, "cuMemFreeAsync");
    if (refused) return refused;
    fake_cuda_lock();
    return end(give((void *)(uintptr_t)address, false));
}

CUresult cuMemAllocHost(void **address, size_t bytes) {
    ENTER(cuMemAllocHost);
    if (!fake_cuda_current()) return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult refused = fake_cuda_forbid_capture();
    if (refused) return refused;
    fake_cuda_lock();
    return end(take(address, bytes, NULL, NULL));
}

CUresult cuMemFreeHost(void *address) {
    ENTER(cuMemFreeHost);
    const CUresult refused = fake_cuda_forbid_capture();
    if (refused) return refused;
    fake_cuda_lock();
    return end(give(address, true));
}

CUresult cuMemGetInfo(size_t *available, size_t *total) {
    ENTER(cuMemGetInfo);
    const CUcontext context = fake_cuda_current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    *total = context->total;
    *available = context->total - context->reserved;
    return CUDA_SUCCESS;
}

/* ---- pools ---- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
    ENTER(cuMemPoolCreate);
    const CUcontext context = fake_cuda_context_of(props->location.id);
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !context)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = calloc(1, sizeof **pool);
    if (!*pool) return CUDA_ERROR_OUT_OF_MEMORY;
    (*pool)->context = context;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t least) {
    ENTER(cuMemPoolTrimTo);
    const CUresult refused = fake_cuda_forbid_capture();
    if (refused) return refused;
    fake_cuda_lock();
    for (size_t i = n_blocks; i-- > 0 && pool->reserved > least;)
        if (blocks[i].pool == pool && !blocks[i].live) drop(i);
    fake_cuda_unlock();
    return CUDA_SUCCESS;
}

/* What is still in use is lost, as it would be with the process. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    ENTER(cuMemPoolDestroy);
    fake_cuda_lock();
    size_t live = 0;
    for (size_t i = n_blocks; i-- > 0;) {
        if (blocks[i].pool != pool) continue;
        live += blocks[i].live;
        drop(i);
    }
    fake_cuda_unlock();
    free(pool);
    if (live) fake_cuda_say(CUDA_SUCCESS, "a pool is destroyed with %zu blocks in use", live);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    ENTER(cuMemPoolSetAttribute);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->keep = *(const cuuint64_t *)value;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_most = pool->used;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_most = pool->reserved;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* All memory is the host's, so every device reaches it. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n) {
    ENTER(cuMemPoolSetAccess);
    for (size_t i = 0; i < n; i++)
        if (!pool || map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !fake_cuda_context_of(map[i].location.id))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

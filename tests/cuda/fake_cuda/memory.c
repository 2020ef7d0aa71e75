/* Device memory and pinned memory: blocks of host memory with guard bytes on both sides, and CUDA's
 * memory pools.
 *
 * A block that was freed stays in its pool for the next allocation of its size, as with the real
 * pools. It is filled with 0xff, which is NaN in every float format. So a kernel that reads memory
 * which was never written gets NaN. A write beside a block, or to a freed one, changes the guards
 * or the pattern; that is found when the block is freed or used again, or when a stream is waited
 * for.
 *
 * With MGPU_FAKE_CUDA_STRICT set no address is ever used twice: freed blocks, and the page behind
 * each block, become inaccessible. Then a kernel that touches such memory stops at once, with its
 * name. */
#include "gpu.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* GRAIN: sizes of blocks are rounded up to it. GUARD: guard bytes on each side. EDGE: the number of
 * bytes that are checked at each end of a freed block. FRESH, BESIDE: the patterns of unwritten
 * memory and guards. */
enum { GRAIN = 512, GUARD = 256, EDGE = 4096, PAGE = 4096, FRESH = 0xff, BESIDE = 0xa5 };
#define STRICT_RANGE ((size_t)1 << 42) /* bytes of addresses, reserved but not backed by memory */

typedef struct block {
    char *base;         /* the address that the caller gets; a guard lies below */
    size_t bytes, room; /* requested by the caller; rounded up to GRAIN */
    CUcontext context;  /* the GPU that owns it; NULL: pinned memory of the host */
    CUmemoryPool pool;  /* NULL: pinned memory */
    bool live;          /* false: freed, kept by the pool */
    bool leaving;       /* cuMemFreeAsync is enqueued */
} block;

struct CUmemPoolHandle_st {
    CUcontext context;
    size_t used, used_most;         /* bytes of live blocks, now and at most */
    size_t reserved, reserved_most; /* the same with freed blocks that the pool keeps */
    uint64_t keep; /* the release threshold: the number of bytes that may stay reserved */
};

static block *blocks; /* all blocks, sorted by address, for binary search */
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

/* The live block that contains all `bytes` bytes from `address` on; NULL: none. */
static block *holder(const void *address, size_t bytes) {
    const size_t i = after(address);
    block *b = i ? &blocks[i - 1] : NULL;
    if (!b || !b->live) return NULL;
    const size_t offset = (size_t)((const char *)address - b->base);
    return offset <= b->bytes && bytes <= b->bytes - offset ? b : NULL;
}

/* Adds a block to the table at its place; false without memory. */
static bool insert_block(const block *b) {
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

/* Read once: memory of one process is all strict or all not. */
static bool is_strict(void) {
    static int strict = -1;
    if (strict < 0) strict = getenv("MGPU_FAKE_CUDA_STRICT") != NULL;
    return strict == 1;
}

/* Bytes of whole pages that a block and its guards take in strict mode. */
static size_t strict_bytes(size_t room) {
    return (room + 2 * (size_t)GUARD + PAGE - 1) / PAGE * PAGE;
}

/* Takes memory from a range of addresses that is used up from its beginning. The guard behind the
 * block ends at a page's end, and the next page stays inaccessible. */
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

/* Memory for a guard, `room` bytes and another guard; NULL: none left. */
static char *take_memory(size_t room) {
    return is_strict() ? take_strictly(room) : aligned_alloc(GUARD, room + 2 * (size_t)GUARD);
}

/* In strict mode the addresses stay reserved, and become inaccessible. */
static void free_memory(const block *b) {
    const size_t bytes = strict_bytes(b->room);
    if (is_strict())
        mmap(b->base + b->room + GUARD - bytes, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    else
        free(b->base - GUARD);
}

/* Removes block i from the table and its pool, and frees its memory. */
static void drop_block(size_t i) {
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

bool fake_cuda_is_pinned(const void *address, size_t bytes) {
    fake_cuda_lock();
    const block *b = holder(address, bytes);
    const bool pinned = b && !b->context;
    fake_cuda_unlock();
    return pinned;
}

bool fake_cuda_owns(const void *address, size_t bytes) {
    return fake_cuda_holds(NULL, (CUdeviceptr)(uintptr_t)address, bytes);
}

/* ---- guards ---- */

/* What memory holds before it is written. */
static int fresh(void) {
    return fake_cuda_is_still() ? 0 : FRESH;
}

static bool is_all(const char *bytes, int value, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)bytes[i] != value) return false;
    return true;
}

/* Writes the pattern on both sides of a block that is handed out. */
static void set_guards(const block *b) {
    memset(b->base - GUARD, BESIDE, GUARD);
    memset(b->base + b->bytes, BESIDE, b->room - b->bytes + GUARD);
}

/* Where a wrong write went, relative to the block, for the message; NULL: nowhere. In a live block
 * the bytes between `bytes` and `room` belong to the guard behind. */
static const char *damage(const block *b) {
    const size_t edge = b->room < EDGE ? b->room : EDGE;
    if (!is_all(b->base - GUARD, BESIDE, GUARD)) return "before";
    if (b->live)
        return is_all(b->base + b->bytes, BESIDE, b->room - b->bytes + GUARD) ? NULL : "behind";
    if (!is_all(b->base + b->room, BESIDE, GUARD)) return "behind";
    return is_all(b->base, fresh(), edge) && is_all(b->base + b->room - edge, fresh(), edge)
               ? NULL
               : "to (after it was freed)";
}

/* Reports damage to a block, once: the guards are restored. */
static CUresult check_block(const block *b) {
    const char *where = damage(b);
    if (!where) return CUDA_SUCCESS;
    fake_cuda_say(CUDA_ERROR_ILLEGAL_ADDRESS, "something wrote %s a block of %zu bytes at %p",
                  where, b->bytes, (void *)b->base);
    set_guards(b);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* Looks at all live blocks. Freed ones are checked when they are used again. */
void fake_cuda_check_guards(void) {
    CUresult r = CUDA_SUCCESS;
    fake_cuda_lock();
    for (size_t i = 0; i < n_blocks; i++)
        if (blocks[i].live && check_block(&blocks[i])) r = CUDA_ERROR_ILLEGAL_ADDRESS;
    fake_cuda_unlock();
    if (r) fake_cuda_fatal(r);
}

/* ---- allocating and freeing ---- */

/* A freed block of the pool with exactly this room; n_blocks: none. */
static size_t kept(CUmemoryPool pool, size_t room) {
    for (size_t i = 0; i < n_blocks; i++)
        if (!blocks[i].live && blocks[i].pool == pool && blocks[i].room == room) return i;
    return n_blocks;
}

/* Makes a new block, of which `room`, `context` and `pool` are given. A GPU has memory for pools
 * only up to its total; pinned memory does not count. */
static CUresult new_block(block *b) {
    if (b->pool && b->context->reserved + b->room > b->context->total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *memory = take_memory(b->room);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    b->base = memory + GUARD;
    if (!insert_block(b)) {
        free_memory(b);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(b->base, fresh(), b->room);
    if (!b->pool) return CUDA_SUCCESS;
    b->context->reserved += b->room;
    b->pool->reserved += b->room;
    if (b->pool->reserved > b->pool->reserved_most) b->pool->reserved_most = b->pool->reserved;
    return CUDA_SUCCESS;
}

/* Allocates: a freed block of the pool, or else a new one. With the lock held. */
static CUresult take_block(void **address, size_t bytes, CUcontext context, CUmemoryPool pool) {
    block fresh = {.bytes = bytes, .context = context, .pool = pool, .live = true};
    if (bytes == 0 || bytes > SIZE_MAX / 2) return CUDA_ERROR_INVALID_VALUE;
    fresh.room = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    const size_t i = pool ? kept(pool, fresh.room) : n_blocks;
    CUresult r = CUDA_SUCCESS;
    if (i < n_blocks) {
        r = check_block(&blocks[i]);
        fresh.base = blocks[i].base;
        blocks[i] = fresh;
    } else {
        r = new_block(&fresh);
    }
    if (r != CUDA_SUCCESS) return r;
    set_guards(&fresh);
    *address = fresh.base;
    if (!pool) return r;
    pool->used += bytes;
    if (pool->used > pool->used_most) pool->used_most = pool->used;
    return r;
}

/* The live block that begins at the address, pinned or not, and that has not been freed yet; NULL:
 * there is none. With the lock held. */
static block *block_at(const void *address, bool pinned) {
    const size_t i = after(address);
    block *b = i ? &blocks[i - 1] : NULL;
    return b && b->base == address && b->live && !b->leaving && !b->context == pinned ? b : NULL;
}

static CUresult not_such_memory(const void *address) {
    return fake_cuda_say(CUDA_ERROR_INVALID_VALUE, "%p is freed, but is no such memory", address);
}

/* Frees the block that begins at the address. It stays in its pool unless more than the release
 * threshold is reserved. With the lock held. */
static CUresult give_block(const void *address) {
    const size_t i = after(address);
    block *b = &blocks[i - 1];
    const CUresult r = check_block(b);
    b->live = b->leaving = false;
    if (b->pool) b->pool->used -= b->bytes;
    memset(b->base, fresh(), b->room);
    if (!b->pool || b->pool->reserved > b->pool->keep || is_strict()) drop_block(i - 1);
    return r;
}

/* Releases the lock. Damaged memory is a fatal error; a wrong call or too little memory is not. */
static CUresult unlock_with(CUresult r) {
    fake_cuda_unlock();
    return r == CUDA_ERROR_ILLEGAL_ADDRESS ? fake_cuda_fatal(r) : r;
}

/* Allocating and freeing is an error while the stream captures, and makes the capture invalid: our
 * code must not record it (the real driver would make graph nodes of it). */
static CUresult forbid_recording(CUstream stream, const char *function) {
    const CUresult r = fake_cuda_stream_error(stream);
    if (r != CUDA_SUCCESS || !fake_cuda_capturing(stream)) return r;
    fake_cuda_forbid_capture();
    return fake_cuda_say(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s while its stream captures",
                         function);
}

/* There is no order to wait for: the memory can be used at once. Memory whose cuMemFreeAsync has
 * not run yet is waited for only if there is no other. */
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    ENTER(cuMemAllocFromPoolAsync);
    void *memory = NULL;
    const CUresult refused = forbid_recording(stream, "cuMemAllocFromPoolAsync");
    if (refused) return refused;
    fake_cuda_lock();
    CUresult r = take_block(&memory, bytes, pool->context, pool);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) {
        fake_cuda_unlock();
        fake_cuda_drive_all();
        fake_cuda_lock();
        r = take_block(&memory, bytes, pool->context, pool);
    }
    *address = (CUdeviceptr)(uintptr_t)memory;
    return unlock_with(r);
}

/* The work of cuMemFreeAsync; args: the address. */
static void free_enqueued(void *args) {
    fake_cuda_lock();
    unlock_with(give_block(*(void **)args));
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    ENTER(cuMemFreeAsync);
    void *memory = (void *)(uintptr_t)address;
    const CUresult refused = forbid_recording(stream, "cuMemFreeAsync");
    if (refused) return refused;
    fake_cuda_lock();
    block *b = block_at(memory, false);
    if (b) b->leaving = true;
    fake_cuda_unlock();
    if (!b) return not_such_memory(memory);
    return fake_cuda_enqueue(stream, "cuMemFreeAsync", free_enqueued, &memory, sizeof memory);
}

/* Pinned memory is no device memory: kernels and copies "to the GPU" must not get it. */
CUresult cuMemAllocHost(void **address, size_t bytes) {
    ENTER(cuMemAllocHost);
    if (!fake_cuda_current()) return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult refused = fake_cuda_forbid_capture();
    if (refused) return refused;
    fake_cuda_lock();
    return unlock_with(take_block(address, bytes, NULL, NULL));
}

CUresult cuMemFreeHost(void *address) {
    ENTER(cuMemFreeHost);
    const CUresult refused = fake_cuda_forbid_capture();
    if (refused) return refused;
    fake_cuda_lock();
    if (block_at(address, true)) return unlock_with(give_block(address));
    fake_cuda_unlock();
    return not_such_memory(address);
}

/* What pools keep counts as taken, as with the real driver. */
CUresult cuMemGetInfo(size_t *available, size_t *total) {
    ENTER(cuMemGetInfo);
    const CUcontext context = fake_cuda_current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    *total = context->total;
    *available = context->total - context->reserved;
    return CUDA_SUCCESS;
}

/* ---- pools ---- */

/* Only pools of plain device memory, as our code makes them. */
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

/* Returns freed blocks to the GPU until at most `least` bytes are reserved. */
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t least) {
    ENTER(cuMemPoolTrimTo);
    const CUresult refused = fake_cuda_forbid_capture();
    if (refused) return refused;
    fake_cuda_lock();
    for (size_t i = n_blocks; i-- > 0 && pool->reserved > least;)
        if (blocks[i].pool == pool && !blocks[i].live) drop_block(i);
    fake_cuda_unlock();
    return CUDA_SUCCESS;
}

/* Frees all blocks, also live ones, which are reported: the caller has leaked them. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    ENTER(cuMemPoolDestroy);
    fake_cuda_lock();
    size_t live = 0;
    for (size_t i = n_blocks; i-- > 0;) {
        if (blocks[i].pool != pool) continue;
        live += blocks[i].live;
        drop_block(i);
    }
    fake_cuda_unlock();
    free(pool);
    if (live) fake_cuda_say(CUDA_SUCCESS, "a pool is destroyed with %zu blocks in use", live);
    return CUDA_SUCCESS;
}

/* The release threshold, and resets of the two high-water marks. */
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

/* Accepts any GPUs: all memory is the host's, so each GPU reaches it anyway. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n) {
    ENTER(cuMemPoolSetAccess);
    for (size_t i = 0; i < n; i++)
        if (!pool || map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !fake_cuda_context_of(map[i].location.id))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* scatter_add: adds slices of dy {outer, n, inner} to the slices of dx {outer, size, inner} that
 * ids name, in the same order every time, which atomics would not give. The gradient of gather.
 *
 *     1. sort_count, sort_scatter   radix sort of entries (id, position) by id; it is stable, so
 *                                   positions of one id stay in order
 *     2. scatter_pieces             the sorted entries are divided into pieces of equal length. A
 *                                   thread sums one column of a piece, run by run (a run: entries of
 *                                   one id). The sum of a run within the piece is stored; a run that
 *                                   crosses a border of the piece gives a partial sum
 *     3. scatter_join               a block adds the partial sums of a run and stores the result
 *
 * Pieces have equal length whatever the ids are, so the work is balanced even if all ids are equal.
 * dx must be zero before. With few ids, scatter_few does everything in one launch. */
#include "device/cuda/kernels/movement_params.h"
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"

#define ID(entry) ((int64_t)((entry) >> 32))
#define POSITION(entry) ((int64_t)((entry)&0xffffffffu))

/* ENTRIES_AT_ONCE: entries whose elements a thread loads before it adds the first. */
enum { ENTRIES_AT_ONCE = 8, JOIN_THREADS = 256, SORT_WARPS = MG_SORT_THREADS / MG_WARP };

/* ---- sorting: one pass counts the digits of each block, then moves every entry to its place ----
 */

/* Entry i of the pass's input; the first pass makes it from the ids. */
DEVICE uint64_t entry_at(const sort_params *p, uint32_t i) {
    if (!p->ids) return p->in[i];
    const int64_t id = mg_id(p->ids, p->id_bytes, i);
    return (uint64_t)(id >= 0 && id < p->size ? id : p->size) << 32 | i;
}

/* The digit of the pass: eight bits of the id. */
DEVICE uint32_t digit_of(const sort_params *p, uint64_t entry) {
    return (uint32_t)(entry >> p->shift) % MG_DIGITS;
}

/* A block sorts per_block consecutive entries; the last one may have fewer. */
DEVICE uint32_t end_of_block(const sort_params *p) {
    const uint32_t end = (blockIdx.x + 1) * p->per_block;
    return end < p->n ? end : p->n;
}

/* counts {blocks, MG_DIGITS}: how often each digit occurs in each block. Integer atomics in shared
 * memory do not depend on their order. */
KERNEL(sort_count, sort_params) {
    __shared__ unsigned count[MG_DIGITS];
    count[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t i = blockIdx.x * p.per_block + threadIdx.x; i < end_of_block(&p); i += blockDim.x)
        atomicAdd(&count[digit_of(&p, entry_at(&p, i))], 1u);
    __syncthreads();
    p.counts[blockIdx.x * MG_DIGITS + threadIdx.x] = count[threadIdx.x];
}

/* Thread d gets the place of this block's first entry with digit d: all entries with smaller digits
 * (an exclusive scan of the totals) and those with digit d of the blocks before. */
DEVICE uint32_t first_place(const sort_params *p, unsigned *sums) {
    uint32_t before = 0, all = 0;
    for (uint32_t b = 0; b < gridDim.x; b++) {
        const uint32_t count = p->counts[b * MG_DIGITS + threadIdx.x];
        before += b < blockIdx.x ? count : 0;
        all += count;
    }
    sums[threadIdx.x] = all;
    __syncthreads();
    for (uint32_t step = 1; step < MG_DIGITS; step *= 2) {
        const uint32_t left = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += left;
        __syncthreads();
    }
    return sums[threadIdx.x] - all + before;
}

/* A mask of the lanes of the warp that have the same digit as this lane. */
DEVICE uint32_t peers_of(uint32_t digit, int there) {
    uint32_t peers = __ballot_sync(0xffffffffu, there);
    for (int bit = 1; bit < MG_DIGITS; bit *= 2) {
        const uint32_t set = __ballot_sync(0xffffffffu, (digit & bit) != 0);
        peers &= digit & bit ? set : ~set;
    }
    return peers;
}

/* Moves the entries of a block to their places, MG_SORT_THREADS at a time. To be stable, entries
 * with the same digit keep the order of rounds, then of warps, then of lanes: place[warp][digit]
 * first counts a warp's entries, then becomes the place of the first of them. */
KERNEL(sort_scatter, sort_params) {
    __shared__ unsigned sums[MG_DIGITS], place[SORT_WARPS][MG_DIGITS];
    const uint32_t warp = threadIdx.x / MG_WARP, end = end_of_block(&p);
    const uint32_t below = (1u << threadIdx.x % MG_WARP) - 1;
    uint32_t next = first_place(&p, sums);
    for (int w = 0; w < SORT_WARPS; w++) place[w][threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t first = blockIdx.x * p.per_block; first < end; first += MG_SORT_THREADS) {
        const uint32_t i = first + threadIdx.x;
        const uint64_t entry = i < end ? entry_at(&p, i) : 0;
        const uint32_t digit = digit_of(&p, entry), peers = peers_of(digit, i < end);
        const uint32_t rank = __popc(peers & below);
        if (i < end && rank == 0) place[warp][digit] = __popc(peers);
        __syncthreads();
        for (int w = 0; w < SORT_WARPS; w++) {
            const uint32_t count = place[w][threadIdx.x];
            place[w][threadIdx.x] = next;
            next += count;
        }
        __syncthreads();
        if (i < end) p.out[place[warp][digit] + rank] = entry;
        __syncthreads();
        for (int w = 0; w < SORT_WARPS; w++) place[w][threadIdx.x] = 0;
        __syncthreads();
    }
}

/* ---- sums ---- */

/* Where the entries of a piece end; the last piece may have fewer. */
DEVICE int64_t end_of_piece(const scatter_params *p, int64_t piece) {
    const int64_t end = (piece + 1) * p->piece;
    return end < p->n ? end : p->n;
}

/* If the run of the piece's last entry begins in this piece and continues in the next one: returns
 * its id and sets *last to the last piece that has a part of it. Otherwise returns -1. */
DEVICE int64_t run_from(const scatter_params *p, int64_t piece, int64_t *last) {
    const int64_t begin = piece * p->piece, end = end_of_piece(p, piece);
    const int64_t id = ID(p->entries[end - 1]);
    if (end == p->n || id >= p->size || ID(p->entries[end]) != id) return -1;
    if (begin > 0 && ID(p->entries[begin - 1]) == id) return -1;
    int64_t low = end, high = p->n; /* binary search for the first entry of another id */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (ID(p->entries[middle]) == id)
            low = middle + 1;
        else
            high = middle;
    }
    *last = (low - 1) / p->piece;
    return id;
}

/* Sums are computed in `real` and rounded to the dtype once, by ROUND. A piece has two slots for
 * partial sums: slot 0 for the run that its first entry belongs to, slot 1 for another run that its
 * last entry belongs to. Entries with an id out of range (id == size) are summed but never stored.
 */
#define SCATTER(dtype, real, ROUND)                                                                \
    DEVICE void finish_##dtype(const scatter_params *p, int64_t id, int open, int64_t partial,     \
                               int64_t to, real sum) {                                             \
        if (id >= p->size) return;                                                                 \
        if (open)                                                                                  \
            ((real *)p->partial)[partial] = sum;                                                   \
        else                                                                                       \
            mg_store_##dtype(p->dx, to + id * p->inner, ROUND(sum));                               \
    }                                                                                              \
                                                                                                   \
    /* A thread takes one column of one piece. `open`: the run crosses a border of the piece. */   \
    KERNEL(scatter_pieces_##dtype, scatter_params) {                                               \
        for (int64_t w = FIRST; w < p.pieces * p.columns; w += STEP) {                             \
            const int64_t piece = w / p.columns, column = w - piece * p.columns;                   \
            const int64_t begin = piece * p.piece, end = end_of_piece(&p, piece);                  \
            const int64_t outer = column / p.inner, inner = column - outer * p.inner;              \
            const int64_t from = outer * p.n * p.inner + inner;                                    \
            const int64_t to = outer * p.size * p.inner + inner;                                   \
            int64_t id = ID(p.entries[begin]), partial = 2 * piece * p.columns + column;           \
            int open = begin > 0 && ID(p.entries[begin - 1]) == id;                                \
            real sum = 0;                                                                          \
            for (int64_t i = begin; i < end; i += ENTRIES_AT_ONCE) {                               \
                int64_t ids[ENTRIES_AT_ONCE];                                                      \
                real v[ENTRIES_AT_ONCE];                                                           \
                for (int k = 0; k < ENTRIES_AT_ONCE; k++) {                                        \
                    const uint64_t entry = p.entries[i + k < end ? i + k : end - 1];               \
                    ids[k] = ID(entry);                                                            \
                    v[k] = mg_load_##dtype(p.dy, from + POSITION(entry) * p.inner);                \
                }                                                                                  \
                for (int k = 0; k < ENTRIES_AT_ONCE; k++) {                                        \
                    if (i + k >= end) break;                                                       \
                    if (ids[k] != id) {                                                            \
                        finish_##dtype(&p, id, open, partial, to, sum);                            \
                        id = ids[k], open = 0, sum = 0;                                            \
                        partial = (2 * piece + 1) * p.columns + column;                            \
                    }                                                                              \
                    sum += v[k];                                                                   \
                }                                                                                  \
            }                                                                                      \
            open |= end < p.n && ID(p.entries[end]) == id;                                         \
            finish_##dtype(&p, id, open, partial, to, sum);                                        \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* A block takes `width` columns of the run that begins in its piece; its threads share the    \
     * pieces that the run goes through, and their sums are added as a tree. */                    \
    KERNEL(scatter_join_##dtype, scatter_params) {                                                 \
        __shared__ real sums[JOIN_THREADS];                                                        \
        const int64_t groups = (p.columns + p.width - 1) / p.width;                                \
        const int shares = JOIN_THREADS / p.width, share = (int)threadIdx.x / p.width;             \
        for (int64_t task = blockIdx.x; task < p.pieces * groups; task += gridDim.x) {             \
            const int64_t piece = task / groups;                                                   \
            const int64_t column = (task - piece * groups) * p.width + threadIdx.x % p.width;      \
            const real *const partial = (const real *)p.partial + column;                          \
            int64_t last;                                                                          \
            const int64_t id = run_from(&p, piece, &last);                                         \
            if (id < 0) continue;                                                                  \
            const int slot = ID(p.entries[piece * p.piece]) != id;                                 \
            real sum = 0;                                                                          \
            if (column < p.columns) {                                                              \
                if (share == 0) sum = partial[(2 * piece + slot) * p.columns];                     \
                for (int64_t k = piece + 1 + share; k <= last; k += shares)                        \
                    sum += partial[2 * k * p.columns];                                             \
            }                                                                                      \
            sums[threadIdx.x] = sum;                                                               \
            __syncthreads();                                                                       \
            for (int half = shares / 2; half > 0; half /= 2) {                                     \
                if (share < half) sums[threadIdx.x] += sums[threadIdx.x + half * p.width];         \
                __syncthreads();                                                                   \
            }                                                                                      \
            if (share == 0 && column < p.columns)                                                  \
                mg_store_##dtype(p.dx,                                                             \
                                 (column / p.inner * p.size + id) * p.inner + column % p.inner,    \
                                 ROUND(sums[threadIdx.x]));                                        \
            __syncthreads();                                                                       \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* For few ids, without a sort: each element of dx looks through all ids. */                   \
    KERNEL(scatter_few_##dtype, scatter_params) {                                                  \
        for (int64_t w = FIRST; w < p.size * p.columns; w += STEP) {                               \
            const int64_t row = w / p.inner, inner = w - row * p.inner;                            \
            const int64_t outer = row / p.size, id = row - outer * p.size;                         \
            real sum = 0;                                                                          \
            for (int64_t i = 0; i < p.n; i++)                                                      \
                if (mg_id(p.ids, p.id_bytes, i) == id)                                             \
                    sum += mg_load_##dtype(p.dy, (outer * p.n + i) * p.inner + inner);             \
            mg_store_##dtype(p.dx, w, ROUND(sum));                                                 \
        }                                                                                          \
    }

SCATTER(bool, float, )
SCATTER(u8, int64_t, mg_to_u8)
SCATTER(i32, int64_t, mg_to_i32)
SCATTER(i64, uint64_t, )
SCATTER(bf16, float, )
SCATTER(f16, float, )
SCATTER(f32, float, )
SCATTER(f64, double, )

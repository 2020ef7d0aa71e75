/* scatter_add: slices added where ids say, in the same order every time.
 *
 * Entries (id, position) are sorted by id, positions in order. Pieces of equally many entries are
 * then summed, run by run: a run of one id that lies within a piece is finished, one that goes on
 * leaves a partial sum, and a block joins those of a run. So neither many ids that name one slice
 * nor few slices make a thread wait for one other. */
#include "device/cuda/kernels/gather_params.h"
#include "device/cuda/kernels/ids.h"
#include "device/cuda/kernels/kernel.h"

#define ID(entry) ((int64_t)((entry) >> 32))
#define POSITION(entry) ((int64_t)((entry)&0xffffffffu))

enum { ENTRIES_AT_ONCE = 8, JOIN_THREADS = 256, SORT_WARPS = MG_SORT_THREADS / MG_WARP };

/* ---- sorting: counts of digits, then every entry to its place ---- */

DEVICE uint64_t entry_at(const sort_params *p, uint32_t i) {
    if (!p->ids) return p->in[i];
    const int64_t id = mg_id(p->ids, p->id_bytes, i);
    return (uint64_t)(id >= 0 && id < p->size ? id : p->size) << 32 | i;
}

DEVICE uint32_t digit_of(const sort_params *p, uint64_t entry) {
    return (uint32_t)(entry >> p->shift) % MG_DIGITS;
}

DEVICE uint32_t end_of_block(const sort_params *p) {
    const uint32_t end = (blockIdx.x + 1) * p->per_block;
    return end < p->n ? end : p->n;
}

KERNEL(sort_count, sort_params) {
    __shared__ unsigned count[MG_DIGITS];
    count[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t i = blockIdx.x * p.per_block + threadIdx.x; i < end_of_block(&p); i += blockDim.x)
        atomicAdd(&count[digit_of(&p, entry_at(&p, i))], 1u);
    __syncthreads();
    p.counts[blockIdx.x * MG_DIGITS + threadIdx.x] = count[threadIdx.x];
}

/* Where this block's first entry of the thread's digit goes. */
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

/* The lanes whose digit is this lane's. */
DEVICE uint32_t peers_of(uint32_t digit, int there) {
    uint32_t peers = __ballot_sync(0xffffffffu, there);
    for (int bit = 1; bit < MG_DIGITS; bit *= 2) {
        const uint32_t set = __ballot_sync(0xffffffffu, (digit & bit) != 0);
        peers &= digit & bit ? set : ~set;
    }
    return peers;
}

/* By rounds of an entry a thread: warps in order, in a warp lanes in order. */
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

DEVICE int64_t end_of_piece(const scatter_params *p, int64_t piece) {
    const int64_t end = (piece + 1) * p->piece;
    return end < p->n ? end : p->n;
}

/* The run of the piece's last entry, if it begins here and goes on: its id, and the last piece that
 * has a part of it; else -1. */
DEVICE int64_t run_from(const scatter_params *p, int64_t piece, int64_t *last) {
    const int64_t begin = piece * p->piece, end = end_of_piece(p, piece);
    const int64_t id = ID(p->entries[end - 1]);
    if (end == p->n || id >= p->size || ID(p->entries[end]) != id) return -1;
    if (begin > 0 && ID(p->entries[begin - 1]) == id) return -1;
    int64_t low = end, high = p->n; /* the first entry of another id */
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

/* Sums are `real`, rounded to the dtype by ROUND. A partial sum has slot 0 if its run comes first
 * in the piece, else slot 1. */
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
    /* A block per piece and `width` columns; its threads share the other pieces of the run. */    \
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
    /* Of few ids: every element looks through all of them. */                                     \
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
SCATTER(i64, int64_t, )
SCATTER(bf16, float, )
SCATTER(f16, float, )
SCATTER(f32, float, )
SCATTER(f64, double, )

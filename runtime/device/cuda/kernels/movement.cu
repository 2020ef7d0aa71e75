/* Data movement: slice, broadcast, transpose, pad, concat, split. Moves units of 1 to 16 bytes,
 * whatever their dtype.
 *
 * walk and pad write the result in order and read the source at scattered positions. turn
 * transposes: if the source is contiguous along another axis than the result, such reads would
 * touch one cache line per element. So squares are transposed in shared memory, and both sides are
 * accessed by whole cache lines. */
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/movement_params.h"

/* ---- walks ---- */

/* The position in x of unit i of the result: coordinates from the last axis to the first, times
 * strides.
 */
DEVICE int64_t walk_place(const walk_params *p, uint32_t i) {
    int64_t at = 0;
    for (int k = p->rank - 1; k > 0; k--) {
        const uint32_t rest = mg_divide(i, p->n[k]);
        at += (int64_t)(i - rest * p->n[k].n) * p->from[k];
        i = rest;
    }
    return at + (int64_t)i * p->from[0];
}

#define WALK(unit)                                                                                 \
    KERNEL(walk_##unit, walk_params) {                                                             \
        const unit *const in = (const unit *)p.in;                                                 \
        unit *const out = (unit *)p.out;                                                           \
        ROUNDS(p.count) {                                                                          \
            unit v[MG_AT_ONCE];                                                                    \
            EACH(i, k, p.count) v[k] = in[walk_place(&p, i)];                                      \
            EACH(i, k, p.count) out[i] = v[k];                                                     \
        }                                                                                          \
    }
WALK(unit_1)
WALK(unit_2)
WALK(unit_4)
WALK(unit_8)
WALK(unit_16)

/* ---- padding ---- */

/* The coordinate in x for a coordinate of the result on axis k; -1 in the padding or in a gap
 * between elements of x. */
DEVICE int64_t pad_coordinate(const pad_params *p, int k, uint32_t coordinate) {
    int64_t at = (int64_t)coordinate - p->before[k];
    if (at < 0) return -1;
    if (p->gap[k].n > 1) {
        const uint32_t whole = mg_divide((uint32_t)at, p->gap[k]);
        if (whole * p->gap[k].n != (uint32_t)at) return -1;
        at = whole;
    }
    return at < p->inside[k] ? at : -1;
}

/* The position in x of unit i of the result; -1 where the padding value goes. */
DEVICE int64_t pad_place(const pad_params *p, uint32_t i) {
    int64_t place = 0;
    for (int k = p->walk.rank - 1; k >= 0; k--) {
        const uint32_t rest = k > 0 ? mg_divide(i, p->walk.n[k]) : 0;
        const int64_t at = pad_coordinate(p, k, i - rest * p->walk.n[k].n);
        if (at < 0) return -1;
        place += at * p->walk.from[k];
        i = rest;
    }
    return place;
}

#define PAD(unit)                                                                                  \
    KERNEL(pad_##unit, pad_params) {                                                               \
        const unit *const in = (const unit *)p.walk.in;                                            \
        unit *const out = (unit *)p.walk.out;                                                      \
        ROUNDS(p.walk.count) {                                                                     \
            unit v[MG_AT_ONCE];                                                                    \
            EACH(i, k, p.walk.count) {                                                             \
                const int64_t at = pad_place(&p, i);                                               \
                v[k] = at < 0 ? *(const unit *)p.value : in[at];                                   \
            }                                                                                      \
            EACH(i, k, p.walk.count) out[i] = v[k];                                                \
        }                                                                                          \
    }
PAD(unit_1)
PAD(unit_2)
PAD(unit_4)
PAD(unit_8)
PAD(unit_16)

/* ---- transpositions ---- */

/* Loops over the cells (i, j) of a square that the calling thread moves: a warp takes line i, its
 * lanes neighbouring j. */
#define LINES(SIDE, i, j)                                                                          \
    for (uint32_t k = 0, i = threadIdx.x / MG_WARP; k < SIDE / 8; k++, i += 8)                     \
        for (uint32_t h = 0, j = threadIdx.x % MG_WARP; h < SIDE / MG_WARP; h++, j += MG_WARP)

/* Transposes squares of SIDE x SIDE units by 256 threads, a warp per line. `extra` unused units at
 * the end of a line in shared memory put the units of a column in different banks, so that a warp
 * reads a column without bank conflicts. */
#define TURN(unit, SIDE, extra)                                                                    \
    KERNEL(turn_##unit, turn_params) {                                                             \
        __shared__ unit cell[SIDE][SIDE + extra];                                                  \
        for (uint32_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {                      \
            uint32_t rest = mg_divide(tile, p.across);                                             \
            const uint32_t column = (tile - rest * p.across.n) * SIDE;                             \
            uint32_t other = mg_divide(rest, p.down);                                              \
            const uint32_t row = (rest - other * p.down.n) * SIDE;                                 \
            const unit *in = (const unit *)p.in + row * p.from_row + column;                       \
            unit *out = (unit *)p.out + column * p.to_column + row;                                \
            for (int k = p.rank - 1; k >= 0; k--, other = rest) {                                  \
                rest = mg_divide(other, p.n[k]);                                                   \
                in += (int64_t)(other - rest * p.n[k].n) * p.from[k];                              \
                out += (int64_t)(other - rest * p.n[k].n) * p.to[k];                               \
            }                                                                                      \
            LINES(SIDE, r, c)                                                                      \
            if (row + r < p.rows && column + c < p.columns) cell[r][c] = in[r * p.from_row + c];   \
            __syncthreads();                                                                       \
            LINES(SIDE, c, r)                                                                      \
            if (row + r < p.rows && column + c < p.columns) out[c * p.to_column + r] = cell[r][c]; \
            __syncthreads();                                                                       \
        }                                                                                          \
    }
TURN(unit_1, 64, 4)
TURN(unit_2, 64, 2)
TURN(unit_4, 32, 1)
TURN(unit_8, 32, 1)
TURN(unit_16, 32, 1)

/* ---- concat and split ----
 *
 * Many sources in one launch: those of a concat, or the parts of a split. Each is cut into pieces
 * of blockDim.x * MG_AT_ONCE units, which are dealt out to the blocks. */

/* Unit i of rows that begin `pitch` bytes apart; adjacent ones if it is 0. */
#define UNIT_AT(unit, base, pitch, i)                                                              \
    ((unit *)((char *)(base) + (pitch ? mg_divide(i, s->run) * pitch : 0)) +                       \
     (pitch ? i - mg_divide(i, s->run) * s->run.n : i))

/* Copies one round of units of source s, between adjacent rows and rows with a pitch. */
#define MOVE(unit)                                                                                 \
    do {                                                                                           \
        unit v[MG_AT_ONCE];                                                                        \
        EACH(i, k, s->count) v[k] = *UNIT_AT(const unit, s->in, head->from_pitch, i);              \
        EACH(i, k, s->count) * UNIT_AT(unit, s->out, head->to_pitch, i) = v[k];                    \
    } while (0)

/* The source of a piece is found by binary search in the running counts of pieces. */
DEVICE void concat(const concat_head *head, const concat_source *source) {
    const uint32_t pieces = source[head->n - 1].end;
    for (uint32_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        int low = 0, high = head->n - 1;
        while (low < high) { /* the first source that ends after the piece */
            const int middle = (low + high) / 2;
            if (source[middle].end > piece)
                high = middle;
            else
                low = middle + 1;
        }
        const concat_source *const s = &source[low];
        const uint32_t begin = low ? source[low - 1].end : 0;
        const uint32_t first = (piece - begin) * blockDim.x * MG_AT_ONCE + threadIdx.x;
        switch (s->unit) {
        case 1: MOVE(unit_1); break;
        case 2: MOVE(unit_2); break;
        case 4: MOVE(unit_4); break;
        case 8: MOVE(unit_8); break;
        default: MOVE(unit_16); break;
        }
    }
}

/* Two sizes of parameter struct: copying 255 sources costs more at each launch than most calls
 * need. */
KERNEL(concat_few, concat_few_params) {
    concat(&p.head, p.source);
}

KERNEL(concat_many, concat_many_params) {
    concat(&p.head, p.source);
}

/* Walks: see movement/walk.h.
 *
 * Axes that run on into one another are merged first; then threads share the outer axes in blocks
 * of rows. Where the source is contiguous along another axis than the destination, that axis is
 * made the second innermost, so that a block becomes a transposition in small squares. */
#include "device/cpu/movement/walk.h"
#include "device/axes.h"
#include <omp.h>
#include <string.h>

enum { BLOCK = 32 }; /* rows of a unit of work at most, and columns of a square */

/* ---- preparing a walk ---- */

/* Inserts an axis of size 1. */
static void insert_axis(mg_walk *w, int at) {
    for (int i = w->rank++; i > at; i--)
        w->n[i] = w->n[i - 1], w->from[i] = w->from[i - 1], w->to[i] = w->to[i - 1];
    w->n[at] = 1, w->from[at] = w->to[at] = 0;
}

/* Moves an outer axis next to the innermost one. */
static void make_second_innermost(mg_walk *w, int axis) {
    const int64_t n = w->n[axis], from = w->from[axis], to = w->to[axis];
    for (int i = axis; i < w->rank - 2; i++)
        w->n[i] = w->n[i + 1], w->from[i] = w->from[i + 1], w->to[i] = w->to[i + 1];
    w->n[w->rank - 2] = n, w->from[w->rank - 2] = from, w->to[w->rank - 2] = to;
}

/* Leaves at least two axes. A single long axis is cut in two where its length allows, so that
 * threads can share it. The axis along which the source is contiguous becomes the second innermost.
 */
static void prepare_walk(mg_walk *w) {
    w->rank = mg_axes_merge(w->rank, w->n, (int64_t *const[]){w->from, w->to}, 2);
    while (w->rank < 2) insert_axis(w, 0);
    const int last = w->rank - 1;
    if (w->rank == 2 && w->n[0] == 1)
        for (int64_t pieces = 64; pieces > 1; pieces /= 2) { /* the most that divide it */
            if (w->n[1] < MG_SERIAL_BELOW || w->n[1] % pieces) continue;
            w->n[0] = pieces, w->n[1] /= pieces;
            w->from[0] = w->from[1] * w->n[1], w->to[0] = w->to[1] * w->n[1];
            break;
        }
    if (w->from[last] != 1 && w->to[last] == 1)
        for (int i = 0; i < last; i++)
            if (w->from[i] == 1) {
                make_second_innermost(w, i);
                break;
            }
}

static int64_t count_of(const mg_walk *w) {
    int64_t count = 1;
    for (int i = 0; i < w->rank; i++) count *= w->n[i];
    return count;
}

/* Whether two prepared walks have elements of one size and the same axes, but for the length of the
 * last. */
static bool alike(const mg_walk *a, const mg_walk *b) {
    return a->size == b->size && a->rank == b->rank &&
           memcmp(a->n, b->n, sizeof *a->n * (size_t)(a->rank - 1)) == 0;
}

/* Whether rows are contiguous on both sides. */
static bool has_rows(const mg_walk *w) {
    return w->from[w->rank - 1] == 1 && w->to[w->rank - 1] == 1;
}

/* ---- inner loops: rows x n elements, one function a size ---- */

/* A block of rows x n elements with the strides of its two axes. */
typedef struct block {
    int64_t rows, n, from_row, from, to_row, to;
    const char *src;
    char *dst;
} block;

/* One loop per element size: copies a block, by columns of BLOCK. */
#define COPY_BLOCK(type)                                                                           \
    static void copy_##type(const block *b) {                                                      \
        for (int64_t first = 0; first < b->n; first += BLOCK) {                                    \
            const int64_t end = mg_smaller(first + BLOCK, b->n);                                   \
            for (int64_t r = 0; r < b->rows; r++) {                                                \
                const type *x = (const type *)(const void *)b->src + r * b->from_row;              \
                type *y = (type *)(void *)b->dst + r * b->to_row;                                  \
                for (int64_t i = first; i < end; i++) y[i * b->to] = x[i * b->from];               \
            }                                                                                      \
        }                                                                                          \
    }
COPY_BLOCK(uint8_t)
COPY_BLOCK(uint16_t)
COPY_BLOCK(uint32_t)
COPY_BLOCK(uint64_t)

/* Transposes 4-byte elements: squares of MG_SQUARE in registers, within squares of BLOCK in the
 * caches. The edges are copied one by one. */
static void transpose_block(const block *b) {
    const mg_simd_movement *loops = mg_simd_used->movement;
    const uint32_t *src = (const uint32_t *)(const void *)b->src;
    uint32_t *dst = (uint32_t *)(void *)b->dst;
    const int64_t rows = b->rows / MG_SQUARE * MG_SQUARE, n = b->n / MG_SQUARE * MG_SQUARE;
    for (int64_t first = 0; first < n; first += BLOCK)
        for (int64_t r = 0; r < rows; r += MG_SQUARE)
            for (int64_t i = first; i < mg_smaller(first + BLOCK, n); i += MG_SQUARE)
                loops->transpose_square(src + r + i * b->from, b->from, dst + r * b->to_row + i,
                                        b->to_row);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t i = r < rows ? n : 0; i < b->n; i++)
            dst[r * b->to_row + i] = src[r + i * b->from];
}

/* Rows that are contiguous on both sides, but so short that a copy must be one or two moves: the
 * channels of a pixel. Returns false for other lengths. */
static bool copy_short_rows(const block *b, int64_t size) {
    const int64_t from = b->from_row * size, to = b->to_row * size;
    if (b->from != 1 || b->to != 1) return false;
    switch (b->n * size) {
#define CASE(bytes)                                                                                \
    case bytes:                                                                                    \
        for (int64_t r = 0; r < b->rows; r++) memcpy(b->dst + r * to, b->src + r * from, bytes);   \
        return true;
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(6)
        CASE(8)
        CASE(12)
#undef CASE
    default: return false;
    }
}

/* Picks the loop for a block: a transposition, short rows, or single elements. */
static void copy_block(const block *b, int64_t size) {
    if (copy_short_rows(b, size)) return;
    if (b->to == 1 && b->from_row == 1 && size == 4) {
        transpose_block(b);
        return;
    }
    switch (size) {
    case 1: copy_uint8_t(b); break;
    case 2: copy_uint16_t(b); break;
    case 4: copy_uint32_t(b); break;
    default: copy_uint64_t(b); break;
    }
}

/* ---- walks side by side ---- */

/* Walks that are alike, and how threads share them. A unit is `rows` rows of the second innermost
 * axis, at one place of the outer axes. */
typedef struct group {
    const mg_walk *walk;
    int n;
    int64_t rows, cuts, units;
    bool streamed; /* written past the caches */
} group;

/* Where a thread is: the indices of the outer axes, and the offsets of each walk that go with them.
 */
typedef struct place {
    int64_t index[MG_MAX_RANK];
    int64_t from[MG_MAX_LAUNCH], to[MG_MAX_LAUNCH];
} place;

/* The place number `outer`; the last of the outer axes runs fastest. */
static void seek(const group *g, int64_t outer, place *p) {
    const mg_walk *w = g->walk;
    for (int k = 0; k < g->n; k++) p->from[k] = w[k].from_first, p->to[k] = w[k].to_first;
    for (int i = w->rank - 3; i >= 0; outer /= w->n[i--]) {
        p->index[i] = outer % w->n[i];
        for (int k = 0; k < g->n; k++) {
            p->from[k] += p->index[i] * w[k].from[i];
            p->to[k] += p->index[i] * w[k].to[i];
        }
    }
}

/* The next place. No division: a place may be as little as one pixel's channels. */
static void advance(const group *g, place *p) {
    const mg_walk *w = g->walk;
    for (int i = w->rank - 3; i >= 0; i--) {
        const bool carries = ++p->index[i] == w->n[i];
        const int64_t steps = carries ? 1 - w->n[i] : 1;
        for (int k = 0; k < g->n; k++) {
            p->from[k] += steps * w[k].from[i];
            p->to[k] += steps * w[k].to[i];
        }
        if (!carries) return;
        p->index[i] = 0;
    }
}

/* Rows first .. first + rows - 1 of walk k at a place. */
static block block_at(const group *g, const place *p, int k, int64_t first) {
    const mg_walk *w = &g->walk[k];
    const int row = w->rank - 2, last = w->rank - 1;
    return (block){
        .rows = mg_smaller(g->rows, w->n[row] - first),
        .n = w->n[last],
        .from_row = w->from[row],
        .from = w->from[last],
        .to_row = w->to[row],
        .to = w->to[last],
        .src = (const char *)w->src + (p->from[k] + first * w->from[row]) * w->size,
        .dst = (char *)w->dst + (p->to[k] + first * w->to[row]) * w->size,
    };
}

/* Copies one unit of walks with contiguous rows, row by row: all first rows, all second rows ...
 * The rows of a single walk are copied in a loop by themselves, since they may be short. */
static void copy_rows(const group *g, const place *p, int64_t first) {
    const block only = block_at(g, p, 0, first);
    const int64_t size = g->walk->size, bytes = only.n * size;
    void (*stream)(float *, const float *, int64_t) = mg_simd_used->movement->stream;
    if (g->n == 1 && !g->streamed) {
        for (int64_t r = 0; r < only.rows; r++)
            memcpy(only.dst + r * only.to_row * size, only.src + r * only.from_row * size,
                   (size_t)bytes);
        return;
    }
    for (int64_t r = 0; r < only.rows; r++)
        for (int k = 0; k < g->n; k++) {
            const block b = block_at(g, p, k, first + r);
            if (g->streamed)
                stream((float *)(void *)b.dst, (const float *)(const void *)b.src, b.n * size / 4);
            else
                memcpy(b.dst, b.src, (size_t)(b.n * size));
        }
}

/* Units [from, to), by one thread. */
static void run_units(const group *g, bool by_rows, int64_t from, int64_t to) {
    place p;
    seek(g, from / g->cuts, &p);
    for (int64_t unit = from; unit < to; unit++) {
        const int64_t first = unit % g->cuts * g->rows;
        if (by_rows)
            copy_rows(g, &p, first);
        else
            for (int k = 0; k < g->n; k++) {
                const block b = block_at(g, &p, k, first);
                copy_block(&b, g->walk[k].size);
            }
        if (first + g->rows >= g->walk->n[g->walk->rank - 2]) advance(g, &p);
    }
    if (g->streamed) mg_simd_used->movement->end_stream();
}

/* Whether each walk of the group has contiguous rows, long enough for a call of memcpy; or rows of
 * whole cache lines, which can be written past the caches. */
static bool all_have_rows(const group *g, bool lines) {
    const int64_t bytes = 16;
    for (int k = 0; k < g->n; k++) {
        const int64_t run = g->walk[k].n[g->walk[k].rank - 1] * g->walk[k].size;
        if (!has_rows(&g->walk[k]) || run < bytes) return false;
        if (lines && (run % MG_LINE || run > INT32_MAX || g->walk[k].size < 4)) return false;
    }
    return true;
}

/* Runs walks that are alike. `bytes` is what the whole op moves: rows of whole cache lines are
 * written past the caches if the result is too large to be found there later. */
static void run_group(const mg_walk *walk, int n, int64_t count, int64_t bytes) {
    group g = {.walk = walk, .n = n};
    const int row = walk->rank - 2, team = mg_cpu_team(count);
    const bool by_rows = all_have_rows(&g, false);
    g.streamed = by_rows && 2 * bytes > MG_STREAM_ABOVE && all_have_rows(&g, true);
    int64_t outer = 1;
    for (int i = 0; i < row; i++) outer *= walk->n[i];
    const int64_t square = by_rows ? 1 : MG_SQUARE; /* rows that stay together */
    g.rows =
        square * mg_even_share(outer, mg_divide_up(walk->n[row], square), BLOCK / square, 1, team);
    g.cuts = mg_divide_up(walk->n[row], g.rows);
    g.units = outer * g.cuts;
#pragma omp parallel num_threads(team)
    {
        const int64_t me = omp_get_thread_num(), threads = omp_get_num_threads();
        run_units(&g, by_rows, g.units * me / threads, g.units * (me + 1) / threads);
    }
}

/* Empty walks are left out. A run of walks that are alike makes a group. */
void mg_walks_run(mg_walk *walks, int n) {
    int64_t bytes = 0;
    int left = 0;
    for (int i = 0; i < n; i++) {
        if (count_of(&walks[i]) == 0) continue;
        walks[left] = walks[i];
        prepare_walk(&walks[left]);
        bytes += count_of(&walks[left]) * walks[left].size;
        left++;
    }
    for (int first = 0, end; first < left; first = end) {
        int64_t count = count_of(&walks[first]);
        for (end = first + 1; end < left && end - first < MG_MAX_LAUNCH; end++) {
            if (!alike(&walks[first], &walks[end])) break;
            count += count_of(&walks[end]);
        }
        run_group(walks + first, end - first, count, bytes);
    }
}

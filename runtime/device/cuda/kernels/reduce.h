/* Reductions over axes: sum, prod, max, min, all, any, argmax, argmin. Generated text (reduce.c)
 * defines the constants in capitals and includes this.
 *
 * There are two layouts:
 *     ROWS      the innermost axis is reduced. A team of TEAM threads makes one result and reads
 *               neighbouring elements together
 *     columns   the innermost axis is kept. A block makes the results of neighbouring columns, a
 *               thread VECTOR of them; the threads of a block share the rows
 *
 * With FINISH, the number of immediates, the result goes through element-wise ops before it is
 * stored; REDUCED_TO is the dtype that it has before.
 *
 * If there are few results of many elements, too few blocks would work. Then each result is reduced
 * in pieces (OUT_PARTIAL), which a second kernel joins (IN_PARTIAL). The order of all operations
 * depends on sizes only, so the bits are the same every time. */
#include "device/cuda/kernels/elements.h"

/* ---- the operation: join(a, b), and start(), its neutral element ---- */

#if IS_ARG
typedef struct value { /* an element and its position on the reduced axis */
    REAL v;
    int64_t at;
} value;
#else
typedef REAL value;
#endif

#if IS_ARG
/* The larger value wins, of equal ones the first. NaN beats numbers, and the first NaN beats all.
 * argmin reduces elements in reverse order: negated, or as ~v, since the least integer has no
 * negative. */
#if INTEGER
#define REVERSED(v) (~(v))
#else
#define REVERSED(v) (-(v))
#endif
DEVICE value join(value a, value b) {
    const int first = b.at < a.at;
    const int wins = b.v != b.v ? a.v == a.v || first : b.v > a.v || (b.v == a.v && first);
    return wins ? b : a;
}
DEVICE value start(void) {
    value a = {LEAST, 0x7fffffffffffffff};
    return a;
}
#elif IS_SUM
DEVICE value join(value a, value b) {
    return ADD(a, b);
}
DEVICE value start(void) {
    return K(0);
}
#elif IS_PROD
DEVICE value join(value a, value b) {
    return MULTIPLY(a, b);
}
DEVICE value start(void) {
    return K(1);
}
#elif IS_MAX /* max and min propagate NaN */
DEVICE value join(value a, value b) {
    return b > a || b != b ? b : a;
}
DEVICE value start(void) {
    return LEAST;
}
#elif IS_MIN
DEVICE value join(value a, value b) {
    return b < a || b != b ? b : a;
}
DEVICE value start(void) {
    return MOST;
}
#elif IS_ALL
DEVICE value join(value a, value b) {
    return a != K(0) && b != K(0) ? K(1) : K(0);
}
DEVICE value start(void) {
    return K(1);
}
#elif IS_ANY
DEVICE value join(value a, value b) {
    return a != K(0) || b != K(0) ? K(1) : K(0);
}
DEVICE value start(void) {
    return K(0);
}
#endif

/* ---- parameters ---- */

typedef struct params {
    const void *in;
    void *out;
    int64_t n;       /* elements that a result reduces; ROWS: vectors of them */
    int64_t units;   /* results times pieces; columns: without the innermost axis */
    int64_t pieces;  /* ranges that the elements of a result are cut into */
    int64_t columns; /* columns: size of the innermost axis */
    int64_t across;  /* columns: threads of a block side by side, a power of two */
    int64_t aligned; /* whether the address allows vector access */
    axis kept[KEPT]; /* kept axes; columns: without the innermost */
    int64_t kept_stride[KEPT];
    axis reduced[REDUCED]; /* reduced axes; ROWS: the last one counts vectors */
    int64_t reduced_stride[REDUCED];
#if FINISH
    double immediate[FINISH];
#endif
} params;

#if FINISH
/* Generated: the element-wise ops behind the reduction, for one result. */
DEVICE REAL finish(const params *p, REAL v);
#endif

/* The offset of combination i of some axes, counted in row-major order. */
DEVICE INDEX offset_of(const axis *axes, const int64_t *stride, int rank, INDEX i) {
    INDEX offset = 0;
    UNROLL
    for (int a = rank - 1; a > 0; a--) {
        const INDEX rest = divide(i, axes[a]);
        offset += (i - rest * (INDEX)axes[a].size) * (INDEX)stride[a];
        i = rest;
    }
    return offset + i * (INDEX)stride[0];
}

/* ---- elements ---- */

typedef struct values {
    value at[VECTOR];
} values;

#if IN_PARTIAL /* the input is the pieces' results, which are values already */
DEVICE values load(const params *p, int aligned, INDEX offset, int64_t position, int64_t step) {
    values v;
    v.at[0] = ((const value *)p->in)[offset];
    return v;
}
#else
VECTOR_OF(IN, VECTOR)

/* An element as a value. */
DEVICE value value_of(REAL v, int64_t position) {
#if IS_ARG
    value a = {IS_MIN ? REVERSED(v) : v, position};
    return a;
#else
    return v;
#endif
}

/* VECTOR adjacent elements from `offset` on. Their positions on the reduced axis are `step` apart:
 * 1 for ROWS, 0 for columns, whose neighbours belong to other results. */
DEVICE values load(const params *p, int aligned, INDEX offset, int64_t position, int64_t step) {
    const JOIN(type, IN) *at = (const JOIN(type, IN) *)p->in + offset;
    values v;
    if (aligned) {
        const JOIN(vector, IN) x = *(const JOIN(vector, IN) *)at;
        UNROLL
        for (int k = 0; k < VECTOR; k++)
            v.at[k] = value_of(JOIN(load, IN)(x.at[k]), position + k * step);
    } else {
        UNROLL
        for (int k = 0; k < VECTOR; k++)
            v.at[k] = value_of(JOIN(load, IN)(at[k]), position + k * step);
    }
    return v;
}
#endif

/* VECTOR neutral elements. */
DEVICE values starts(void) {
    values v;
    UNROLL
    for (int k = 0; k < VECTOR; k++) v.at[k] = start();
    return v;
}

DEVICE values join_all(values a, values b) {
    UNROLL
    for (int k = 0; k < VECTOR; k++) a.at[k] = join(a.at[k], b.at[k]);
    return a;
}

/* Item i of a result that begins at `base`: a vector along the row, or one row of VECTOR columns.
 */
DEVICE values item(const params *p, int aligned, INDEX base, int64_t i) {
    const INDEX offset = offset_of(p->reduced, p->reduced_stride, REDUCED, (INDEX)i);
    return load(p, aligned, base + offset, ROWS ? i * VECTOR : i, ROWS);
}

/* Reduces the items i, i + step, ... below `end`. Items are joined in runs of RUN first: adding
 * single numbers to a large float would lose their low bits. Four items are loaded at a time, so
 * that the reads overlap. */
DEVICE values fold_as(const params *p, int aligned, INDEX base, int64_t i, int64_t end,
                      int64_t step) {
    values all = starts();
    while (i < end) {
        values run = starts();
        int n = 0;
        for (; n < RUN && i + 3 * step < end; n += 4, i += 4 * step) {
            const values a = item(p, aligned, base, i);
            const values b = item(p, aligned, base, i + step);
            const values c = item(p, aligned, base, i + 2 * step);
            const values d = item(p, aligned, base, i + 3 * step);
            run = join_all(run, join_all(join_all(a, b), join_all(c, d)));
        }
        ROLLED
        for (; n < RUN && i < end; n++, i += step) run = join_all(run, item(p, aligned, base, i));
        all = join_all(all, run);
    }
    return all;
}

/* Two copies of the loop, for aligned and for unaligned data: a branch inside would keep the
 * compiler from moving the loads of a step together. */
DEVICE values fold(const params *p, INDEX base, int64_t i, int64_t end, int64_t step) {
    return VECTOR == 1 || p->aligned ? fold_as(p, 1, base, i, end, step)
                                     : fold_as(p, 0, base, i, end, step);
}

/* Stores result i. */
DEVICE void store_result(const params *p, int64_t i, value v) {
#if OUT_PARTIAL
    ((value *)p->out)[i] = v;
#elif IS_ARG
    ((JOIN(type, OUT) *)p->out)[i] = (JOIN(type, OUT))v.at;
#elif FINISH
    ((JOIN(type, OUT) *)p->out)[i] = JOIN(store, OUT)(finish(p, ROUND_TO(REDUCED_TO, v)));
#else
    ((JOIN(type, OUT) *)p->out)[i] = JOIN(store, OUT)(v);
#endif
}

/* Piece i has the items from piece_begin(i) to piece_begin(i + 1) - 1. */
DEVICE int64_t piece_begin(const params *p, int64_t i) {
    return p->n * i / p->pieces;
}

/* ---- rows ---- */

#if ROWS

/* The value of the lane whose number differs in the bit `distance`. */
DEVICE value from_lane(value v, int distance) {
#if IS_ARG
    v.at = __shfl_xor_sync(0xffffffffu, v.at, distance);
    v.v = __shfl_xor_sync(0xffffffffu, v.v, distance);
    return v;
#else
    return __shfl_xor_sync(0xffffffffu, v, distance);
#endif
}

/* Returns, in the team's first thread, the values of all its threads joined. Teams larger than a
 * warp are the whole block and exchange through `cells`. */
DEVICE value join_team(value v, value *cells) {
    UNROLL
    for (int distance = (TEAM < MG_WARP ? TEAM : MG_WARP) / 2; distance > 0; distance /= 2)
        v = join(v, from_lane(v, distance));
    if (TEAM <= MG_WARP) return v;
    if (threadIdx.x % MG_WARP == 0) cells[threadIdx.x / MG_WARP] = v;
    __syncthreads();
    for (int warp = 1; warp < THREADS / MG_WARP; warp++) v = join(v, cells[warp]);
    __syncthreads();
    return v;
}

/* A block has THREADS / TEAM teams, each with one unit (a piece of a result) at a time. */
KERNEL(reduce, params) {
    __shared__ value cells[MG_WARP];
    const int teams = THREADS / TEAM, team = (int)threadIdx.x / TEAM,
              lane = (int)threadIdx.x % TEAM;
    for (int64_t first = (int64_t)blockIdx.x * teams; first < p.units;
         first += (int64_t)gridDim.x * teams) {
        const int64_t unit = first + team;
        value v = start();
        if (unit < p.units) {
            const int64_t result = unit / p.pieces, piece = unit % p.pieces;
            const INDEX base = offset_of(p.kept, p.kept_stride, KEPT, (INDEX)result);
            const values some =
                fold(&p, base, piece_begin(&p, piece) + lane, piece_begin(&p, piece + 1), TEAM);
            v = some.at[0];
            UNROLL
            for (int k = 1; k < VECTOR; k++) v = join(v, some.at[k]);
        }
        v = join_team(v, cells);
        if (lane == 0 && unit < p.units) store_result(&p, unit, v);
    }
}

/* ---- columns ---- */

#else

/* A job is a tile of across * VECTOR columns of one unit. Thread (x, y) takes VECTOR columns and
 * every down-th row from y on; the thread rows are then joined as a tree in shared memory. */
KERNEL(reduce, params) {
    __shared__ value cells[VECTOR][THREADS];
    const int t = (int)threadIdx.x, across = (int)p.across, down = THREADS / across;
    const int x = t % across, y = t / across;
    const int64_t tiles = (p.columns + across * VECTOR - 1) / (across * VECTOR);
    for (int64_t job = blockIdx.x; job < p.units * tiles; job += gridDim.x) {
        const int64_t unit = job / tiles, column = (job % tiles * across + x) * VECTOR;
        const int64_t results = p.units / p.pieces, piece = unit / results;
        const INDEX base =
            offset_of(p.kept, p.kept_stride, KEPT, (INDEX)(unit % results)) + (INDEX)column;
        values v = starts();
        if (column < p.columns)
            v = fold(&p, base, piece_begin(&p, piece) + y, piece_begin(&p, piece + 1), down);
        for (int half = down / 2; half > 0; half /= 2) {
            UNROLL
            for (int k = 0; k < VECTOR; k++) cells[k][t] = v.at[k];
            __syncthreads();
            UNROLL
            for (int k = 0; k < VECTOR && y < half; k++)
                v.at[k] = join(v.at[k], cells[k][t + half * across]);
            __syncthreads();
        }
        UNROLL
        for (int k = 0; k < VECTOR; k++)
            if (y == 0 && column < p.columns)
                store_result(&p, unit * p.columns + column + k, v.at[k]);
    }
}

#endif

/* Reductions over axes: sum prod max min all any, argmax argmin. Generated text (reduce.c) defines
 * the numbers and includes this.
 *
 * ROWS: the innermost axis is reduced. A team of TEAM threads makes one result, together reading
 * what lies side by side. Else columns: the innermost axis is kept; a block makes the results of
 * neighbouring columns, a thread VECTOR of them, its threads dealing out the rows. Few results of
 * many elements are made in pieces (OUT is partial), which a second kernel joins (IN is partial).
 * Who adds what to what depends on sizes alone, so the bits are the same each time. */
#include "device/cuda/kernels/elements.h"

/* ---- what is reduced ---- */

#if IS_ARG
typedef struct value { /* and where it was found */
    REAL v;
    int64_t at;
} value;
#else
typedef REAL value;
#endif

#if IS_ARG
/* NaN beats numbers, the first one all. */
DEVICE value join(value a, value b) {
    const int first = b.at < a.at;
    const int wins = b.v != b.v ? a.v == a.v || first : b.v > a.v || (b.v == a.v && first);
    return wins ? b : a;
}
DEVICE value start(void) {
    value a = {-INFINITE, 0x7fffffff};
    return a;
}
#elif IS_SUM
DEVICE value join(value a, value b) {
    return a + b;
}
DEVICE value start(void) {
    return K(0);
}
#elif IS_PROD
DEVICE value join(value a, value b) {
    return a * b;
}
DEVICE value start(void) {
    return K(1);
}
#elif IS_MAX
DEVICE value join(value a, value b) {
    return b > a || b != b ? b : a;
}
DEVICE value start(void) {
    return -INFINITE;
}
#elif IS_MIN
DEVICE value join(value a, value b) {
    return b < a || b != b ? b : a;
}
DEVICE value start(void) {
    return INFINITE;
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
    int64_t n;       /* reduced elements of a result; of ROWS, vectors of them */
    int64_t units;   /* results (columns: times pieces, without the innermost axis) */
    int64_t pieces;  /* of each result's elements */
    int64_t columns; /* kept elements of the innermost axis */
    int64_t across;  /* threads of a block side by side over columns, a power of two */
    int64_t aligned; /* whether vectors may be read as such */
    axis kept[KEPT]; /* but for the innermost, of columns */
    int64_t kept_stride[KEPT];
    axis reduced[REDUCED]; /* of ROWS, the last in vectors */
    int64_t reduced_stride[REDUCED];
} params;

/* Where combination i of some axes begins. */
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

#if IN_PARTIAL
DEVICE values load(const params *p, int aligned, INDEX offset, int64_t position, int64_t step) {
    values v;
    v.at[0] = ((const value *)p->in)[offset];
    return v;
}
#else
VECTOR_OF(IN, VECTOR)

DEVICE value take(REAL v, int64_t position) {
#if IS_ARG
    value a = {IS_MIN ? -v : v, position};
    return a;
#else
    return v;
#endif
}

/* VECTOR elements from `offset` on, which are `step` positions apart. */
DEVICE values load(const params *p, int aligned, INDEX offset, int64_t position, int64_t step) {
    const JOIN(type, IN) *at = (const JOIN(type, IN) *)p->in + offset;
    values v;
    if (aligned) {
        const JOIN(vector, IN) x = *(const JOIN(vector, IN) *)at;
        UNROLL
        for (int k = 0; k < VECTOR; k++)
            v.at[k] = take(JOIN(load, IN)(x.at[k]), position + k * step);
    } else {
        UNROLL
        for (int k = 0; k < VECTOR; k++) v.at[k] = take(JOIN(load, IN)(at[k]), position + k * step);
    }
    return v;
}
#endif

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

DEVICE values item(const params *p, int aligned, INDEX base, int64_t i) {
    const INDEX offset = offset_of(p->reduced, p->reduced_stride, REDUCED, (INDEX)i);
    return load(p, aligned, base + offset, ROWS ? i * VECTOR : i, ROWS);
}

/* The items i, i + step, ... below `end`, in runs: a float that has grown large would not feel
 * single ones. Four are on their way at a time. */
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

/* Two loops, so that the loads of one stay together. */
DEVICE values fold(const params *p, INDEX base, int64_t i, int64_t end, int64_t step) {
    return VECTOR == 1 || p->aligned ? fold_as(p, 1, base, i, end, step)
                                     : fold_as(p, 0, base, i, end, step);
}

DEVICE void put(const params *p, int64_t i, value v) {
#if OUT_PARTIAL
    ((value *)p->out)[i] = v;
#elif IS_ARG
    ((int32_t *)p->out)[i] = (int32_t)v.at;
#else
    ((JOIN(type, OUT) *)p->out)[i] = JOIN(store, OUT)(v);
#endif
}

/* The elements of piece i. */
DEVICE int64_t piece_begin(const params *p, int64_t i) {
    return p->n * i / p->pieces;
}

/* ---- rows ---- */

#if ROWS

DEVICE value from_lane(value v, int distance) {
#if IS_ARG
    v.at = __shfl_xor_sync(0xffffffffu, v.at, distance);
    v.v = __shfl_xor_sync(0xffffffffu, v.v, distance);
    return v;
#else
    return __shfl_xor_sync(0xffffffffu, v, distance);
#endif
}

/* In the team's first thread: its threads' values joined. */
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
        if (lane == 0 && unit < p.units) put(&p, unit, v);
    }
}

/* ---- columns ---- */

#else

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
            if (y == 0 && column < p.columns) put(&p, unit * p.columns + column + k, v.at[k]);
    }
}

#endif

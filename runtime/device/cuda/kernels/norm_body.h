/* Statistics of the columns of x {rows, channels}, and batch normalisation, for one dtype.
 *
 *     moments_partial, moments_join   mean and variance of each column
 *     sums_partial (+ add_parts)      sums of dy and of dy * hat for the gradients,
 *                                     hat = (x - mean) / deviation
 *     batch_norm                      y = (x - mean) * gamma / sqrt(variance + epsilon) + beta
 *
 * Means and variances are joined from parts by the formula of Chan, Golub and LeVeque, which does
 * not cancel as a sum of x^2 minus a squared sum would. Each kernel exists for single columns and,
 * as <name>_vector, for vectors of 4 neighbouring columns in one access. The order of all additions
 * depends on sizes only. */

/* Merges the mean and the sum of squared deviations (squares) of a second part into those of n
 * numbers. other, others: the second part's mean and squares. share: its fraction of all the
 * numbers. */
DEVICE void NAME(join_moments)(REAL n, REAL share, REAL *mean, REAL *squares, REAL other,
                               REAL others) {
    if (share == 0) return;
    const REAL off = other - *mean;
    *mean += off * share;
    *squares += others + off * off * (n * share);
}

#ifndef MG_COLUMN_PART
#define MG_COLUMN_PART
/* The work of a thread: rows begin .. end - 1 of its block's chunk, one column (or vector of
 * columns), and of those rows every lanes-th one from `lane` on. */
typedef struct column_part {
    int64_t chunk, begin, end, column;
    int lane, lanes;
} column_part;

DEVICE column_part mg_column_part(const column_params *p) {
    const int tile = blockIdx.x / p->chunks, t = threadIdx.x;
    const int64_t chunk = blockIdx.x % p->chunks, begin = chunk * p->piece;
    const column_part part = {.chunk = chunk,
                              .begin = begin,
                              .end = begin + p->piece < p->rows ? begin + p->piece : p->rows,
                              .column = (int64_t)tile * p->width + t % p->width,
                              .lane = t / p->width,
                              .lanes = MG_COLUMN_THREADS / p->width};
    return part;
}
#endif

/* A thread reads VECTOR channels in one access, and several rows before it uses the first, so that
 * the reads overlap. */
#define COLUMNS(VECTOR, KIND)                                                                      \
    typedef struct KIND(cells) {                                                                   \
        STORED at[VECTOR];                                                                         \
    } __attribute__((aligned(sizeof(STORED) * VECTOR))) KIND(cells);                               \
                                                                                                   \
    /* Merges the first m of MG_MOMENTS_ROWS rows into the moments of n rows before: first their   \
     * mean, then their deviations from it, so that nothing cancels. */                            \
    DEVICE void KIND(add_rows)(const KIND(cells) * now, int m, const REAL *origin, REAL n,         \
                               REAL *mean, REAL *squares) {                                        \
        const REAL each = 1 / (REAL)m, share = (REAL)m / (n + m);                                  \
        for (int j = 0; j < VECTOR; j++) {                                                         \
            REAL middle = 0, distance = 0, v[MG_MOMENTS_ROWS];                                     \
            for (int k = 0; k < MG_MOMENTS_ROWS; k++) {                                            \
                v[k] = LOAD(now[k].at, j) - origin[j];                                             \
                middle += k < m ? v[k] : 0;                                                        \
            }                                                                                      \
            middle *= each;                                                                        \
            for (int k = 0; k < MG_MOMENTS_ROWS; k++)                                              \
                distance += k < m ? (v[k] - middle) * (v[k] - middle) : 0;                         \
            NAME(join_moments)(n, share, &mean[j], &squares[j], middle, distance);                 \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Mean and squares of each column over a block's chunk of rows. Numbers are taken relative    \
     * to the column's first number (origin): a column far from 0 keeps its digits. moments_join   \
     * adds the origin again. */                                                                   \
    KERNEL(KIND(moments_partial), column_params) {                                                 \
        __shared__ REAL counts[MG_COLUMN_THREADS], means[VECTOR][MG_COLUMN_THREADS],               \
            sums[VECTOR][MG_COLUMN_THREADS];                                                       \
        const column_part part = mg_column_part(&p);                                               \
        const int64_t vectors = p.channels / VECTOR, first = part.column * VECTOR;                 \
        const KIND(cells) *const x = (const KIND(cells) *)p.x + part.column;                       \
        const bool works = part.column < vectors && p.rows > 0;                                    \
        const int t = threadIdx.x, lane = part.lane, apart = part.lanes;                           \
        const int64_t step = apart * vectors;                                                      \
        REAL n = 0, origin[VECTOR], mean[VECTOR] = {0}, squares[VECTOR] = {0};                     \
        for (int j = 0; j < VECTOR; j++) origin[j] = works ? (REAL)LOAD(p.x, first + j) : 0;       \
        for (int64_t r = part.begin + lane; works && r < part.end; r += apart * MG_MOMENTS_ROWS) { \
            const KIND(cells) *const from = x + r * vectors;                                       \
            const int left = (int)(part.end - r);                                                  \
            KIND(cells) now[MG_MOMENTS_ROWS];                                                      \
            int m = 0;                                                                             \
            for (int k = 0; k < MG_MOMENTS_ROWS; k++) {                                            \
                now[k] = from[k * apart < left ? k * step : 0];                                    \
                m += k * apart < left;                                                             \
            }                                                                                      \
            /* The usual case has a constant count, for which the compiler unrolls the loops. */   \
            if (m == MG_MOMENTS_ROWS)                                                              \
                KIND(add_rows)(now, MG_MOMENTS_ROWS, origin, n, mean, squares);                    \
            else                                                                                   \
                KIND(add_rows)(now, m, origin, n, mean, squares);                                  \
            n += m;                                                                                \
        }                                                                                          \
        /* Tree over the lanes of a column. */                                                     \
        counts[t] = n;                                                                             \
        for (int j = 0; j < VECTOR; j++) means[j][t] = mean[j], sums[j][t] = squares[j];           \
        for (int half = part.lanes / 2; half > 0; half /= 2) {                                     \
            const int o = t + half * p.width;                                                      \
            __syncthreads();                                                                       \
            if (lane >= half || counts[o] == 0) continue;                                          \
            const REAL share = counts[o] / (counts[t] + counts[o]);                                \
            for (int j = 0; j < VECTOR; j++) NAME(join_moments)                                    \
            (counts[t], share, &means[j][t], &sums[j][t], means[j][o], sums[j][o]);                \
            counts[t] += counts[o];                                                                \
        }                                                                                          \
        if (lane > 0 || !works) return;                                                            \
        REAL *const to = (REAL *)p.partials + 2 * part.chunk * p.channels + first;                 \
        for (int j = 0; j < VECTOR; j++) to[j] = means[j][t], to[p.channels + j] = sums[j][t];     \
    }                                                                                              \
                                                                                                   \
    /* Adds the first m of MG_SUMS_ROWS rows to the sums of dy (one) and of dy * hat (hat).        \
     * by_row: mean and inverse are those of the rows, else those of the columns. */               \
    DEVICE void KIND(add_terms)(const KIND(cells) * x, const KIND(cells) * dy, int m,              \
                                const REAL *mean, const REAL *inverse, int by_row, REAL *one,      \
                                REAL *hat) {                                                       \
        for (int k = 0; k < MG_SUMS_ROWS; k++)                                                     \
            for (int j = 0; j < VECTOR; j++) {                                                     \
                const int at = by_row ? k : j;                                                     \
                const REAL d = LOAD(dy[k].at, j);                                                  \
                const REAL term = d * ((LOAD(x[k].at, j) - mean[at]) * inverse[at]);               \
                one[j] += k < m ? d : 0;                                                           \
                hat[j] += k < m ? term : 0;                                                        \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    /* The sums of dy and of dy * hat of each column over a block's chunk of rows: the gradients   \
     * of beta and gamma. Batch normalisation has moments for each column, layer normalisation     \
     * (by_row) {mean, 1 / deviation} for each row. */                                             \
    KERNEL(KIND(sums_partial), column_params) {                                                    \
        __shared__ REAL ones[VECTOR][MG_COLUMN_THREADS], hats[VECTOR][MG_COLUMN_THREADS];          \
        const column_part part = mg_column_part(&p);                                               \
        const int64_t vectors = p.channels / VECTOR, first = part.column * VECTOR;                 \
        const KIND(cells) *const x = (const KIND(cells) *)p.x + part.column;                       \
        const KIND(cells) *const dy = (const KIND(cells) *)p.dy + part.column;                     \
        const int t = threadIdx.x, lane = part.lane, apart = part.lanes;                           \
        const int64_t step = apart * vectors;                                                      \
        const bool works = part.column < vectors;                                                  \
        REAL one[VECTOR] = {0}, hat[VECTOR] = {0}, mean[VECTOR] = {0}, inverse[VECTOR] = {0};      \
        for (int j = 0; j < VECTOR && works && !p.by_row; j++) {                                   \
            mean[j] = PARAM(p.moments, first + j);                                                 \
            inverse[j] = PARAM(p.moments, p.channels + first + j);                                 \
        }                                                                                          \
        for (int j = 0; j < VECTOR; j++) inverse[j] = 1 / SQRT(inverse[j] + (REAL)p.epsilon);      \
        for (int64_t r = part.begin + lane; works && r < part.end; r += apart * MG_SUMS_ROWS) {    \
            const int left = (int)(part.end - r);                                                  \
            KIND(cells) xs[MG_SUMS_ROWS], dys[MG_SUMS_ROWS];                                       \
            int m = 0;                                                                             \
            for (int k = 0; k < MG_SUMS_ROWS; k++) {                                               \
                const int64_t at = r * vectors + (k * apart < left ? k * step : 0);                \
                xs[k] = x[at];                                                                     \
                dys[k] = dy[at];                                                                   \
                m += k * apart < left;                                                             \
            }                                                                                      \
            if (p.by_row) {                                                                        \
                REAL means[MG_SUMS_ROWS], inverses[MG_SUMS_ROWS];                                  \
                for (int k = 0; k < MG_SUMS_ROWS; k++) {                                           \
                    const int64_t row = k * apart < left ? r + k * apart : r;                      \
                    means[k] = ((const REAL *)p.moments)[2 * row];                                 \
                    inverses[k] = ((const REAL *)p.moments)[2 * row + 1];                          \
                }                                                                                  \
                KIND(add_terms)(xs, dys, m, means, inverses, 1, one, hat);                         \
            } else if (m == MG_SUMS_ROWS) {                                                        \
                KIND(add_terms)(xs, dys, MG_SUMS_ROWS, mean, inverse, 0, one, hat);                \
            } else {                                                                               \
                KIND(add_terms)(xs, dys, m, mean, inverse, 0, one, hat);                           \
            }                                                                                      \
        }                                                                                          \
        for (int j = 0; j < VECTOR; j++) ones[j][t] = one[j], hats[j][t] = hat[j];                 \
        for (int half = part.lanes / 2; half > 0; half /= 2) {                                     \
            const int o = t + half * p.width;                                                      \
            __syncthreads();                                                                       \
            for (int j = 0; j < VECTOR && lane < half; j++)                                        \
                ones[j][t] += ones[j][o], hats[j][t] += hats[j][o];                                \
        }                                                                                          \
        if (lane > 0 || !works) return;                                                            \
        REAL *const to = (REAL *)p.partials + 2 * part.chunk * p.channels + first;                 \
        for (int j = 0; j < VECTOR; j++) to[j] = ones[j][t], to[p.channels + j] = hats[j][t];      \
    }

/* moments_partial_f32 and moments_partial_vector_f32, and so on for each dtype. */
#define ONE(x) NAME(x)
#define FOUR(x) NAME(x##_vector)
COLUMNS(1, ONE)
COLUMNS(4, FOUR)
#undef ONE
#undef FOUR
#undef COLUMNS

/* Merges the chunks of moments_partial: out {2, channels} gets means and variances (NaN without
 * rows). A block takes 32 columns, one per lane; each of its warps merges every warps-th chunk,
 * then the warps are merged as a tree. */
KERNEL(NAME(moments_join), column_params) {
    __shared__ REAL counts[MG_JOIN_THREADS], means[MG_JOIN_THREADS], sums[MG_JOIN_THREADS];
    const int t = threadIdx.x, warp = t / MG_WARP, warps = MG_JOIN_THREADS / MG_WARP;
    const int64_t c = (int64_t)blockIdx.x * MG_WARP + t % MG_WARP;
    const REAL *const parts = (const REAL *)p.partials; /* {chunks, 2, channels} */
    REAL n = 0, mean = 0, squares = 0;
    for (int k = warp; k < p.chunks && c < p.channels && p.rows > 0; k += warps) {
        const REAL *const part = parts + 2 * k * p.channels + c;
        const int64_t left = p.rows - k * p.piece;
        const REAL m = (REAL)(left < p.piece ? left : p.piece);
        NAME(join_moments)(n, m / (n + m), &mean, &squares, part[0], part[p.channels]);
        n += m;
    }
    counts[t] = n, means[t] = mean, sums[t] = squares;
    for (int half = warps / 2; half > 0; half /= 2) {
        const int o = t + half * MG_WARP;
        __syncthreads();
        if (warp >= half || counts[o] == 0) continue;
        NAME(join_moments)
        (counts[t], counts[o] / (counts[t] + counts[o]), &means[t], &sums[t], means[o], sums[o]);
        counts[t] += counts[o];
    }
    if (warp > 0 || c >= p.channels) return;
    PUT(p.out, c, p.rows ? LOAD(p.x, c) + means[t] : (REAL)NAN);
    PUT(p.out, p.channels + c, p.rows ? sums[t] / (REAL)p.rows : (REAL)NAN);
}

/* y = (x - mean) * slope + beta with slope = gamma / sqrt(variance + epsilon), which is computed
 * once: a thread keeps its VECTOR channels and goes down the rows, MG_NORM_ROWS at a time. */
#define BATCH_NORM(name, VECTOR)                                                                   \
    KERNEL(NAME(name), batch_norm_params) {                                                        \
        typedef struct vector {                                                                    \
            STORED at[VECTOR];                                                                     \
        } __attribute__((aligned(sizeof(STORED) * VECTOR))) vector;                                \
        const int lanes = MG_COLUMN_THREADS / p.width, lane = threadIdx.x / p.width;               \
        const int tiles = (int)((p.channels + p.width - 1) / p.width);                             \
        const int64_t v = (int64_t)(blockIdx.x % tiles) * p.width + threadIdx.x % p.width;         \
        const int64_t step = (int64_t)(gridDim.x / tiles) * lanes, all = p.channels * VECTOR;      \
        REAL mean[VECTOR], beta[VECTOR], slope[VECTOR] = {0}, variance[VECTOR] = {0};              \
        const bool works = v < p.channels;                                                         \
        for (int k = 0; k < VECTOR && works; k++) {                                                \
            mean[k] = PARAM(p.moments, v * VECTOR + k);                                            \
            variance[k] = PARAM(p.moments, all + v * VECTOR + k);                                  \
            slope[k] = PARAM(p.gamma, v * VECTOR + k);                                             \
            beta[k] = PARAM(p.beta, v * VECTOR + k);                                               \
        }                                                                                          \
        for (int k = 0; k < VECTOR; k++) slope[k] /= SQRT(variance[k] + (REAL)p.epsilon);          \
        for (int64_t r = (int64_t)(blockIdx.x / tiles) * lanes + lane; works && r < p.rows;        \
             r += MG_NORM_ROWS * step) {                                                           \
            vector x[MG_NORM_ROWS];                                                                \
            for (int i = 0; i < MG_NORM_ROWS; i++)                                                 \
                x[i] = ((const vector *)                                                           \
                            p.x)[(r + i * step < p.rows ? r + i * step : r) * p.channels + v];     \
            for (int i = 0; i < MG_NORM_ROWS; i++) {                                               \
                for (int k = 0; k < VECTOR; k++)                                                   \
                    STORE(x[i].at, k, (LOAD(x[i].at, k) - mean[k]) * slope[k] + beta[k]);          \
                if (r + i * step < p.rows)                                                         \
                    ((vector *)p.y)[(r + i * step) * p.channels + v] = x[i];                       \
            }                                                                                      \
        }                                                                                          \
    }
BATCH_NORM(batch_norm, 1)
BATCH_NORM(batch_norm_vector, 4)
#undef BATCH_NORM

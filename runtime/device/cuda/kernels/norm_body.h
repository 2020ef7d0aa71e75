/* Statistics of columns and batch normalisation for one dtype: see norm.cu. */

/* Joins two parts: their numbers, means, and sums of squared distances from the mean. */
DEVICE void NAME(join)(REAL *n, REAL *mean, REAL *squares, REAL m, REAL other, REAL others) {
    if (m == 0) return;
    const REAL all = *n + m, off = other - *mean;
    *mean += off * (m / all);
    *squares += others + off * off * (*n * (m / all));
    *n = all;
}

/* Rows are taken a few at once: their mean first, so that nothing cancels. Everything is told from
 * the column's first number: a column far from 0 keeps all its digits. */
KERNEL(NAME(moments_partial), column_params) {
    enum { BATCH = 8 };
    __shared__ REAL counts[MG_COLUMN_THREADS], means[MG_COLUMN_THREADS], sums[MG_COLUMN_THREADS];
    const int t = threadIdx.x, lanes = MG_COLUMN_THREADS / p.width, lane = t / p.width;
    const int64_t tile = blockIdx.x / p.chunks, chunk = blockIdx.x % p.chunks;
    const int64_t c = tile * p.width + t % p.width;
    const int64_t begin = p.rows * chunk / p.chunks, end = p.rows * (chunk + 1) / p.chunks;
    const REAL origin = p.rows && c < p.channels ? (REAL)LOAD(p.x, c) : 0;
    REAL n = 0, mean = 0, squares = 0;
    for (int64_t r = begin + lane; r < end && c < p.channels; r += (int64_t)lanes * BATCH) {
        REAL v[BATCH], sum = 0, distance = 0;
        int m = 0;
        for (int k = 0; k < BATCH; k++) {
            const int64_t row = r + (int64_t)k * lanes;
            v[k] = row < end ? LOAD(p.x, row * p.channels + c) - origin : 0;
            m += row < end;
        }
        for (int k = 0; k < BATCH; k++) sum += v[k];
        const REAL middle = sum / m;
        for (int k = 0; k < BATCH; k++) distance += k < m ? (v[k] - middle) * (v[k] - middle) : 0;
        NAME(join)(&n, &mean, &squares, m, middle, distance);
    }
    counts[t] = n, means[t] = mean, sums[t] = squares;
    for (int half = lanes / 2; half > 0; half /= 2) {
        const int o = t + half * p.width;
        __syncthreads();
        if (lane < half) NAME(join)(&counts[t], &means[t], &sums[t], counts[o], means[o], sums[o]);
    }
    if (lane > 0 || c >= p.channels) return;
    ((REAL *)p.partials)[2 * chunk * p.channels + c] = means[t];
    ((REAL *)p.partials)[(2 * chunk + 1) * p.channels + c] = sums[t];
}

/* A block joins 32 columns, each warp some of their chunks. */
KERNEL(NAME(moments_join), column_params) {
    __shared__ REAL counts[MG_JOIN_THREADS], means[MG_JOIN_THREADS], sums[MG_JOIN_THREADS];
    const int t = threadIdx.x, warp = t / MG_WARP, warps = MG_JOIN_THREADS / MG_WARP;
    const int64_t c = (int64_t)blockIdx.x * MG_WARP + t % MG_WARP;
    const REAL *const parts = (const REAL *)p.partials;
    REAL n = 0, mean = 0, squares = 0;
    for (int64_t k = warp; k < p.chunks && c < p.channels; k += warps) {
        const REAL m = (REAL)(p.rows * (k + 1) / p.chunks - p.rows * k / p.chunks);
        NAME(join)
        (&n, &mean, &squares, m, parts[2 * k * p.channels + c],
         parts[(2 * k + 1) * p.channels + c]);
    }
    counts[t] = n, means[t] = mean, sums[t] = squares;
    for (int half = warps / 2; half > 0; half /= 2) {
        const int o = t + half * MG_WARP;
        __syncthreads();
        if (warp < half) NAME(join)(&counts[t], &means[t], &sums[t], counts[o], means[o], sums[o]);
    }
    if (warp > 0 || c >= p.channels) return;
    PUT(p.out, c, p.rows ? LOAD(p.x, c) + means[t] : (REAL)NAN);
    PUT(p.out, p.channels + c, p.rows ? sums[t] / (REAL)p.rows : (REAL)NAN);
}

/* The sums of dy and of dy * xhat. */
KERNEL(NAME(sums_partial), column_params) {
    __shared__ REAL ones[MG_COLUMN_THREADS], hats[MG_COLUMN_THREADS];
    const int t = threadIdx.x, lanes = MG_COLUMN_THREADS / p.width, lane = t / p.width;
    const int64_t tile = blockIdx.x / p.chunks, chunk = blockIdx.x % p.chunks;
    const int64_t c = tile * p.width + t % p.width;
    const int64_t begin = p.rows * chunk / p.chunks, end = p.rows * (chunk + 1) / p.chunks;
    REAL one = 0, hat = 0, mean = 0, inverse = 0;
    if (!p.by_row && c < p.channels) {
        mean = PARAM(p.moments, c);
        inverse = 1 / SQRT(PARAM(p.moments, p.channels + c) + (REAL)p.epsilon);
    }
    for (int64_t r = begin + lane; r < end && c < p.channels; r += lanes) {
        const REAL dy = LOAD(p.dy, r * p.channels + c), x = LOAD(p.x, r * p.channels + c);
        if (p.by_row) {
            mean = ((const REAL *)p.moments)[2 * r];
            inverse = ((const REAL *)p.moments)[2 * r + 1];
        }
        one += dy;
        hat += dy * ((x - mean) * inverse);
    }
    ones[t] = one, hats[t] = hat;
    for (int half = lanes / 2; half > 0; half /= 2) {
        const int o = t + half * p.width;
        __syncthreads();
        if (lane < half) ones[t] += ones[o], hats[t] += hats[o];
    }
    if (lane > 0 || c >= p.channels) return;
    ((REAL *)p.partials)[2 * chunk * p.channels + c] = ones[t];
    ((REAL *)p.partials)[(2 * chunk + 1) * p.channels + c] = hats[t];
}

/* A thread keeps its channels and goes down the rows; several channels are one access. */
#define BATCH_NORM(name, VECTOR)                                                                   \
    KERNEL(NAME(name), batch_norm_params) {                                                        \
        typedef struct vector {                                                                    \
            STORED at[VECTOR];                                                                     \
        } __attribute__((aligned(sizeof(STORED) * VECTOR))) vector;                                \
        const int lanes = MG_COLUMN_THREADS / p.width, lane = threadIdx.x / p.width;               \
        const int64_t tiles = (p.channels + p.width - 1) / p.width;                                \
        const int64_t v = blockIdx.x % tiles * p.width + threadIdx.x % p.width;                    \
        const int64_t step = gridDim.x / tiles * lanes, all = p.channels * VECTOR;                 \
        REAL mean[VECTOR], slope[VECTOR], beta[VECTOR];                                            \
        if (v >= p.channels) return;                                                               \
        for (int k = 0; k < VECTOR; k++) {                                                         \
            const int64_t c = v * VECTOR + k;                                                      \
            mean[k] = PARAM(p.moments, c);                                                         \
            slope[k] = PARAM(p.gamma, c) / SQRT(PARAM(p.moments, all + c) + (REAL)p.epsilon);      \
            beta[k] = PARAM(p.beta, c);                                                            \
        }                                                                                          \
        for (int64_t r = blockIdx.x / tiles * lanes + lane; r < p.rows; r += step) {               \
            const vector x = ((const vector *)p.x)[r * p.channels + v];                            \
            vector y;                                                                              \
            for (int k = 0; k < VECTOR; k++)                                                       \
                STORE(y.at, k, (LOAD(x.at, k) - mean[k]) * slope[k] + beta[k]);                    \
            ((vector *)p.y)[r * p.channels + v] = y;                                               \
        }                                                                                          \
    }
BATCH_NORM(batch_norm, 1)
BATCH_NORM(batch_norm_vector, 4)
#undef BATCH_NORM

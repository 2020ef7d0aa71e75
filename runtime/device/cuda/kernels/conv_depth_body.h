/* Depthwise convolutions of one dtype: each input channel is convolved with its own `each` kernels,
 * so k = c * each and output channel k reads input channel k / each.
 *
 * Unlike a matrix product, it reads about as many numbers as it computes, so it is memory-bound.
 * Neighbouring threads take neighbouring channels, whose elements are adjacent in memory.
 *
 * DEPTH defines the forward pass and the gradient of x. A block takes one row of pixels of what it
 * writes, a thread VECTOR channels of a pixel in one access. The vector form needs each == 1 (a
 * vector of channels then has one vector of kernels), and p.k counts vectors. */

/* y = conv(x, w), then + bias and relu if the parameters say so. relu keeps NaN: NaN < 0 is
 * false. */
#define DEPTH(VECTOR, KIND)                                                                        \
    typedef struct KIND(depth_cells) {                                                             \
        STORED at[VECTOR];                                                                         \
    } __attribute__((aligned(VECTOR * sizeof(STORED) < 16 ? VECTOR * sizeof(STORED) : 16)))        \
    KIND(depth_cells);                                                                             \
                                                                                                   \
    KERNEL(KIND(depth), depth_params) {                                                            \
        const KIND(depth_cells) *x = (const KIND(depth_cells) *)p.x;                               \
        const KIND(depth_cells) *w = (const KIND(depth_cells) *)p.w;                               \
        const int channels = p.k / p.each;                                                         \
        for (int64_t r = blockIdx.x; r < p.n * p.oh; r += gridDim.x)                               \
            for (int t = threadIdx.x; t < p.ow * p.k; t += blockDim.x) {                           \
                const int64_t image = r / p.oh * p.h;                                              \
                const int top = (int)(r % p.oh) * p.down - p.top, k = t % p.k, c = k / p.each;     \
                const int left = t / p.k * p.across - p.left;                                      \
                KIND(depth_cells) y;                                                               \
                REAL sum[VECTOR];                                                                  \
                for (int v = 0; v < VECTOR; v++)                                                   \
                    sum[v] = p.bias ? (REAL)LOAD(p.bias, k * VECTOR + v) : 0;                      \
                for (int i = 0; i < p.kh; i++)                                                     \
                    for (int j = 0; j < p.kw; j++) {                                               \
                        const int iy = top + i * p.spread_y, ix = left + j * p.spread_x;           \
                        if (iy < 0 || iy >= p.h || ix < 0 || ix >= p.wide) continue;               \
                        const KIND(depth_cells) a =                                                \
                            x[((image + iy) * p.wide + ix) * channels + c];                        \
                        const KIND(depth_cells) b = w[(i * p.kw + j) * p.k + k];                   \
                        for (int v = 0; v < VECTOR; v++) sum[v] += LOAD(a.at, v) * LOAD(b.at, v);  \
                    }                                                                              \
                for (int v = 0; v < VECTOR; v++) STORE(y.at, v, p.relu &&sum[v] < 0 ? 0 : sum[v]); \
                ((KIND(depth_cells) *)p.out)[r * p.ow * p.k + t] = y;                              \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    /* dx: each thread gathers, for its pixel and channels, all results that read that pixel; so   \
     * no atomics are needed. */                                                                   \
    KERNEL(KIND(depth_input), depth_params) {                                                      \
        const KIND(depth_cells) *dy = (const KIND(depth_cells) *)p.dy;                             \
        const KIND(depth_cells) *w = (const KIND(depth_cells) *)p.w;                               \
        const int channels = p.k / p.each;                                                         \
        for (int64_t r = blockIdx.x; r < p.n * p.h; r += gridDim.x)                                \
            for (int t = threadIdx.x; t < p.wide * channels; t += blockDim.x) {                    \
                const int64_t image = r / p.h * p.oh;                                              \
                const int y = (int)(r % p.h) + p.top, x = t / channels + p.left;                   \
                const int first = t % channels * p.each;                                           \
                KIND(depth_cells) dx;                                                              \
                REAL sum[VECTOR] = {0};                                                            \
                for (int i = 0; i < p.kh; i++)                                                     \
                    for (int j = 0; j < p.kw; j++) {                                               \
                        const int sy = y - i * p.spread_y, sx = x - j * p.spread_x;                \
                        const int oy = sy / p.down, ox = sx / p.across;                            \
                        if (sy < 0 || sx < 0 || oy >= p.oh || ox >= p.ow) continue;                \
                        if (oy * p.down != sy || ox * p.across != sx) continue;                    \
                        for (int k = first; k < first + p.each; k++) {                             \
                            const KIND(depth_cells) a = dy[((image + oy) * p.ow + ox) * p.k + k];  \
                            const KIND(depth_cells) b = w[(i * p.kw + j) * p.k + k];               \
                            for (int v = 0; v < VECTOR; v++)                                       \
                                sum[v] += LOAD(a.at, v) * LOAD(b.at, v);                           \
                        }                                                                          \
                    }                                                                              \
                for (int v = 0; v < VECTOR; v++) STORE(dx.at, v, sum[v]);                          \
                ((KIND(depth_cells) *)p.out)[r * p.wide * channels + t] = dx;                      \
            }                                                                                      \
    }

/* depth_f32 and depth_vector_f32, and so on for each dtype. */
#define ONE(x) NAME(x)
#define FOUR(x) NAME(x##_vector)
DEPTH(1, ONE)
DEPTH(4, FOUR)
#undef ONE
#undef FOUR
#undef DEPTH

/* For kernel k, adds x * dy over the pixels lane, lane + lanes, ... of row r of dy to the sums of
 * MG_DEPTH_TAPS taps, whose offsets in the image are tap_y, tap_x. */
DEVICE void NAME(depth_add)(const depth_params *p, int64_t r, int k, int lane, int lanes,
                            const int *tap_y, const int *tap_x, REAL *sum) {
    const int64_t image = r / p->oh * p->h;
    const int top = (int)(r % p->oh) * p->down - p->top, channels = p->k / p->each;
    for (int ox = lane; ox < p->ow; ox += lanes) {
        const REAL dy = LOAD(p->dy, (r * p->ow + ox) * p->k + k);
        for (int i = 0; i < MG_DEPTH_TAPS; i++) {
            const int y = top + tap_y[i], x = ox * p->across - p->left + tap_x[i];
            if (y < 0 || y >= p->h || x < 0 || x >= p->wide) continue;
            sum[i] += LOAD(p->x, ((image + y) * p->wide + x) * channels + k / p->each) * dy;
        }
    }
}

/* dw: the gradient of the weights. A block takes p.width neighbouring kernels, MG_DEPTH_TAPS taps
 * and one chunk of the rows of dy. A thread has one kernel and one lane: every lanes-th pixel of a
 * row. The block adds its lanes in shared memory and writes the partial sums of its chunk, which
 * add_parts (finish.cu) adds in a fixed order. Taps beyond the last are clamped, computed and not
 * written. */
KERNEL(NAME(depth_weight), depth_params) {
    __shared__ REAL cells[MG_DEPTH_THREADS];
    const int t = threadIdx.x, lanes = MG_DEPTH_THREADS / p.width, lane = t / p.width;
    const int taps = p.kh * p.kw, groups = (taps + MG_DEPTH_TAPS - 1) / MG_DEPTH_TAPS;
    const int64_t chunk = blockIdx.x % p.chunks, tile = blockIdx.x / p.chunks / groups;
    const int first = (int)(blockIdx.x / p.chunks % groups) * MG_DEPTH_TAPS;
    const int64_t k = tile * p.width + t % p.width, rows = p.n * p.oh;
    int tap_y[MG_DEPTH_TAPS], tap_x[MG_DEPTH_TAPS];
    REAL sum[MG_DEPTH_TAPS];
    for (int i = 0; i < MG_DEPTH_TAPS; i++) {
        const int tap = first + i < taps ? first + i : taps - 1;
        tap_y[i] = tap / p.kw * p.spread_y;
        tap_x[i] = tap % p.kw * p.spread_x;
        sum[i] = 0;
    }
    for (int64_t r = rows * chunk / p.chunks; r < rows * (chunk + 1) / p.chunks && k < p.k; r++)
        NAME(depth_add)(&p, r, (int)k, lane, lanes, tap_y, tap_x, sum);
    for (int i = 0; i < MG_DEPTH_TAPS; i++) {
        __syncthreads();
        cells[t] = sum[i];
        for (int half = lanes / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half) cells[t] += cells[t + half * p.width];
        }
        if (lane == 0 && k < p.k && first + i < taps)
            ((REAL *)p.out)[(chunk * taps + first + i) * p.k + k] = cells[t];
    }
}

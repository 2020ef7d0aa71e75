/* Pooling for one dtype over images {n, h, w, c}: maximum and mean of windows, and their gradients.
 *
 * A block takes one row of pixels of what it writes, a thread VECTOR neighbouring channels of a
 * pixel in one access; p.c counts vectors in the _vector kernels. A window may reach into the
 * padding; only its cells inside the image count, also for the mean. The maximum of a window is its
 * first one in row order; NaN counts as larger than any number. */

#ifndef MG_POOL_WINDOW
#define MG_POOL_WINDOW
/* A range of cells of the image: rows top .. bottom - 1, columns left .. right - 1. */
typedef struct pool_window {
    int top, bottom, left, right;
} pool_window;

/* The window of result pixel (oy, ox), without its padding. */
DEVICE pool_window mg_pool_window(pool_params p, int oy, int ox) {
    const int y = oy * p.down - p.top, x = ox * p.across - p.left;
    const pool_window w = {y > 0 ? y : 0, y + p.rows < p.h ? y + p.rows : p.h, x > 0 ? x : 0,
                           x + p.columns < p.w ? x + p.columns : p.w};
    return w;
}

/* The cells from the start of a window to the start of the next ones. Over all windows these ranges
 * cover the image exactly once. */
DEVICE pool_window mg_pool_part(pool_params p, int oy, int ox) {
    const int y = oy * p.down - p.top, x = ox * p.across - p.left;
    const pool_window w = {oy == 0 ? 0 : y, oy == p.oh - 1 ? p.h : y + p.down, ox == 0 ? 0 : x,
                           ox == p.ow - 1 ? p.w : x + p.across};
    return w;
}

/* The windows along one axis that contain a cell: first .. last. */
DEVICE int mg_pool_first(int cell, int pad, int size, int stride) {
    const int from = cell + pad - size;
    return from < 0 ? 0 : from / stride + 1;
}
DEVICE int mg_pool_last(int cell, int pad, int stride, int windows) {
    const int last = (cell + pad) / stride;
    return last < windows ? last : windows - 1;
}
#endif

/* All kernels for VECTOR channels in one access; KIND makes their names. */
#define POOL(VECTOR, KIND)                                                                         \
    typedef struct KIND(cells) {                                                                   \
        STORED at[VECTOR];                                                                         \
    } __attribute__((aligned(sizeof(STORED) * VECTOR))) KIND(cells);                               \
                                                                                                   \
    /* Compares a cell, at offset `at` of its window, with the best so far: the first NaN of a     \
     * channel wins, else the first maximum. */                                                    \
    DEVICE void KIND(update_best)(KIND(cells) now, int at, bool first, REAL *top, int *best) {     \
        for (int k = 0; k < VECTOR; k++) {                                                         \
            const REAL v = LOAD(now.at, k);                                                        \
            if (!first && !(v > top[k] || (v != v && top[k] == top[k]))) continue;                 \
            top[k] = v;                                                                            \
            best[k] = at;                                                                          \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Returns the position of a window's first cell and sets best[k] to the offset from there     \
     * to the maximum of channel k. The common window of 2 x 2 is read with four loads at once. */ \
    DEVICE int64_t KIND(find_best)(pool_params p, int64_t n, int oy, int ox, int c, int *best) {   \
        const pool_window w = mg_pool_window(p, oy, ox);                                           \
        const int line = p.w * p.c;                                                                \
        const int64_t from = (n * p.h + w.top) * line + w.left * p.c + c;                          \
        const KIND(cells) *x = (const KIND(cells) *)p.x + from;                                    \
        REAL top[VECTOR];                                                                          \
        if (w.bottom - w.top == 2 && w.right - w.left == 2) {                                      \
            const KIND(cells) now[] = {x[0], x[p.c], x[line], x[line + p.c]};                      \
            for (int i = 0; i < 4; i++)                                                            \
                KIND(update_best)(now[i], i / 2 * line + i % 2 * p.c, i == 0, top, best);          \
            return from;                                                                           \
        }                                                                                          \
        for (int i = 0; i < w.bottom - w.top; i++)                                                 \
            for (int j = 0; j < w.right - w.left; j++) {                                           \
                const int at = i * line + j * p.c;                                                 \
                KIND(update_best)(x[at], at, at == 0, top, best);                                  \
            }                                                                                      \
        return from;                                                                               \
    }                                                                                              \
                                                                                                   \
    /* out = the element of v at the maximum of x in each window. For max_pool2d v is x; for       \
     * max_pool2d_pick, the gradient of max_pool2d_grad, it is another tensor of x's shape. */     \
    KERNEL(KIND(max_pool), pool_params) {                                                          \
        for (int64_t r = blockIdx.x; r < p.n * p.oh; r += gridDim.x)                               \
            for (int t = threadIdx.x; t < p.ow * p.c; t += blockDim.x) {                           \
                int best[VECTOR] = {0};                                                            \
                KIND(cells) y;                                                                     \
                const int64_t from =                                                               \
                    KIND(find_best)(p, r / p.oh, (int)(r % p.oh), t / p.c, t % p.c, best);         \
                const KIND(cells) *v = (const KIND(cells) *)p.v + from;                            \
                for (int k = 0; k < VECTOR; k++) y.at[k] = v[best[k]].at[k];                       \
                ((KIND(cells) *)p.out)[r * p.ow * p.c + t] = y;                                    \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    /* dx for windows that may overlap: a pixel looks through all windows that contain it and      \
     * adds the dy of those whose maximum it is. It finds each maximum again, which needs no       \
     * memory and no atomics. */                                                                   \
    KERNEL(KIND(max_pool_grad), pool_params) {                                                     \
        const KIND(cells) *dy = (const KIND(cells) *)p.v;                                          \
        for (int64_t r = blockIdx.x; r < p.n * p.h; r += gridDim.x)                                \
            for (int t = threadIdx.x; t < p.w * p.c; t += blockDim.x) {                            \
                const int y = (int)(r % p.h), x = t / p.c, c = t % p.c;                            \
                const int64_t n = r / p.h, own = r * p.w * p.c + t;                                \
                const int last_y = mg_pool_last(y, p.top, p.down, p.oh);                           \
                const int last_x = mg_pool_last(x, p.left, p.across, p.ow);                        \
                REAL sum[VECTOR] = {0};                                                            \
                KIND(cells) dx;                                                                    \
                for (int oy = mg_pool_first(y, p.top, p.rows, p.down); oy <= last_y; oy++)         \
                    for (int ox = mg_pool_first(x, p.left, p.columns, p.across); ox <= last_x;     \
                         ox++) {                                                                   \
                        const KIND(cells) g = dy[((n * p.oh + oy) * p.ow + ox) * p.c + c];         \
                        int best[VECTOR] = {0};                                                    \
                        const int64_t from = KIND(find_best)(p, n, oy, ox, c, best);               \
                        for (int k = 0; k < VECTOR; k++)                                           \
                            if (best[k] == own - from) sum[k] += LOAD(g.at, k);                    \
                    }                                                                              \
                for (int k = 0; k < VECTOR; k++) STORE(dx.at, k, sum[k]);                          \
                ((KIND(cells) *)p.out)[r * p.w * p.c + t] = dx;                                    \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    /* dx for windows that do not overlap. A thread takes one window and writes all cells up to    \
     * the next windows, after it has read them, so dx may be stored over x. */                    \
    KERNEL(KIND(max_pool_grad_apart), pool_params) {                                               \
        const KIND(cells) *dy = (const KIND(cells) *)p.v;                                          \
        for (int64_t r = blockIdx.x; r < p.n * p.oh; r += gridDim.x)                               \
            for (int t = threadIdx.x; t < p.ow * p.c; t += blockDim.x) {                           \
                const int oy = (int)(r % p.oh), ox = t / p.c, c = t % p.c;                         \
                const int64_t n = r / p.oh;                                                        \
                const pool_window own = mg_pool_part(p, oy, ox);                                   \
                const KIND(cells) g = dy[r * p.ow * p.c + t];                                      \
                int best[VECTOR] = {0};                                                            \
                const int64_t from = KIND(find_best)(p, n, oy, ox, c, best);                       \
                for (int i = own.top; i < own.bottom; i++)                                         \
                    for (int j = own.left; j < own.right; j++) {                                   \
                        const int64_t at = ((n * p.h + i) * p.w + j) * p.c + c;                    \
                        const int there = (int)(at - from);                                        \
                        KIND(cells) dx;                                                            \
                        for (int k = 0; k < VECTOR; k++)                                           \
                            dx.at[k] = best[k] == there ? g.at[k] : 0;                             \
                        ((KIND(cells) *)p.out)[at] = dx;                                           \
                    }                                                                              \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    /* out = the mean of each window, over its cells inside the image. */                          \
    KERNEL(KIND(avg_pool), pool_params) {                                                          \
        const KIND(cells) *x = (const KIND(cells) *)p.x;                                           \
        for (int64_t r = blockIdx.x; r < p.n * p.oh; r += gridDim.x)                               \
            for (int t = threadIdx.x; t < p.ow * p.c; t += blockDim.x) {                           \
                const pool_window w = mg_pool_window(p, (int)(r % p.oh), t / p.c);                 \
                const REAL cells = (REAL)((w.bottom - w.top) * (w.right - w.left));                \
                REAL sum[VECTOR] = {0};                                                            \
                KIND(cells) y;                                                                     \
                for (int i = w.top; i < w.bottom; i++)                                             \
                    for (int j = w.left; j < w.right; j++) {                                       \
                        const KIND(cells) now =                                                    \
                            x[((r / p.oh * p.h + i) * p.w + j) * p.c + t % p.c];                   \
                        for (int k = 0; k < VECTOR; k++) sum[k] += LOAD(now.at, k);                \
                    }                                                                              \
                for (int k = 0; k < VECTOR; k++) STORE(y.at, k, sum[k] / cells);                   \
                ((KIND(cells) *)p.out)[r * p.ow * p.c + t] = y;                                    \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    /* dx: each pixel adds dy / cells over all windows that contain it. */                         \
    KERNEL(KIND(avg_pool_grad), pool_params) {                                                     \
        const KIND(cells) *dy = (const KIND(cells) *)p.v;                                          \
        for (int64_t r = blockIdx.x; r < p.n * p.h; r += gridDim.x)                                \
            for (int t = threadIdx.x; t < p.w * p.c; t += blockDim.x) {                            \
                const int y = (int)(r % p.h), x = t / p.c, c = t % p.c;                            \
                const int last_y = mg_pool_last(y, p.top, p.down, p.oh);                           \
                const int last_x = mg_pool_last(x, p.left, p.across, p.ow);                        \
                REAL sum[VECTOR] = {0};                                                            \
                KIND(cells) dx;                                                                    \
                for (int oy = mg_pool_first(y, p.top, p.rows, p.down); oy <= last_y; oy++)         \
                    for (int ox = mg_pool_first(x, p.left, p.columns, p.across); ox <= last_x;     \
                         ox++) {                                                                   \
                        const pool_window w = mg_pool_window(p, oy, ox);                           \
                        const KIND(cells) g = dy[((r / p.h * p.oh + oy) * p.ow + ox) * p.c + c];   \
                        for (int k = 0; k < VECTOR; k++)                                           \
                            sum[k] +=                                                              \
                                LOAD(g.at, k) / (REAL)((w.bottom - w.top) * (w.right - w.left));   \
                    }                                                                              \
                for (int k = 0; k < VECTOR; k++) STORE(dx.at, k, sum[k]);                          \
                ((KIND(cells) *)p.out)[r * p.w * p.c + t] = dx;                                    \
            }                                                                                      \
    }

/* max_pool_f32 and max_pool_vector_f32, and so on for each dtype. */
#define ONE(x) NAME(x)
#define FOUR(x) NAME(x##_vector)
POOL(1, ONE)
POOL(4, FOUR)
#undef ONE
#undef FOUR
#undef POOL

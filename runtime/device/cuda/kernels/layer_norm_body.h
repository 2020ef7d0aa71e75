/* Layer normalisation for one dtype, over rows of x {rows, n}. With the mean and
 * the inverse = 1 / sqrt(variance + epsilon) of a row, and hat = (x - mean) * inverse, p.kind
 * chooses the result:
 *
 *     0   y = hat * gamma + beta
 *     1   dx = inverse * (dy * gamma - (a + hat * b) / n), with the row's sums a of dy * gamma and
 *         b of dy * gamma * hat
 *     2   {mean, inverse} of each row, for the gradients of gamma and beta (sums_partial in
 *         norm_body.h)
 *
 * The variance is the mean of (x - mean)^2 in a second pass over the row: one pass over x and x^2
 * would cancel where the mean is large. A row is taken by a warp (short rows) or a block (long
 * rows). The macro's parameters adapt it to both: PREPARE: declarations; FIRST_ROW and ROWS: the
 * rows of the team; ME and GROUP: the thread's number in the team and the team's size; OVER: the
 * sum over the team. */

#define MG_SUM(a, b) ((a) + (b))

#define LAYER_NORM(name, PREPARE, FIRST_ROW, ROWS, ME, GROUP, OVER)                                \
    KERNEL(NAME(name), layer_norm_params) {                                                        \
        PREPARE                                                                                    \
        for (int64_t r = FIRST_ROW; r < p.rows; r += ROWS) {                                       \
            const int64_t row = r * p.n;                                                           \
            REAL sum = 0, squares = 0, a = 0, b = 0;                                               \
            for (int64_t k = ME; k < p.n; k += GROUP) sum += LOAD(p.x, row + k);                   \
            OVER(sum);                                                                             \
            const REAL mean = sum / (REAL)p.n;                                                     \
            for (int64_t k = ME; k < p.n; k += GROUP) {                                            \
                const REAL d = LOAD(p.x, row + k) - mean;                                          \
                squares += d * d;                                                                  \
            }                                                                                      \
            OVER(squares);                                                                         \
            const REAL inverse = 1 / SQRT(squares / (REAL)p.n + (REAL)p.epsilon);                  \
            if (p.kind == 2) {                                                                     \
                if (ME == 0) ((REAL *)p.y)[2 * r] = mean, ((REAL *)p.y)[2 * r + 1] = inverse;      \
                continue;                                                                          \
            }                                                                                      \
            if (p.kind == 1) {                                                                     \
                for (int64_t k = ME; k < p.n; k += GROUP) {                                        \
                    const REAL dy = LOAD(p.other, row + k) * PARAM(p.gamma, k);                    \
                    a += dy;                                                                       \
                    b += dy * ((LOAD(p.x, row + k) - mean) * inverse);                             \
                }                                                                                  \
                OVER(a);                                                                           \
                OVER(b);                                                                           \
            }                                                                                      \
            for (int64_t k = ME; k < p.n; k += GROUP) {                                            \
                const REAL hat = (LOAD(p.x, row + k) - mean) * inverse, g = PARAM(p.gamma, k);     \
                const REAL y =                                                                     \
                    p.kind == 0                                                                    \
                        ? hat * g + PARAM(p.other, k)                                              \
                        : inverse * (LOAD(p.other, row + k) * g - (a + hat * b) / (REAL)p.n);      \
                STORE(p.y, row + k, y);                                                            \
            }                                                                                      \
        }                                                                                          \
    }

#define OVER_WARP(v) WARP_REDUCE(REAL, v, MG_SUM)
#define OVER_BLOCK(v) BLOCK_REDUCE(REAL, v, MG_SUM, cells)
LAYER_NORM(layer_norm_warp, , FIRST / MG_WARP, STEP / MG_WARP, threadIdx.x % MG_WARP, MG_WARP,
           OVER_WARP)
LAYER_NORM(layer_norm_block, __shared__ REAL cells[MG_WARP];
           , blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, OVER_BLOCK)
#undef OVER_WARP
#undef OVER_BLOCK
#undef LAYER_NORM
#undef MG_SUM

/* softmax, log_softmax and softmax_grad for one dtype, along the middle axis of {outer, n, inner}.
 * A run is the n elements of one (outer, inner) pair, which are `inner` apart in memory. p.kind:
 *
 *     0  softmax        exp(x - a) / b, with a the largest x and b the sum of exp(x - a)
 *     1  log_softmax    x - a - log(b)
 *     2  softmax_grad   y * (dy - a), with y the softmax (in p.x) and a the sum of y * dy
 *
 * Subtracting the largest x keeps exp from overflowing. Three kernels differ in who takes a run: a
 * warp (short runs), a block (long runs), or a thread (inner > 1: neighbouring threads then read
 * neighbouring elements). */

#define MG_SUM(a, b) ((a) + (b))

/* Element k of the result of the run that begins at `first`. */
DEVICE REAL NAME(softmax_value)(softmax_params p, int64_t first, int64_t k, REAL a, REAL b) {
    const REAL x = LOAD(p.x, first + k * p.inner);
    if (p.kind == 2) return x * (LOAD(p.dy, first + k * p.inner) - a);
    return p.kind == 0 ? EXP(x - a) / b : x - a - LOG(b);
}

/* One run per warp. */
KERNEL(NAME(softmax_warp), softmax_params) {
    const int lane = threadIdx.x % MG_WARP;
    const int64_t warps = STEP / MG_WARP, runs = p.outer * p.inner;
    for (int64_t run = FIRST / MG_WARP; run < runs; run += warps) {
        const int64_t first = run / p.inner * p.n * p.inner + run % p.inner;
        REAL a = p.kind == 2 ? 0 : -INFINITY, b = 0;
        for (int64_t k = lane; k < p.n; k += MG_WARP) {
            const REAL x = LOAD(p.x, first + k * p.inner);
            a = p.kind == 2 ? a + x * LOAD(p.dy, first + k * p.inner) : FMAX(a, x);
        }
        if (p.kind == 2) {
            WARP_REDUCE(REAL, a, MG_SUM)
        } else {
            WARP_REDUCE(REAL, a, FMAX)
            for (int64_t k = lane; k < p.n; k += MG_WARP)
                b += EXP(LOAD(p.x, first + k * p.inner) - a);
            WARP_REDUCE(REAL, b, MG_SUM)
        }
        for (int64_t k = lane; k < p.n; k += MG_WARP)
            STORE(p.y, first + k * p.inner, NAME(softmax_value)(p, first, k, a, b));
    }
}

/* One run per block. */
KERNEL(NAME(softmax_block), softmax_params) {
    __shared__ REAL cells[MG_WARP];
    const int64_t runs = p.outer * p.inner;
    for (int64_t run = blockIdx.x; run < runs; run += gridDim.x) {
        const int64_t first = run / p.inner * p.n * p.inner + run % p.inner;
        REAL a = p.kind == 2 ? 0 : -INFINITY, b = 0;
        for (int64_t k = threadIdx.x; k < p.n; k += blockDim.x) {
            const REAL x = LOAD(p.x, first + k * p.inner);
            a = p.kind == 2 ? a + x * LOAD(p.dy, first + k * p.inner) : FMAX(a, x);
        }
        if (p.kind == 2) {
            BLOCK_REDUCE(REAL, a, MG_SUM, cells);
        } else {
            BLOCK_REDUCE(REAL, a, FMAX, cells);
            for (int64_t k = threadIdx.x; k < p.n; k += blockDim.x)
                b += EXP(LOAD(p.x, first + k * p.inner) - a);
            BLOCK_REDUCE(REAL, b, MG_SUM, cells);
        }
        for (int64_t k = threadIdx.x; k < p.n; k += blockDim.x)
            STORE(p.y, first + k * p.inner, NAME(softmax_value)(p, first, k, a, b));
    }
}

/* One run per thread. */
KERNEL(NAME(softmax_thread), softmax_params) {
    const int64_t runs = p.outer * p.inner;
    for (int64_t run = FIRST; run < runs; run += STEP) {
        const int64_t first = run / p.inner * p.n * p.inner + run % p.inner;
        REAL a = p.kind == 2 ? 0 : -INFINITY, b = 0;
        for (int64_t k = 0; k < p.n; k++) {
            const REAL x = LOAD(p.x, first + k * p.inner);
            a = p.kind == 2 ? a + x * LOAD(p.dy, first + k * p.inner) : FMAX(a, x);
        }
        for (int64_t k = 0; k < p.n && p.kind != 2; k++)
            b += EXP(LOAD(p.x, first + k * p.inner) - a);
        for (int64_t k = 0; k < p.n; k++)
            STORE(p.y, first + k * p.inner, NAME(softmax_value)(p, first, k, a, b));
    }
}
#undef MG_SUM

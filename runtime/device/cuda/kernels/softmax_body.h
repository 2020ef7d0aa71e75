/* softmax, log_softmax and softmax_grad for one dtype, along the middle axis of {outer, n, inner}.
 * A run is the n elements of one (outer, inner) pair, which are `inner` apart in memory. p.kind:
 *
 *     0  softmax        exp(x - a) / b, with a the largest x and b the sum of exp(x - a)
 *     1  log_softmax    x - a - log(b)
 *     2  softmax_grad   y * (dy - a), with y the softmax (in p.x) and a the sum of y * dy
 *
 * Subtracting the largest x keeps exp from overflowing. Three kernels differ in the group of
 * threads that computes a run: a warp (short runs), a block (long runs), or a thread (inner > 1:
 * neighbouring threads then read neighbouring elements). */

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

/* Cross-entropy of softmax for one dtype, over rows of n logits, and its gradient.
 *
 *     loss      y{row}    = -sum over k of t{k} * log softmax(x){k}
 *     gradient  y{row, k} = dy{row} * (softmax(x){k} * sum of t - t{k})
 *
 * A row takes three reductions:
 *     a   the largest logit, subtracted before exp so that exp cannot overflow
 *     b   the sum of exp(x - a)
 *     c   the sum of the terms t * (x - a - log b) for the loss, of the targets t for the gradient
 * A team of threads works on a row: a warp or a block, which differ only in how they reduce. A
 * thread of a team has the elements k, k + step, ... Softmax itself is never stored. */

/* The thread's part of a. */
DEVICE REAL NAME(ce_largest)(cross_entropy_params p, int64_t first, int64_t k, int64_t step) {
    REAL a = -INFINITY;
    for (; k < p.n; k += step) a = FMAX(a, LOAD(p.x, first + k));
    return a;
}

/* The thread's part of b. */
DEVICE REAL NAME(ce_exponentials)(cross_entropy_params p, int64_t first, int64_t k, int64_t step,
                                  REAL a) {
    REAL b = 0;
    for (; k < p.n; k += step) b += EXP(LOAD(p.x, first + k) - a);
    return b;
}

/* The thread's part of c. A label is a target vector with a single 1: only the thread that has that
 * element adds a term. */
DEVICE REAL NAME(ce_terms)(cross_entropy_params p, int64_t first, int64_t label, int64_t k,
                           int64_t step, REAL a, REAL b) {
    const REAL shift = LOG(b);
    REAL c = 0;
    for (; k < p.n; k += step) {
        if (p.label_bytes && k != label) continue;
        const REAL t = p.label_bytes ? (REAL)1 : LOAD(p.targets, first + k);
        c += p.dy ? t : t * (LOAD(p.x, first + k) - a - shift);
    }
    return c;
}

/* Writes the row's loss (by the thread that has element 0), or the thread's part of its gradient.
 */
DEVICE void NAME(ce_finish)(cross_entropy_params p, int64_t row, int64_t label, int64_t k,
                            int64_t step, REAL a, REAL b, REAL c) {
    const int64_t first = row * p.n;
    if (!p.dy) {
        if (k == 0) STORE(p.y, row, -c);
        return;
    }
    const REAL dy = LOAD(p.dy, row), scale = c / b;
    for (; k < p.n; k += step) {
        const REAL t = p.label_bytes ? (REAL)(k == label) : LOAD(p.targets, first + k);
        STORE(p.y, first + k, dy * (EXP(LOAD(p.x, first + k) - a) * scale - t));
    }
}

/* One row per warp: for short rows. */
KERNEL(NAME(cross_entropy_warp), cross_entropy_params) {
    const int64_t lane = threadIdx.x % MG_WARP, warps = STEP / MG_WARP;
    for (int64_t row = FIRST / MG_WARP; row < p.rows; row += warps) {
        const int64_t first = row * p.n;
        const int64_t label = p.label_bytes ? mg_id(p.targets, p.label_bytes, row) : -1;
        REAL a = NAME(ce_largest)(p, first, lane, MG_WARP);
        WARP_REDUCE(REAL, a, FMAX)
        REAL b = NAME(ce_exponentials)(p, first, lane, MG_WARP, a);
        WARP_REDUCE(REAL, b, MG_ADD)
        REAL c = NAME(ce_terms)(p, first, label, lane, MG_WARP, a, b);
        WARP_REDUCE(REAL, c, MG_ADD)
        NAME(ce_finish)(p, row, label, lane, MG_WARP, a, b, c);
    }
}

/* One row per block: for long rows. */
KERNEL(NAME(cross_entropy_block), cross_entropy_params) {
    __shared__ REAL cells[MG_WARP];
    const int64_t k = threadIdx.x, step = blockDim.x;
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const int64_t first = row * p.n;
        const int64_t label = p.label_bytes ? mg_id(p.targets, p.label_bytes, row) : -1;
        REAL a = NAME(ce_largest)(p, first, k, step);
        BLOCK_REDUCE(REAL, a, FMAX, cells);
        REAL b = NAME(ce_exponentials)(p, first, k, step, a);
        BLOCK_REDUCE(REAL, b, MG_ADD, cells);
        REAL c = NAME(ce_terms)(p, first, label, k, step, a, b);
        BLOCK_REDUCE(REAL, c, MG_ADD, cells);
        NAME(ce_finish)(p, row, label, k, step, a, b, c);
    }
}

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

/* Cross-entropy of softmax for one dtype, over rows of n logits, and its gradient, or both.
 *
 *     loss      {row}    = -sum over k of t{k} * log softmax(x){k}
 *     gradient  {row, k} = dy{row} * (softmax(x){k} * sum of t - t{k})
 *
 * A row takes up to four reductions:
 *     a   the largest logit, subtracted before exp so that exp cannot overflow
 *     b   the sum of exp(x - a)
 *     the sum of the terms t * (x - a - log b) for the loss, of the targets t for the gradient
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

/* Element i of the targets or of dy. */
DEVICE REAL NAME(ce_load)(cross_entropy_params p, const void *from, int64_t i) {
    return p.beside ? PARAM(from, i) : LOAD(from, i);
}

/* The target of class k. A label is a target vector with a single 1. */
DEVICE REAL NAME(ce_target)(cross_entropy_params p, int64_t first, int64_t label, int64_t k) {
    return p.label_bytes ? (REAL)(k == label) : NAME(ce_load)(p, p.targets, first + k);
}

/* The thread's part of the sum of the loss's terms. Of a label only the thread that has that
 * element adds a term: others may be infinite. */
DEVICE REAL NAME(ce_terms)(cross_entropy_params p, int64_t first, int64_t label, int64_t k,
                           int64_t step, REAL a, REAL b) {
    const REAL shift = LOG(b);
    REAL c = 0;
    for (; k < p.n; k += step) {
        if (p.label_bytes && k != label) continue;
        c += NAME(ce_target)(p, first, label, k) * (LOAD(p.x, first + k) - a - shift);
    }
    return c;
}

/* The thread's part of the sum of the targets. */
DEVICE REAL NAME(ce_targets)(cross_entropy_params p, int64_t first, int64_t label, int64_t k,
                             int64_t step) {
    REAL sum = 0;
    for (; k < p.n; k += step) sum += NAME(ce_target)(p, first, label, k);
    return sum;
}

/* Writes the thread's part of a row's gradient; sum: of the targets. */
DEVICE void NAME(ce_gradient)(cross_entropy_params p, int64_t row, int64_t label, int64_t k,
                              int64_t step, REAL a, REAL b, REAL sum) {
    const int64_t first = row * p.n;
    const REAL dy = p.dy ? NAME(ce_load)(p, p.dy, row) : (REAL)p.dy_value, scale = sum / b;
    for (; k < p.n; k += step) {
        const REAL t = NAME(ce_target)(p, first, label, k);
        const REAL dx = dy * (EXP(LOAD(p.x, first + k) - a) * scale - t);
        if (p.gradient_beside)
            PUT(p.gradient, first + k, dx);
        else
            STORE(p.gradient, first + k, dx);
    }
}

DEVICE void NAME(ce_loss)(cross_entropy_params p, int64_t row, REAL c) {
    if (p.beside)
        PUT(p.loss, row, -c);
    else
        STORE(p.loss, row, -c);
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
        if (p.loss) {
            REAL c = NAME(ce_terms)(p, first, label, lane, MG_WARP, a, b);
            WARP_REDUCE(REAL, c, MG_ADD)
            if (lane == 0) NAME(ce_loss)(p, row, c);
        }
        if (p.gradient) {
            REAL sum = NAME(ce_targets)(p, first, label, lane, MG_WARP);
            WARP_REDUCE(REAL, sum, MG_ADD)
            NAME(ce_gradient)(p, row, label, lane, MG_WARP, a, b, sum);
        }
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
        if (p.loss) {
            REAL c = NAME(ce_terms)(p, first, label, k, step, a, b);
            BLOCK_REDUCE(REAL, c, MG_ADD, cells);
            if (k == 0) NAME(ce_loss)(p, row, c);
        }
        if (p.gradient) {
            REAL sum = NAME(ce_targets)(p, first, label, k, step);
            BLOCK_REDUCE(REAL, sum, MG_ADD, cells);
            NAME(ce_gradient)(p, row, label, k, step, a, b, sum);
        }
    }
}

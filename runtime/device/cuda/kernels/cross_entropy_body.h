/* The cross-entropy of softmax for one dtype: see cross_entropy.cu.
 *
 * A row goes through three reductions: the largest logit a, the sum of exponentials b, and c: of
 * the terms t log softmax(x), or, for the gradient, of the targets t. Each thread of the row's team
 * has its part, from `k` on by `step`; the teams, warps or blocks, differ in how parts are joined.
 */

DEVICE REAL NAME(ce_largest)(cross_entropy_params p, int64_t first, int64_t k, int64_t step) {
    REAL a = -INFINITY;
    for (; k < p.n; k += step) a = FMAX(a, LOAD(p.x, first + k));
    return a;
}

DEVICE REAL NAME(ce_exponentials)(cross_entropy_params p, int64_t first, int64_t k, int64_t step,
                                  REAL a) {
    REAL b = 0;
    for (; k < p.n; k += step) b += EXP(LOAD(p.x, first + k) - a);
    return b;
}

/* With labels there is one term, of whoever meets it. */
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

/* A row for each warp. */
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

/* A row for each block. */
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

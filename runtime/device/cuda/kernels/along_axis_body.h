/* scatter_along_axis and linear_scan, for one dtype. A thread takes a column, so that every sum has
 * one order. */

/* Column c = (outer, j) of the result {outer, n, inner}; dy and ids are {outer, k, inner or 1}. */
KERNEL(NAME(scatter_along), along_params) {
    for (int64_t c = FIRST; c < p.count; c += STEP) {
        const int64_t outer = c / p.inner.n, j = c % p.inner.n;
        STORED *const dx = (STORED *)p.out + outer * p.n * p.inner.n + j;
        for (int64_t i = 0; i < p.n; i++) STORE(dx, i * p.inner.n, 0);
        for (int64_t i = 0; i < p.k.n; i++) {
            const int64_t row = outer * p.k.n + i, at = row * p.inner.n + j;
            const int64_t id = mg_id(p.ids, p.id_bytes, p.by_row ? row : at);
            if (id < 0 || id >= p.n) continue;
            STORE(dx, id * p.inner.n, LOAD(dx, id * p.inner.n) + LOAD(p.x, at));
        }
    }
}

/* s[i] = a[i] s[i - 1] + b[i]; a is p.x, b is p.ids. */
KERNEL(NAME(linear_scan), along_params) {
    for (int64_t c = FIRST; c < p.count; c += STEP) {
        int64_t at = c / p.inner.n * p.n * p.inner.n + c % p.inner.n;
        REAL sum = 0;
        for (int64_t i = 0; i < p.n; i++, at += p.inner.n) {
            sum = i ? LOAD(p.x, at) * sum + LOAD(p.ids, at) : LOAD(p.ids, at);
            STORE(p.out, at, sum);
        }
    }
}

/* The kernel of a fused group that also sums the columns of one of its results, such as the
 * gradient of a bias; included by fused.h. This saves reading the result a second time.
 *
 * A block takes a tile of columns and a chunk of rows, a thread VECTOR columns and every down-th
 * row of the chunk. A thread first sums runs of RUN rows, then adds the runs: adding single numbers
 * to a large float would lose their low bits. Each chunk gives one row of partial sums, which
 * add_parts (finish.cu) adds. The order of all additions depends on sizes only, so the bits are the
 * same every time. */
enum { RUN = 64 /* rows */ };

/* Computes and stores vector i and adds its elements to `sum`, one sum for each. */
DEVICE void visit_vector(const params *p, const tensor *t, INDEX i, scalars s, SUM *sum) {
    place at = place_of(p, i);
    if (t->aligned) {
        vector(t, at, s, sum);
        return;
    }
    ROLLED
    for (int k = 0; k < VECTOR; k++, at = next_to(p, at)) {
        SUM one = 0;
        element(t, at, s, &one);
        UNROLL
        for (int j = 0; j < VECTOR; j++) sum[j] += j == k ? one : 0;
    }
}

KERNEL_FULL(fused, params, THREADS, WIDE ? FULL / 2 : FULL) {
    __shared__ SUM cells[VECTOR][THREADS];
    const tensor *const t = &p.t[0];
    const scalars s = load_scalars(&p, t);
    const int across = (int)p.across, down = THREADS / across;
    const int x = (int)threadIdx.x % across, y = (int)threadIdx.x / across;
    const int64_t chunk = blockIdx.x / p.tiles, column = blockIdx.x % p.tiles * across + x;
    const int64_t end = p.rows * (chunk + 1) / p.chunks;
    const int works = y < down && column < p.columns;
    SUM sum[VECTOR] = {0};
    for (int64_t row = p.rows * chunk / p.chunks + y; works && row < end;) {
        SUM run[VECTOR] = {0};
        ROLLED /* a store may alias a later load, so iterations cannot overlap anyway */
            for (int n = 0; n < RUN && row < end; n++, row += down)
                visit_vector(&p, t, (INDEX)(row * p.columns + column), s, run);
        UNROLL
        for (int k = 0; k < VECTOR; k++) sum[k] += run[k];
    }
    for (int left = down, half; left > 1; left = half) { /* tree over the thread rows */
        half = (left + 1) / 2;
        UNROLL
        for (int k = 0; k < VECTOR; k++) cells[k][threadIdx.x] = sum[k];
        __syncthreads();
        UNROLL
        for (int k = 0; k < VECTOR; k++)
            if (y < left - half) sum[k] += cells[k][(int)threadIdx.x + half * across];
        __syncthreads();
    }
    UNROLL
    for (int k = 0; k < VECTOR; k++)
        if (y == 0 && works) ((SUM *)p.parts)[(chunk * p.columns + column) * VECTOR + k] = sum[k];
}

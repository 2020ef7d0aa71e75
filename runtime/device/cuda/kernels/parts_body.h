/* Sums of parts for one dtype: see parts.cu. */

KERNEL(NAME(add_parts), parts_params) {
    enum { LANES = MG_PARTS_THREADS / MG_PARTS_WIDTH };
    __shared__ REAL cells[MG_PARTS_THREADS];
    const int t = threadIdx.x, lane = t / MG_PARTS_WIDTH;
    const int64_t i = (int64_t)blockIdx.x * MG_PARTS_WIDTH + t % MG_PARTS_WIDTH;
    REAL sum = 0;
    for (int64_t k = lane; k < p.n && i < p.count; k += LANES)
        sum += ((const REAL *)p.parts)[k * p.count + i];
    cells[t] = sum;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) cells[t] += cells[t + half * MG_PARTS_WIDTH];
    }
    if (lane == 0 && i < p.count) STORE(p.out, i, cells[t]);
}

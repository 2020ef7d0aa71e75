/* Batched matrix products of one dtype: y {batch, m, n} = a {batch, m, k} * b {batch, k, n}, then +
 * bias {n} and relu if requested. turn_a: a is stored transposed, {k, m}; turn_b likewise. A block
 * makes one tile of MG_TILE x MG_TILE results of one matrix. Sums are in REAL (float for 16-bit
 * dtypes); relu keeps NaN. */

#define A_AT(i, l) LOAD(p.a, a0 + (p.turn_a ? (l)*p.m + (i) : (i)*p.k + (l)))
#define B_AT(l, j) LOAD(p.b, b0 + (p.turn_b ? (j)*p.k + (l) : (l)*p.n + (j)))
#define PUT_AT(i, j, v)                                                                            \
    do {                                                                                           \
        REAL y = v + (p.bias ? (REAL)LOAD(p.bias, j) : 0);                                         \
        if (p.relu && y < 0) y = 0;                                                                \
        STORE(p.y, (z * p.m + (i)) * p.n + (j), y);                                                \
    } while (0)

/* Block number to matrix z and tile; z to the matrices of a and b through the batch axes; broadcast
 * axes have stride 0. */
KERNEL(NAME(matmul), matmul_params) {
    const int64_t down = (p.m + MG_TILE - 1) / MG_TILE, across = (p.n + MG_TILE - 1) / MG_TILE;
    const int64_t z = blockIdx.x / (down * across), tile = blockIdx.x % (down * across);
    const int64_t row0 = tile / across * MG_TILE, column0 = tile % across * MG_TILE;
    int64_t a0 = 0, b0 = 0, rest = z;
    for (int axis = p.rank - 1; axis >= 0; rest /= p.dim[axis--]) {
        a0 += rest % p.dim[axis] * p.stride_a[axis] * p.m * p.k;
        b0 += rest % p.dim[axis] * p.stride_b[axis] * p.k * p.n;
    }
    TILE_PRODUCT(REAL, p.m, p.n, 0, p.k, row0, column0, !p.turn_a, A_AT, !p.turn_b, B_AT, PUT_AT);
}
#undef A_AT
#undef B_AT
#undef PUT_AT

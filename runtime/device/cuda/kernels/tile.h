/* TILE_PRODUCT: the kernel body of a block that computes one tile of a matrix product A * B whose
 * elements are given by macros, so that the matrices need not exist in memory (implicit GEMM).
 *
 * The block of MG_TILE_THREADS threads computes, for each (row, column) of the MG_TILE x MG_TILE
 * tile at (row0, column0), v = the sum of A_AT(row, l) * B_AT(l, column) for l in [from, to), and
 * calls PUT_AT(row, column, v) for those inside `rows` and `columns`. It takes MG_TILE_INNER values
 * of l at a time: all threads copy the two strips of A and B to shared memory, then a thread (ty,
 * tx) multiplies for its 4 x 4 results, rows ty + 16 i and columns tx + 16 j. The strips' lines
 * have one unused element against bank conflicts.
 *
 * A_ACROSS: A is contiguous along its rows (over l), else along its columns; B_ACROSS: B is
 * contiguous along its rows (over columns), else along l. They decide in which order threads load a
 * strip, so that neighbouring threads read neighbouring addresses. */
#ifndef MG_DEVICE_CUDA_TILE_H
#define MG_DEVICE_CUDA_TILE_H

#define TILE_PRODUCT(REAL, rows, columns, from, to, row0, column0, A_ACROSS, A_AT, B_ACROSS, B_AT, \
                     PUT_AT)                                                                       \
    do {                                                                                           \
        __shared__ REAL as[MG_TILE_INNER][MG_TILE + 1], bs[MG_TILE_INNER][MG_TILE + 1];            \
        const int t = threadIdx.x, ty = t / 16, tx = t % 16;                                       \
        REAL sum[MG_TILE_EACH][MG_TILE_EACH] = {{0}};                                              \
        for (int64_t l0 = (from); l0 < (to); l0 += MG_TILE_INNER) {                                \
            for (int e = t; e < MG_TILE * MG_TILE_INNER; e += MG_TILE_THREADS) {                   \
                const int ai = (A_ACROSS) ? e / MG_TILE_INNER : e % MG_TILE;                       \
                const int al = (A_ACROSS) ? e % MG_TILE_INNER : e / MG_TILE;                       \
                const int bj = (B_ACROSS) ? e % MG_TILE : e / MG_TILE_INNER;                       \
                const int bl = (B_ACROSS) ? e / MG_TILE : e % MG_TILE_INNER;                       \
                as[al][ai] =                                                                       \
                    (row0) + ai < (rows) && l0 + al < (to) ? (REAL)A_AT((row0) + ai, l0 + al) : 0; \
                bs[bl][bj] = (column0) + bj < (columns) && l0 + bl < (to)                          \
                                 ? (REAL)B_AT(l0 + bl, (column0) + bj)                             \
                                 : 0;                                                              \
            }                                                                                      \
            __syncthreads();                                                                       \
            for (int l = 0; l < MG_TILE_INNER; l++)                                                \
                for (int i = 0; i < MG_TILE_EACH; i++)                                             \
                    for (int j = 0; j < MG_TILE_EACH; j++)                                         \
                        sum[i][j] += as[l][ty + 16 * i] * bs[l][tx + 16 * j];                      \
            __syncthreads();                                                                       \
        }                                                                                          \
        for (int i = 0; i < MG_TILE_EACH; i++)                                                     \
            for (int j = 0; j < MG_TILE_EACH; j++) {                                               \
                const int64_t row = (row0) + ty + 16 * i, column = (column0) + tx + 16 * j;        \
                if (row < (rows) && column < (columns)) PUT_AT(row, column, sum[i][j]);            \
            }                                                                                      \
    } while (0)

#endif

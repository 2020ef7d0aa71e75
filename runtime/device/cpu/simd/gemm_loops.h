/* Matrix products, for one type: see reals.c and gemm.h. */

#ifndef GEMM_STRIP
/* A strip is two vectors wide. With 32 registers, 7 x 2 partial sums and as many totals fit, next
 * to a row of the second factor and one broadcast element of the first. With 16 registers, 6 x 2
 * partial sums fit, and the totals lie in memory. */
#define GEMM_STRIP (2 * VEC)
enum { GEMM_TILE = MG_REGISTERS >= 32 ? 7 : 6 };
#endif

MG_INLINE NAME(vec) NAME(gemm_finish)(NAME(vec) v, const REAL *bias, bool relu, int64_t column) {
    if (bias) v += *(const NAME(vec) *)(bias + column);
    const __typeof__(v < v) below = v < (NAME(vec)){0}; /* false for NaN */
    return relu ? (NAME(vec))((__typeof__(v < v))v & ~below) : v;
}

/* Float16 and bfloat16 are converted where they are read and written; only the loops in float do
 * so. `half` is the dtype in memory if it is one of the two, otherwise MG_F32 stands for REAL. */
enum { NAME(has_halves) = sizeof(REAL) == sizeof(float) };

/* Writes results from element i on. */
MG_INLINE void NAME(gemm_put)(void *to, int64_t i, NAME(vec) v, const mg_dtype half) {
    if (half != MG_F32)
        mg_put_half((uint16_t *)to + i, (mg_loose_floats)v, half);
    else
        *(NAME(vec) *)((REAL *)to + i) = v;
}

/* Finishes the sums of a tile from `row` on, and writes them. */
MG_INLINE void NAME(put_tile)(const mg_gemm_product *p, int64_t row, NAME(vec) (*total)[2],
                              const int rows, const int vectors, const mg_dtype half) {
    const REAL *sums = (const REAL *)p->sums + (p->sums ? row * GEMM_STRIP : 0);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) {
        if (sums) total[r][v] += *(const NAME(vec) *)(sums + r * GEMM_STRIP + v * VEC);
        NAME(gemm_put)
        (p->c, (row + r) * p->rc + v * VEC,
         NAME(gemm_finish)(total[r][v], p->bias, p->relu, v * VEC), half);
    }
}

/* What the loops prefetch: in each turn the line at `at`, which moves on by `step` bytes. */
typedef struct NAME(ahead) {
    const char *at;
    int64_t step;
} NAME(ahead);

/* The part of p->next that tile i of n prefetches. If there is nothing, the line is one of b. */
MG_INLINE NAME(ahead) NAME(ahead_of)(const mg_gemm_product *p, int64_t i, int64_t n) {
    if (!p->next) return (NAME(ahead)){p->b, 0};
    const int64_t step = (p->next_bytes + n * p->depth - 1) / (n * p->depth);
    return (NAME(ahead)){(const char *)p->next + i * p->depth * step, step};
}

/* Computes rows x vectors sums: `vectors` is 1 or 2, the vectors of a strip that are wanted. */
MG_INLINE void NAME(multiply_tile)(const mg_gemm_product *p, NAME(ahead) ahead, int64_t row,
                                   int64_t ra, int64_t da, const int rows, const int vectors) {
    NAME(vec) total[GEMM_TILE][2];
    UNROLL for (int r = 0; r < rows; r++) total[r][0] = total[r][1] = (NAME(vec)){0};
    const REAL *a = (const REAL *)p->a + row * ra, *b = p->b;
    int64_t rest = p->run; /* terms left of the current run */
    for (int64_t d = 0, n; d < p->depth;) {
        const int64_t end = p->depth - d < p->chain ? p->depth : d + p->chain;
        NAME(vec) sum[GEMM_TILE][2];
        UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (NAME(vec)){0};
        for (; d < end; d += n, rest -= n) {
            if (rest == 0) a += p->gap, rest = p->run;
            n = rest < end - d ? rest : end - d;
            for (int64_t i = 0; i < n; i++, b += GEMM_STRIP) {
                __builtin_prefetch(ahead.at, 0, 2);
                ahead.at += ahead.step;
                const NAME(vec) left = *(const NAME(vec) *)b;
                const NAME(vec) right = *(const NAME(vec) *)(b + (vectors - 1) * VEC);
                UNROLL for (int r = 0; r < rows; r++) {
                    const NAME(vec) all = NAME(mg_splat)(a[r * ra + i * da]);
                    NAME(MG_ADD_PRODUCT)(sum[r][0], all, left);
                    if (vectors > 1) NAME(MG_ADD_PRODUCT)(sum[r][1], all, right);
                }
            }
            a += n * da;
        }
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
            total[r][v] += sum[r][v];
    }
    if (NAME(has_halves) && p->stored == MG_F16)
        NAME(put_tile)(p, row, total, rows, vectors, MG_F16);
    else if (NAME(has_halves) && p->stored == MG_BF16)
        NAME(put_tile)(p, row, total, rows, vectors, MG_BF16);
    else
        NAME(put_tile)(p, row, total, rows, vectors, MG_F32);
}

MG_INLINE void NAME(multiply_rows)(const mg_gemm_product *p, NAME(ahead) ahead, int64_t row,
                                   const int rows) {
    if (p->columns > VEC && p->da == 1)
        NAME(multiply_tile)(p, ahead, row, p->ra, 1, rows, 2);
    else if (p->columns > VEC)
        NAME(multiply_tile)(p, ahead, row, 1, p->da, rows, 2);
    else if (p->da == 1)
        NAME(multiply_tile)(p, ahead, row, p->ra, 1, rows, 1);
    else
        NAME(multiply_tile)(p, ahead, row, 1, p->da, rows, 1);
}

/* Cuts the rows into tiles as even in height as can be: 8 rows are 4 + 4, not 6 + 2. */
static void NAME(gemm_multiply)(const mg_gemm_product *p, int64_t rows) {
#define CASE(n)                                                                                    \
    case n: NAME(multiply_rows)(p, ahead, row, n); break;
    const int64_t tiles = (rows + GEMM_TILE - 1) / GEMM_TILE;
    for (int64_t i = 0, row = 0, n; i < tiles; i++, row += n) {
        const NAME(ahead) ahead = NAME(ahead_of)(p, i, tiles);
        n = (rows - row + tiles - i - 1) / (tiles - i);
        switch (n) {
            /* clang-format off */
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if MG_REGISTERS >= 32
            CASE(7)
#endif
            /* clang-format on */
        }
    }
#undef CASE
}

/* Transposes squares in registers, and what is left element by element. */
static void NAME(gemm_pack_lanes)(const void *from, mg_dtype dtype, int64_t row, int64_t lanes,
                                  int64_t depth, void *packed) {
    if (NAME(has_halves) && mg_dtype_is_half(dtype)) {
        mg_pack_halves(from, dtype, row, lanes, depth, packed);
        return;
    }
    const REAL *restrict x = from;
    REAL *restrict to = packed;
    const int64_t whole = lanes - lanes % NAME(square), deep = depth - depth % NAME(square);
    if (lanes < GEMM_STRIP) memset(to, 0, (size_t)(depth * GEMM_STRIP) * sizeof *to);
    for (int64_t d = 0; d < deep; d += NAME(square))
        for (int64_t i = 0; i < whole; i += NAME(square))
            NAME(exchange)(x + i * row + d, row, to + d * GEMM_STRIP + i, GEMM_STRIP);
    for (int64_t i = 0; i < lanes; i++)
        for (int64_t d = i < whole ? deep : 0; d < depth; d++)
            to[d * GEMM_STRIP + i] = x[i * row + d];
}

/* Element i, and a vector of elements from i on. */
MG_INLINE REAL NAME(gemm_get_one)(const void *from, int64_t i, const mg_dtype half) {
    if (half == MG_F16) return (REAL)mg_f16_to_f32(((const uint16_t *)from)[i]);
    if (half == MG_BF16) return (REAL)mg_bf16_to_f32(((const uint16_t *)from)[i]);
    return ((const REAL *)from)[i];
}

MG_INLINE NAME(vec) NAME(gemm_get)(const void *from, int64_t i, const mg_dtype half) {
    if (half != MG_F32) return (NAME(vec))mg_get_half((const uint16_t *)from + i, half);
    return *(const NAME(vec) *)((const REAL *)from + i);
}

MG_INLINE void NAME(pack_rows)(const void *x, int64_t row, int64_t steps, int64_t columns, REAL *to,
                               int64_t apart, const mg_dtype half) {
    const int64_t rest = columns % GEMM_STRIP;
    for (int64_t d = 0, at = 0; d < steps; d++, at += row, to += GEMM_STRIP) {
        REAL *strip = to;
        for (int64_t column = 0; column < columns - rest; column += GEMM_STRIP, strip += apart) {
            *(NAME(vec) *)strip = NAME(gemm_get)(x, at + column, half);
            *(NAME(vec) *)(strip + VEC) = NAME(gemm_get)(x, at + column + VEC, half);
        }
        for (int64_t i = 0; rest && i < GEMM_STRIP; i++)
            strip[i] = i < rest ? NAME(gemm_get_one)(x, at + columns - rest + i, half) : 0;
    }
}

static void NAME(gemm_pack_steps)(const void *from, mg_dtype dtype, int64_t row, int64_t steps,
                                  int64_t columns, void *packed, int64_t apart) {
    if (NAME(has_halves) && dtype == MG_F16)
        NAME(pack_rows)(from, row, steps, columns, packed, apart, MG_F16);
    else if (NAME(has_halves) && dtype == MG_BF16)
        NAME(pack_rows)(from, row, steps, columns, packed, apart, MG_BF16);
    else
        NAME(pack_rows)(from, row, steps, columns, packed, apart, MG_F32);
}

/* Writes the columns of one row that do not fill a vector. */
MG_INLINE void NAME(write_rest)(const mg_gemm_sums *s, const REAL *sums, int64_t column, void *y,
                                const mg_dtype half) {
    for (; column < s->columns; column++, sums++) {
        REAL v = *sums;
        if (s->bias) v += ((const REAL *)s->bias)[column];
        if (s->relu && v < 0) v = 0;
        if (half == MG_F16)
            ((uint16_t *)y)[column] = mg_f32_to_f16((float)v);
        else if (half == MG_BF16)
            ((uint16_t *)y)[column] = mg_f32_to_bf16((float)v);
        else
            ((REAL *)y)[column] = v;
    }
}

MG_INLINE void NAME(write_rows)(const mg_gemm_sums *s, void *y, int64_t y_row,
                                const mg_dtype half) {
    const int64_t whole = s->columns / VEC * VEC;
    for (int64_t r = 0; r < s->rows; r++) {
        const REAL *sums = (const REAL *)s->at + r * GEMM_STRIP;
        for (int64_t column = 0; column < whole; column += VEC) {
            const REAL *from =
                sums + column / GEMM_STRIP * s->apart + (column % GEMM_STRIP ? VEC : 0);
            const NAME(vec) v =
                NAME(gemm_finish)(*(const NAME(vec) *)from, s->bias, s->relu, column);
            NAME(gemm_put)(y, column, v, half);
        }
        NAME(write_rest)
        (s, sums + whole / GEMM_STRIP * s->apart + whole % GEMM_STRIP, whole, y, half);
        y = (char *)y + y_row * (int64_t)(half == MG_F32 ? sizeof(REAL) : sizeof(uint16_t));
    }
}

static void NAME(gemm_write)(const mg_gemm_sums *s, void *y, int64_t y_row) {
    if (NAME(has_halves) && s->dtype == MG_F16)
        NAME(write_rows)(s, y, y_row, MG_F16);
    else if (NAME(has_halves) && s->dtype == MG_BF16)
        NAME(write_rows)(s, y, y_row, MG_BF16);
    else
        NAME(write_rows)(s, y, y_row, MG_F32);
}

static void NAME(gemm_add)(void *to, const void *from, int64_t n) {
    REAL *restrict sum = to;
    const REAL *restrict term = from;
    for (int64_t i = 0; i < n; i++) sum[i] += term[i];
}

const mg_simd_gemm MG_ISA_NAME(NAME(mg_simd_gemm)) = {.strip = GEMM_STRIP,
                                                      .tile = GEMM_TILE,
                                                      .multiply = NAME(gemm_multiply),
                                                      .pack_lanes = NAME(gemm_pack_lanes),
                                                      .pack_steps = NAME(gemm_pack_steps),
                                                      .write = NAME(gemm_write),
                                                      .add = NAME(gemm_add)};

/* Reductions over rows of lanes (channel_view.h), running sums and positions of extremes, for one
 * type of element: reals.c includes this for floats, integers.c for integers. They define
 *
 *     ELEMENT, NAME(x)   the type, and a name with its suffix
 *     VALUE(v)           the number that an element stands for
 *     SUM, PRODUCT       the types of partial sums and products
 *     TOTAL, MEMBER      the type in which partial results are joined, and its member of mg_partial
 *     PLUS, TIMES        its arithmetic
 *     LEAST, MOST        what every element wins against in max and min
 *     IS_NAN(v)
 *
 * Sums are made in SUM over MG_FOLD_ROWS rows, four rows at a time, and then added up in TOTAL, so
 * that the error of floats stays that of a few roundings however many rows there are. Products of
 * floats are made in double throughout, because they soon leave float32's range. The loops are
 * compiled for full tiles, for blocks of 16 lanes and for any width: a width that the compiler
 * knows makes faster loops. */

/* Defines a reduction over `rows` rows of `width` lanes, and one over a run of elements. `type` is
 * the type of partial results; step4 and step1 say how four elements p, q, t and u, or one, join
 * the partial result s[j]; joined says how two results a and b are joined. */
#define FOLD(name, type, start, step4, step1, joined)                                              \
    static inline TOTAL NAME(name##_of)(TOTAL a, TOTAL b) {                                        \
        return (TOTAL)(joined);                                                                    \
    }                                                                                              \
    static mg_partial NAME(join_##name)(mg_partial a, mg_partial b) {                              \
        return (mg_partial){.MEMBER = NAME(name##_of)(a.MEMBER, b.MEMBER)};                        \
    }                                                                                              \
    MG_INLINE void NAME(name##_lanes)(const ELEMENT *restrict x, int64_t rows, int64_t step,       \
                                      int width, mg_partial *restrict result) {                    \
        for (int64_t first = 0; first < rows; first += MG_FOLD_ROWS) {                             \
            const int64_t end = first + MG_FOLD_ROWS < rows ? first + MG_FOLD_ROWS : rows;         \
            type s[MG_TILE];                                                                       \
            int64_t r = first;                                                                     \
            for (int j = 0; j < width; j++) s[j] = start;                                          \
            for (; r + 4 <= end; r += 4) {                                                         \
                const ELEMENT *a = x + r * step;                                                   \
                _Pragma("omp simd") for (int j = 0; j < width; j++) {                              \
                    const type p = (type)VALUE(a[j]), q = (type)VALUE(a[j + step]);                \
                    const type t = (type)VALUE(a[j + 2 * step]);                                   \
                    const type u = (type)VALUE(a[j + 3 * step]);                                   \
                    s[j] = (type)(step4);                                                          \
                }                                                                                  \
            }                                                                                      \
            for (; r < end; r++) {                                                                 \
                const ELEMENT *a = x + r * step;                                                   \
                _Pragma("omp simd") for (int j = 0; j < width; j++) {                              \
                    const type p = (type)VALUE(a[j]);                                              \
                    s[j] = (type)(step1);                                                          \
                }                                                                                  \
            }                                                                                      \
            for (int j = 0; j < width; j++)                                                        \
                result[j].MEMBER = NAME(name##_of)(result[j].MEMBER, (TOTAL)s[j]);                 \
        }                                                                                          \
    }                                                                                              \
    static void NAME(name)(const void *x, int64_t rows, int64_t step, int width,                   \
                           mg_partial *result) {                                                   \
        if (width == MG_TILE)                                                                      \
            NAME(name##_lanes)(x, rows, step, MG_TILE, result);                                    \
        else if (width == MG_LANES)                                                                \
            NAME(name##_lanes)(x, rows, step, MG_LANES, result);                                   \
        else                                                                                       \
            NAME(name##_lanes)(x, rows, step, width, result);                                      \
    }                                                                                              \
    static mg_partial NAME(run_##name)(const void *run, int64_t n) {                               \
        const ELEMENT *x = run;                                                                    \
        mg_partial lanes[MG_TILE];                                                                 \
        TOTAL result = (TOTAL)(start);                                                             \
        const int64_t rows = n / MG_TILE;                                                          \
        if (rows) {                                                                                \
            for (int j = 0; j < MG_TILE; j++) lanes[j].MEMBER = (TOTAL)(start);                    \
            NAME(name##_lanes)(x, rows, MG_TILE, MG_TILE, lanes);                                  \
            for (int half = MG_TILE / 2; half > 0; half /= 2)                                      \
                for (int j = 0; j < half; j++)                                                     \
                    lanes[j] = NAME(join_##name)(lanes[j], lanes[j + half]);                       \
            result = lanes[0].MEMBER;                                                              \
        }                                                                                          \
        for (int64_t i = rows * MG_TILE; i < n; i++)                                               \
            result = NAME(name##_of)(result, (TOTAL)VALUE(x[i]));                                  \
        return (mg_partial){.MEMBER = result};                                                     \
    }

/* The larger of two numbers, or NaN if either is NaN: two selects, which compilers vectorise. */
static inline ELEMENT NAME(max2)(ELEMENT a, ELEMENT b) {
    const ELEMENT larger = b > a ? b : a;
    return IS_NAN(b) ? b : larger;
}
static inline ELEMENT NAME(min2)(ELEMENT a, ELEMENT b) {
    const ELEMENT smaller = b < a ? b : a;
    return IS_NAN(b) ? b : smaller;
}
/* Maxima and minima are kept in ELEMENT. Any and all are 0 or 1, and are computed without branches.
 */
FOLD(sum, SUM, 0, s[j] + ((p + q) + (t + u)), s[j] + p, PLUS(a, b))
FOLD(prod, PRODUCT, 1, s[j] * ((p * q) * (t * u)), s[j] * p, TIMES(a, b))
FOLD(max, ELEMENT, LEAST, NAME(max2)(NAME(max2)(s[j], NAME(max2)(p, q)), NAME(max2)(t, u)),
     NAME(max2)(s[j], p), b > a || IS_NAN(b) ? b : a)
FOLD(min, ELEMENT, MOST, NAME(min2)(NAME(min2)(s[j], NAME(min2)(p, q)), NAME(min2)(t, u)),
     NAME(min2)(s[j], p), b < a || IS_NAN(b) ? b : a)
FOLD(any, ELEMENT, 0, (s[j] != 0) | (p != 0) | (q != 0) | (t != 0) | (u != 0),
     (s[j] != 0) | (p != 0), a != 0 || b != 0)
FOLD(all, ELEMENT, 1, (s[j] != 0) & (p != 0) & (q != 0) & (t != 0) & (u != 0),
     (s[j] != 0) & (p != 0), a != 0 && b != 0)
#undef FOLD

/* The index of the first of the largest elements, or of the smallest; NaN wins over every number.
 */
static int64_t NAME(extreme)(const void *elements, int64_t n, int64_t step, bool largest) {
    const ELEMENT *x = elements;
    ELEMENT top = x[0];
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        const ELEMENT now = x[i * step];
        const bool wins = largest ? now > top : now < top;
        if (wins || (IS_NAN(now) && !IS_NAN(top))) best = i, top = now;
    }
    return best;
}

/* Running sums, in TOTAL. Those of integers are stored as they are, those of floats rounded. */
static void NAME(cumsum)(const void *elements, void *result, int64_t n, int64_t step,
                         int64_t width) {
    const ELEMENT *x = elements;
    RUNNING *y = result;
    TOTAL sum[MG_TILE] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) {
            sum[j] = PLUS(sum[j], (TOTAL)VALUE(x[i * step + j]));
            y[i * step + j] = (RUNNING)sum[j];
        }
}

#ifndef FOLD_TABLE
/* The members of mg_simd_folds that are defined here. A row: the op's name and its functions. */
#define REDUCTION(id, start)                                                                       \
    { #id, {.MEMBER = start }, NAME(join_##id), NAME(id), NAME(run_##id) }
#define FOLD_TABLE                                                                                 \
    .reductions = {REDUCTION(sum, 0),    REDUCTION(prod, 1), REDUCTION(max, LEAST),                \
                   REDUCTION(min, MOST), REDUCTION(any, 0),  REDUCTION(all, 1)},                   \
    .cumsum = NAME(cumsum), .extreme = NAME(extreme), .size = sizeof(ELEMENT)
#endif

/* The inner loops of the cpu device give the same bits however their results are cut into tiles,
 * which depends on the number of threads. All sets that this processor runs are checked. */
#include "core/dtype.h"
#include "device/cpu/simd/depthwise.h"
#include "device/cpu/simd/gemm.h"
#include "device/cpu/simd/simd.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 13, DEPTH = 259, STRIP = 32, N = DEPTH * STRIP };

static const mg_simd *sets[3]; /* the sets of this processor */
static int n_sets;
static float a[N], b[N], c[N]; /* random numbers in [-4, 4) */
static double wide[2][N];      /* a and b in double */

static int fill(void **state) {
    float *const arrays[] = {a, b, c};
    uint32_t random = 1;
    (void)state;
    n_sets = mg_simd_available(sets);
    for (int i = 0; i < 3 * N; i++) {
        random = random * 1664525u + 1013904223u;
        arrays[i % 3][i / 3] = (float)(random >> 8) * 0x1p-21f - 4;
    }
    for (int i = 0; i < N; i++) wide[0][i] = a[i], wide[1][i] = b[i];
    return 0;
}

/* ---- matrix products ---- */

/* Multiplies ROWS x DEPTH by DEPTH x columns, `height` rows at a time, to y {ROWS, strip}. Rows of
 * the first factor are contiguous, or its columns are. */
static void multiply(const mg_simd_gemm *g, const void *left, const void *right, size_t size,
                     int columns, bool by_rows, int height, void *y) {
    mg_gemm_product p = {.b = right,
                         .ra = by_rows ? DEPTH : 1,
                         .da = by_rows ? 1 : ROWS,
                         .depth = DEPTH,
                         .run = DEPTH,
                         .chain = 64,
                         .columns = columns,
                         .rc = g->strip,
                         .stored = MG_F32};
    for (int row = 0; row < ROWS; row += height) {
        p.a = (const char *)left + (size_t)(row * p.ra) * size;
        p.c = (char *)y + (size_t)(row * p.rc) * size;
        g->multiply(&p, row + height < ROWS ? height : ROWS - row);
    }
}

static void rows_of_products(void **state) {
    (void)state;
    for (int k = 0; k < 4 * n_sets; k++) {
        const bool is_double = k % 2, by_rows = k / 2 % 2;
        const mg_simd_gemm *g = sets[k / 4]->gemm[is_double];
        const void *left = is_double ? (void *)wide[0] : a,
                   *right = is_double ? (void *)wide[1] : b;
        const size_t size = is_double ? sizeof(double) : sizeof(float);
        for (int columns = g->strip; columns > 1; columns /= 2) {
            double whole[ROWS * STRIP] = {0}, cut[ROWS * STRIP];
            multiply(g, left, right, size, columns, by_rows, ROWS, whole);
            for (int height = 1; height < ROWS; height++) {
                memset(cut, 0, sizeof cut);
                multiply(g, left, right, size, columns, by_rows, height, cut);
                if (memcmp(cut, whole, sizeof cut) != 0)
                    fail_msg("set %s, %s, %d columns, rows %s: other bits %d rows at a time",
                             sets[k / 4]->name, is_double ? "float64" : "float32", columns,
                             by_rows ? "contiguous" : "apart", height);
            }
        }
    }
}

/* ---- depthwise convolutions ---- */

enum { RESULTS = 26, CHANNELS = 37, TAPS = 3 };

/* Computes RESULTS pixels of three taps in a row, `n` pixels at a time. */
static void convolve(const mg_simd_depthwise *d, int n, float *y) {
    for (int first = 0; first < RESULTS; first += n) {
        mg_depthwise_run r = {.c = CHANNELS,
                              .step = CHANNELS,
                              .result_step = CHANNELS,
                              .results = first + n < RESULTS ? n : RESULTS - first};
        r.groups[0] = (mg_depthwise_group){.x = a + first * CHANNELS, .apart = CHANNELS};
        r.count[TAPS] = 1;
        d->sum_taps(&r, b, c, true, y + first * CHANNELS);
    }
}

static void pixels_of_depthwise_convolutions(void **state) {
    (void)state;
    for (int k = 0; k < n_sets; k++) {
        float whole[RESULTS * CHANNELS], cut[RESULTS * CHANNELS];
        convolve(sets[k]->depthwise[0], RESULTS, whole);
        for (int n = 1; n < RESULTS; n++) {
            convolve(sets[k]->depthwise[0], n, cut);
            if (memcmp(cut, whole, sizeof cut) != 0)
                fail_msg("set %s: other bits %d pixels at a time", sets[k]->name, n);
        }
    }
}

/* ---- batch norm ---- */

/* Stores past the caches have a loop of their own, which needs aligned rows of full tiles. */
static void stores_past_the_caches(void **state) {
    static float plain[N] __attribute__((aligned(64))), past[N] __attribute__((aligned(64)));
    (void)state;
    for (int k = 0; k < n_sets; k++) {
        const mg_simd_folds *f = sets[k]->folds[MG_F32];
        const int rows = N / MG_TILE;
        f->normalise(a, plain, rows, MG_TILE, MG_TILE, wide[0], wide[1], wide[1] + MG_TILE, false);
        f->normalise(a, past, rows, MG_TILE, MG_TILE, wide[0], wide[1], wide[1] + MG_TILE, true);
        sets[k]->movement->end_stream();
        assert_memory_equal(past, plain, sizeof(float) * (size_t)(rows * MG_TILE));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_products),
                                       cmocka_unit_test(pixels_of_depthwise_convolutions),
                                       cmocka_unit_test(stores_past_the_caches)};
    return cmocka_run_group_tests(tests, fill, NULL);
}

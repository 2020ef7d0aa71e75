/* Products of float64 matrices. Blocks of both factors are packed into strips, from which a
 * register tile of the result is made (simd/matmul.c). Where the result is small and the sums are
 * long, several threads make parts of the sums. */
#include "device/cpu/gemm.h"
#include <string.h>

enum {
    ROWS = MG_GEMM_ROWS,
    BLOCK_ROWS = 8 * ROWS,
    BLOCK_COLUMNS = 128,
    DEPTH = 256,       /* terms of the sums that are packed at a time */
    PARTS = 16,        /* the most parts of a sum */
    LEAST_PART = 1024, /* terms of a part, at least */
    FEW_UNITS = 8      /* sums are cut into parts where there are fewer blocks than that */
};

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The reader of a factor that lies in memory as a matrix, in either order. */
void mg_read_matrix(const mg_factor *f, int64_t first, int n, int64_t from, int64_t end, int width,
                    double *to) {
    for (int64_t k = from; k < end; k++, to += width)
        for (int i = 0; i < n; i++) to[i] = f->at[(first + i) * f->lane + k * f->step];
}

/* Packs lanes [first, first + lanes) into strips of `width`; lanes beyond the last one are 0. */
static void pack(const mg_factor *f, int64_t first, int64_t lanes, int64_t from, int64_t end,
                 int width, double *to) {
    for (int64_t done = 0; done < lanes; done += width, to += (end - from) * width) {
        const int n = (int)smaller(width, lanes - done);
        if (n < width) memset(to, 0, (size_t)((end - from) * width) * sizeof *to);
        f->read(f, first + done, n, from, end, width, to);
    }
}

/* The operands of mg_gemm. */
typedef struct product {
    int64_t m, n, k;
    const mg_factor *a, *b;
    double *y;
    int64_t y_row;
} product;

/* Copies the part of a tile that lies inside the result (`rows` x `columns`) to its place, or from
 * it. */
static void move_tile(double *tile, int width, double *y, int64_t y_row, int64_t rows,
                      int64_t columns, bool out) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(out ? y + i * y_row : tile + i * width, out ? tile + i * width : y + i * y_row,
               (size_t)columns * sizeof *y);
}

/* One block of the result: the terms [from, end) of its sums. The terms are packed DEPTH at a time,
 * so that the packed strips stay in the caches; the tile is reloaded from y in between. */
static void multiply_block(const product *p, int64_t row, int64_t column, int64_t from,
                           int64_t end) {
    const mg_simd_matmul *loops = mg_simd_used->matmul;
    const int width = loops->gemm_columns;
    double a[BLOCK_ROWS * DEPTH], b[MG_GEMM_MAX_COLUMNS * DEPTH];
    const int64_t rows = smaller(BLOCK_ROWS, p->m - row);
    const int64_t columns = smaller(BLOCK_COLUMNS, p->n - column);
    for (int64_t k = from; k < end; k += DEPTH) {
        const int64_t last = smaller(k + DEPTH, end);
        pack(p->a, row, rows, k, last, ROWS, a);
        for (int64_t j = 0; j < columns; j += width) {
            pack(p->b, column + j, smaller(width, columns - j), k, last, width, b);
            for (int64_t i = 0; i < rows; i += ROWS) {
                double tile[ROWS * MG_GEMM_MAX_COLUMNS] = {0};
                double *y = p->y + (row + i) * p->y_row + column + j;
                const int64_t high = smaller(ROWS, rows - i), wide = smaller(width, columns - j);
                /* later terms are added to the sums of the earlier ones */
                if (k > from) move_tile(tile, width, y, p->y_row, high, wide, false);
                loops->multiply_strips(a + i * (last - k), b, last - k, tile);
                move_tile(tile, width, y, p->y_row, high, wide, true);
            }
        }
    }
}

/* Blocks of the result: the units that threads share. */
static int64_t units_of(int64_t m, int64_t n) {
    return divide_up(m, BLOCK_ROWS) * divide_up(n, BLOCK_COLUMNS);
}

/* Parts that the sums are cut into. Depends on the shape only, as the order of additions must. */
static int64_t parts_of(int64_t m, int64_t n, int64_t k) {
    if (units_of(m, n) >= FEW_UNITS || k < 2 * LEAST_PART) return 1;
    return smaller(PARTS, k / LEAST_PART);
}

/* One copy of the result per part. */
size_t mg_gemm_scratch(int64_t m, int64_t n, int64_t k) {
    const int64_t parts = parts_of(m, n, k);
    return parts > 1 ? (size_t)(parts * m * n) * sizeof(double) : 0;
}

/* Makes the parts of all sums side by side in scratch, then adds them up in order. */
static void multiply_parts(const product *p, int64_t parts, double *scratch) {
    const int64_t units = units_of(p->m, p->n), wide = divide_up(p->n, BLOCK_COLUMNS);
#pragma omp parallel for schedule(dynamic)
    for (int64_t u = 0; u < units * parts; u++) {
        const int64_t part = u / units, unit = u % units;
        product own = *p;
        own.y = scratch + part * p->m * p->n;
        own.y_row = p->n;
        multiply_block(&own, unit / wide * BLOCK_ROWS, unit % wide * BLOCK_COLUMNS,
                       p->k * part / parts, p->k * (part + 1) / parts);
    }
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            for (int64_t part = 0; part < parts; part++)
                sum += scratch[(part * p->m + i) * p->n + j];
            p->y[i * p->y_row + j] = sum;
        }
}

/* Threads share the blocks; an empty sum is 0. */
void mg_gemm(int64_t m, int64_t n, int64_t k, const mg_factor *a, const mg_factor *b, double *y,
             int64_t y_row, double *scratch) {
    const product p = {m, n, k, a, b, y, y_row};
    const int64_t units = units_of(m, n), wide = divide_up(n, BLOCK_COLUMNS);
    const int64_t parts = scratch ? parts_of(m, n, k) : 1;
    if (k == 0)
        for (int64_t i = 0; i < m; i++) memset(y + i * y_row, 0, (size_t)n * sizeof *y);
    else if (parts > 1)
        multiply_parts(&p, parts, scratch);
    else
#pragma omp parallel for schedule(dynamic) if (m * n * k > MG_SERIAL_BELOW)
        for (int64_t u = 0; u < units; u++)
            multiply_block(&p, u / wide * BLOCK_ROWS, u % wide * BLOCK_COLUMNS, 0, k);
}

void mg_finish_rows(double *y, int64_t rows, int64_t n, const double *bias, bool relu) {
#pragma omp parallel for num_threads(mg_cpu_team(rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        mg_simd_used->matmul->finish_rows_f64(y + i * n, 1, n, bias, relu);
}

/* Matrix products: y {m, n} = a {m, k} b {k, n}, summed in float32 or float64.
 *
 * A factor comes with a function that reads it. So the windows of a convolution are multiplied
 * without being written to memory first, and 16-bit floats without a separate pass that converts
 * them. The order of additions depends on the sizes only, never on the number of threads. */
#ifndef MG_DEVICE_CPU_PRODUCTS_GEMM_H
#define MG_DEVICE_CPU_PRODUCTS_GEMM_H

#include "device/cpu/cpu.h"

/* A factor, a or b. Its lanes are the rows of a, or the columns of b; its steps are the k terms of
 * the sums. It is stored as a matrix (or is one for its reader) whose rows are either lanes or
 * steps. If the rows of b are steps, its reader must be mg_read_matrix. */
typedef struct mg_factor mg_factor;
struct mg_factor {
    /* Copies columns [column, column + n) of the rows [row, row + rows) of that matrix to `to`,
     * where rows lie to_row elements apart: as doubles if the product is in float64, otherwise as
     * floats. */
    void (*read)(const mg_factor *f, int64_t row, int64_t rows, int64_t column, int64_t n, void *to,
                 int64_t to_row);
    const void *at;
    mg_dtype dtype;  /* of the elements at `at` */
    bool by_steps;   /* rows of the matrix are steps, not lanes */
    int64_t row;     /* for mg_read_matrix: elements from one row to the next */
    const void *how; /* other readers' own data */
};

/* Bytes of an element after it was read. */
static inline int64_t mg_factor_size(const mg_factor *f) {
    return f->dtype == MG_F64 ? sizeof(double) : sizeof(float);
}

/* The reader of a factor that lies in memory as a matrix. */
void mg_read_matrix(const mg_factor *f, int64_t row, int64_t rows, int64_t column, int64_t n,
                    void *to, int64_t to_row);
/* For readers: copies n contiguous elements of a factor, from element `from` on. */
void mg_read_run(const mg_factor *f, int64_t from, int64_t n, void *to);

/* Where the results are written. Row r of the product is pixel r of a series of images with `lines`
 * lines of `columns` pixels each. For a plain matrix, this is a single line of m pixels. */
typedef struct mg_gemm_result {
    void *at;
    mg_dtype dtype;             /* of the results and of the bias */
    int64_t columns, lines;     /* pixels of a line, lines of an image */
    int64_t pixel, line, image; /* elements from one to the next */
    const void *bias;           /* n elements, or NULL */
    bool relu;                  /* NaN stays NaN */
} mg_gemm_result;

/* A plain matrix of m rows, `row` elements apart; the caller sets the address. */
static inline mg_gemm_result mg_gemm_matrix(int64_t m, int64_t row, mg_dtype t) {
    return (mg_gemm_result){.dtype = t, .columns = m, .lines = 1, .pixel = row};
}

/* How a product is cut into blocks. */
typedef struct mg_gemm {
    int64_t m, n, k;
    bool wide;   /* summed in float64 */
    bool packed; /* all of b is packed before anything is multiplied */
    bool given;  /* ... by the caller, with mg_gemm_pack: b->at is what that wrote */
    /* of a block: its results, and the terms that are added at a time */
    int64_t rows, columns, depth;
    int64_t parts; /* parts that the sums over k are cut into (split-K) */
    int team;      /* threads */
    /* bytes of scratch: all of it, and of each thread; offsets in it */
    size_t scratch, thread, packed_at, parts_at, threads_at;
} mg_gemm;

/* Plans a product of factors of dtype t. Sizes may be 0; a sum over no terms is 0. */
mg_gemm mg_gemm_plan(int64_t m, int64_t n, int64_t k, mg_dtype t);
/* The same for a product on one thread, while other threads run other products. */
mg_gemm mg_gemm_plan_single(int64_t m, int64_t n, int64_t k, mg_dtype t);
/* The same for a b in float32 that is the same in many products, and packed once for all of them.
 */
mg_gemm mg_gemm_plan_packed(int64_t m, int64_t n, int64_t k);
/* Bytes of a packed b, and of the scratch memory that packing it takes. */
size_t mg_gemm_packed_bytes(const mg_gemm *g);
size_t mg_gemm_packing_scratch(const mg_gemm *g);
void mg_gemm_pack(const mg_gemm *g, const mg_factor *b, void *packed, void *scratch);
void mg_gemm_run(const mg_gemm *g, const mg_factor *a, const mg_factor *b, const mg_gemm_result *y,
                 void *scratch);

/* Adds the bias (NULL: none) to each row of n floats, then applies relu if wanted. NaN stays
 * NaN. */
void mg_finish_rows(float *y, int64_t rows, int64_t n, const float *bias, bool relu);

#endif

/* Weighted sums of pixels, for one dtype: image_resize, its gradient, and bilinear transforms. A
 * thread takes VECTOR neighbouring channels of a pixel in one access; p.c counts vectors in the
 * _vector kernels. */

/* All kernels for VECTOR channels in one access; KIND makes their names. */
#define IMAGES(VECTOR, KIND)                                                                       \
    typedef struct KIND(image_cells) {                                                             \
        STORED at[VECTOR];                                                                         \
    } __attribute__((aligned(sizeof(STORED) * VECTOR))) KIND(image_cells);                         \
                                                                                                   \
    KERNEL(KIND(resize), resize_params) {                                                          \
        const KIND(image_cells) *x = (const KIND(image_cells) *)p.x;                               \
        for (int64_t r = blockIdx.x; r < p.n * p.oh; r += gridDim.x)                               \
            for (int t = threadIdx.x; t < p.ow * p.c; t += blockDim.x) {                           \
                const int row = (int)(r % p.oh), column = t / p.c;                                 \
                const REAL *down = (const REAL *)p.rows.weight + (int64_t)row * p.rows.most;       \
                const REAL *across =                                                               \
                    (const REAL *)p.columns.weight + (int64_t)column * p.columns.most;             \
                const int64_t top = r / p.oh * p.h + p.rows.first[row];                            \
                REAL sum[VECTOR] = {0};                                                            \
                KIND(image_cells) y;                                                               \
                for (int i = 0; i < p.rows.count[row]; i++) {                                      \
                    const int64_t from =                                                           \
                        ((top + i) * p.w + p.columns.first[column]) * p.c + t % p.c;               \
                    for (int j = 0; j < p.columns.count[column]; j++) {                            \
                        const KIND(image_cells) now = x[from + (int64_t)j * p.c];                  \
                        for (int k = 0; k < VECTOR; k++)                                           \
                            sum[k] += down[i] * across[j] * LOAD(now.at, k);                       \
                    }                                                                              \
                }                                                                                  \
                for (int k = 0; k < VECTOR; k++) STORE(y.at, k, sum[k]);                           \
                ((KIND(image_cells) *)p.out)[r * p.ow * p.c + t] = y;                              \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    KERNEL(KIND(transform), transform_params) {                                                    \
        const KIND(image_cells) *x = (const KIND(image_cells) *)p.x;                               \
        for (int64_t r = blockIdx.x; r < p.n * p.oh; r += gridDim.x)                               \
            for (int t = threadIdx.x; t < p.ow * p.c; t += blockDim.x) {                           \
                mg_transform_axis at[2];                                                           \
                mg_transform_read(&p, r, t / p.c, 1, at);                                          \
                const REAL outside = (REAL)(1 - at[0].inside * at[1].inside);                      \
                REAL sum[VECTOR];                                                                  \
                KIND(image_cells) y;                                                               \
                for (int k = 0; k < VECTOR; k++)                                                   \
                    sum[k] = outside > 0 ? outside * (REAL)p.fill : 0;                             \
                for (int i = 0; i < at[0].count; i++)                                              \
                    for (int j = 0; j < at[1].count; j++) {                                        \
                        const int64_t row = r / p.oh * p.h + at[0].first + i;                      \
                        const KIND(image_cells) now =                                              \
                            x[(row * p.w + at[1].first + j) * p.c + t % p.c];                      \
                        const REAL w = (REAL)(at[0].weight[i] * at[1].weight[j]);                  \
                        for (int k = 0; k < VECTOR; k++) sum[k] += w * LOAD(now.at, k);            \
                    }                                                                              \
                for (int k = 0; k < VECTOR; k++) STORE(y.at, k, sum[k]);                           \
                ((KIND(image_cells) *)p.out)[r * p.ow * p.c + t] = y;                              \
            }                                                                                      \
    }

/* resize_f32 and resize_vector_f32, and so on for each dtype. */
#define ONE(x) NAME(x)
#define FOUR(x) NAME(x##_vector)
IMAGES(1, ONE)
IMAGES(4, FOUR)
#undef ONE
#undef FOUR
#undef IMAGES

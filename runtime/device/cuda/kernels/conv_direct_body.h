/* Convolutions of one dtype over images with few channels (1 to 4), and their weight gradients.
 *
 * Library kernels are designed for sums over many channels; with few channels they mostly wait for
 * memory. Here a block takes a tile of results and keeps in shared memory the weights and the patch
 * of the image under the tile, padded with zeros. Threads then compute without bounds checks.
 *
 * A tap is one cell of a kernel with one channel, numbered in the order of w: {kh, kw, c}. */

#ifndef MG_DIRECT_TILE
#define MG_DIRECT_TILE
/* A tile of results: its image, first row and column, and size, clipped to the image. */
typedef struct direct_tile {
    int64_t image;
    int oy, ox, rows, columns;
} direct_tile;

/* Tiles count the strips of a band from left to right, then the bands of an image, then the images.
 */
DEVICE direct_tile mg_direct_tile(const direct_params *p, int64_t number) {
    const int64_t band = number / p->strips;
    direct_tile t = {.image = band / p->bands,
                     .oy = (int)(band % p->bands) * p->rows,
                     .ox = (int)(number % p->strips) * p->columns};
    t.rows = p->oh - t.oy < p->rows ? p->oh - t.oy : p->rows;
    t.columns = p->ow - t.ox < p->columns ? p->ow - t.ox : p->columns;
    return t;
}

/* The offset in the patch from a pixel's first tap to `tap`. */
DEVICE int mg_direct_tap(const direct_params *p, int tap) {
    const int cell = tap / p->c;
    return cell / p->kw * p->spread_y * p->patch_run + cell % p->kw * p->spread_x * p->c +
           tap % p->c;
}
#endif

/* MG_DIRECT_VECTOR neighbouring kernels: as sums in registers and shared memory, and as elements in
 * device memory. */
typedef struct NAME(direct_sums) {
    REAL at[MG_DIRECT_VECTOR];
} __attribute__((aligned(16))) NAME(direct_sums);
typedef struct NAME(direct_cells) {
    STORED at[MG_DIRECT_VECTOR];
} __attribute__((aligned(sizeof(STORED) < 4 ? 8 : 16))) NAME(direct_cells);

/* The block copies the part of the image that a tile reads to shared memory; 0 in the padding. */
DEVICE void NAME(direct_patch)(const direct_params *p, const direct_tile *t, REAL *patch) {
    const int y = t->oy * p->down - p->top, x = (t->ox * p->across - p->left) * p->c;
    const int run = p->wide * p->c;
    for (int e = threadIdx.x; e < p->patch_rows * p->patch_run; e += blockDim.x) {
        const int row = e / p->patch_run, iy = y + row, ix = x + e - row * p->patch_run;
        const bool inside = iy >= 0 && iy < p->h && ix >= 0 && ix < run;
        patch[e] = inside ? (REAL)LOAD(p->x, (t->image * p->h + iy) * run + ix) : 0;
    }
}

/* The block copies its p->kernels kernels, from `first` on, to shared memory as {taps, kernels};
 * kernels beyond the last are 0. */
DEVICE void NAME(direct_weights)(const direct_params *p, int first, REAL *weights) {
    const int taps = p->kh * p->kw * p->c;
    for (int e = threadIdx.x; e < taps * p->kernels; e += blockDim.x) {
        const int tap = e / p->kernels, k = first + e % p->kernels;
        weights[e] = k < p->k ? (REAL)LOAD(p->w, (int64_t)tap * p->k + k) : 0;
    }
}

/* Stores the results of kernels k, k + 1, ... of a pixel, with relu if the parameters say so. */
DEVICE void NAME(direct_put)(const direct_params *p, int64_t pixel, int k, const REAL *v) {
    NAME(direct_cells) y;
    for (int i = 0; i < MG_DIRECT_VECTOR; i++) STORE(y.at, i, p->relu && v[i] < 0 ? 0 : v[i]);
    STORED *out = (STORED *)p->out + pixel * p->k + k;
    if (p->vector) {
        *(NAME(direct_cells) *)out = y;
        return;
    }
    for (int i = 0; i < MG_DIRECT_VECTOR; i++)
        if (k + i < p->k) out[i] = y.at[i];
}

/* The results of one vector of kernels, from k on, at MG_DIRECT_PIXELS pixels of a tile: first,
 * first + step, ... The pixels share each weight that is read. Pixels beyond the tile are clamped,
 * computed and not stored. */
DEVICE void NAME(direct_results)(const direct_params *p, const direct_tile *t, const REAL *patch,
                                 const NAME(direct_sums) * weights, int first, int step, int k) {
    const REAL *at[MG_DIRECT_PIXELS];
    REAL sum[MG_DIRECT_PIXELS][MG_DIRECT_VECTOR];
    const int pixels = t->rows * t->columns;
    for (int j = 0; j < MG_DIRECT_PIXELS; j++) {
        const int own = first + j * step, pixel = own < pixels ? own : pixels - 1;
        at[j] = patch + pixel / t->columns * p->down * p->patch_run +
                pixel % t->columns * p->across * p->c;
        for (int i = 0; i < MG_DIRECT_VECTOR; i++)
            sum[j][i] = p->bias && k + i < p->k ? (REAL)LOAD(p->bias, k + i) : 0;
    }
    for (int ky = 0; ky < p->kh; ky++)
        for (int kx = 0; kx < p->kw; kx++)
            for (int c = 0; c < p->c; c++) {
                const int tap = ky * p->spread_y * p->patch_run + kx * p->spread_x * p->c + c;
                const NAME(direct_sums) w = *weights;
                weights += p->kernels / MG_DIRECT_VECTOR;
                for (int j = 0; j < MG_DIRECT_PIXELS; j++) {
                    const REAL x = at[j][tap];
                    for (int i = 0; i < MG_DIRECT_VECTOR; i++) sum[j][i] += x * w.at[i];
                }
            }
    for (int j = 0; j < MG_DIRECT_PIXELS; j++) {
        const int pixel = first + j * step, oy = t->oy + pixel / t->columns;
        if (pixel < pixels) NAME(direct_put)
        (p, (t->image * p->oh + oy) * p->ow + t->ox + pixel % t->columns, k, sum[j]);
    }
}

/* y = conv(x, w), then + bias and relu. A block keeps the weights of its slice of kernels and goes
 * from tile to tile. Neighbouring threads have neighbouring kernels, then neighbouring pixels, so a
 * warp writes one contiguous run of memory. */
KERNEL(NAME(direct_conv), direct_params) {
    SHARED(REAL, weights);
    REAL *const patch = weights + p.kh * p.kw * p.c * p.kernels;
    const int vectors = p.kernels / MG_DIRECT_VECTOR, slice = blockIdx.x % p.slices;
    NAME(direct_weights)(&p, slice * p.kernels, weights);
    /* The first barrier of a turn: all threads are done with the last patch. The second: the new
       one is complete. */
    for (int64_t b = blockIdx.x / p.slices; b < p.tiles; b += gridDim.x / p.slices) {
        const direct_tile t = mg_direct_tile(&p, b);
        const int step = (t.rows * t.columns + MG_DIRECT_PIXELS - 1) / MG_DIRECT_PIXELS;
        __syncthreads();
        NAME(direct_patch)(&p, &t, patch);
        __syncthreads();
        for (int e = threadIdx.x; e < step * vectors; e += blockDim.x) {
            const int v = e % vectors, k = slice * p.kernels + v * MG_DIRECT_VECTOR;
            if (k < p.k) NAME(direct_results)
            (&p, &t, patch, (const NAME(direct_sums) *)weights + v, e / vectors, step, k);
        }
    }
}

/* ---- the gradient of the weights ---- */

/* dy of a pixel for kernels k, k + 1, ...; 0 for kernels beyond the last. */
DEVICE NAME(direct_sums) NAME(direct_dy)(const direct_params *p, int64_t pixel, int k) {
    const STORED *dy = (const STORED *)p->dy + pixel * p->k + k;
    NAME(direct_cells) stored;
    NAME(direct_sums) v;
    if (p->vector) {
        stored = *(const NAME(direct_cells) *)dy;
        for (int i = 0; i < MG_DIRECT_VECTOR; i++) v.at[i] = LOAD(stored.at, i);
    } else {
        for (int i = 0; i < MG_DIRECT_VECTOR; i++) v.at[i] = k + i < p->k ? (REAL)LOAD(dy, i) : 0;
    }
    return v;
}

/* Adds x * dy over the pixels lane, lane + lanes, ... of a tile to the sums of the taps at
 * `offset`. The row and column of the pixel are stepped along instead of divided. */
DEVICE void NAME(direct_add)(const direct_params *p, const direct_tile *t, const REAL *patch,
                             const int *offset, int lane, int k, NAME(direct_sums) * sum) {
    const int step_rows = p->lanes / t->columns, step_columns = p->lanes % t->columns;
    int row = lane / t->columns, column = lane % t->columns;
    while (row < t->rows) {
        const REAL *at = patch + row * p->down * p->patch_run + column * p->across * p->c;
        const int64_t line = t->image * p->oh + t->oy + row;
        const NAME(direct_sums) dy = NAME(direct_dy)(p, line * p->ow + t->ox + column, k);
        for (int i = 0; i < MG_DIRECT_TAPS; i++) {
            const REAL x = at[offset[i]];
            for (int j = 0; j < MG_DIRECT_VECTOR; j++) sum[i].at[j] += x * dy.at[j];
        }
        row += step_rows;
        column += step_columns;
        if (column >= t->columns) column -= t->columns, row++;
    }
}

/* dw. A thread has one vector of kernels, MG_DIRECT_TAPS taps and one lane: every lanes-th pixel of
 * a tile. In the end the block adds its lanes in shared memory, MG_DIRECT_TOGETHER taps at a time,
 * and writes partial sums, which add_parts (finish.cu) adds over the blocks in a fixed order. */
KERNEL(NAME(direct_weight), direct_params) {
    SHARED(REAL, patch);
    NAME(direct_sums) *const own = (NAME(direct_sums) *)patch + threadIdx.x; /* reuses the patch */
    const int taps = p.kh * p.kw * p.c, groups = (taps + MG_DIRECT_TAPS - 1) / MG_DIRECT_TAPS;
    const int vectors = p.kernels / MG_DIRECT_VECTOR, wide = vectors * groups;
    const int lane = threadIdx.x / wide, first = threadIdx.x / vectors % groups * MG_DIRECT_TAPS;
    const int slice = blockIdx.x % p.slices;
    const int k = slice * p.kernels + threadIdx.x % vectors * MG_DIRECT_VECTOR;
    const bool works = lane < p.lanes && k < p.k;
    int offset[MG_DIRECT_TAPS];
    NAME(direct_sums) sum[MG_DIRECT_TAPS];
    for (int i = 0; i < MG_DIRECT_TAPS; i++) {
        offset[i] = mg_direct_tap(&p, first + i < taps ? first + i : taps - 1);
        for (int j = 0; j < MG_DIRECT_VECTOR; j++) sum[i].at[j] = 0;
    }
    for (int64_t b = blockIdx.x / p.slices; b < p.tiles; b += gridDim.x / p.slices) {
        const direct_tile t = mg_direct_tile(&p, b);
        __syncthreads();
        NAME(direct_patch)(&p, &t, patch);
        __syncthreads();
        if (works) NAME(direct_add)(&p, &t, patch, offset, lane, k, sum);
    }
    REAL *const part = (REAL *)p.out + (int64_t)(blockIdx.x / p.slices) * taps * p.k;
    for (int i = 0; i < MG_DIRECT_TAPS; i += MG_DIRECT_TOGETHER) {
        __syncthreads();
        for (int n = 0; n < MG_DIRECT_TOGETHER; n++) own[n * MG_DIRECT_THREADS] = sum[i + n];
        /* Tree over the lanes, whose number need not be a power of two: the upper half is added to
           the lower one. */
        for (int left = p.lanes, half; left > 1; left = half) {
            half = (left + 1) / 2;
            __syncthreads();
            if (lane + half < left && lane < half)
                for (int n = 0; n < MG_DIRECT_TOGETHER * MG_DIRECT_THREADS; n += MG_DIRECT_THREADS)
                    for (int j = 0; j < MG_DIRECT_VECTOR; j++)
                        own[n].at[j] += own[n + half * wide].at[j];
        }
        for (int n = 0; n < MG_DIRECT_TOGETHER && lane == 0; n++)
            for (int j = 0; j < MG_DIRECT_VECTOR; j++)
                if (first + i + n < taps && k + j < p.k)
                    part[(int64_t)(first + i + n) * p.k + k + j] = own[n * MG_DIRECT_THREADS].at[j];
    }
}

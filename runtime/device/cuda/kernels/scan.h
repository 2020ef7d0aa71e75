/* Scans: running sums (cumsum), and the gradient of a product by running products. Generated text
 * (scan.c) defines the constants in capitals and includes this.
 *
 * A block takes `across` neighbouring columns and goes along the axis, THREADS / across rows at a
 * time: it scans these rows in shared memory and carries the total to the next rows. If there are
 * only few, long columns, they are divided into pieces and scanned in three launches: the sum of
 * each piece, the running sums of these (carry), and then the running sums within each piece, which
 * start from the previous carry. */
#include "device/cuda/kernels/elements.h"
#include "device/cuda/kernels/params.h"

#if IS_SUM
#define JOINED(a, b) ADD(a, b)
#define START K(0)
#else
#define JOINED(a, b) MULTIPLY(a, b)
#define START K(1)
#endif

/* Inclusive scan over the rows of a block (Hillis and Steele): returns the values of the rows up to
 * this thread's own, joined. The results of all threads stay in `cells`. */
DEVICE REAL scan_down(REAL v, REAL *cells, int across) {
    const int t = (int)threadIdx.x;
    cells[t] = v;
    __syncthreads();
    for (int distance = across; distance < THREADS; distance *= 2) {
        const REAL other = t >= distance ? cells[t - distance] : START;
        __syncthreads();
        cells[t] = v = JOINED(other, v);
        __syncthreads();
    }
    return v;
}

#if IS_SUM

/* With p.out == NULL: the first launch, which writes only the sum of each piece. */
KERNEL(scan, cumsum_params) {
    __shared__ REAL cells[THREADS];
    const int across = (int)p.across, x = (int)threadIdx.x % across;
    const int down = THREADS / across, y = (int)threadIdx.x / across;
    const int64_t tiles = (p.inner + across - 1) / across;
    for (int64_t job = blockIdx.x; job < p.outer * p.pieces * tiles; job += gridDim.x) {
        const int64_t unit = job / tiles, column = job % tiles * across + x;
        const int64_t o = unit / p.pieces, piece = unit % p.pieces;
        const int64_t end = p.n * (piece + 1) / p.pieces;
        REAL *carry = (REAL *)p.carry + unit * p.inner + column;
        REAL before = START;
        if (p.out && piece > 0 && column < p.inner) before = carry[-p.inner];
        for (int64_t row = p.n * piece / p.pieces; row < end; row += down) {
            const int64_t at = (o * p.n + row + y) * p.inner + column;
            const int inside = row + y < end && column < p.inner;
            const REAL v = inside ? JOIN(load, IN)(((const JOIN(type, IN) *)p.in)[at]) : START;
            const REAL sum = JOINED(before, scan_down(v, cells, across));
            if (inside && p.out) ((JOIN(type, OUT) *)p.out)[at] = JOIN(store, OUT)(sum);
            before = JOINED(before, cells[THREADS - across + x]);
            __syncthreads();
        }
        if (!p.out && y == 0 && column < p.inner) *carry = before;
    }
}

#else

/* The gradient of a product: dx{i} = dy * product of the elements before i * product of those
 * after. Dividing the whole product by x{i} would fail for zeros. A block takes a group; its first
 * pass stores the products before each element, its second comes from the end with the products
 * after. */

DEVICE REAL element(const prod_grad_params *p, int64_t i) {
    return JOIN(load, IN)(((const JOIN(type, IN) *)p->x)[i]);
}

/* After scan_down: `before` times the elements of the threads before this one (an exclusive scan).
 */
DEVICE REAL exclusive(REAL before, const REAL *cells) {
    return threadIdx.x > 0 ? JOINED(before, cells[threadIdx.x - 1]) : before;
}

KERNEL(scan, prod_grad_params) {
    __shared__ REAL cells[THREADS];
    for (int64_t g = blockIdx.x; g < p.groups; g += gridDim.x) {
        REAL before = START, after = JOIN(load, IN)(((const JOIN(type, IN) *)p.dy)[g]);
        for (int64_t first = 0; first < p.n; first += THREADS) {
            const int64_t i = first + threadIdx.x;
            scan_down(i < p.n ? element(&p, g * p.n + i) : START, cells, 1);
            if (i < p.n) p.before[g * p.n + i] = exclusive(before, cells);
            before = JOINED(before, cells[THREADS - 1]);
            __syncthreads();
        }
        for (int64_t first = 0; first < p.n; first += THREADS) { /* from the end */
            const int64_t i = p.n - 1 - first - threadIdx.x, at = g * p.n + i;
            scan_down(i >= 0 ? element(&p, at) : START, cells, 1);
            if (i >= 0)
                ((JOIN(type, OUT) *)p.dx)[at] =
                    JOIN(store, OUT)(JOINED(p.before[at], exclusive(after, cells)));
            after = JOINED(after, cells[THREADS - 1]);
            __syncthreads();
        }
    }
}

#endif

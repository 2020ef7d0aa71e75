/* The cyclic Jacobi method: rotations of two axes at a time until all off-diagonal entries vanish.
 *
 * Source: Golub and Van Loan, Matrix Computations, section 8.5. */
#include "data/transforms/eigen.h"
#include <math.h>
#include <string.h>

enum { MOST_SWEEPS = 60 }; /* about ten are needed */

/* The sum of squares, of all entries or of those off the diagonal. */
static double squares(const double *a, int n, bool diagonal) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (diagonal || i != j) sum += a[i * n + j] * a[i * n + j];
    return sum;
}

static void rotate(double *restrict p, double *restrict q, int n, double c, double s) {
    for (int k = 0; k < n; k++) {
        const double x = p[k], y = q[k];
        p[k] = c * x - s * y;
        q[k] = s * x + c * y;
    }
}

/* Makes entry (p, q) zero. Rows are rotated as vectors, then columns by symmetry: only rows p and q
 * and columns p and q change. */
static void annihilate(double *a, double *vectors, int n, int p, int q) {
    const double apq = a[p * n + q];
    if (apq == 0) return;
    const double app = a[p * n + p], aqq = a[q * n + q];
    const double theta = (aqq - app) / (2 * apq);
    const double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;
    rotate(a + p * n, a + q * n, n, c, s);
    for (int k = 0; k < n; k++) {
        if (k == p || k == q) continue;
        a[k * n + p] = a[p * n + k];
        a[k * n + q] = a[q * n + k];
    }
    a[p * n + p] = app - t * apq;
    a[q * n + q] = aqq + t * apq;
    a[p * n + q] = a[q * n + p] = 0;
    rotate(vectors + p * n, vectors + q * n, n, c, s);
}

/* Largest eigenvalue first. */
static void sort(double *values, double *vectors, int n) {
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int k = i + 1; k < n; k++)
            if (values[k] > values[best]) best = k;
        const double value = values[i];
        values[i] = values[best];
        values[best] = value;
        for (int k = 0; k < n && best != i; k++) {
            const double v = vectors[i * n + k];
            vectors[i * n + k] = vectors[best * n + k];
            vectors[best * n + k] = v;
        }
    }
}

mg_status mg_eigen_symmetric(double *a, int n, double *values, double *vectors,
                             bool (*stop)(void)) {
    const double all = squares(a, n, true);
    if (!isfinite(all))
        return mg_fail(MG_NONFINITE, "whitening: the covariance of the images is not finite");
    memset(vectors, 0, sizeof *vectors * (size_t)n * (size_t)n);
    for (int i = 0; i < n; i++) vectors[i * n + i] = 1;
    for (int sweep = 0; sweep < MOST_SWEEPS && squares(a, n, false) > 1e-30 * all; sweep++)
        for (int p = 0; p < n - 1; p++) {
            if (stop && stop()) return mg_fail(MG_INTERRUPTED, "interrupted");
            for (int q = p + 1; q < n; q++) annihilate(a, vectors, n, p, q);
        }
    for (int i = 0; i < n; i++) values[i] = a[i * n + i];
    sort(values, vectors, n);
    return MG_OK;
}

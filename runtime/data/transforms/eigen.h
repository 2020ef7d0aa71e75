/* Eigenvalues of symmetric matrices, for whitening. */
#ifndef MG_DATA_TRANSFORMS_EIGEN_H
#define MG_DATA_TRANSFORMS_EIGEN_H

#include "core/status.h"
#include <stdbool.h>

/* The largest matrix: the time grows with n^3, to some ten seconds. */
enum { MG_EIGEN_MOST = 1024 };

/* Eigenvalues of the symmetric matrix a {n, n}, largest first, and eigenvectors as the rows of
 * vectors {n, n}; a is overwritten. stop() is called now and then: true ends it with
 * MG_INTERRUPTED. MG_NONFINITE: a is not finite. */
mg_status mg_eigen_symmetric(double *a, int n, double *values, double *vectors, bool (*stop)(void));

#endif

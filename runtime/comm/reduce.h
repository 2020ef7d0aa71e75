/* How two terms of a reduction are combined, element by element. */
#ifndef MG_COMM_REDUCE_H
#define MG_COMM_REDUCE_H

#include "core/dtype.h"
#include "core/placement.h"
#include <stdint.h>

/* acc[i] = acc[i] op in[i] for n elements, which do not overlap. NaN wins in a maximum or minimum.
 * Sums of integers wrap around; those of bool and of 16-bit floats are rounded after each call. */
void mg_reduce(void *acc, const void *in, int64_t n, mg_dtype t, enum mg_reduce_kind op);

#endif

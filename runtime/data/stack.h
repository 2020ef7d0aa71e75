/* Stacking: several tensors in host memory become one, along a new first axis. */
#ifndef MG_DATA_STACK_H
#define MG_DATA_STACK_H

#include "core/tensor.h"

/* A tensor of shape {n, cell...}: tensor i is copied into the corner of cell i, and what it does
 * not cover is filled with `fill`. The n >= 1 tensors are evaluated, in host memory, of the same
 * dtype, and of the cell's rank; none is larger than the cell. The result is on the first one's
 * device. Owned; NULL: MG_OOM, or MG_USAGE for tensors that break these rules. */
mg_tensor *mg_stack(mg_tensor *const *tensors, int64_t n, const mg_shape *cell, double fill);

#endif

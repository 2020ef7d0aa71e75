/* The list of op families: one line for each file of this folder that ends in a table of ops. A
 * family's name gives its file, ops/<family>.c, and its symbol, mg_ops_<family>.
 *
 * The order of the list is the order of mg_op_at and of the manual. */
#ifndef MG_OPS_OPS_H
#define MG_OPS_OPS_H

#include "ops/op.h"

#define MG_OP_FAMILIES(X)                                                                          \
    X(elementwise)                                                                                 \
    X(create)                                                                                      \
    X(reduce)                                                                                      \
    X(movement)                                                                                    \
    X(split)                                                                                       \
    X(matmul)                                                                                      \
    X(conv)                                                                                        \
    X(int8)                                                                                        \
    X(pool)                                                                                        \
    X(norm)                                                                                        \
    X(layer_norm)                                                                                  \
    X(softmax)                                                                                     \
    X(cross_entropy)                                                                               \
    X(gather)                                                                                      \
    X(along_axis)                                                                                  \
    X(resize)                                                                                      \
    X(transform)                                                                                   \
    X(spectrum)                                                                                    \
    X(loop)                                                                                        \
    X(recorded)                                                                                    \
    X(collective)                                                                                  \
    X(random)

#define X(family) extern const mg_op_family mg_ops_##family;
MG_OP_FAMILIES(X)
#undef X

#endif

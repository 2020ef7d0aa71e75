/* A set of tensors, to ask whether a tensor is in it. */
#ifndef MG_GRAPH_TENSOR_SET_H
#define MG_GRAPH_TENSOR_SET_H

#include "core/tensor.h"

typedef struct mg_tensor_set {
    mg_tensor **items; /* owned array of borrowed tensors, sorted by address */
    int n;
} mg_tensor_set;

/* The set may be freed in any case. */
mg_status mg_tensor_set_make(mg_tensor_set *s, mg_tensor *const *tensors, int n);
bool mg_tensor_set_has(const mg_tensor_set *s, const mg_tensor *t);
void mg_tensor_set_free(mg_tensor_set *s);

#endif

/* The labels of drawn images. */
#include "data/drawing_rng.h"
#include "core/alloc.h"

mg_status mg_drawing_labels(const mg_drawing_rng *r, int64_t n, int32_t *labels) {
    int64_t *order = mg_alloc((size_t)n * sizeof *order);
    if (!order) return MG_OOM;
    mg_permutation(order, n, r->seed, r->stream + 1, 0);
    for (int64_t i = 0; i < n; i++) labels[i] = (int32_t)(order[i] % 10);
    mg_free(order);
    return MG_OK;
}

/* Sets of tensors: see tensor_set.h. */
#include "graph/tensor_set.h"
#include "core/alloc.h"
#include <stdlib.h>

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) * (mg_tensor *const *)a,
                    y = (uintptr_t) * (mg_tensor *const *)b;
    return x < y ? -1 : x > y;
}

mg_status mg_tensor_set_make(mg_tensor_set *s, mg_tensor *const *tensors, int n) {
    *s = (mg_tensor_set){.items = mg_alloc((size_t)(n + 1) * sizeof *s->items), .n = n};
    if (!s->items) return MG_OOM;
    for (int i = 0; i < n; i++) s->items[i] = tensors[i];
    qsort(s->items, (size_t)n, sizeof *s->items, by_address);
    return MG_OK;
}

bool mg_tensor_set_has(const mg_tensor_set *s, const mg_tensor *t) {
    return bsearch(&t, s->items, (size_t)s->n, sizeof *s->items, by_address);
}

void mg_tensor_set_free(mg_tensor_set *s) {
    mg_free(s->items);
    *s = (mg_tensor_set){0};
}

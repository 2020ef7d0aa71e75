/* The reference kernel of scatter_add, for one type of number: see both_numbers.h. */

/* Adds in the order of the ids, so equal ids add up in the same order every time. */
static void NAME(scatter_ref)(const mg_ref *r) {
    const mg_scatter_attrs *a = r->attrs;
    const mg_axis_view v = picked_view(&r->shape, a->axis, &r->in_shape[1]);
    const int64_t count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i++) OUT[i] = 0;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < v.n; i++) {
            const NUMBER id = IN(1)[i];
            if (!(id >= 0 && id < (NUMBER)a->size)) continue;
            const NUMBER *dy = IN(0) + (o * v.n + i) * v.inner;
            NUMBER *dx = OUT + (o * a->size + (int64_t)id) * v.inner;
            for (int64_t j = 0; j < v.inner; j++) dx[j] = ADD(dx[j], dy[j]);
        }
}

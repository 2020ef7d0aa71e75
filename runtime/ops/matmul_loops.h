/* The reference kernel of matmul, for one type of number: see both_numbers.h. */

/* y {m, n} = a b for one pair of matrices. The inner loop runs along n. */
static void NAME(multiply_matrices)(const matmul_dims *p, const NUMBER *a, const NUMBER *b,
                                    NUMBER *y) {
    const int64_t a_row = p->turn_a ? 1 : p->k, a_inner = p->turn_a ? p->m : 1;
    const int64_t b_inner = p->turn_b ? 1 : p->n, b_column = p->turn_b ? p->k : 1;
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) y[i * p->n + j] = 0;
        for (int64_t l = 0; l < p->k; l++)
            for (int64_t j = 0; j < p->n; j++)
                y[i * p->n + j] = ADD(y[i * p->n + j], MULTIPLY(a[i * a_row + l * a_inner],
                                                                b[l * b_inner + j * b_column]));
    }
}

static void NAME(add_bias_and_relu)(const mg_ref *r, int64_t columns) {
    const int64_t count = mg_shape_count(&r->shape);
    const bool relu = ((const mg_matmul_attrs *)r->attrs)->relu;
    for (int64_t i = 0; i < count; i++) {
        if (r->n_inputs == 3) OUT[i] = ADD(OUT[i], IN(2)[i % columns]);
        if (relu && OUT[i] < 0) OUT[i] = 0;
    }
}

static void NAME(matmul_ref)(const mg_ref *r) {
    const matmul_dims p = matmul_dims_of(&r->in_shape[0], &r->in_shape[1], r->attrs);
    const mg_shape lead_a = leading_axes(&p.a), lead_b = leading_axes(&p.b);
    mg_shape batch = {0};
    mg_shape_broadcast(&lead_a, &lead_b, &batch, "matmul"); /* cannot fail: inference has done it */
    mg_index_walk at_a = {.shape = batch}, at_b = {.shape = batch};
    mg_shape_strides(&lead_a, &batch, at_a.stride);
    mg_shape_strides(&lead_b, &batch, at_b.stride);
    const int64_t n = mg_shape_count(&batch);
    for (int64_t i = 0; i < n; i++, mg_index_next(&at_a), mg_index_next(&at_b))
        NAME(multiply_matrices)
    (&p, IN(0) + at_a.offset * p.m * p.k, IN(1) + at_b.offset * p.k * p.n, OUT + i * p.m * p.n);
    NAME(add_bias_and_relu)(r, p.n);
}

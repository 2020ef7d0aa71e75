/* Reference kernels of the reductions, for one type of number: see both_numbers.h. */

/* Every element of the result begins as `start`; step(result, v) is then called for each element v
 * of its group, in row-major order. The walk goes over the input, with stride 0 in the result along
 * reduced axes. */
static void NAME(fold_elements)(const mg_ref *r, NUMBER start,
                                NUMBER (*step)(NUMBER sofar, NUMBER v)) {
    const mg_reduce_attrs *a = r->attrs;
    const mg_shape kept = kept_shape(&r->in_shape[0], &a->axes);
    const int64_t n_in = mg_shape_count(&r->in_shape[0]), n_out = mg_shape_count(&r->shape);
    mg_index_walk to = {.shape = r->in_shape[0]};
    mg_shape_strides(&kept, &r->in_shape[0], to.stride);
    for (int64_t i = 0; i < n_out; i++) OUT[i] = start;
    for (int64_t i = 0; i < n_in; i++, mg_index_next(&to))
        OUT[to.offset] = step(OUT[to.offset], IN(0)[i]);
}

/* The steps of fold_elements: each returns the new `sofar` after element v. */
static NUMBER NAME(sum_step)(NUMBER sofar, NUMBER v) {
    return ADD(sofar, v);
}

static NUMBER NAME(prod_step)(NUMBER sofar, NUMBER v) {
    return MULTIPLY(sofar, v);
}

/* v wins if it is larger or NaN. A NaN in sofar stays, because no comparison with it holds. */
static NUMBER NAME(max_step)(NUMBER sofar, NUMBER v) {
    return v > sofar || IS_NAN(v) ? v : sofar;
}

static NUMBER NAME(min_step)(NUMBER sofar, NUMBER v) {
    return v < sofar || IS_NAN(v) ? v : sofar;
}

static void NAME(sum_ref)(const mg_ref *r) {
    NAME(fold_elements)(r, 0, NAME(sum_step));
}

static void NAME(prod_ref)(const mg_ref *r) {
    NAME(fold_elements)(r, 1, NAME(prod_step));
}

static void NAME(max_ref)(const mg_ref *r) {
    NAME(fold_elements)(r, LEAST, NAME(max_step));
}

static void NAME(min_ref)(const mg_ref *r) {
    NAME(fold_elements)(r, MOST, NAME(min_step));
}

/* The position of the first NaN, or else of the first largest element, for argmin the smallest. */
static void NAME(arg_ref)(const mg_ref *r, bool largest) {
    const mg_axis_view v =
        mg_axis_view_of(&r->in_shape[0], ((const mg_axis_attrs *)r->attrs)->axis);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t j = 0; j < v.inner; j++) {
            const NUMBER *x = IN(0) + o * v.n * v.inner + j;
            int64_t best = 0;
            for (int64_t i = 1; i < v.n; i++) {
                const NUMBER now = x[i * v.inner], top = x[best * v.inner];
                const bool wins = largest ? now > top : now < top;
                if (wins || (IS_NAN(now) && !IS_NAN(top))) best = i;
            }
            OUT[o * v.inner + j] = (NUMBER)best;
        }
}

static void NAME(argmax_ref)(const mg_ref *r) {
    NAME(arg_ref)(r, true);
}

static void NAME(argmin_ref)(const mg_ref *r) {
    NAME(arg_ref)(r, false);
}

/* Each element is the sum of those before it along the axis and itself. */
static void NAME(cumsum_ref)(const mg_ref *r) {
    const mg_axis_view v = mg_axis_view_of(&r->shape, ((const mg_axis_attrs *)r->attrs)->axis);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t j = 0; j < v.inner; j++) {
            NUMBER sum = 0;
            for (int64_t i = 0; i < v.n; i++) {
                const int64_t at = (o * v.n + i) * v.inner + j;
                OUT[at] = sum = ADD(sum, IN(0)[at]);
            }
        }
}

/* The reference kernel of linear_scan, for one type of number: see both_numbers.h. */

static void NAME(scan_ref)(const mg_ref *r) {
    const mg_axis_view v = mg_axis_view_of(&r->shape, ((const mg_axis_attrs *)r->attrs)->axis);
    for (int64_t k = 0; k < v.outer * v.inner; k++) {
        int64_t at = k / v.inner * v.n * v.inner + k % v.inner;
        NUMBER s = 0;
        for (int64_t i = 0; i < v.n; i++, at += v.inner)
            OUT[at] = s = i ? ADD(MULTIPLY(IN(0)[at], s), IN(1)[at]) : IN(1)[at];
    }
}

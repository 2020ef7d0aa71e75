/* Sort keys: unsigned integers that compare in the order in which argsort puts the elements. Used
 * by argsort's kernels. */
#ifndef MG_OPS_SORT_FORMULAS_H
#define MG_OPS_SORT_FORMULAS_H

#include <stdint.h>

#ifndef MG_FORMULA
#define MG_FORMULA static inline
#endif

/* The key of a floating-point number with bits u, of which `sign` is the highest: ascending, or
 * descending if `flip`. -0 equals 0, and NaN comes last in either order. */
MG_FORMULA uint64_t mg_sort_key_of_float(uint64_t u, uint64_t sign, int is_nan, int flip) {
    const uint64_t all = sign | (sign - 1);
    if (is_nan) return all;
    if (u == sign) u = 0;
    u = u & sign ? ~u & all : u | sign;
    return flip ? ~u & all : u;
}

/* The same for an integer; sign is 0 if it has none, and `all` has the bits of its type. */
MG_FORMULA uint64_t mg_sort_key_of_integer(uint64_t u, uint64_t sign, uint64_t all, int flip) {
    u = (u ^ sign) & all;
    return flip ? ~u & all : u;
}

#endif

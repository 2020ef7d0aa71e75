/* Shapes: counting, broadcasting, strides, text. */
#include "core/shape.h"
#include <stdio.h>
#include <string.h>

/* Sizes behind the rank are 0, so shapes can be compared and hashed as bytes. mg_shape_check
 * refuses a rank that is out of range. */
mg_shape mg_shape_of(int rank, const int64_t *dims) {
    mg_shape s = {.rank = rank};
    if (rank > 0 && rank <= MG_MAX_RANK) memcpy(s.dim, dims, (size_t)rank * sizeof *dims);
    return s;
}

/* Sizes behind the rank are not compared. */
bool mg_shape_equal(const mg_shape *a, const mg_shape *b) {
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

/* The product of all sizes; 1 for a scalar. mg_shape_check has made sure that it fits. */
int64_t mg_shape_count(const mg_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

/* `who` begins the message. The limit leaves room for 16 bytes per element, so that byte counts fit
 * int64_t too. */
mg_status mg_shape_check(const mg_shape *s, const char *who) {
    int64_t largest = 1; /* sizes other than 0 must fit even if another is 0 */
    if (s->rank < 0 || s->rank > MG_MAX_RANK)
        return mg_fail(MG_USAGE, "%s: a shape has 0 to %d axes, got %d", who, MG_MAX_RANK, s->rank);
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0)
            return mg_fail(MG_USAGE, "%s: shape %s: sizes must not be negative", who,
                           MG_SHAPE_TEXT(s));
        if (s->dim[i] > 0 && __builtin_mul_overflow(largest, s->dim[i], &largest))
            return mg_fail(MG_USAGE, "%s: shape %s: too many elements", who, MG_SHAPE_TEXT(s));
    }
    if (largest > INT64_MAX / 16)
        return mg_fail(MG_USAGE, "%s: shape %s: too many elements", who, MG_SHAPE_TEXT(s));
    return MG_OK;
}

/* Axes are matched from the last on; a missing axis counts as 1. */
mg_status mg_shape_broadcast(const mg_shape *a, const mg_shape *b, mg_shape *out, const char *who) {
    mg_shape s = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 0; i < s.rank; i++) {
        /* each operand's own number of axis i, negative where it has none */
        const int ia = i - (s.rank - a->rank), ib = i - (s.rank - b->rank);
        const int64_t da = ia >= 0 ? a->dim[ia] : 1, db = ib >= 0 ? b->dim[ib] : 1;
        if (da != db && da != 1 && db != 1)
            return mg_fail(MG_USAGE,
                           "%s: shapes %s and %s do not broadcast: axis %d is %lld against "
                           "%lld",
                           who, MG_SHAPE_TEXT(a), MG_SHAPE_TEXT(b), i + 1, (long long)da,
                           (long long)db);
        s.dim[i] = da == 1 ? db : da; /* 0 against 1 gives 0 */
    }
    *out = s;
    return MG_OK;
}

/* A stride of 0 repeats the one entry of a broadcast axis. */
void mg_shape_strides(const mg_shape *s, const mg_shape *over, int64_t *strides) {
    const int rank = over ? over->rank : s->rank, lead = rank - s->rank;
    int64_t step = 1; /* elements between neighbours along the axis */
    for (int i = rank - 1; i >= 0; i--) {
        const int64_t size = i >= lead ? s->dim[i - lead] : 1;
        const bool repeats = i < lead || (over && size == 1 && over->dim[i] != 1);
        strides[i] = repeats ? 0 : step;
        step *= size;
    }
}

/* Cut off at `size` bytes, and always terminated. */
char *mg_shape_text(const mg_shape *s, char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, "{");
    for (int i = 0; i < s->rank && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? ", " : "", (long long)s->dim[i]);
    if (n < size) snprintf(text + n, size - n, "}");
    return text;
}

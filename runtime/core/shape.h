/* Shapes: up to eight axes, outermost first, row-major. C axes are 0-based; Lua's are 1-based. */
#ifndef MG_CORE_SHAPE_H
#define MG_CORE_SHAPE_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MG_MAX_RANK 8

typedef struct mg_shape {
    int32_t rank;
    int32_t unused; /* zero, so that memcmp compares shapes */
    int64_t dim[MG_MAX_RANK];
} mg_shape;

/* MG_SHAPE(2, 3): a literal. MG_SHAPE() is the scalar. */
#define MG_SHAPE(...)                                                                              \
    mg_shape_of((int)(sizeof((int64_t[]){0, ##__VA_ARGS__}) / sizeof(int64_t)) - 1,                \
                (const int64_t[]){0, ##__VA_ARGS__} + 1)
mg_shape mg_shape_of(int rank, const int64_t *dims);
bool mg_shape_equal(const mg_shape *a, const mg_shape *b);
int64_t mg_shape_count(const mg_shape *s);
/* Checks that every size is >= 0 and that the element count fits; MG_USAGE otherwise. */
mg_status mg_shape_check(const mg_shape *s, const char *who);
/* NumPy broadcasting; MG_USAGE naming both shapes if they do not match. */
mg_status mg_shape_broadcast(const mg_shape *a, const mg_shape *b, mg_shape *out, const char *who);
/* Row-major strides in elements; broadcast axes (size 1 in s, more in `over`) get stride 0.
 * `over` may be NULL. Writes over->rank (or s->rank) strides, aligned to the right. */
void mg_shape_strides(const mg_shape *s, const mg_shape *over, int64_t *strides);
/* "{2, 3}"; writes at most size bytes and returns text. */
char *mg_shape_text(const mg_shape *s, char *text, size_t size);
#define MG_SHAPE_TEXT(s) mg_shape_text((s), (char[192]){0}, 192)

#endif

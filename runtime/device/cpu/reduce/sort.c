/* argsort: the positions that put lines of elements in order; threads share the lines.
 *
 * Each element is mapped to an unsigned integer that compares as the sort orders the elements, with
 * NaN last in either direction (ops/sort_formulas.h). So one radix sort of pairs of key and
 * position serves all dtypes and both directions, and it is stable. If only a few of the first
 * positions are wanted, a heap holds the best so far. */
#include "core/alloc.h"
#include "device/cpu/reduce/reduce.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include "ops/sort_formulas.h"
#include <omp.h>
#include <string.h>

enum { DIGITS = 256, MOST_DIGITS = 8, FEW = 40 /* entries that are sorted by insertion */ };

typedef struct entry {
    uint64_t key;
    uint32_t at;
} entry;

typedef struct state {
    int team;
    int64_t room; /* entries of scratch for each thread */
} state;

/* A line of n elements, `step` elements apart. */
typedef struct line {
    const char *x;
    mg_dtype dtype;
    int64_t n, step;
    bool descending;
} line;

/* ---- keys ---- */

static uint64_t key_of_float(float v, bool flip) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return mg_sort_key_of_float(u, 1u << 31, v != v, flip);
}

static uint64_t key_of_double(double v, bool flip) {
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return mg_sort_key_of_float(u, 1ull << 63, v != v, flip);
}

/* The key of element i. */
static uint64_t key_at(const line *l, int64_t i) {
    const void *x = l->x + i * l->step * (int64_t)mg_dtype_size(l->dtype);
    const bool flip = l->descending;
    double v;
    switch (l->dtype) {
    case MG_F32: return key_of_float(*(const float *)x, flip);
    case MG_F64: return key_of_double(*(const double *)x, flip);
    case MG_I32: return mg_sort_key_of_integer(*(const uint32_t *)x, 1u << 31, UINT32_MAX, flip);
    case MG_I64: return mg_sort_key_of_integer(*(const uint64_t *)x, 1ull << 63, UINT64_MAX, flip);
    case MG_U8: return mg_sort_key_of_integer(*(const uint8_t *)x, 0, UINT8_MAX, flip);
    case MG_BOOL: return mg_sort_key_of_integer(*(const uint8_t *)x != 0, 0, UINT8_MAX, flip);
    default: /* float16 and bfloat16, which are exact in float */
        mg_to_double(&v, x, l->dtype, 1);
        return key_of_float((float)v, flip);
    }
}

/* Bytes of a key. */
static int key_bytes(mg_dtype t) {
    const int size = (int)mg_dtype_size(t);
    return mg_dtype_is_half(t) ? (int)sizeof(float) : size;
}

/* ---- sorting ---- */

static bool is_before(const entry *a, const entry *b) {
    return a->key != b->key ? a->key < b->key : a->at < b->at;
}

static void insertion_sort(entry *e, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const entry moving = e[i];
        int64_t k = i;
        for (; k > 0 && is_before(&moving, &e[k - 1]); k--) e[k] = e[k - 1];
        e[k] = moving;
    }
}

/* Sorts e by the keys' bytes, the lowest byte first, by way of `other`; returns the one of the two
 * arrays that has the result. A byte that is equal in all keys is only counted. */
static entry *radix_sort(entry *e, entry *other, int64_t n, int bytes) {
    int64_t count[MOST_DIGITS][DIGITS] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < bytes; b++) count[b][e[i].key >> 8 * b & 255]++;
    for (int b = 0; b < bytes; b++) {
        int64_t first = 0;
        if (count[b][e[0].key >> 8 * b & 255] == n) continue;
        for (int d = 0; d < DIGITS; d++) {
            const int64_t here = count[b][d];
            count[b][d] = first;
            first += here;
        }
        for (int64_t i = 0; i < n; i++) other[count[b][e[i].key >> 8 * b & 255]++] = e[i];
        entry *swapped = e;
        e = other;
        other = swapped;
    }
    return e;
}

/* Moves entry i of a heap of n entries down to its place. The entry that is last in order is at the
 * top. */
static void sink(entry *e, int64_t i, int64_t n) {
    const entry moving = e[i];
    for (int64_t below = 2 * i + 1; below < n; i = below, below = 2 * i + 1) {
        if (below + 1 < n && is_before(&e[below], &e[below + 1])) below++;
        if (!is_before(&moving, &e[below])) break;
        e[i] = e[below];
    }
    e[i] = moving;
}

/* Finds the first `count` entries of a line in order, with a heap. */
static entry *first_entries(const line *l, int64_t count, entry *e) {
    for (int64_t i = 0; i < count; i++) e[i] = (entry){key_at(l, i), (uint32_t)i};
    for (int64_t i = count / 2 - 1; i >= 0; i--) sink(e, i, count);
    for (int64_t i = count; i < l->n && count > 0; i++) {
        const uint64_t key = key_at(l, i);
        if (key >= e[0].key) continue; /* of equal keys, the earlier element comes first */
        e[0] = (entry){key, (uint32_t)i};
        sink(e, 0, count);
    }
    for (int64_t last = count - 1; last > 0; last--) {
        const entry top = e[0];
        e[0] = e[last];
        e[last] = top;
        sink(e, 0, last);
    }
    return e;
}

/* Whether so few positions are wanted that a heap is faster than a sort. */
static bool wants_few(const line *l, int64_t count) {
    return count <= l->n / 16;
}

static entry *sort_line(const line *l, int64_t count, entry *e) {
    if (wants_few(l, count)) return first_entries(l, count, e);
    for (int64_t i = 0; i < l->n; i++) e[i] = (entry){key_at(l, i), (uint32_t)i};
    if (l->n > FEW) return radix_sort(e, e + l->n, l->n, key_bytes(l->dtype));
    insertion_sort(e, l->n);
    return e;
}

/* ---- the kernel ---- */

static mg_status sort_prepare(mg_kernel_plan *plan) {
    const mg_sort_attrs *a = plan->step->attrs;
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    size_t bytes;
    if (!s) return MG_OOM;
    s->team = mg_cpu_team(4 * mg_count(&plan->in[0]));
    s->room = 2 * plan->in[0].value->shape.dim[a->axis];
    if (!mg_size_mul((size_t)s->room, sizeof(entry), &bytes) ||
        !mg_size_mul(bytes, (size_t)s->team, &plan->scratch))
        return mg_fail(MG_OOM, "argsort: the axis is too long");
    return MG_OK;
}

static mg_status sort_run(const mg_call *call) {
    const mg_sort_attrs *a = call->plan->step->attrs;
    const mg_value *x = call->plan->in[0].value;
    const mg_axis_view v = mg_axis_view_of(&x->shape, a->axis);
    const state *s = call->plan->state;
#pragma omp parallel num_threads(s->team)
    {
        entry *room = (entry *)call->scratch + omp_get_thread_num() * s->room;
#pragma omp for schedule(static)
        for (int64_t k = 0; k < v.outer * v.inner; k++) {
            const int64_t o = k / v.inner, j = k % v.inner;
            const line l = {.x = (const char *)call->in[0] +
                                 (o * v.n * v.inner + j) * (int64_t)mg_dtype_size(x->dtype),
                            .dtype = x->dtype,
                            .n = v.n,
                            .step = v.inner,
                            .descending = a->descending};
            int32_t *at = (int32_t *)call->out[0] + o * a->count * v.inner + j;
            if (v.n == 0) continue;
            const entry *sorted = sort_line(&l, a->count, room);
            for (int64_t i = 0; i < a->count; i++) at[i * v.inner] = (int32_t)sorted[i].at;
        }
    }
    return MG_OK;
}

const mg_kernel mg_cpu_argsort = {.op = "argsort",
                                  .name = "argsort",
                                  .prepare = sort_prepare,
                                  .run = sort_run,
                                  .release = mg_free};

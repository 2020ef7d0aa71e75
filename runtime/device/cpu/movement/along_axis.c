/* take_along_axis, scatter_along_axis, scatter_last and linear_scan: loops along one axis of a
 * tensor seen as {outer, n, inner}. Threads share blocks of columns, never the axis itself, so that
 * the order of additions does not depend on the number of threads. */
#include "device/cpu/movement/movement.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <math.h>
#include <string.h>

static const char *accepts_real(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

/* Id number i. Ids may have any integer dtype. */
static int64_t id_at(const void *ids, mg_dtype t, int64_t i) {
    switch (t) {
    case MG_I64: return ((const int64_t *)ids)[i];
    case MG_I32: return ((const int32_t *)ids)[i];
    default: return ((const uint8_t *)ids)[i];
    }
}

/* The operands of a take or a scatter, seen along the axis. */
typedef struct picking {
    mg_axis_view whole, ids; /* whole: the tensor that the ids index; ids: {outer, k, 1 or inner} */
    const void *id;
    mg_dtype dtype; /* of the ids */
    bool rows;      /* an id picks a whole row of `inner` elements */
} picking;

static picking picking_of(const mg_call *call, const mg_shape *whole, int64_t axis) {
    const mg_value *ids = call->plan->in[1].value;
    picking p = {.whole = mg_axis_view_of(whole, axis),
                 .ids = mg_axis_view_of(&ids->shape, axis),
                 .id = call->in[1],
                 .dtype = ids->dtype};
    p.rows = p.ids.inner == 1;
    return p;
}

/* ---- take_along_axis ---- */

/* Fills n elements with the one at `value`. */
static void fill_row(char *y, const void *value, int64_t n, size_t size) {
    for (int64_t j = 0; j < n; j++) memcpy(y + j * (int64_t)size, value, size);
}

/* The elements that row r of the ids picks, for elements of one size. */
#define TAKE(type)                                                                                 \
    static void take_##type(const picking *p, int64_t r, const void *from, const void *nothing,    \
                            void *to) {                                                            \
        const type *x = (const type *)from + r / p->ids.n * p->whole.n * p->whole.inner;           \
        type *y = (type *)to + r * p->whole.inner, none = *(const type *)nothing;                  \
        for (int64_t j = 0; j < p->whole.inner; j++) {                                             \
            const int64_t id = id_at(p->id, p->dtype, p->rows ? r : r * p->ids.inner + j);         \
            y[j] = id >= 0 && id < p->whole.n ? x[id * p->whole.inner + j] : none;                 \
        }                                                                                          \
    }
TAKE(uint8_t)
TAKE(uint16_t)
TAKE(uint32_t)
TAKE(uint64_t)

/* A whole row of `bytes`, for one id. */
static void take_row(const picking *p, int64_t r, const void *from, const void *nothing, void *to,
                     size_t size) {
    const int64_t id = id_at(p->id, p->dtype, r), bytes = p->whole.inner * (int64_t)size;
    char *y = (char *)to + r * bytes;
    if (id >= 0 && id < p->whole.n)
        memcpy(y, (const char *)from + (r / p->ids.n * p->whole.n + id) * bytes, (size_t)bytes);
    else
        fill_row(y, nothing, p->whole.inner, size);
}

static mg_status take_run(const mg_call *call) {
    const mg_value *x = call->plan->in[0].value;
    const picking p =
        picking_of(call, &x->shape, ((const mg_axis_attrs *)call->plan->step->attrs)->axis);
    const size_t size = mg_dtype_size(x->dtype);
    const int64_t rows = p.ids.outer * p.ids.n;
    const double none = mg_dtype_is_float(x->dtype) ? NAN : 0;
    uint64_t nothing[1];
    mg_from_double(nothing, &none, x->dtype, 1);
#pragma omp parallel for schedule(static) if (rows * p.whole.inner > MG_SERIAL_BELOW)
    for (int64_t r = 0; r < rows; r++) {
        if (p.rows && p.whole.inner > 4) {
            take_row(&p, r, call->in[0], nothing, call->out[0], size);
            continue;
        }
        switch (size) {
        case 1: take_uint8_t(&p, r, call->in[0], nothing, call->out[0]); break;
        case 2: take_uint16_t(&p, r, call->in[0], nothing, call->out[0]); break;
        case 4: take_uint32_t(&p, r, call->in[0], nothing, call->out[0]); break;
        default: take_uint64_t(&p, r, call->in[0], nothing, call->out[0]); break;
        }
    }
    return MG_OK;
}

/* ---- scatter_along_axis ---- */

/* Columns first .. end - 1 of block o of the result, for one type. */
#define SCATTER(type)                                                                              \
    static void scatter_##type(const picking *p, int64_t o, int64_t first, int64_t end,            \
                               const void *from, void *to) {                                       \
        const int64_t inner = p->whole.inner;                                                      \
        const type *dy = (const type *)from + o * p->ids.n * inner;                                \
        type *dx = (type *)to + o * p->whole.n * inner;                                            \
        for (int64_t i = 0; i < p->whole.n; i++)                                                   \
            memset(dx + i * inner + first, 0, (size_t)(end - first) * sizeof *dx);                 \
        for (int64_t i = 0; i < p->ids.n; i++)                                                     \
            for (int64_t j = first; j < end; j++) {                                                \
                const int64_t r = o * p->ids.n + i;                                                \
                const int64_t id = id_at(p->id, p->dtype, p->rows ? r : r * p->ids.inner + j);     \
                if (id >= 0 && id < p->whole.n) dx[id * inner + j] += dy[i * inner + j];           \
            }                                                                                      \
    }
SCATTER(float)
SCATTER(double)

static mg_status scatter_run(const mg_call *call) {
    const mg_value *dx = call->plan->out[0].value;
    const picking p =
        picking_of(call, &dx->shape, ((const mg_scatter_attrs *)call->plan->step->attrs)->axis);
    const int64_t tiles = (p.whole.inner + MG_TILE - 1) / MG_TILE;
    const int64_t work = mg_count(&call->plan->in[0]) + mg_count(&call->plan->out[0]);
#pragma omp parallel for schedule(static) if (work > MG_SERIAL_BELOW)
    for (int64_t unit = 0; unit < p.whole.outer * tiles; unit++) {
        const int64_t first = unit % tiles * MG_TILE;
        const int64_t end = first + MG_TILE < p.whole.inner ? first + MG_TILE : p.whole.inner;
        if (dx->dtype == MG_F64)
            scatter_double(&p, unit / tiles, first, end, call->in[0], call->out[0]);
        else
            scatter_float(&p, unit / tiles, first, end, call->in[0], call->out[0]);
    }
    return MG_OK;
}

/* ---- scatter_last ---- */

static mg_status last_run(const mg_call *call) {
    const mg_value *ids = call->plan->in[0].value;
    const int64_t n = mg_count(&call->plan->in[0]), size = mg_count(&call->plan->out[0]);
    int32_t *last = call->out[0];
    for (int64_t i = 0; i < size; i++) last[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = id_at(call->in[0], ids->dtype, i);
        if (id >= 0 && id < size) last[id] = (int32_t)i;
    }
    return MG_OK;
}

/* ---- linear_scan ---- */

#define SCAN(type)                                                                                 \
    static void scan_##type(const mg_axis_view *v, int64_t at, int64_t width, const void *first,   \
                            const void *second, void *to) {                                        \
        const type *a = (const type *)first + at, *b = (const type *)second + at;                  \
        type *s = (type *)to + at;                                                                 \
        for (int64_t i = 0; i < v->n; i++)                                                         \
            for (int64_t j = 0; j < width; j++) {                                                  \
                const int64_t k = i * v->inner + j;                                                \
                s[k] = i ? a[k] * s[k - v->inner] + b[k] : b[k];                                   \
            }                                                                                      \
    }
SCAN(float)
SCAN(double)

static mg_status scan_run(const mg_call *call) {
    const mg_value *s = call->plan->out[0].value;
    const mg_axis_view v =
        mg_axis_view_of(&s->shape, ((const mg_axis_attrs *)call->plan->step->attrs)->axis);
    const int64_t tiles = (v.inner + MG_TILE - 1) / MG_TILE;
#pragma omp parallel for schedule(static) if (v.outer * v.n * v.inner > MG_SERIAL_BELOW)
    for (int64_t unit = 0; unit < v.outer * tiles; unit++) {
        const int64_t first = unit % tiles * MG_TILE, left = v.inner - first;
        const int64_t at = unit / tiles * v.n * v.inner + first;
        const int64_t width = left < MG_TILE ? left : MG_TILE;
        if (s->dtype == MG_F64)
            scan_double(&v, at, width, call->in[0], call->in[1], call->out[0]);
        else
            scan_float(&v, at, width, call->in[0], call->in[1], call->out[0]);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_take_along_axis = {
    .op = "take_along_axis", .name = "take_along_axis", .run = take_run};
const mg_kernel mg_cpu_scatter_along_axis = {.op = "scatter_along_axis",
                                             .name = "scatter_along_axis",
                                             .accepts = accepts_real,
                                             .run = scatter_run};
const mg_kernel mg_cpu_scatter_last = {
    .op = "scatter_last", .name = "scatter_last", .run = last_run};
const mg_kernel mg_cpu_linear_scan = {
    .op = "linear_scan", .name = "linear_scan", .accepts = accepts_real, .run = scan_run};

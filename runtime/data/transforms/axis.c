/* Tables of input positions and weights for resizing, cropping, flipping, shifting and zooming. */
#include "data/transforms/axis.h"
#include "core/alloc.h"
#include <assert.h>
#include <string.h>

static mg_status allocate(mg_axis *a, int64_t n, int taps) {
    assert(n >= 1 && taps >= 1);
    *a = (mg_axis){.n = n, .taps = taps};
    size_t entries, bytes;
    if (!mg_size_mul((size_t)n, (size_t)taps, &entries) ||
        !mg_size_mul(entries, sizeof(float), &bytes))
        return mg_fail(MG_OOM, "augment: a resize of %lld positions is too large", (long long)n);
    a->index = mg_alloc(bytes);
    if (a->index && taps > 1) a->weight = mg_alloc(bytes);
    if (a->index && (taps == 1 || a->weight)) return MG_OK;
    mg_axis_free(a);
    return MG_OOM;
}

void mg_axis_free(mg_axis *a) {
    mg_free(a->index);
    mg_free(a->weight);
    *a = (mg_axis){0};
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

mg_status mg_axis_identity(mg_axis *a, int64_t n) {
    MG_TRY(allocate(a, n, 1));
    for (int64_t i = 0; i < n; i++) a->index[i] = (int32_t)i;
    return MG_OK;
}

/* ---- resizing ---- */

/* Computed in float like TensorFlow, to choose the same neighbor if two are equally near. */
static mg_status resize_nearest(mg_axis *a, int64_t in, int64_t n) {
    const float scale = (float)in / (float)n;
    MG_TRY(allocate(a, n, 1));
    for (int64_t i = 0; i < n; i++) {
        const float at = floorf(((float)i + 0.5f) * scale);
        a->index[i] = (int32_t)clamp((int64_t)at, 0, in - 1);
    }
    return MG_OK;
}

/* Each entry has the most taps that one can have; unused taps repeat the last position with weight
 * 0. One tap would be a copy, so there are two at least. */
static mg_status resize_weighted(mg_axis *a, const mg_resize_axis *line) {
    const double span = line->kind == MG_RESIZE_AREA
                            ? mg_resize_scale(line) + 1
                            : 2 * mg_resize_radius(line) * mg_resize_width(line);
    const int64_t most = clamp((int64_t)ceil(span), 2, line->from > 2 ? line->from : 2);
    int64_t first, last;
    MG_TRY(allocate(a, line->to, (int)most));
    for (int64_t i = 0; i < line->to; i++) {
        int32_t *index = a->index + i * most;
        float *weight = a->weight + i * most, sum = 0;
        mg_resize_cells(line, i, &first, &last);
        for (int64_t t = 0; t < most; t++) {
            const int64_t at = first + t;
            index[t] = (int32_t)(at < last ? at : last);
            weight[t] = at <= last ? (float)mg_resize_kernel(line, i, at) : 0;
            sum += weight[t];
        }
        for (int64_t t = 0; t < most; t++) weight[t] /= sum;
    }
    return MG_OK;
}

mg_status mg_axis_resize(mg_axis *a, int64_t first, int64_t in, int64_t n, int kind,
                         bool antialias) {
    const mg_resize_axis line = {.from = in, .to = n, .kind = kind, .antialias = antialias};
    *a = (mg_axis){0};
    if (in == n)
        MG_TRY(mg_axis_identity(a, n));
    else if (kind == MG_RESIZE_NEAREST)
        MG_TRY(resize_nearest(a, in, n));
    else
        MG_TRY(resize_weighted(a, &line));
    for (int64_t i = 0; i < a->n * a->taps; i++) a->index[i] += (int32_t)first;
    return MG_OK;
}

/* ---- affine maps ---- */

static mg_status affine_nearest(mg_axis *a, int64_t in, int64_t n, double scale, double offset,
                                mg_fill fill) {
    MG_TRY(allocate(a, n, 1));
    for (int64_t i = 0; i < n; i++) {
        double at = scale * (double)i + offset;
        const bool inside = mg_fill_coordinate(&at, in, fill);
        a->index[i] = inside ? (int32_t)clamp((int64_t)floor(at + 0.5), 0, in - 1) : -1;
    }
    return MG_OK;
}

mg_status mg_axis_affine(mg_axis *a, int64_t in, int64_t n, double scale, double offset,
                         mg_interpolation method, mg_fill fill) {
    const bool copies = scale == rint(scale) && offset == rint(offset);
    if (method == MG_NEAREST || copies) return affine_nearest(a, in, n, scale, offset, fill);
    MG_TRY(allocate(a, n, 2));
    for (int64_t i = 0; i < n; i++) {
        double at = scale * (double)i + offset;
        const bool inside = mg_fill_coordinate(&at, in, fill);
        const double low = floor(at);
        a->index[2 * i] = inside ? (int32_t)clamp((int64_t)low, 0, in - 1) : -1;
        a->index[2 * i + 1] = inside ? (int32_t)clamp((int64_t)low + 1, 0, in - 1) : 0;
        a->weight[2 * i + 1] = inside ? (float)(at - low) : 0;
        a->weight[2 * i] = 1 - a->weight[2 * i + 1];
    }
    return MG_OK;
}

/* ---- changes of a table ---- */

mg_status mg_axis_crop(mg_axis *a, int64_t first, int64_t n, mg_fill fill) {
    mg_axis cut;
    const size_t taps = (size_t)a->taps;
    MG_TRY(allocate(&cut, n, a->taps));
    for (int64_t i = 0; i < n; i++) {
        double at = (double)(first + i);
        if (!mg_fill_coordinate(&at, a->n, fill)) {
            memset(cut.index + i * a->taps, 0, taps * sizeof *cut.index);
            if (cut.weight) memset(cut.weight + i * a->taps, 0, taps * sizeof *cut.weight);
            cut.index[i * a->taps] = -1;
            continue;
        }
        const int64_t from = (int64_t)at * a->taps;
        memcpy(cut.index + i * a->taps, a->index + from, taps * sizeof *cut.index);
        if (cut.weight)
            memcpy(cut.weight + i * a->taps, a->weight + from, taps * sizeof *cut.weight);
    }
    mg_axis_free(a);
    *a = cut;
    return MG_OK;
}

void mg_axis_flip(mg_axis *a) {
    for (int64_t i = 0, j = a->n - 1; i < j; i++, j--) {
        for (int t = 0; t < a->taps; t++) {
            const int64_t p = i * a->taps + t, q = j * a->taps + t;
            const int32_t index = a->index[p];
            a->index[p] = a->index[q];
            a->index[q] = index;
            if (!a->weight) continue;
            const float weight = a->weight[p];
            a->weight[p] = a->weight[q];
            a->weight[q] = weight;
        }
    }
}

void mg_axis_span(const mg_axis *a, int64_t *first, int64_t *n) {
    int32_t least = INT32_MAX, most = -1;
    for (int64_t i = 0; i < a->n; i++) {
        const int32_t *index = a->index + i * a->taps;
        for (int t = 0; t < a->taps && index[0] >= 0; t++) {
            least = index[t] < least ? index[t] : least;
            most = index[t] > most ? index[t] : most;
        }
    }
    *first = most < 0 ? 0 : least;
    *n = most < 0 ? 1 : most - least + 1;
}

/* Which cells of an axis make a cell of the resized axis, and with what weights: the formulas of
 * image_resize on every device.
 *
 * Cell o of the result lies at (o + 0.5) * from / to - 0.5 of the source: cells are squares that
 * tile the image, not points. The weights of the cells around it are those of a kernel, divided by
 * their sum over the cells that exist, so that a border needs no rule of its own. Weights are made
 * in double; compile without contraction to fused multiply-add, or the cells may differ. */
#ifndef MG_OPS_RESIZE_FORMULAS_H
#define MG_OPS_RESIZE_FORMULAS_H

#include <math.h>
#include <stdint.h>

#ifndef MG_FORMULA
#define MG_FORMULA static inline
#endif

enum mg_resize_kind {
    MG_RESIZE_NEAREST,
    MG_RESIZE_BILINEAR,
    MG_RESIZE_BICUBIC,
    MG_RESIZE_AREA,
    MG_RESIZE_LANCZOS3,
    MG_RESIZE_LANCZOS5
};

typedef struct mg_resize_axis {
    long long from, to; /* cells of the source and of the result, at least 1 */
    int kind;           /* enum mg_resize_kind */
    int antialias;      /* where the axis shrinks, the kernel is widened to cover all cells */
} mg_resize_axis;

MG_FORMULA double mg_resize_scale(const mg_resize_axis *a) {
    return (double)a->from / (double)a->to;
}

/* The position of cell o of the result on the source's axis. */
MG_FORMULA double mg_resize_position(const mg_resize_axis *a, int64_t o) {
    return ((double)o + 0.5) * mg_resize_scale(a) - 0.5;
}

/* How much wider than a cell the kernel is. */
MG_FORMULA double mg_resize_width(const mg_resize_axis *a) {
    return a->antialias && a->from > a->to ? mg_resize_scale(a) : 1;
}

/* The distance, in widths, from which on the kernel is 0. */
MG_FORMULA double mg_resize_radius(const mg_resize_axis *a) {
    if (a->kind == MG_RESIZE_LANCZOS3) return 3;
    if (a->kind == MG_RESIZE_LANCZOS5) return 5;
    return a->kind == MG_RESIZE_BICUBIC ? 2 : 1;
}

/* Sets first .. last, the cells that make cell o: at least one. Both are non-decreasing in o. */
MG_FORMULA void mg_resize_cells(const mg_resize_axis *a, int64_t o, int64_t *first, int64_t *last) {
    double low, high; /* the cells strictly between */
    if (a->kind == MG_RESIZE_NEAREST) {
        *first = *last = (2 * o + 1) * a->from / (2 * a->to);
        return;
    }
    if (a->kind == MG_RESIZE_AREA) {
        low = floor((double)o * mg_resize_scale(a)) - 1;
        high = ceil((double)(o + 1) * mg_resize_scale(a));
    } else {
        const double reach = mg_resize_radius(a) * mg_resize_width(a);
        low = floor(mg_resize_position(a, o) - reach);
        high = ceil(mg_resize_position(a, o) + reach);
    }
    *first = low < 0 ? 0 : (int64_t)low + 1;
    *last = high > (double)a->from ? a->from - 1 : (int64_t)high - 1;
}

/* Keys' cubic convolution (1981) with a = -0.5, at distance d >= 0. */
MG_FORMULA double mg_resize_cubic(double d) {
    if (d < 1) return (1.5 * d - 2.5) * d * d + 1;
    return d < 2 ? ((-0.5 * d + 2.5) * d - 4) * d + 2 : 0;
}

/* The Lanczos kernel (Duchon 1979), sinc(d) sinc(d / radius), at distance d >= 0; 1 up to 1e-3, as
 * in TensorFlow and JAX. */
MG_FORMULA double mg_resize_lanczos(double d, double radius) {
    const double angle = 3.14159265358979323846 * d;
    if (d <= 1e-3) return 1;
    return d < radius ? radius * sin(angle) * sin(angle / radius) / (angle * angle) : 0;
}

/* The kernel of cell i for cell o. */
MG_FORMULA double mg_resize_kernel(const mg_resize_axis *a, int64_t o, int64_t i) {
    if (a->kind == MG_RESIZE_NEAREST) return 1;
    if (a->kind == MG_RESIZE_AREA) { /* the part of cell i that cell o covers */
        const double begin = (double)o * mg_resize_scale(a);
        const double end = (double)(o + 1) * mg_resize_scale(a);
        const double low = begin > (double)i ? begin : (double)i;
        const double high = end < (double)(i + 1) ? end : (double)(i + 1);
        return high > low ? high - low : 0;
    }
    const double d = fabs((double)i - mg_resize_position(a, o)) / mg_resize_width(a);
    if (a->kind == MG_RESIZE_BICUBIC) return mg_resize_cubic(d);
    if (a->kind == MG_RESIZE_BILINEAR) return d < 1 ? 1 - d : 0;
    return mg_resize_lanczos(d, mg_resize_radius(a));
}

/* The sum of the kernel over the cells of o, by which mg_resize_kernel is divided. */
MG_FORMULA double mg_resize_sum(const mg_resize_axis *a, int64_t o) {
    int64_t first, last;
    double sum = 0;
    mg_resize_cells(a, o, &first, &last);
    for (int64_t i = first; i <= last; i++) sum += mg_resize_kernel(a, o, i);
    return sum;
}

/* Sets first .. last, the cells of the result that cell i of the source is part of: none if first >
 * last. By bisection, because the cells of o are non-decreasing in o. */
MG_FORMULA void mg_resize_users(const mg_resize_axis *a, int64_t i, int64_t *first, int64_t *last) {
    int64_t low = 0, high = a->to, from, to;
    while (low < high) { /* the first o whose last cell is not before i */
        const int64_t o = (low + high) / 2;
        mg_resize_cells(a, o, &from, &to);
        if (to >= i)
            high = o;
        else
            low = o + 1;
    }
    *first = low;
    for (high = a->to; low < high;) { /* the first o whose cells all lie behind i */
        const int64_t o = (low + high) / 2;
        mg_resize_cells(a, o, &from, &to);
        if (from > i)
            high = o;
        else
            low = o + 1;
    }
    *last = low - 1;
}

#endif
